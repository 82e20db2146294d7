"""Portfolios compiled and imported as a user would: candidates made for a test, holders with invented figures."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.contract.workload import Source
from gfast_pipeline.submission.compile import compile_to, portfolio


def candidate(loaded: Loaded, number: int, body: str) -> Source:
    """Write candidates/vNNN_made.py and read it."""
    path = loaded.workload.folder / "candidates" / f"v{number:03}_made.py"
    path.write_text(f'"""v{number:03}: made for a test."""\n{body}\n')
    return loaded.workload.candidate(path.stem)


def holders(loaded: Loaded, plans: dict[int, str], **more: Any) -> dict[str, Any]:
    """A `holders` payload: case → candidate, with invented figures."""
    rows = []
    for case in loaded.contract.cases:
        if case.id not in plans:
            continue
        source = loaded.workload.candidate(plans[case.id])
        row = {
            "case": case.id, "status": case.status, "plan": source.name, "candidate_hash": source.sha256,
            "plan_hash": source.plan("challenger", [case.id]).plan_hash, "since": None, "official_us": 70.5,
            "queued_us": None, "reference_us": 141.0, "ratio_to_reference": 2.0, "ratio_low": 1.9, "ratio_high": 2.1,
            "best_peer": "compile_default", "best_peer_us": 90.0, "ratio_to_best_peer": 1.27, "sessions": [],
        }  # fmt: skip
        rows.append({**row, **more})
    return {
        "workload": loaded.contract.workload, "contract_name": loaded.name, "contract_hash": loaded.hash,
        "scope": {"accelerator": {"name": "cpu"}, "software": {"torch": "2"}, "protocol": 1}, "cases": rows,
        "contested": [],
    }  # fmt: skip


def compiled(loaded: Loaded, plans: dict[int, str], generalist: str, path: Path | None = None) -> ModuleType:
    """The submission of these holders, compiled and imported."""
    made = portfolio(loaded, holders(loaded, plans), loaded.workload.candidate(generalist))
    path = path or loaded.workload.folder / "submission.py"
    compile_to(loaded, made, path)
    return imported(path)


def imported(path: Path) -> ModuleType:
    name = f"submission_{abs(hash(str(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
