"""Visits to figures: one logarithm of µs per (case, participant, mode, generation, block).

Knows how a visit becomes a figure and nothing of ratios, rules or contracts. Anything that is not a positive finite
time is refused here, so that no later step can meet a NaN.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gfast_pipeline.bench.messages import Session, Visit

Series = tuple[int, str, str]
"""(case, participant, mode)"""

Process = tuple[int, int]
"""(index of the session, generation): the outer unit of resampling, one process of each participant."""

Figures = dict[Series, dict[Process, dict[int, float]]]
"""series → process → block → log of µs."""

TURNS = 2  # a block is a permutation and its reverse


@dataclass(frozen=True)
class Summary:
    """One participant on one case in one mode: `median_us` over its visits' figures, and how much stands behind it."""

    case: int
    participant: str
    mode: str
    median_us: float
    visits: int
    calls: int
    host_bound: int


def visit_figure(visit: Visit) -> float | None:
    """The median of the visit's calls in µs; None where the visit is invalid (`event_us` None: host bound).

    Raises ValueError naming the visit when a call is not a positive finite number, or when no call was timed.
    """
    if visit.event_us is None or visit.status != "ok":
        return None
    if not visit.event_us:
        raise ValueError(f"{_place(visit)}: no timed call; the visit has to be measured again")
    for us in visit.event_us:
        if isinstance(us, bool) or not isinstance(us, (int, float)) or not math.isfinite(us) or us <= 0:
            raise ValueError(f"{_place(visit)}: {us!r} µs is no time; the visit has to be measured again")
    return float(statistics.median(visit.event_us))


def figures(sessions: Sequence[Session]) -> Figures:
    """Log figures of all visits: the mean of the two turns' log µs a block.

    A block in which either turn has no figure yields none: one turn alone would carry the drift that the reverse
    order is there to cancel. The order of visits is irrelevant. Raises ValueError on a time that is none, on a visit
    recorded twice and on a turn other than 0 and 1.
    """
    turns: dict[tuple[Series, Process, int], dict[int, float | None]] = {}
    for index, session in enumerate(sessions):
        for visit in session.visits:
            if visit.turn not in range(TURNS):
                raise ValueError(f"{_place(visit)}: turn {visit.turn}; a block has turns 0 and 1")
            series = (visit.case, visit.participant, visit.mode)
            block = turns.setdefault((series, (index, visit.generation), visit.block), {})
            if visit.turn in block:
                raise ValueError(f"{_place(visit)}: recorded twice")
            block[visit.turn] = visit_figure(visit)
    result: Figures = {}
    for (series, process, block), values in sorted(turns.items()):
        known = [math.log(values[turn] or math.nan) for turn in sorted(values) if values[turn] is not None]
        if len(known) == TURNS:
            result.setdefault(series, {}).setdefault(process, {})[block] = math.fsum(known) / TURNS
    return result


def geometric_us(found: Figures, case: int, participant: str, mode: str) -> float | None:
    """Geometric mean in µs of a series, generations weighing the same; None without figures.

    The ratio of two of these is the point estimate of the bootstrap when both participants have every block.
    """
    processes = found.get((case, participant, mode))
    if not processes:
        return None
    return math.exp(statistics.fmean(statistics.fmean(blocks.values()) for blocks in processes.values()))


def summaries(sessions: Sequence[Session]) -> list[Summary]:
    """Median µs and counts per (case, participant, mode), sorted; series without any figure are left out."""
    groups: dict[Series, list[Visit]] = {}
    for visit in _visits(sessions):
        groups.setdefault((visit.case, visit.participant, visit.mode), []).append(visit)
    result = []
    for (case, participant, mode), visits in sorted(groups.items()):
        values = [(visit, visit_figure(visit)) for visit in visits]
        valid = [(visit, us) for visit, us in values if us is not None]
        if valid:
            calls = sum(len(visit.event_us or ()) for visit, _ in valid)
            median = statistics.median(us for _, us in valid)
            result.append(Summary(case, participant, mode, median, len(valid), calls, len(values) - len(valid)))
    return result


def missing_visits(session: Session, case: int, participant: str, mode: str) -> list[str]:
    """Visits of a series that the session announces and does not hold, in words; a host-bound visit is not missing."""
    present = {
        (visit.generation, visit.block, visit.turn)
        for visit in session.visits
        if (visit.case, visit.participant, visit.mode) == (case, participant, mode)
    }
    generations = _numbering({generation for generation, _, _ in present}, session.generations)
    blocks = _numbering({block for _, block, _ in present}, session.blocks)
    expected = [(g, b, t) for g in generations for b in blocks for t in range(TURNS)]
    return [f"generation {g} block {b} turn {t}" for g, b, t in expected if (g, b, t) not in present]


def _numbering(seen: set[int], count: int) -> range:
    """Where numbering starts is the judge's choice: 1 when the highest number seen equals the count, else 0."""
    start = 1 if 0 not in seen and count in seen else 0
    return range(start, start + count)


def _visits(sessions: Sequence[Session]) -> Iterable[Visit]:
    return (visit for session in sessions for visit in session.visits)


def _place(visit: Visit) -> str:
    return (
        f"{visit.participant} on case {visit.case} ({visit.mode}, generation {visit.generation}, "
        f"block {visit.block}, turn {visit.turn})"
    )
