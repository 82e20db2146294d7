"""Cells and contests as the rows of a `holders` payload: µs beside every ratio, each with its sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gfast_pipeline.bench.messages import Session
from gfast_pipeline.evaluation.bootstrap import Interval
from gfast_pipeline.selection.contest import Standing
from gfast_pipeline.selection.field import (
    CANDIDATES,
    Field,
    Plan,
    Seen,
    in_order,
    is_void,
    median_us,
    pair,
    plans,
    seed_of,
    visit_medians,
)
from gfast_pipeline.selection.paired import paired, point
from gfast_pipeline.selection.withdrawal import Withdrawn, is_withdrawn

Peers = Mapping[int, tuple[str, float, str]]
"""case → (peer, µs, session id) of the fastest right peer."""


@dataclass(frozen=True)
class Cell:
    """Who holds a case, since which session (None: v000, from the start), and the races that this rests on."""

    holder: Plan
    since: str | None = None
    races: tuple[Seen, ...] = ()


def default_cell(case: int, default: Plan, field: Field) -> Cell:
    """v000's own cell with the newest sessions that timed it, as many as a publication takes: races, else baselines."""
    most = int(field.contract["publish_sessions"])
    for seen in (field.seen, field.baselines):
        races = [race for race in seen if default.identity in race.right.get(case, {})]
        if races:
            return Cell(default, None, tuple(in_order(races[-most:])))
    return Cell(default)


def scored_row(case: int, cell: Cell, field: Field, peer: tuple[str, float, str] | None) -> dict[str, Any]:
    """A scored case. Figures are None where no session holds them; `ratio_*` is reference ÷ holder."""
    names = [race.right[case][cell.holder.identity].name for race in cell.races]
    official = _median(cell.races, case, names, "official")
    references = [race.name("reference") for race in cell.races]
    known = [name for name in references if name is not None]
    complete = len(known) == len(cell.races) > 0
    ratio = _to_reference(cell.races, case, names, known) if complete else None
    best = peer[1] if peer is not None else None
    return {
        **_head(case, "scored", cell.holder, cell.since),
        "official_us": official,
        "queued_us": _median(cell.races, case, names, "queued"),
        "reference_us": _median(cell.races, case, known, "official") if complete else None,
        "ratio_to_reference": ratio.ratio if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "best_peer": peer[0] if peer is not None else None,
        "best_peer_us": best,
        "ratio_to_best_peer": best / official if best is not None and official is not None else None,
        "sessions": [race.id for race in cell.races],
    }


def feasibility_row(case: int, log: Sequence[tuple[str, Session]], out: Withdrawn) -> dict[str, Any]:
    """A case that ranks nothing: held by the fastest plan that the chunked oracle passed, nobody where none did."""
    fallen: set[tuple[str, str]] = set()
    proved: dict[tuple[str, str], Plan] = {}
    times: dict[tuple[str, str], dict[str, list[float]]] = {}
    for identity, session in log:
        if session.kind != "serial" or session.status in ("void", "failed") or is_void(session):
            continue
        try:
            visits = visit_medians(session)
        except ValueError:
            continue
        for record in session.participants:
            plan = plans(record, [case])[case]
            own = [v for v in session.verdicts if v.participant == plan.name and v.case in (case, None)]
            if any(verdict.status == "failed" for verdict in own):
                fallen.add(plan.identity)
            passed = any((verdict.gate, verdict.status, verdict.case) == ("serial", "passed", case) for verdict in own)
            us = visits.get((case, plan.name, "official"))
            gone = is_withdrawn(out, plan.candidate_hash, plan.plan_hash)
            if record["role"] in CANDIDATES and passed and us and not gone:
                proved[plan.identity] = plan
                times.setdefault(plan.identity, {})[identity] = us
    ranked = sorted(
        (median_us([us for of in times[who].values() for us in of]) or 0.0, plan.name, who)
        for who, plan in proved.items()
        if who not in fallen
    )
    us, _, who = ranked[0] if ranked else (None, "", None)
    empty = dict.fromkeys(
        ("queued_us", "reference_us", "ratio_to_reference", "ratio_low", "ratio_high", "best_peer", "best_peer_us",
         "ratio_to_best_peer")
    )  # fmt: skip
    ids = list(times[who]) if who is not None else []
    head = _head(case, "feasibility", proved[who] if who is not None else None, ids[0] if ids else None)
    return {**head, "official_us": us, **empty, "sessions": ids}


def contested_row(one: Standing) -> dict[str, Any]:
    """A standing; `ratio`, `low`, `high` are holder ÷ challenger, all None where the two never met."""
    return {
        "case": one.case,
        "challenger": one.challenger.name,
        "ratio": one.ratio,
        "low": one.interval.low if one.interval else None,
        "high": one.interval.high if one.interval else None,
        "p": one.p,
        "p_holm": one.p_holm,
        "taken": one.takes,
        "reason": one.reason,
    }


def _head(case: int, status: str, holder: Plan | None, since: str | None) -> dict[str, Any]:
    return {
        "case": case,
        "status": status,
        "plan": holder.name if holder else None,
        "candidate_hash": holder.candidate_hash if holder else None,
        "plan_hash": holder.plan_hash if holder else None,
        "since": since,
    }


def _median(races: Sequence[Seen], case: int, names: Sequence[str], mode: str) -> float | None:
    """Median µs over the visits of all races that timed it in this mode: a control is not timed `queued`."""
    each = [race.visits.get((case, name, mode), []) for race, name in zip(races, names, strict=True)]
    return median_us([us for of in each for us in of])


def _to_reference(races: Sequence[Seen], case: int, names: Sequence[str], references: Sequence[str]) -> Interval | None:
    """Reference ÷ holder over the races pooled, as wide as the pooled interval and the races' own ratios together."""
    try:
        whole = paired(pair(races, case, list(zip(names, references, strict=True))), seed_of(races)).interval
    except ValueError:
        return None
    own = [point(pair([race], case, [(me, ref)])) for race, me, ref in zip(races, names, references, strict=True)]
    return Interval(whole.ratio, min(whole.low, *own), max(whole.high, *own))
