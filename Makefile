# Everything runs from .venv, which the first target that needs it makes and pyproject.toml or constraints.txt renew.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: run test lint acceptance

run: $(STAMP)  ## prove, race and confirm a candidate on this machine's CPU; evidence in a folder of its own
	GFAST_WAREHOUSE=warehouse/runs/$$(date -u +%Y%m%dT%H%M%SZ) $(BIN)/gfast race v001 --contract cpu_fp32

test: lint  ## what every change must pass
	$(BIN)/python -m pytest -m "not gpu and not acceptance"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

acceptance: test  ## and the whole pipeline, driven from outside
	$(BIN)/python -m pytest -m acceptance

# torch's CUDA build insists on the triton of its own release, its CPU build on none: where only the former is to be
# had, triton follows torch, which is said aloud and stands in every session's scope.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench,dev]" || { \
	  echo "The pinned set does not resolve here; trying again with the triton that this torch asks for." >&2; \
	  grep -v '^triton==' constraints.txt > .venv/constraints.txt && \
	  $(BIN)/pip install --quiet --disable-pip-version-check -c .venv/constraints.txt -e ".[bench,dev]"; }
	touch $@
