"""Tables of µs beside their ratios: per case and mode, and the weighted geometric mean. Knows no rules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gfast_pipeline.bench.messages import Session
from gfast_pipeline.evaluation.bootstrap import Comparison, Interval, compare
from gfast_pipeline.evaluation.figures import Figures, figures, geometric_us, summaries
from gfast_pipeline.evaluation.validity import Cast


@dataclass(frozen=True)
class CaseRow:
    """One case in one mode, in µs; `ratio`, `low`, `high` are incumbent ÷ challenger. `best` is anyone but the twin."""

    case: int
    mode: str
    weight: float
    challenger_us: float | None
    incumbent_us: float | None
    reference_us: float | None
    best: str | None
    best_us: float | None
    best_peer: str | None
    best_peer_us: float | None
    ratio: float
    low: float
    high: float


def case_rows(
    found: Figures, players: Cast, races: Mapping[str, Comparison], weights: Mapping[int, float]
) -> list[CaseRow]:
    """A row per case and mode of `races` (mode → challenger against incumbent)."""
    rows = []
    for case in sorted(weights):
        for mode, race in races.items():
            us = {name: geometric_us(found, case, name, mode) for name in players.records}
            known = sorted((value, name) for name, value in us.items() if value is not None and name != players.twin)
            peers = [entry for entry in known if players.records[entry[1]]["role"] == "peer"]
            interval = race.cases[case]
            rows.append(
                CaseRow(
                    case,
                    mode,
                    weights[case],
                    us.get(players.challenger),
                    us.get(players.incumbent),
                    us.get(players.reference) if players.reference else None,
                    known[0][1] if known else None,
                    known[0][0] if known else None,
                    peers[0][1] if peers else None,
                    peers[0][0] if peers else None,
                    interval.ratio,
                    interval.low,
                    interval.high,
                )
            )
    return rows


def weighted_us(found: Figures, participant: str, mode: str, weights: Mapping[int, float]) -> float:
    """Weighted geometric mean of a participant's µs over the cases. Raises ValueError naming a case without figures."""
    total = math.fsum(weights.values())
    logs = []
    for case, weight in sorted(weights.items()):
        us = geometric_us(found, case, participant, mode)
        if us is None:
            raise ValueError(f"{participant} has no {mode} time on case {case}")
        logs.append(weight / total * math.log(us))
    return math.exp(math.fsum(logs))


def role_us(found: Figures, players: Cast, mode: str, weights: Mapping[int, float]) -> dict[str, float]:
    """`weighted_us` of every role that is cast and has a figure on every case in this mode."""
    result = {}
    for role in ("challenger", "incumbent", "twin", "reference", "control"):
        name = getattr(players, role)
        if name is not None and all(geometric_us(found, case, name, mode) is not None for case in weights):
            result[role] = weighted_us(found, name, mode, weights)
    return result


@dataclass(frozen=True)
class TimingRow:
    """One participant on one case in one mode; `interval` is base ÷ participant, None without pairs."""

    case: int
    participant: str
    mode: str
    median_us: float
    visits: int
    calls: int
    host_bound: int
    base: str | None
    interval: Interval | None


def timing_rows(session: Session, base: str | None = None, *, resamples: int = 2_000) -> list[TimingRow]:
    """All that a session measured, to be shown: median µs and the paired ratio to `base`, per case on its own.

    `base` is by default the incumbent, else the reference, else nobody (a serial session has neither): times without
    ratios. Fewer resamples than a decision takes: nothing is decided here. Raises ValueError on times that are none,
    and when `base` is no participant.
    """
    names = {str(record["role"]): str(record["name"]) for record in session.participants}
    chosen = base or names.get("incumbent") or names.get("reference")
    if base is not None and base not in names.values():
        raise ValueError(f"{base} is no participant of the session; name one as base")
    found = figures([session])
    rows = []
    for one in summaries([session]):
        try:
            interval = None
            if chosen is not None and one.participant != chosen:
                pair = compare(
                    [session], one.participant, chosen, one.mode, {one.case: 1.0}, resamples=resamples, found=found
                )
                interval = pair.overall
        except ValueError:
            interval = None  # not enough pairs: the row then shows its µs without a ratio
        rows.append(
            TimingRow(
                one.case,
                one.participant,
                one.mode,
                one.median_us,
                one.visits,
                one.calls,
                one.host_bound,
                chosen,
                interval,
            )
        )
    return rows
