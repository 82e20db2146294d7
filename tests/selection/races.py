"""Races of any candidates, made from the synthetic sessions of `tests/evaluation`: renamed, and faster case by case."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from gfast_pipeline.bench.messages import Session
from gfast_pipeline.selection.archive import archive
from gfast_pipeline.selection.field import Plan
from tests.evaluation.synthetic import CHALLENGER, CONTROL, INCUMBENT, TWIN, contract, session

V000 = Plan(CONTROL, f"h-{CONTROL}", f"p-{CONTROL}")


def race(
    seed: int,
    speed: Mapping[str, float] | None = None,
    *,
    challenger: str = CHALLENGER,
    incumbent: str = INCUMBENT,
    cases: Mapping[int, Mapping[str, float]] | None = None,
    without: Sequence[str] = (),
    **more: Any,
) -> Session:
    """A race in which each name of `speed` takes that multiple of the base time (everybody else: 1, so that v000 and
    all others are equal), on single cases of `cases` times another multiple; `without` leaves participants out."""
    names = {CHALLENGER: challenger, INCUMBENT: incumbent}
    factors = {CONTROL: 1.0} | {old: (speed or {}).get(new, 1.0) for old, new in names.items()}
    factors[TWIN] = factors[INCUMBENT]
    factors |= {name: factor for name, factor in (speed or {}).items() if name not in names.values()}
    defaults: dict[str, Any] = {"modes": ("official",), "generations": 4, "blocks": 3, "calls": 1}
    made = session(factors, seed=seed, **{**defaults, **more})
    for record in made.participants:
        record["name"] = names.get(record["name"], record["name"])
        same_code = incumbent if record["role"] == "twin" else record["name"]
        record["candidate_hash"], record["plan_hash"] = f"h-{same_code}", f"p-{same_code}"
    made.participants = [record for record in made.participants if record["name"] not in without]
    for kind in (made.visits, made.verdicts):
        for entry in kind:
            entry.participant = names.get(entry.participant, entry.participant)
    made.visits = [visit for visit in made.visits if visit.participant not in without]
    made.verdicts = [verdict for verdict in made.verdicts if verdict.participant not in without]
    for visit in made.visits:
        factor = (cases or {}).get(visit.case, {}).get(visit.participant, 1.0)
        visit.event_us = [us * factor for us in visit.event_us or []]
    return made


def log(*sessions: Session) -> list[tuple[str, Session]]:
    """The sessions with the ids s1, s2, … in this order."""
    return [(f"s{index}", one) for index, one in enumerate(sessions, 1)]


def selected(*sessions: Session, out: Any = None, peers: Any = None, **more: Any) -> dict[str, Any]:
    """The archive of these sessions under the synthetic contract."""
    return archive(contract(**more), V000, log(*sessions), out or set(), peers or {})


def holder_of(found: Mapping[str, Any], case: int) -> str:
    return next(row["plan"] for row in found["cases"] if row["case"] == case)


def row_of(found: Mapping[str, Any], case: int) -> dict[str, Any]:
    return next(row for row in found["cases"] if row["case"] == case)


def contest_of(found: Mapping[str, Any], case: int, challenger: str = CHALLENGER) -> dict[str, Any]:
    """The last row of a challenger on a case."""
    return [row for row in found["contested"] if (row["case"], row["challenger"]) == (case, challenger)][-1]


def elsewhere(one: Session, **parts: Any) -> Session:
    """The same session in another scope: `accelerator`, `software` or `protocol` replaced."""
    return dataclasses.replace(one, scope={**one.scope, **parts})
