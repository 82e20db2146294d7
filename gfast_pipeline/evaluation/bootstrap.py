"""Hierarchical bootstrap of the weighted geometric-mean ratio of two participants.

Levels: a process (generation) is drawn for all cases at once, because what a process does to its timings it does to
all cases it serves; within each drawn process the blocks of each case are drawn anew; cases are strata and keep their
weights. Percentile interval. Knows log figures; nothing of margins and decisions. Standard library, seeded.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat

from gfast_pipeline.bench.messages import Session
from gfast_pipeline.evaluation.figures import Figures, Process, figures

RESAMPLES = 10_000
CONFIDENCE = 0.95
_TABLE_LIMIT = 4096  # 5 blocks have 5^5 = 3125 equally likely resamples: cheaper to list once than to draw each time
_LARGEST_LOG = 100.0  # e^100 between two timings is no measurement, and its exponential must not overflow

Ratios = dict[int, dict[Process, list[float]]]
"""case → process → one log ratio a block, log(t_other) − log(t_challenger): positive where the challenger is faster."""


@dataclass(frozen=True)
class Interval:
    """A ratio of times, other ÷ challenger (above 1: the challenger is faster), with its 95 % interval."""

    ratio: float
    low: float
    high: float

    @property
    def far_end(self) -> float:
        """How far from 1 the interval reaches, either way, as a fraction: max(1/low, high, …) − 1."""
        return math.exp(max(abs(math.log(self.low)), abs(math.log(self.high)))) - 1.0

    def inverse(self) -> Interval:
        return Interval(1.0 / self.ratio, 1.0 / self.high, 1.0 / self.low)


@dataclass(frozen=True)
class Comparison:
    """`overall` over the cases by weight, and each case's own interval, from the same resamples."""

    challenger: str
    other: str
    mode: str
    overall: Interval
    cases: dict[int, Interval]
    processes: int
    resamples: int


def log_ratios(found: Figures, challenger: str, other: str, mode: str, cases: Sequence[int]) -> Ratios:
    """Paired log ratios of the blocks in which both participants have a figure.

    Raises ValueError naming the case when it has no such block, or when its processes are not those of the others.
    """
    result: Ratios = {}
    for case in sorted(cases):
        mine, theirs = found.get((case, challenger, mode), {}), found.get((case, other, mode), {})
        paired = {
            process: [
                theirs[process][block] - mine[process][block]
                for block in sorted(mine[process])
                if block in theirs[process]
            ]
            for process in sorted(mine)
            if process in theirs
        }
        if not any(paired.values()):
            raise ValueError(f"case {case} has no block with a {mode} time of both {challenger} and {other}")
        for process in sorted(set(mine) ^ set(theirs)):
            raise ValueError(f"case {case}: {_name(process)} has a {mode} time of only one of {challenger} and {other}")
        result[case] = paired
    return result


def bootstrap(
    ratios: Ratios, weights: Mapping[int, float], *, seed: int | str, resamples: int = RESAMPLES
) -> tuple[Interval, dict[int, Interval]]:
    """Overall and per-case intervals of exp(Σ w·mean log ratio ÷ Σ w). A function of its arguments alone.

    `ratios` as `log_ratios` gives them, `weights` one positive number a case of `ratios`. The same `seed` draws the
    same processes and blocks whatever the participants, so that swapping them gives exactly the inverse.
    Raises ValueError, and never returns a number, on: no case, a case without weight or a weight without case, a
    weight or log ratio that is not finite (weights: positive), fewer than two processes or than two blocks in one,
    or a process that some case lacks.
    """
    processes = _checked(ratios, weights, resamples)
    total = math.fsum(weights[case] for case in ratios)
    rng = random.Random(f"gfast bootstrap {seed}")
    slots = len(processes)
    picks = rng.choices(range(slots), k=slots * resamples)
    drawn = [picks.count(index) for index in range(slots)]
    sums = [0.0] * resamples
    point = 0.0
    cases: dict[int, Interval] = {}
    for case in sorted(ratios):
        blocks = [ratios[case][process] for process in processes]
        streams = [iter(_block_means(rng, values, count)).__next__ for values, count in zip(blocks, drawn, strict=True)]
        values = [streams[pick]() for pick in picks]
        means = [sum(group) / slots for group in zip(*(values[slot::slots] for slot in range(slots)), strict=True)]
        centre = math.fsum(math.fsum(block) / len(block) for block in blocks) / slots
        cases[case] = _interval(centre, means)
        share = weights[case] / total
        point += share * centre
        sums = [have + share * more for have, more in zip(sums, means, strict=True)]
    return _interval(point, sums), cases


