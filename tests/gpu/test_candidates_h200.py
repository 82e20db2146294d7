"""Every candidate and peer we ship on a real card: right, its outputs its own, and kept outputs unharmed.

Torch and the standard library only. As a script `python tests/gpu/test_candidates_h200.py [CASE …]` prints a line for
each; it fails where an implementation is wrong. Compiled peers take a minute or more a case.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import tomllib
from pathlib import Path

import torch

try:
    import pytest
except ImportError:  # the script needs none
    pytest = None

ROOT = Path(__file__).resolve().parents[2]
KERNEL = ROOT / "kernels" / "transformer_layer"
FILES = sorted([*(KERNEL / "candidates").glob("v*.py"), *(KERNEL / "peers").glob("*.py")])
CASES = (2, 9, 12)

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


def _load(name: str, path: Path):
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def trouble(path: Path, number: int) -> list[str]:
    """What is wrong with the implementation at `path` on the official case `number`, in words."""
    from gfast_pipeline.bench import gate, oracles

    device = torch.device("cuda")
    workload = _load("shipped_reference", KERNEL / "reference.py")
    emulation = _load("gate_emulation", ROOT / "tests" / "bench" / "emulation.py")
    contract = tomllib.loads((KERNEL / "contracts" / "h200_fp32.toml").read_text())
    case = emulation.case_of(contract, number, device, 1 << 30)
    module = _load(path.stem, path)
    if not getattr(module, "supports", lambda _: True)(case):
        return []
    torch.set_float32_matmul_precision(contract["target"]["matmul_precision"])
    bad = []
    with torch.inference_mode():
        state = {k: v.to(device) for k, v in workload.draw_weights(case, "official", 1234).items()}
        oracle = oracles.Oracle(workload, case, state, device)
        handed_out = oracles.Oracle(workload, case, state, device).model
        forward = module.build(handed_out, case, {})
        kept = []
        for variant in contract["variants"]:
            x, valid = workload.draw_inputs(case, variant["seed"], variant["scale"], variant["padding"], device)
            y = forward(x, valid)
            facts = gate.output_facts(y, x.shape, torch.float32, device, [x, valid], state, [k for _, k, _ in kept])
            if facts:
                bad.append(f"{variant['name']}: {facts}")
                continue
            y64 = oracle.y64((x, valid))
            u = gate.share(oracle.reference((x, valid)), y64, 0.002, 0.02)
            share, limit = gate.share(y, y64, 0.002, 0.02), gate.anchored_limit(u, 3.0)
            if not share <= limit:
                bad.append(f"{variant['name']}: share {share:.3g} of {limit:.3g}")
            kept.append((variant["name"], y, y.clone()))
        bad += [f"{name}: a kept output changed" for name, y, copy in kept if not torch.equal(y, copy)]
        changed = [name for name, value in handed_out.state_dict().items() if not torch.equal(value, state[name])]
        bad += [f"weight {name} was changed" for name in changed]
    return bad


if pytest is not None:
    absent = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900), absent]

    @pytest.mark.parametrize("number", CASES)
    @pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
    def test_it_is_right_and_its_outputs_are_its_own(path, number):
        assert trouble(path, number) == []


def main(numbers: list[int]) -> int:
    """One line for each implementation and case; 1 where any is wrong."""
    wrong = 0
    for number in numbers:
        for path in FILES:
            began = time.perf_counter()
            try:
                bad = trouble(path, number)
            except Exception as error:
                bad = [f"{type(error).__name__}: {error}"]
            wrong += bool(bad)
            text = "; ".join(bad) or "right"
            print(f"case {number} {path.stem} ({time.perf_counter() - began:.1f} s): {text[:500]}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main([int(text) for text in sys.argv[1:]] or list(CASES)))
