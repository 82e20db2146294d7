"""How noisy is this machine: an A/A table from two processes of the same code. Shown, never used to decide.

Knows the roles of a session; a twin beside an incumbent, a control or the reference is the pair. Standard library.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gfast_pipeline.bench.messages import Session
from gfast_pipeline.evaluation.bootstrap import RESAMPLES, Interval, compare, in_order, log_ratios
from gfast_pipeline.evaluation.figures import figures, geometric_us
from gfast_pipeline.evaluation.timings import weighted_us
from gfast_pipeline.evaluation.validity import scored


@dataclass(frozen=True)
class NoiseRow:
    """One case in one mode. Spreads are standard deviations in percent: between processes, and within one (blocks).

    `ratio_*` is the spread of twin ÷ pair, which a decision meets; `time_*` that of the pair's own time, which
    pairing removes. `interval` is twin ÷ pair on this case alone.
    """

    case: int
    mode: str
    us: float
    ratio_between: float
    ratio_within: float
    time_between: float
    time_within: float
    interval: Interval


@dataclass(frozen=True)
class NoiseMode:
    """All cases of one mode: the A/A interval, the margin it forces, and the smallest true difference decidable.

    `smallest` is a fraction: a plan this much faster would just clear 1 + `margin` with its low end, were its interval
    as wide as that of the A/A pair.
    """

    mode: str
    pair_us: float
    twin_us: float
    interval: Interval
    margin: float
    smallest: float


@dataclass(frozen=True)
class NoiseReport:
    pair: str
    twin: str
    generations: int
    blocks: int
    modes: list[NoiseMode]
    rows: list[NoiseRow]
    notes: list[str]


def noise_report(
    session: Session, contract: Mapping[str, Any] | None = None, *, resamples: int = RESAMPLES
) -> NoiseReport:
    """The A/A table of a session with a twin. With a contract its weights and its least margin count.

    A mode in which the pair cannot be compared goes to `notes`. Raises ValueError when the session has no pair, or
    when no mode can be compared.
    """
    pair, twin = _pair(session)
    weights = dict.fromkeys(session.cases, 1.0)
    if contract is not None:
        weights = {case: weight for case, weight in scored(contract).items() if case in session.cases}
    floor = float(contract["margin"]) if contract is not None else 0.0
    found = figures(in_order([session]))
    modes, rows, notes = [], [], []
    for mode in session.modes:
        try:
            aa = compare([session], twin, pair, mode, weights, resamples=resamples, found=found)
        except ValueError as error:
            notes.append(f"{mode}: {error}")
            continue
        margin = max(floor, aa.overall.far_end)
        half = math.sqrt(aa.overall.high / aa.overall.low)
        pair_us, twin_us = (weighted_us(found, name, mode, weights) for name in (pair, twin))
        modes.append(NoiseMode(mode, pair_us, twin_us, aa.overall, margin, (1 + margin) * half - 1))
        ratios = log_ratios(found, twin, pair, mode, list(weights))
        for case in sorted(weights):
            own = [list(blocks.values()) for blocks in found[(case, pair, mode)].values()]
            us = geometric_us(found, case, pair, mode)
            rows.append(
                NoiseRow(
                    case, mode, us or math.nan, *_spread(list(ratios[case].values())), *_spread(own), aa.cases[case]
                )
            )
    if not modes:
        raise ValueError(f"{twin} and {pair} can be compared in no mode: {'; '.join(notes) or 'no mode was measured'}")
    return NoiseReport(pair, twin, session.generations, session.blocks, modes, rows, notes)


def _spread(processes: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Standard deviations (between, within) in percent, by one-way analysis of variance.

    The means of processes vary by the blocks' scatter too; what that explains is taken off, so `between` is 0 where
    processes do not differ.
    """
    within = statistics.fmean(statistics.variance(blocks) for blocks in processes)
    explained = statistics.fmean(1 / len(blocks) for blocks in processes) * within
    between = statistics.variance(statistics.fmean(blocks) for blocks in processes) - explained
    return 100 * math.sqrt(max(0.0, between)), 100 * math.sqrt(within)


def _pair(session: Session) -> tuple[str, str]:
    by_role = {str(record["role"]): str(record["name"]) for record in session.participants}
    if "twin" not in by_role:
        raise ValueError("the session has no twin, so there is no A/A pair; measure one of kind noise")
    for role in ("incumbent", "control", "reference"):
        if role in by_role:
            return by_role[role], by_role["twin"]
    raise ValueError("the session has a twin of nobody; measure one of kind noise")