def compare(
    sessions: Sequence[Session],
    challenger: str,
    other: str,
    mode: str,
    weights: Mapping[int, float],
    *,
    resamples: int = RESAMPLES,
    found: Figures | None = None,
) -> Comparison:
    """`other` ÷ `challenger` over the cases of `weights`, several sessions pooled.

    The generations of a further session are further generations. The order of `sessions` is irrelevant. `found` are
    the figures of exactly `in_order(sessions)`, to spare computing them again. Raises ValueError as `figures`,
    `log_ratios`, `bootstrap` and `in_order` do.
    """
    ordered = in_order(sessions)
    found = figures(ordered) if found is None else found
    ratios = log_ratios(found, challenger, other, mode, list(weights))
    seed = ",".join(str(session.seed) for session in ordered) + f":{mode}"
    overall, cases = bootstrap(ratios, weights, seed=seed, resamples=resamples)
    processes = len(next(iter(ratios.values())))
    return Comparison(challenger, other, mode, overall, cases, processes, resamples)


def in_order(sessions: Sequence[Session]) -> list[Session]:
    """Sessions by start. Raises ValueError on none, and on the same one twice, which would feign precision."""
    ordered = sorted(sessions, key=_identity)
    if not ordered:
        raise ValueError("no session")
    for first, second in pairwise(ordered):
        if _identity(first) == _identity(second):
            raise ValueError(f"the session of {first.started} is given twice; pool different sessions")
    return ordered


def _identity(session: Session) -> tuple[str, str, int]:
    return (session.started, session.job_hash, session.seed)


def _block_means(rng: random.Random, values: Sequence[float], count: int) -> Sequence[float]:
    """`count` means of len(values) draws with replacement from `values`."""
    size = len(values)
    if size**size <= _TABLE_LIMIT:
        table = [0.0]
        for _ in repeat(None, size):
            table = [have + value for have in table for value in values]
        return rng.choices([entry / size for entry in table], k=count)
    draws = iter(rng.choices(values, k=count * size))
    return [sum(group) / size for group in zip(*[draws] * size, strict=True)]


def _interval(centre: float, logs: list[float]) -> Interval:
    ordered = sorted(logs)
    cut = int(len(ordered) * (1.0 - CONFIDENCE) / 2.0)
    # Rounding alone may put equal values an ulp beside their mean: an interval always holds its own estimate.
    low, high = min(ordered[cut], centre), max(ordered[-1 - cut], centre)
    return Interval(math.exp(centre), math.exp(low), math.exp(high))


def _checked(ratios: Ratios, weights: Mapping[int, float], resamples: int) -> list[Process]:
    if resamples < 100:
        raise ValueError(f"{resamples} resamples; a 95 % interval needs at least 100")
    if not ratios:
        raise ValueError("no case to compare")
    for case in sorted(set(ratios) ^ set(weights)):
        raise ValueError(f"case {case} has {'no weight' if case in ratios else 'a weight but no measurement'}")
    processes = sorted({process for case in ratios.values() for process in case})
    for case, by_process in sorted(ratios.items()):
        weight = weights[case]
        if not math.isfinite(weight) or weight <= 0:
            raise ValueError(f"case {case}: weight {weight!r} is not a positive number")
        for process in processes:
            values = by_process.get(process, [])
            if not all(math.isfinite(value) and abs(value) < _LARGEST_LOG for value in values):
                raise ValueError(f"case {case}: {_name(process)} holds a ratio that is none: NaN, zero or boundless")
            if len(values) < 2:
                raise ValueError(
                    f"case {case}: {_name(process)} has {len(values)} paired blocks; at least 2 are needed"
                )
    if len(processes) < 2:
        raise ValueError(f"{len(processes)} generation; at least 2 are needed to see what differs between processes")
    return processes


def _name(process: Process) -> str:
    return f"generation {process[1]} of session {process[0] + 1}"
