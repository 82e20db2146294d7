# Everything runs from .venv, which the first target that needs it makes and pyproject.toml or constraints.txt renew.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: run ui test lint acceptance bench bundles

run: $(STAMP)  ## the whole lineage on this machine's CPU, from candidate files to the compiled submission
	$(BIN)/gfast run --contract cpu_fp32

ui: $(STAMP)  ## Dagster at http://localhost:3000, its sensors running: a candidate file that lands is judged and raced
	DAGSTER_HOME=$(or $(GFAST_WAREHOUSE),$(CURDIR)/warehouse) PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/dg dev $(if $(PORT),--port $(PORT))

test: lint  ## what every change must pass
	$(BIN)/python -m pytest -m "not gpu and not acceptance"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

acceptance: test  ## and the whole pipeline, driven from outside; one after another, for they measure
	$(BIN)/python -m pytest -m acceptance -n 0

# One sealed file a session, each to be run with `python FILE run OUT` where the card is, in this order.
BUNDLES := warehouse/bundles
SEAL := $(BIN)/gfast bundle create --contract h200_fp32
bundles: $(STAMP)  ## seal the sessions that make up the evidence of the H200
	rm -rf $(BUNDLES) && mkdir -p $(BUNDLES)
	$(SEAL) $(BUNDLES)/1_ceilings.py --kind ceilings
	$(SEAL) $(BUNDLES)/2_probe.py --kind probe --candidate v003 --candidate v002 --cases 2,8,13
	$(SEAL) $(BUNDLES)/3_parity.py --kind parity --candidate sdpa_fp16 --candidate sdpa_fp16_graph --cases 1,8,13
	$(SEAL) $(BUNDLES)/4_noise_v000.py --kind noise --candidate v000 --cases 2,6,8,13
	$(SEAL) $(BUNDLES)/5_noise_v003.py --kind noise --candidate v003 --cases 2,6,8,13
	$(SEAL) $(BUNDLES)/6_serial.py --kind serial --candidate v001 --candidate v003
	$(SEAL) $(BUNDLES)/7_race_v003.py --kind decide --candidate v003
	for peer in sdpa_fp16_graph encoder_layer_native compile_default compile_reduce_overhead compile_max_autotune; do \
	  $(SEAL) $(BUNDLES)/8_peer_$$peer.py --kind peers --candidate $$peer; done

bench: $(STAMP)  ## how fast the ledger is, a million samples: medians and intervals
	$(BIN)/python -m tests.benchmarks.ledger

# torch's CUDA build insists on the triton of its own release, its CPU build on none: where only the former is to be
# had, triton follows torch, which is said aloud and stands in every session's scope.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench,pipeline,plots,dev]" || { \
	  echo "The pinned set does not resolve here; trying again with the triton that this torch asks for." >&2; \
	  grep -v '^triton==' constraints.txt > .venv/constraints.txt && \
	  $(BIN)/pip install --quiet --disable-pip-version-check -c .venv/constraints.txt -e ".[bench,pipeline,plots,dev]"; }
	touch $@
