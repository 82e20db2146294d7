"""Sessions read once: which plan was timed whole and found right on which case, and how loud the session was.

Knows the bench's records and the contract's cases; ranks nothing. Fails closed: void, partial or loud sessions, a case
with a hole, a plan that ever failed a gate there, and what is withdrawn are simply not in the field.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gfast_pipeline.bench.messages import TRUSTED, Session, canonical
from gfast_pipeline.evaluation.bootstrap import bootstrap, log_ratios
from gfast_pipeline.evaluation.figures import Figures, Process, figures, visit_figure
from gfast_pipeline.evaluation.validity import PROOF, PROVED, RACES, scored
from gfast_pipeline.selection.paired import paired
from gfast_pipeline.selection.withdrawal import Withdrawn, is_withdrawn

CANDIDATES = ("control", "incumbent", "challenger")
"""Roles that candidates play. A twin is its incumbent once more; peers and a submission are measured, never placed."""

BASELINES = ("peers", "noise")
"""Kinds that rank no candidate, and time v000 beside the reference before there was any race."""

Identity = tuple[str, str]
"""(candidate hash, its schedule on one case): what a plan is on that case, however many cases it was measured on."""


@dataclass(frozen=True)
class Plan:
    """A candidate with its schedule on one case."""

    name: str
    candidate_hash: str
    plan_hash: str
    schedule: str = "{}"

    @property
    def identity(self) -> Identity:
        return self.candidate_hash, self.schedule


@dataclass(frozen=True, eq=False)
class Seen:
    """One race. `found` holds headline figures, `visits` µs a visit by (case, participant, mode), `right` the plans
    timed whole and found right, by case."""

    id: str
    session: Session
    mode: str
    found: Figures
    visits: dict[tuple[int, str, str], list[float]]
    right: dict[int, dict[Identity, Plan]]
    weights: dict[int, float]
    max_noise: float

    def name(self, role: str) -> str | None:
        return next((str(r["name"]) for r in self.session.participants if r["role"] == role), None)

    def whole(self, case: int, name: str) -> bool:
        """Whether every generation and block of the session has a headline figure."""
        processes = self.found.get((case, name, self.mode), {})
        every = all(len(blocks) == self.session.blocks for blocks in processes.values())
        return 0 < self.session.generations == len(processes) and every

    def twin_ratios(self, case: int) -> dict[Process, list[float]] | None:
        """Incumbent ÷ twin, log, a block; None where there is no twin (a screen), or not on this case."""
        twin, incumbent = self.name("twin"), self.name("incumbent")
        if twin is None or incumbent is None or not (self.whole(case, twin) and self.whole(case, incumbent)):
            return None
        return log_ratios(self.found, twin, incumbent, self.mode, [case])[case]

    @cached_property
    def quiet(self) -> bool:
        """Whether the session's A/A control lies within the contract's `max_noise`, as a decision asks; a session
        without a twin has nothing to be loud."""
        twin, incumbent = self.name("twin"), self.name("incumbent")
        if twin is None or incumbent is None:
            return True
        ratios = {case: of for case in self.weights if (of := self.twin_ratios(case)) is not None}
        weights = {case: self.weights[case] for case in ratios}
        total = math.fsum(weights.values())
        # No resample can lie beyond the most extreme block of every case: where that is quiet, drawing is idle.
        ends = (
            [
                math.fsum(
                    weights[case] / total * pick(b for bs in of.values() for b in bs) for case, of in ratios.items()
                )
                for pick in (min, max)
            ]
            if ratios
            else [math.inf]
        )
        if max(map(abs, ends)) <= math.log1p(self.max_noise):
            return True
        try:
            return bootstrap(ratios, weights, seed=f"{self.session.seed}:{self.mode}")[0].far_end <= self.max_noise
        except ValueError:
            return False


class Field:
    """All races of a log under one contract and scope, in order, and what their verdicts prove of each plan."""

    def __init__(self, contract: Mapping[str, Any], log: Iterable[tuple[str, Session]], out: Withdrawn) -> None:
        self.contract = contract
        self.mode = str(contract["mode"]["headline"])
        self.weights = scored(contract)
        self.failed: set[tuple[Identity, int | None]] = set()
        self.passed: dict[tuple[Identity, int], set[str]] = {}
        self.unrun: dict[tuple[Identity, int], set[str]] = {}
        self.lenient = contract["target"]["device"] == "cpu"  # there a gate nobody ran holds nothing back
        valid = [(identity, session) for identity, session in _once(log) if not is_void(session)]
        for _, session in valid:
            self._take_verdicts(session)
        found = [race for identity, session in valid if (race := self._race(identity, session, out)) is not None]
        self.seen = [race for race in found if race.session.kind in RACES]
        self.baselines = [race for race in found if race.session.kind in BASELINES]

    def wrong(self, plan: Plan, case: int) -> bool:
        """Whether the plan ever failed a gate on this case, or the policy anywhere."""
        return (plan.identity, case) in self.failed or ((plan.candidate_hash, ""), None) in self.failed

    def unproved(self, plan: Plan, case: int) -> str:
        """Why the plan counts as not proved right on this case; empty where it is."""
        key = (plan.identity, case)
        excused = self.unrun.get(key, set()) if self.lenient else set()
        missing = [gate for gate in PROVED if gate not in self.passed.get(key, ()) and gate not in excused]
        return f"gate {missing[0]} never passed on this case" if missing else ""

    def _take_verdicts(self, session: Session) -> None:
        proves = session.status == "complete" and session.kind in ("judge", "screen", "decide")
        for record in session.participants:
            if record["role"] not in CANDIDATES:
                continue
            name, own = str(record["name"]), plans(record, session.cases)
            for verdict in session.verdicts:
                if verdict.participant != name:
                    continue
                cases = session.cases if verdict.case is None else [verdict.case]
                keys = [(own[case].identity, case) for case in cases if case in own]
                if verdict.status == "failed" and verdict.gate == "policy":
                    self.failed.add(((str(record["candidate_hash"]), ""), None))
                elif verdict.status == "failed" and verdict.case is not None:
                    self.failed.update(keys)
                elif verdict.status == "passed" and proves:
                    for key in keys:
                        self.passed.setdefault(key, set()).add(verdict.gate)
                elif verdict.status == "not_run" and proves:
                    for key in keys:
                        self.unrun.setdefault(key, set()).add(verdict.gate)
            if proves and record["role"] == "challenger":
                for case in session.cases:
                    self.unrun.setdefault((own[case].identity, case), set()).update(_gates(session.not_run))

    def _race(self, identity: str, session: Session, out: Withdrawn) -> Seen | None:
        if (
            session.kind not in (*RACES, *BASELINES)
            or session.status != "complete"
            or (session.not_run and not self.lenient)
        ):
            return None
        headline = [visit for visit in session.visits if visit.mode == self.mode]
        try:
            found, visits = figures([replace(session, visits=headline)]), visit_medians(session)
        except ValueError:
            return None  # a time that is none: nothing of this session can be trusted, as in a decision
        race = Seen(
            identity, replace(session, visits=[]), self.mode, found, visits, {}, self.weights,
            float(self.contract["max_noise"]),
        )  # fmt: skip
        answered = {(v.participant, v.case) for v in session.verdicts if (v.gate, v.status) == (PROOF, "passed")}
        bad = ("failed",) if self.lenient else ("failed", "not_run")
        broken = {(v.participant, v.case) for v in session.verdicts if v.status in bad}
        excused = PROOF in _gates(session.not_run)
        for record in session.participants:
            name = str(record["name"])
            if record["role"] not in CANDIDATES or (name, None) in broken:
                continue
            if is_withdrawn(out, str(record["candidate_hash"]), str(record["plan_hash"])):
                continue
            for case, plan in plans(record, session.cases).items():
                proof = excused or {(name, case), (name, None)} & answered
                fair = proof and (name, case) not in broken and race.whole(case, name)
                if case in self.weights and fair and not self.wrong(plan, case):
                    race.right.setdefault(case, {})[plan.identity] = plan
        return race


def plans(record: Mapping[str, Any], cases: Sequence[int]) -> dict[int, Plan]:
    """A participant's plan on each case."""
    schedules = record.get("schedules") or {}
    name, candidate, plan = (str(record[key]) for key in ("name", "candidate_hash", "plan_hash"))
    return {case: Plan(name, candidate, plan, canonical(schedules.get(str(case)) or {}).decode()) for case in cases}


