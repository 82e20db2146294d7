"""The gate on a real card: honest precisions pass every draw, variant and structured input, wrong ones are refused.

The reference runs at the contract's precision (TF32); float32, TF32 and fp16 operands are real kernels, the rest is
emulated with products at "highest". Torch and the standard library only. As a script, `python
tests/gpu/test_gate_h200.py OUT.json` prints the table, writes every row and exits 1 where the gate is wrong; under
pytest on a machine without our plugins add `-c /dev/null -m gpu`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
import time
import tomllib
from contextlib import contextmanager
from pathlib import Path

import torch

try:
    import pytest
except ImportError:  # the script needs none
    pytest = None

ROOT = Path(__file__).resolve().parents[2]
KERNEL = ROOT / "kernels" / "transformer_layer"
CASES = (1, 7, 8, 9, 11, 12, 13)
MOST = 16
HONEST = ("fp32", "tf32_sdpa", "fp16_graph", "fp16")
WRONG = ("tf32_trunc", "bf16", "uniform", "no_last_ffn")

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


def _load(name: str, path: Path):
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def precision(name: str):
    """float32 products at `name` inside, as they were afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def measure(device: torch.device) -> list:
    """Every implementation on every input of every case, as rows."""
    from gfast_pipeline.bench import gate, oracles

    emulation = _load("gate_emulation", ROOT / "tests" / "bench" / "emulation.py")
    workload = _load("gate_reference", KERNEL / "reference.py")
    v001 = _load("gate_v001", KERNEL / "candidates" / "v001_fused_qkv_sdpa.py")
    v003 = _load("gate_v003", KERNEL / "candidates" / "v003_fp16_operands_graph.py")
    contract = tomllib.loads((KERNEL / "contracts" / "h200_fp32.toml").read_text())
    high = contract["target"]["matmul_precision"]

    def at(name: str, forward):
        def run(x, valid):
            with precision(name):
                return forward(x, valid)

        return run

    rows = []
    for number in CASES:
        began = time.perf_counter()
        case = emulation.case_of(contract, number, device, MOST)

        def make_oracle(state, case=case):
            return oracles.Oracle(workload, case, state, device).y64

        def make(state, case=case):
            model = oracles.Oracle(workload, case, state, device).model
            emulated = {
                name: lambda x, valid, name=name: emulation.forward(state, case, x, valid, emulation.EMULATED[name])
                for name in ("fp16", *WRONG)
            }
            found = {
                "fp32": at("highest", model),
                "tf32_sdpa": at(high, v001.build(model, case, {})),
                "fp16_graph": at(high, v003.build(model, case, {})),
                **{name: at("highest", forward) for name, forward in emulated.items()},
            }
            return at(high, model), found

        with torch.inference_mode():
            rows += emulation.assess(contract, case, device, workload, gate, make_oracle, make)
        print(f"case {number}: {time.perf_counter() - began:.1f} s", flush=True)
    print(emulation.table(rows), flush=True)
    return rows


def wrong_verdicts(rows: list) -> list[str]:
    """What the gate got wrong, in words: an honest row refused, or a wrong implementation never refused on a case."""
    bad = [
        f"{r.name} refused: case {r.case} {r.draw} {r.variant}, {r.share:.3g} of {r.limit:.3g}, official {r.official}"
        for r in rows
        if r.name in HONEST and not r.passed
    ]
    for name in WRONG:
        for case in CASES:
            if all(r.passed for r in rows if r.name == name and r.case == case):
                bad.append(f"{name} never refused on case {case}")
    return bad


if pytest is not None:
    absent = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600), absent]

    @pytest.fixture(scope="module")
    def rows():
        return measure(torch.device("cuda"))

    @pytest.mark.parametrize("name", HONEST)
    def test_an_honest_precision_passes_everywhere(rows, name):
        own = [row for row in rows if row.name == name]
        assert own and [row for row in own if not row.passed] == []

    @pytest.mark.parametrize("name", WRONG)
    def test_a_wrong_implementation_is_refused_on_every_case(rows, name):
        for case in CASES:
            assert [row for row in rows if row.name == name and row.case == case and not row.passed]

    def test_the_reference_really_runs_in_tf32(rows):
        """Else every share of the reference would be near zero and the anchored gate would not be tested."""
        assert max(row.reference_share for row in rows if row.variant == "trial") > 0.05


def main(out: str) -> int:
    """Measure, write `out`, say what is wrong."""
    rows = measure(torch.device("cuda"))
    bad = wrong_verdicts(rows)
    text = json.dumps({"rows": [dataclasses.asdict(row) for row in rows], "wrong": bad})
    Path(out).write_text(text.replace("Infinity", "1e300"))
    print("\n".join(bad) if bad else "the gate is right on every row")
    return 1 if bad else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python tests/gpu/test_gate_h200.py OUT.json")
    raise SystemExit(main(sys.argv[1]))
