"""What a machine can do for gfast, as one JSON object. `python -m gfast_pipeline.bench.doctor cpu|cuda`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

import torch

from gfast_pipeline.bench import environment, isolation
from gfast_pipeline.bench.places import bench_zip


def examine(kind: str) -> dict[str, Any]:
    """Scope and state of the device of this kind; `problems` are sentences, empty where all is well."""
    if kind == "cuda" and not torch.cuda.is_available():
        return {"device": kind, "scope": None, "problems": ["torch sees no CUDA device here"]}
    device = torch.device(kind)
    problems = []
    busy = environment.foreign_work(device)
    if busy:
        problems.append(f"the device is busy: {busy}")
    try:
        environment.lease(device).close()
    except environment.Busy as error:
        problems.append(str(error))
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        try:
            rung = isolation.best_rung(False, bench_zip(folder))
        except isolation.IsolationError as error:
            rung = "none"
            problems.append(str(error))
    unhealthy = environment.healthy(device)
    if unhealthy:
        problems.append(unhealthy)
    return {
        "device": kind,
        "scope": environment.scope(device),
        "snapshot": environment.snapshot(device),
        "isolation": rung,
        "compiler": environment.tool("nvcc") if kind == "cuda" else environment.tool("cc"),
        "problems": problems,
    }


if __name__ == "__main__":
    print(json.dumps(examine(sys.argv[1] if len(sys.argv) > 1 else "cpu")))