def is_void(session: Session) -> bool:
    """Void by its status, or because someone failed whom it leans on: anyone trusted, the canaries, a name unknown."""
    roles = {str(record["name"]): record["role"] for record in session.participants}
    return session.status == "void" or any(
        verdict.status == "failed"
        and (roles.get(verdict.participant, TRUSTED[0]) in TRUSTED or verdict.gate == "canaries")
        for verdict in session.verdicts
    )


def visit_medians(session: Session) -> dict[tuple[int, str, str], list[float]]:
    """µs of every valid visit by (case, participant, mode). Raises ValueError on a time that is none."""
    found: dict[tuple[int, str, str], list[float]] = {}
    for visit in session.visits:
        us = visit_figure(visit)
        if us is not None:
            found.setdefault((visit.case, visit.participant, visit.mode), []).append(us)
    return found


def median_us(values: Sequence[float]) -> float | None:
    """Median in µs; None of nothing."""
    return statistics.median(values) if values else None


def pair(races: Sequence[Seen], case: int, names: Sequence[tuple[str, str]]) -> dict[Process, list[float]]:
    """Log ratios, second ÷ first of `names` (one pair a race), over several races; a process is (race, generation)."""
    pooled: dict[Process, list[float]] = {}
    for index, (race, (mine, theirs)) in enumerate(zip(races, names, strict=True)):
        for (_, generation), blocks in log_ratios(race.found, mine, theirs, race.mode, [case])[case].items():
            pooled[index, generation] = blocks
    return pooled


def noise(races: Sequence[Seen], case: int, *, few: bool = False) -> float | None:
    """Far end of twin ÷ incumbent on this case, all races that have a twin pooled; None where none has."""
    twins = [of for race in races if (of := race.twin_ratios(case)) is not None]
    if not twins:
        return None
    pooled = {(index, process[1]): blocks for index, of in enumerate(twins) for process, blocks in of.items()}
    return paired(pooled, seed_of(races), few=few).interval.far_end


def seed_of(races: Sequence[Seen]) -> str:
    """The seed of a comparison over these races, as `evaluation.bootstrap.compare` makes it."""
    return ",".join(str(race.session.seed) for race in races) + f":{races[0].mode}"


def in_order(races: Sequence[Seen]) -> list[Seen]:
    """By start, as a comparison pools them: the order of appending decides nothing."""
    return sorted(races, key=lambda race: (race.session.started, race.session.job_hash, race.session.seed))


def _gates(entries: Iterable[str]) -> set[str]:
    """The gates that a session's `not_run` lists, each "gate: why"."""
    return {entry.split(":")[0].strip() for entry in entries}


def _once(log: Iterable[tuple[str, Session]]) -> list[tuple[str, Session]]:
    """The same measurement taken in twice counts once: twice would feign precision."""
    known: dict[tuple[str, str, int], tuple[str, Session]] = {}
    for identity, session in log:
        known.setdefault((session.started, session.job_hash, session.seed), (identity, session))
    return list(known.values())
