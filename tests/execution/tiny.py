"""The race of v001 under the contract `tiny`: its job, a made-up session of it, and another machine to run it on."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gfast_pipeline.bench.messages import Job, Session, Visit, digest, to_plain
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.execution import jobs

V001 = "v001_fused_qkv_sdpa"


def race(loaded: Loaded) -> Job:
    shop = loaded.workload
    return jobs.race(loaded, "decide", shop.candidate("v001"), shop.candidate("v000"), shop.candidate("v000"), [])


def result(loaded: Loaded, **changes: Any) -> Session:
    """A complete session of `race`, as a judge would hand it back, with made-up times."""
    job = race(loaded)
    cells = [[generation, case] for generation in range(job.generations) for case in job.cases]
    visits = [
        Visit(plan.name, case, g, block, turn, 0, mode, 3, [10.0, 11.0, 12.5], 60.0, 50.0, 20.0)
        for g, case in cells
        for block in range(job.blocks)
        for turn in range(2)
        for mode in job.modes
        for plan in job.plans
    ]
    participants = [
        {key: value for key, value in to_plain(plan).items() if key in ("name", "role", "candidate_hash", "schedules")}
        | {"plan_hash": plan.plan_hash}
        for plan in job.plans
    ]
    whole = Session(
        job.kind, job.workload, job.contract_name, job.contract_hash, digest(to_plain(job)), 7, "2026-12-01T00:00:00Z",
        scope={"protocol": 1}, participants=participants, cases=job.cases, generations=job.generations,
        blocks=job.blocks, modes=job.modes, cells_done=cells, visits=visits,
    )  # fmt: skip
    return dataclasses.replace(whole, **changes)


class Elsewhere:
    """A folder that stands for another machine: of this repository nothing on the path but a broken package."""

    def __init__(self, root: Path) -> None:
        self.home, self.scratch, trap = root / "home", root / "scratch", root / "trap" / "gfast_pipeline"
        for folder in (self.home, self.scratch, trap):
            folder.mkdir(parents=True)
        (trap / "__init__.py").write_text("raise ImportError('this is not the package of the bundle')\n")
        # TMPDIR holds the device's lease too: other tests may measure on this CPU meanwhile
        self.variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(trap.parent), "HOME": str(self.home)}
        self.variables["TMPDIR"] = str(self.scratch)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = [sys.executable, *arguments]
        return subprocess.Popen(command, cwd=self.home, env=self.variables, stdout=pipe, stderr=pipe, text=True)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        said, complained = process.communicate(timeout=120)
        return process.returncode, said, complained
