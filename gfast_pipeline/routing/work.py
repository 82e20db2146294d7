"""What a workload counts of its cases: FLOP, bytes, exponentials, and the length of the dependent chain.

Loads kernels/<workload>/reference.py, which imports torch, and phases.py, which does not, when asked and not before.
Knows no device and no session.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from gfast_pipeline.contract.errors import WorkloadError
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.contract.schema import Case

NEEDED = ("flop", "bytes", "weight_bytes", "exponentials", "output_bytes")


def work_of(loaded: Loaded) -> dict[int, dict[str, int]]:
    """case → what `work(case)` of the reference counts (flop, bytes, weight_bytes, exponentials, output_bytes), and
    `phases`, 0 for a workload without a phases.py. Raises WorkloadError for a file that cannot be used."""
    path = loaded.workload.reference_path
    reference = _module(path, f"gfast_work_{loaded.workload.name}")
    beside = loaded.workload.folder / "phases.py"
    phases = _module(beside, f"gfast_phases_{loaded.workload.name}").phases if beside.is_file() else lambda case: 0
    found = {}
    for case in loaded.contract.cases:
        record = _record(case, loaded)
        counted = _asked(path, reference.work, record, case)
        lacking = [name for name in NEEDED if name not in counted] if isinstance(counted, Mapping) else list(NEEDED)
        if lacking:
            raise WorkloadError(f"{path}: work(case {case.id}) gives no {', '.join(lacking)}. Have it count them.")
        found[case.id] = {**counted, "phases": int(_asked(beside, phases, record, case))}
    return found


def _asked(path: Path, function: Any, record: Any, case: Case) -> Any:
    try:
        return function(record)
    except Exception as error:  # whatever a workload's own code may raise
        name = getattr(function, "__name__", "work")
        message = f"{path}: {name}(case {case.id}) raised {type(error).__name__}: {error}."
        raise WorkloadError(f"{message} Correct it, or the case's shape in the contract.") from None


def _record(case: Case, loaded: Loaded) -> Any:
    target = loaded.contract.target
    place = SimpleNamespace(type=target.device, name=target.accelerator, capability=None)
    precision = {"dtype": target.dtype, "matmul_precision": target.matmul_precision}
    return SimpleNamespace(id=case.id, **case.shape, **precision, device=place)


def _module(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise WorkloadError(f"{path}: no Python file. Write it.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        _ = module.phases if path.name == "phases.py" else module.work
    except Exception as error:
        message = f"{path}: cannot be used: {type(error).__name__}: {error}."
        raise WorkloadError(f"{message} It may need torch, and has to define work(case) or phases(case).") from None
    return module
