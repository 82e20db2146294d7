"""The rule of promotion: sessions and a contract in, one decision with its reason out. A pure function.

Knows the contract as plain values and the bench's records; no database, no device. Nothing here returns a ratio that
was not measured whole: any doubt about the sessions gives `invalid` with the reason and no number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gfast_pipeline.bench.messages import Session
from gfast_pipeline.evaluation import validity, wording
from gfast_pipeline.evaluation.bootstrap import RESAMPLES, Comparison, Interval, compare, in_order
from gfast_pipeline.evaluation.figures import Figures, figures
from gfast_pipeline.evaluation.timings import CaseRow, case_rows, role_us, weighted_us
from gfast_pipeline.evaluation.validity import Cast

MOST_RACES = 2  # a decision and one re-race; racing until it fits would find a winner among equals


@dataclass(frozen=True)
class Decision:
    """What was decided, on what, and why. Ratios are other ÷ challenger: above 1 the challenger is faster.

    `outcome` is promote, reject, uncertain or invalid; with a `screen_` prefix where the sessions cannot promote by
    their nature. Every figure is None when `outcome` is invalid, but for a margin and noise that are the reason.
    `ratio`, `low`, `high` are the headline mode's pooled interval, on which the rule was applied; `shown` is what to
    print: it holds that interval and the sessions' own ratios. `queued` is None where that mode does not count or was
    not measured (on CPU the headline serves for both). `noise` is incumbent ÷ twin, `health`
    reference ÷ v000. `us` holds mode → role → weighted geometric mean in µs, so that no ratio stands without them.
    `advances`, of screens only: the low end lies above the contract's `screen_advance`, a full race is worth its time.
    """

    outcome: str
    reason: str
    workload: str
    contract_name: str
    contract_hash: str
    scope: dict[str, Any]
    challenger: str
    incumbent: str | None = None
    candidate_hash: str | None = None
    plan_hash: str | None = None
    mode: str = "official"
    challenger_us: float | None = None
    incumbent_us: float | None = None
    us: dict[str, dict[str, float]] = field(default_factory=dict)
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    shown: Interval | None = None
    queued: Interval | None = None
    margin: float | None = None
    margin_queued: float | None = None
    noise: Interval | None = None
    noise_queued: Interval | None = None
    health: Interval | None = None
    ratio_to_reference: Interval | None = None
    session_ratios: list[float] = field(default_factory=list)
    cases: list[CaseRow] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sessions: list[dict[str, Any]] = field(default_factory=list)
    resamples: int = RESAMPLES
    advances: bool | None = None
    confirmed: bool = False
    publishable: bool = False

    def plain(self) -> dict[str, Any]:
        """As JSON values, for the ledger."""
        return dataclasses.asdict(self)


def decide(
    sessions: Sequence[Session],
    contract: Mapping[str, Any],
    *,
    challenger: str | None = None,
    resamples: int = RESAMPLES,
) -> Decision:
    """Decide on one challenger from one or several pooled sessions.

    `challenger` names one where a screen has several. Promote: the headline interval lies above 1 + m; or, for another
    promotion mode of the contract that was measured, the headline's low end lies above 1 − m and that mode's above
    1 + m. Reject: the headline's high end lies below 1 + m. Else uncertain. m is the larger of the contract's margin
    and the far end of twin ÷ incumbent. Raises ValueError only where there is nothing to attach a decision to: no
    session, the same one twice, or no such challenger.
    """
    ordered = in_order(sessions)
    players = validity.cast(ordered[0], challenger)
    blank = _blank(ordered, contract, players, resamples)
    try:
        return _decide(ordered, contract, players, blank)
    except ValueError as error:
        return dataclasses.replace(blank, reason=f"{players.challenger} cannot be decided on: {error}")


def confirm(
    decided: Sequence[Session], confirmation: Session, contract: Mapping[str, Any], *, resamples: int = RESAMPLES
) -> Decision:
    """The decision over the deciding sessions and their confirmation, pooled; `confirmed` when it still promotes.

    `publishable` when the pooled sessions are as many as the contract's `publish_sessions`. Raises ValueError when
    `confirmation` is of another kind or when the deciding sessions alone promote nothing that could be confirmed.
    """
    if confirmation.kind != "confirm":
        raise ValueError(f"a session of kind {confirmation.kind} confirms nothing; measure one of kind confirm")
    earlier = decide(decided, contract, resamples=resamples)
    if earlier.outcome != "promote":
        raise ValueError(f"nothing to confirm: {earlier.reason}")
    result = decide([*decided, confirmation], contract, challenger=earlier.challenger, resamples=resamples)
    confirmed = result.outcome == "promote"
    enough = len(decided) + 1 >= int(contract["publish_sessions"])
    return dataclasses.replace(result, confirmed=confirmed, publishable=confirmed and enough)


def _decide(ordered: list[Session], contract: Mapping[str, Any], players: Cast, blank: Decision) -> Decision:
    weights_all = validity.scored(contract)
    weights = {case: weights_all[case] for case in sorted(set(ordered[0].cases) & set(weights_all))}
    headline = str(contract["mode"]["headline"])
    others = [m for m in contract["mode"]["promotion"] if m != headline and all(m in s.modes for s in ordered)]
    if not weights:
        return dataclasses.replace(blank, reason="the session holds no scored case of the contract")
    if sum(session.kind == "decide" for session in ordered) > MOST_RACES:
        return dataclasses.replace(blank, reason="a race may be repeated once; these are more deciding sessions")
    if problem := validity.first_problem(ordered, contract, players, list(weights), [headline, *others]):
        return dataclasses.replace(blank, reason=problem)
    found = figures(ordered)

    def against(other: str, mode: str, who: str = players.challenger) -> Comparison:
        return compare(ordered, who, other, mode, weights, resamples=blank.resamples, found=found)

    most = float(contract["max_noise"])
    main = _race(against, players, headline, float(contract["margin"]))
    if too_loud := _too_loud(ordered, players, headline, weights, most, main.noise, blank.resamples):
        return dataclasses.replace(blank, reason=too_loud, noise=main.noise, margin=main.margin)
    extra: dict[str, _Race] = {}
    notes: list[str] = []
    for mode in others:
        try:
            extra[mode] = _race(against, players, mode, main.margin)
        except ValueError as error:
            notes.append(f"{mode} cannot be used: {error}")
    if unseen := validity.clock_unseen(ordered, players.challenger, headline):
        notes.append(f"visits were too short for the clock gate on case {', '.join(map(str, unseen))}")
    verdict, path = _rule(main, extra, headline in contract["mode"]["promotion"], most)
    screen = any(session.kind == "screen" for session in ordered) or set(weights) != set(weights_all)
    mine, theirs = (weighted_us(found, name, headline, weights) for name in (players.challenger, players.incumbent))
    reason = wording.race_sentence(
        verdict=verdict,
        screen=screen,
        challenger=players.challenger,
        incumbent=players.incumbent,
        challenger_us=mine,
        incumbent_us=theirs,
        cases=len(weights),
        mode=headline,
        interval=main.interval,
        margin=main.margin,
        path=path,
        path_interval=extra[path].interval if path else None,
        path_margin=extra[path].margin if path else 0.0,
    )
    missing = validity.gates_not_run(ordered, players.challenger)
    if verdict == "promote" and not screen and missing and contract["target"]["device"] != "cpu":
        # Not a rejection, for nothing speaks against the plan; not invalid, for the race itself was sound. What is
        # missing is proof, and more proof may yet promote it: that is what `uncertain` says.
        verdict, reason = "uncertain", wording.held_back(reason, missing)
    own = [_own_ratio(session, players, headline, weights) for session in ordered]
    queued, races = extra.get("queued"), {mode: race.comparison for mode, race in {headline: main, **extra}.items()}
    reference, control = players.reference, players.control
    return dataclasses.replace(
        blank,
        outcome=f"screen_{verdict}" if screen else verdict,
        reason=reason,
        challenger_us=mine,
        incumbent_us=theirs,
        us={mode: role_us(found, players, mode, weights) for mode in races},
        ratio=main.interval.ratio,
        low=main.interval.low,
        high=main.interval.high,
        shown=Interval(main.interval.ratio, min(main.interval.low, *own), max(main.interval.high, *own)),
        queued=queued.interval if queued else None,
        margin=main.margin,
        margin_queued=queued.margin if queued else None,
        noise=main.noise,
        noise_queued=queued.noise if queued else None,
        health=against(reference, headline, control).overall if reference and control else None,
        ratio_to_reference=against(reference, headline).overall if reference else None,
        session_ratios=own,
        advances=main.interval.low > float(contract["thresholds"]["screen_advance"]) if screen else None,
        not_run=missing,
        notes=notes,
        cases=case_rows(found, players, races, weights),
    )


@dataclass(frozen=True)
class _Race:
    """Incumbent ÷ challenger in one mode, the A/A control of that mode and the margin that follows."""

    comparison: Comparison
    noise: Interval | None
    margin: float

    @property
    def interval(self) -> Interval:
        return self.comparison.overall


def _race(against: Callable[..., Comparison], players: Cast, mode: str, least: float) -> _Race:
    noise = against(players.incumbent, mode, players.twin).overall if players.twin else None
    return _Race(against(players.incumbent, mode), noise, max(least, noise.far_end) if noise else least)


def _rule(main: _Race, extra: Mapping[str, _Race], headline_counts: bool, most: float) -> tuple[str, str | None]:
    """The verdict, and the mode that carried a promotion when it was not the headline's own interval."""
    if headline_counts and main.interval.low > 1 + main.margin:
        return "promote", None
    for mode, race in extra.items():
        # A mode too noisy to decide by itself carries nothing; the headline's own noise voids the session instead.
        if race.margin <= most and main.interval.low > 1 - main.margin and race.interval.low > 1 + race.margin:
            return "promote", mode
    return ("reject" if main.interval.high < 1 + main.margin else "uncertain"), None


