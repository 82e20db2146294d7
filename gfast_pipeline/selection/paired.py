"""One case alone: the paired ratio of two plans, its interval, and how likely it is no more than a limit; and Holm.

The resampling is that of `evaluation.bootstrap` for a single case, draw for draw (a test holds the two together); it
is done here because a cell asks for the share of resamples below a limit, not for an interval alone.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gfast_pipeline.evaluation.bootstrap import CONFIDENCE, RESAMPLES, Interval
from gfast_pipeline.evaluation.figures import Process

ALPHA = (1.0 - CONFIDENCE) / 2.0
"""One side of the interval: what a cell may be taken on, over all cases that one challenger contests."""

_DRAWS = 400_000  # resamples × processes: many pooled sessions are resampled less often, as they differ less
_FEWEST = 2_000
_TABLE_LIMIT = 4096


@dataclass(frozen=True)
class Paired:
    """A ratio of times, holder ÷ challenger (above 1: the challenger is faster), with all its resampled logs sorted."""

    interval: Interval
    logs: tuple[float, ...]

    def share_up_to(self, limit: float) -> float:
        """Share of resamples whose ratio is at most `limit`: the one-sided p of "no faster than that"."""
        return bisect.bisect_right(self.logs, math.log(limit)) / len(self.logs)


def point(ratios: Mapping[Process, Sequence[float]]) -> float:
    """The ratio itself: processes weigh the same, and so do the blocks of one."""
    return math.exp(math.fsum(math.fsum(blocks) / len(blocks) for blocks in ratios.values()) / len(ratios))


def paired(ratios: Mapping[Process, Sequence[float]], seed: str, *, few: bool = False) -> Paired:
    """Resample processes, then blocks within them. A function of its arguments alone.

    `ratios` holds process → one log ratio a block; `few` resamples are enough for what decides nothing. Raises
    ValueError on fewer than two processes, fewer than two blocks in one, and a ratio that is not finite.
    """
    processes = sorted(ratios)
    blocks = [ratios[process] for process in processes]
    if len(blocks) < 2 or min(map(len, blocks)) < 2:
        raise ValueError("at least two generations of two paired blocks are needed to see what differs between them")
    if not all(math.isfinite(value) for values in blocks for value in values):
        raise ValueError("a ratio is none: NaN or boundless")
    slots = len(blocks)
    resamples = _FEWEST if few else max(_FEWEST, min(RESAMPLES, _DRAWS // slots))
    rng = random.Random(f"gfast bootstrap {seed}")
    picks = rng.choices(range(slots), k=slots * resamples)
    counts = [0] * slots
    for pick in picks:
        counts[pick] += 1
    streams = [iter(_means(rng, values, count)).__next__ for values, count in zip(blocks, counts, strict=True)]
    drawn = [streams[pick]() for pick in picks]
    logs = sorted(sum(group) / slots for group in zip(*(drawn[slot::slots] for slot in range(slots)), strict=True))
    centre = math.fsum(math.fsum(values) / len(values) for values in blocks) / slots
    cut = int(resamples * ALPHA)
    low, high = min(logs[cut], centre), max(logs[-1 - cut], centre)
    return Paired(Interval(math.exp(centre), math.exp(low), math.exp(high)), tuple(logs))


def holm(values: Sequence[float]) -> list[float]:
    """Holm's adjusted p of each value, in the order given: to be held against ALPHA whatever the number of values.

    Holm (1979): the k-th smallest of n is multiplied by n − k + 1, and none falls below a smaller one's. Raises
    ValueError on a value that is no probability: a NaN would sort anywhere.
    """
    if bad := [value for value in values if not 0.0 <= value <= 1.0]:
        raise ValueError(f"{bad[0]!r} is no probability")
    adjusted, least = [0.0] * len(values), 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        least = max(least, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = least
    return adjusted


def _means(rng: random.Random, values: Sequence[float], count: int) -> Sequence[float]:
    """`count` means of len(values) draws with replacement: from a table of all where that is small."""
    size = len(values)
    if size**size <= _TABLE_LIMIT:
        table = [0.0]
        for _ in range(size):
            table = [have + value for have in table for value in values]
        return rng.choices([entry / size for entry in table], k=count)
    draws = iter(rng.choices(values, k=count * size))
    return [sum(group) / size for group in zip(*[draws] * size, strict=True)]
