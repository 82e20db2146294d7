"""One small payload of every kind that the ledger unfolds, about the synthetic sessions of `tests.evaluation`."""

from __future__ import annotations

from typing import Any

from gfast_pipeline.bench.messages import Session
from tests.evaluation.synthetic import CHALLENGER, INCUMBENT, session

SCOPE = {"contract": "c" * 64, "protocol": 1, "accelerator": {"name": "NVIDIA H200"}}
ABOUT = {"workload": "transformer_layer", "contract_name": "test", "contract_hash": "c" * 64, "scope": SCOPE}


def small(seed: int = 1, **changes: Any) -> Session:
    """A session of 2 generations × 2 blocks, each seed another one."""
    return session({CHALLENGER: 0.9}, seed=seed, generations=2, blocks=2, **changes)


def decision(**changes: Any) -> dict[str, Any]:
    """A confirmed promotion of the challenger."""
    return {
        **ABOUT, "outcome": "promote", "reason": "it is faster", "challenger": CHALLENGER, "incumbent": INCUMBENT,
        "candidate_hash": f"h-{CHALLENGER}", "plan_hash": f"p-{CHALLENGER}", "mode": "official", "challenger_us": 27.0,
        "incumbent_us": 30.0, "ratio": 1.11, "low": 1.1, "high": 1.12, "confirmed": True, "for_title": True,
        "us": {"official": {"challenger": 27.0, "incumbent": 30.0, "twin": 30.1}},
        "noise": {"ratio": 0.997, "low": 0.99, "high": 1.004}, "session_ids": ["a" * 12, "b" * 12],
        "cases": [{"case": 1, "mode": "official", "ratio": 1.1, "challenger_us": 27.0}], "notes": ["none"], **changes,
    }  # fmt: skip


def holders(plan: str = CHALLENGER, case: int = 1, **changes: Any) -> dict[str, Any]:
    """An archive whose one cell is held by `plan`."""
    held = {
        "case": case, "status": "scored", "plan": plan, "candidate_hash": f"h-{plan}", "plan_hash": f"p-{plan}",
        "since": None, "official_us": 27.0, "queued_us": 26.5, "reference_us": 60.0, "ratio_to_reference": 2.2,
        "ratio_low": 2.1, "ratio_high": 2.3, "best_peer": "compile_default", "best_peer_us": 45.0,
        "ratio_to_best_peer": 1.67, "sessions": ["a" * 12],
    }  # fmt: skip
    lost = {"case": case, "challenger": "v009", "ratio": 0.9, "low": 0.8, "high": 1.0, "p": 0.4, "p_holm": 0.8,
            "taken": False, "reason": "slower"}  # fmt: skip
    return {**ABOUT, "cases": [held], "contested": [lost], **changes}


def gap(plan: str = CHALLENGER, case: int = 1, value: float | None = 3.5, **changes: Any) -> dict[str, Any]:
    """The gap of `plan` on one case, as older ones say it: without `of`."""
    one = {"case": case, "plan": plan, "candidate_hash": f"h-{plan}", "plan_hash": f"p-{plan}", "official_us": 27.0,
           "queued_us": 26.5, "mode": "queued", "session": "a" * 12, "floors": {"memory": 7.5, "null": 1.0},
           "floor_us": 7.5, "binding_term": "memory", "hard_floor_us": 2.0, "gap": value}  # fmt: skip
    return {**ABOUT, "ceilings": "e" * 12, "cases": [one], **changes}


def withdrawal(**changes: Any) -> dict[str, Any]:
    """The challenger taken out of every ranking, under every contract."""
    return {
        "workload": "transformer_layer", "contract_hash": None, "candidate_hash": f"h-{CHALLENGER}",
        "name": CHALLENGER, "plan_hash": None, "reason": "it reads past its input", "by": "Ada", **changes,
    }  # fmt: skip


EVERY: dict[str, dict[str, Any]] = {
    "decision": decision(),
    "candidate": {"workload": "transformer_layer", "name": CHALLENGER, "candidate_hash": f"h-{CHALLENGER}",
                  "source": "# µ\n", "hypothesis": "fewer launches"},
    "approval": {**ABOUT, "by": "Ada", "date": "2026-11-30T10:00:00Z"},
    "gap": gap(of="holders"),
    "holders": holders(),
    "route": {**ABOUT, "overall": "continue", "argument": "case 1 is far from its floor",
              "cases": [{"case": 1, "route": "tune", "gap": 3.5, "binding_term": "memory", "argument": "above 1.5"}]},
    "withdrawal": withdrawal(),
    "submission": {**ABOUT, "path": "submissions/test.py", "sha256": "f" * 64,
                   "generalist": {"name": CHALLENGER, "candidate_hash": "h"},
                   "cases": [{"case": 1, "plan": CHALLENGER, "candidate_hash": "h", "plan_hash": "p",
                              "sessions": ["a"]}]},
}  # fmt: skip