def _too_loud(
    ordered: list[Session],
    players: Cast,
    mode: str,
    weights: Mapping[int, float],
    most: float,
    pooled: Interval | None,
    resamples: int,
) -> str | None:
    """Each session's own A/A control has to be quiet: pooling may not hide a loud session behind a calm one."""
    if players.twin is None:
        return None
    for session in ordered:
        single = pooled if len(ordered) == 1 else None
        own = single or compare([session], players.twin, players.incumbent, mode, weights, resamples=resamples).overall
        if own.far_end > most:
            return (
                f"the session is void: its A/A control, the same code twice, differs by up to "
                f"{wording.percent(own.far_end)}, more than the {wording.percent(most)} that the contract allows"
            )
    return None


def _own_ratio(session: Session, players: Cast, mode: str, weights: Mapping[int, float]) -> float:
    found: Figures = figures([session])
    return weighted_us(found, players.incumbent, mode, weights) / weighted_us(found, players.challenger, mode, weights)


def _blank(ordered: list[Session], contract: Mapping[str, Any], players: Cast, resamples: int) -> Decision:
    first, record = ordered[0], players.records[players.challenger]
    return Decision(
        outcome="invalid",
        reason="",
        workload=first.workload,
        contract_name=first.contract_name,
        contract_hash=first.contract_hash,
        scope=first.scope,
        challenger=players.challenger,
        incumbent=players.incumbent,
        candidate_hash=record.get("candidate_hash"),
        plan_hash=record.get("plan_hash"),
        mode=str(contract["mode"]["headline"]),
        resamples=resamples,
        sessions=[{"kind": s.kind, "started": s.started, "job_hash": s.job_hash, "seed": s.seed} for s in ordered],
    )
