"""Sessions made from a noise model, for tests: base · factor · process effect · block effect · call noise."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from gfast_pipeline.bench.messages import Session, Verdict, Visit
from gfast_pipeline.evaluation.validity import PROVED

REFERENCE, CONTROL, INCUMBENT, TWIN, CHALLENGER = "reference", "v000_identity", "v003_fused", "twin", "v007_faster"
ROLES = {
    REFERENCE: "reference", CONTROL: "control", INCUMBENT: "incumbent", TWIN: "twin", CHALLENGER: "challenger",
    "compile_default": "peer",
}  # fmt: skip
BASE_US = {1: 30.0, 2: 24.0, 6: 900.0, 7: 41.0, 14: 5e6}
FACTORS = {REFERENCE: 2.0, CONTROL: 2.0, INCUMBENT: 1.0, TWIN: 1.0, CHALLENGER: 1.0, "compile_default": 1.5}


def contract(
    cases: Mapping[int, float] | None = None,
    *,
    device: str = "cuda",
    promotion: Sequence[str] = ("official", "queued"),
    margin: float = 0.01,
    max_noise: float = 0.03,
) -> dict[str, Any]:
    """The parts of a contract that a decision reads; `cases` maps id to weight. Case 14 is feasibility only."""
    weights = {1: 1.0, 2: 1.0, 7: 1.0} if cases is None else cases
    return {
        "name": "test", "workload": "transformer_layer", "target": {"device": device},
        "cases": [
            *({"id": case, "status": "scored", "weight": weight} for case, weight in weights.items()),
            {"id": 14, "status": "feasibility", "weight": 1.0},
        ],
        "mode": {"headline": "official", "promotion": list(promotion), "gap": "queued"},
        "margin": margin, "max_noise": max_noise, "publish_sessions": 2, "thresholds": {"screen_advance": 0.99},
    }  # fmt: skip


def session(
    factors: Mapping[str, float] | None = None,
    *,
    kind: str = "decide",
    seed: int = 1,
    cases: Sequence[int] = (1, 2, 7),
    generations: int = 4,
    blocks: int = 5,
    modes: Sequence[str] = ("official", "queued"),
    process: float = 0.001,
    block: float = 0.001,
    call: float = 0.002,
    calls: int = 3,
    started: str | None = None,
    queued_factors: Mapping[str, float] | None = None,
) -> Session:
    """A complete session. `process`, `block`, `call` are standard deviations of logs; a process effect is shared by
    all cases of one participant's process, a block effect by nobody."""
    rng = random.Random(seed)
    speed = {**FACTORS, **(factors or {})}
    effects = {(name, g): rng.gauss(0, process) for name in ROLES for g in range(generations)}
    visits = []
    for generation in range(generations):
        for case in cases:
            for index in range(blocks):
                order = list(ROLES)
                rng.shuffle(order)
                for turn, names in enumerate((order, order[::-1])):
                    for position, name in enumerate(names):
                        for mode in modes:
                            factor = (queued_factors or {}).get(name, speed[name]) if mode == "queued" else speed[name]
                            centre = math.log(BASE_US[case] * factor) + effects[name, generation] + rng.gauss(0, block)
                            us = [math.exp(centre + abs(rng.gauss(0, call))) for _ in range(calls)]
                            visits.append(Visit(
                                name, case, generation, index, turn, position, mode, calls, us,
                                judge_wall_us=sum(us) + 80, runner_wall_us=sum(us) + 40, handshake_us=35.0,
                            ))  # fmt: skip
    verdicts = [
        Verdict(
            gate, "passed", name, case=case, draw="official", variant="randn", share=0.4, reference_share=0.3, limit=1.0
        )
        for gate in (*PROVED, "timed_output")
        for name in ROLES
        for case in cases
    ]
    return Session(
        kind, "transformer_layer", "test", "c" * 64, f"job{seed}", seed,
        started or f"2026-11-30T10:00:{seed % 60:02d}.{seed:06d}Z",
        scope={"contract": "c" * 64, "protocol": 1, "accelerator": {"name": "NVIDIA H200"}},
        participants=[
            {"name": name, "role": role, "candidate_hash": f"h-{name}", "plan_hash": f"p-{name}", "schedules": {}}
            for name, role in ROLES.items()
        ],
        cases=list(cases), generations=generations, blocks=blocks, modes=list(modes),
        cells_done=[[g, c] for g in range(generations) for c in cases], verdicts=verdicts, visits=visits,
    )  # fmt: skip
