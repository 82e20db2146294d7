"""One million samples in the ledger: how long appending, `champions` and verifying take. Prints a table.

Run from the repository's root: python -m tests.benchmarks.ledger [samples] [repeats]
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gfast_pipeline.bench.messages import Session, Verdict, Visit
from gfast_pipeline.ledger import evidence, index, query, verify
from gfast_pipeline.ledger.sessions import append_session

TARGETS_S = {"append and take in": 5.0, "champions": 0.5, "verify": 15.0}
ROLES = {
    "reference": "reference", "v000_identity": "control", "v001_fused_qkv_sdpa": "incumbent", "twin": "twin",
    "v002_sdpa_graph": "challenger",
}  # fmt: skip
SPEED = {"reference": 5.0, "v000_identity": 5.0, "v001_fused_qkv_sdpa": 1.1, "twin": 1.1, "v002_sdpa_graph": 1.0}
CASES = range(1, 14)
GENERATIONS, BLOCKS, CALLS = 4, 4, 24
GATES = ("build", "call", "output", "official", "budget", "anchored", "determinism", "sensitivity")


def session(number: int) -> Session:
    """A deciding session with jitter as a card shows it: about 100,000 samples, each a multiple of 32 ns."""
    rng = random.Random(number)
    visits = []
    for generation in range(GENERATIONS):
        for case in CASES:
            for place in range(2 * BLOCKS):
                for position, name in enumerate(rng.sample(list(ROLES), len(ROLES))):
                    for mode in ("official", "queued"):
                        centre = 100.0 * case**1.5 * SPEED[name] * rng.gauss(1, 0.002)
                        us = [round(centre * (1 + abs(rng.gauss(0, 0.003))) / 0.032) * 0.032 for _ in range(CALLS)]
                        wall = sum(us) * 1.01 + rng.uniform(60, 90)
                        visits.append(Visit(
                            name, case, generation, place // 2, place % 2, position, mode, CALLS, us, wall,
                            wall - rng.uniform(20, 40), rng.uniform(90, 160), host_us=rng.uniform(108, 112),
                        ))  # fmt: skip
    verdicts = [
        Verdict(gate, "passed", name, case, "official", "randn", share=rng.random(), limit=1.0)
        for gate in GATES for name in ROLES for case in CASES
    ]  # fmt: skip
    return Session(
        "decide", "transformer_layer", "h200_fp32", "c" * 64, f"job{number}", number,
        f"2026-11-30T{number % 24:02d}:00:00Z", f"2026-11-30T{number % 24:02d}:04:00Z",
        scope={"protocol": 1, "accelerator": {"name": "NVIDIA H200"}},
        participants=[
            {"name": name, "role": role, "candidate_hash": f"h-{name}", "plan_hash": f"p-{name}", "schedules": {}}
            for name, role in ROLES.items()
        ],
        cases=list(CASES), generations=GENERATIONS, blocks=BLOCKS, modes=["official", "queued"],
        cells_done=[[g, c] for g in range(GENERATIONS) for c in CASES], verdicts=verdicts, visits=visits,
    )  # fmt: skip


def main(samples: int = 1_000_000, repeats: int = 5) -> int:
    """Returns 1 when a median misses its target."""
    one = session(0)
    each = sum(len(visit.event_us or []) for visit in one.visits)
    made = [one, *(session(number) for number in range(1, -(-samples // each)))]
    times: dict[str, list[float]] = {name: [] for name in TARGETS_S}
    sizes: list[int] = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="gfast-benchmark-") as folder:
            os.environ["GFAST_WAREHOUSE"] = folder
            times["append and take in"].append(_timed(lambda: ([append_session(s) for s in made], index.sync())))
            sizes = [entry.path.stat().st_size for entry in evidence.entries()]
            times["champions"].append(_timed(lambda: _must(len(query.ask("champions").rows) == len(CASES))))
            times["verify"].append(_timed(lambda: _must(verify.verify() == [])))
            ledger = (Path(folder) / "gfast.duckdb").stat().st_size
    print(
        f"{each * len(made):,} samples in {len(made)} sessions of {max(sizes) / 1e3:.0f} kB at most; the ledger is "
        f"{ledger / 1e6:.0f} MB; {repeats} repeats"
    )
    table = Table("what", "median", "least", "most", "target", "")
    good = True
    for name, seconds in times.items():
        met = statistics.median(seconds) < TARGETS_S[name]
        good &= met
        shown = (f"{value:.3f} s" for value in (statistics.median(seconds), min(seconds), max(seconds)))
        table.add_row(name, *shown, f"< {TARGETS_S[name]:g} s", "met" if met else "missed")
    Console().print(table)
    return 0 if good else 1


def _timed(what: Callable[[], object]) -> float:
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def _must(held: bool) -> None:
    if not held:
        raise SystemExit("the ledger does not say what was put in")


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
