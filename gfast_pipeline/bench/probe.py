"""What the protocol hangs on: does isolation hold here, what does a switch cost, how far do processes differ.

`gfast doctor --device`. An A/A session of the job's plans over its generations, and beside it in `measured`: first-call
penalty after a switch with all contexts alive, handshakes, start-up and compile seconds, operations in flight.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import torch

from gfast_pipeline.bench.judge import Judge
from gfast_pipeline.bench.participant import Participant
from gfast_pipeline.bench.timing import Cell

SWITCHES = 6
_COMPILE = (
    "import time, torch, triton; from gfast_pipeline.bench.spin import scale\n"
    "x = torch.zeros(4096, device='cuda'); y = torch.empty_like(x); torch.cuda.synchronize()\n"
    "began = time.perf_counter()\n"
    "scale[(4,)](x, y, 4096, 2.0, 1024); torch.cuda.synchronize(); print(time.perf_counter() - began)\n"
)


class Probe(Judge):
    """A judge that also measures what the protocol itself costs."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.penalties: dict[str, list[float]] = {}

    def afterwards(self) -> None:
        """The probe's own figures, into `measured`."""
        session, measured = self.session, self.session.measured
        for name, found in self.penalties.items():
            measured[f"first_call_penalty_us/{name}"] = round(statistics.median(found), 2)
        handshakes = sorted(v.handshake_us for v in session.visits)
        if handshakes:
            measured["handshake_us"] = {"median": statistics.median(handshakes), "largest": handshakes[-1]}
        startups = [p.seconds for p in session.phases if p.phase == "startup" and p.generation is not None]
        measured["startup_s"] = [round(s, 2) for s in startups]
        measured["rung"] = session.isolation
        if self.device.type == "cuda":
            measured["operations_in_flight"] = in_flight()
            measured["compile_s"] = compile_seconds()

    def after_cell(self, cell: Cell, present: list[Participant]) -> None:
        """First call after a switch against the later ones, with every context alive."""
        if cell.generation:
            return
        for _ in range(SWITCHES):
            for participant in present:
                if participant.name not in self.out:
                    cell.attempt(participant, self._switch, cell)

    def _switch(self, participant: Participant, cell: Cell) -> None:
        answer, _, _ = cell.turn(participant, "official", min(6, cell.bay.most_calls), 0.0, untimed=0)
        events = answer["events"]
        key = f"{participant.name}/{cell.case}"
        self.penalties.setdefault(key, []).append(events[0] - statistics.median(events[1:]))


def in_flight() -> int:
    """How many operations one stream holds behind a spin before the host blocks."""
    x = torch.zeros(32, device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    torch.cuda._sleep(1_000_000_000)
    for count in range(5000):
        began = time.perf_counter()
        x.add_(1)
        if time.perf_counter() - began > 0.02:
            torch.cuda.synchronize()
            return count
    torch.cuda.synchronize()
    return 5000


def compile_seconds() -> dict[str, Any]:
    """Seconds of a first Triton launch in a fresh process: with an empty cache, then with a filled one."""
    found = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cold", "cached"):
            path = os.pathsep.join(entry for entry in sys.path if entry)
            done = subprocess.run(
                [sys.executable, "-c", _COMPILE],
                env={**os.environ, "TRITON_CACHE_DIR": cache, "PYTHONPATH": path},
                capture_output=True,
                text=True,
                timeout=120,
            )
            found[name] = round(float(done.stdout), 3) if done.returncode == 0 else done.stderr.strip()[-200:]
    return found
