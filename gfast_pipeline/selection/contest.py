"""The rule by which a cell changes hands: a challenger against the holder, on the cases where they met.

A cell is taken when all of this holds: the challenger is proved right there; in one race alone the low end of
holder ÷ challenger lies above 1 + m; a second race has their ratio above its own 1 + m; and over all races in which
both were right, pooled, the low end again lies above 1 + m. Each of the two intervals has to stand Holm's correction
over all cases that the challenger contests. m is the contract's margin or the far end of twin ÷ incumbent on that
case, the larger; without a twin it is the most noise that the contract allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gfast_pipeline.evaluation.bootstrap import Interval
from gfast_pipeline.evaluation.figures import Process
from gfast_pipeline.evaluation.wording import difference, percent
from gfast_pipeline.selection.field import Field, Plan, Seen, in_order, noise, pair, seed_of
from gfast_pipeline.selection.paired import ALPHA, holm, paired, point


@dataclass(frozen=True)
class Standing:
    """How a challenger stands against a holder on one case, over the races in which they met.

    `ratio` is holder ÷ challenger; `interval`, `p` and `p_holm` are None where nothing was drawn, and all of them
    where the two never met. `takes` is the rule's answer, `reason` its words.
    """

    case: int
    challenger: Plan
    holder: Plan
    races: tuple[Seen, ...]
    ratio: float | None = None
    interval: Interval | None = None
    p: float | None = None
    p_holm: float | None = None
    margin: float | None = None
    takes: bool = False
    reason: str = ""


class Contests:
    """Standings from a field. Remembers what it has drawn: the same races give the same figures."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.least = float(field.contract["margin"])
        self._known: dict[tuple[int, tuple[str, ...], Plan, Plan], Standing] = {}
        self._noise: dict[tuple[int, tuple[str, ...], bool], float | None] = {}

    def standings(
        self, challenger: Mapping[int, Plan], holders: Mapping[int, Plan], upto: int, *, shown: bool = False
    ) -> dict[int, Standing]:
        """The challenger's standing on every case of `challenger` that another holds, over the first `upto` races.

        With `shown`, all that there are, those who never met the holder too; without, none where it can take nothing:
        drawing is what costs.
        """
        races = {
            case: tuple(in_order([race for race in self.field.seen[:upto] if _met(race, case, plan, holders[case])]))
            for case, plan in challenger.items()
            if plan.identity != holders[case].identity
        }
        met = {
            case: self._stand(case, challenger[case], holders[case], found) for case, found in races.items() if found
        }
        alone = self._alone(met)
        if not shown and not any(self._confirms(single) for single in alone.values()):
            return {}
        pooled = self._adjusted({case: self._drawn(one, shown) for case, one in met.items()})
        judged = {case: self._judged(one, alone.get(case, []), len(pooled)) for case, one in pooled.items()}
        if shown:
            judged |= {case: _never(case, challenger[case], holders[case]) for case in races.keys() - met.keys()}
        return judged

    def _alone(self, met: Mapping[int, Standing]) -> dict[int, list[Standing]]:
        """case → its standing in each race by itself, corrected over the cases contested in that race; only where
        the pooled ratio may take the cell."""
        found: dict[int, list[Standing]] = {case: [] for case, one in sorted(met.items()) if self._promising(one)}
        for race in {race.id: race for case in found for race in met[case].races}.values():
            family = {
                case: self._drawn(self._stand(case, one.challenger, one.holder, (race,)))
                for case, one in met.items()
                if race in one.races
            }
            for case, one in self._adjusted(family).items():
                if case in found:
                    found[case].append(one)
        return found

    def _promising(self, one: Standing) -> bool:
        above = one.ratio is not None and one.ratio > 1.0 + self.least
        return above and not self.field.unproved(one.challenger, one.case)

    def _confirms(self, single: Sequence[Standing]) -> bool:
        """Whether one race carries the win alone and a second repeats it."""
        return any(map(_passes, single)) and sum(map(self._repeats, single)) > 1

    def _repeats(self, one: Standing) -> bool:
        """Whether a race by itself has the ratio above its margin: no proof, but no contradiction either."""
        return one.ratio is not None and one.ratio > 1.0 + (self.least if one.margin is None else one.margin)

    def _stand(self, case: int, mine: Plan, theirs: Plan, races: tuple[Seen, ...]) -> Standing:
        key = (case, tuple(race.id for race in races), mine, theirs)
        if key not in self._known:
            self._known[key] = Standing(case, mine, theirs, races, point(_ratios(case, mine, theirs, races)))
        return self._known[key]

    def _drawn(self, one: Standing, shown: bool = False) -> Standing:
        """The same with interval, p and margin, where they may matter or are to be shown."""
        if one.interval is not None or not (shown or self._promising(one)):
            return one
        try:
            ratios = _ratios(one.case, one.challenger, one.holder, one.races)
            drawn = paired(ratios, seed_of(one.races), few=not self._promising(one))
            # Who is below the least margin already needs no larger one.
            margin = self._margin(one) if drawn.interval.high >= 1.0 + self.least else self.least
        except ValueError:
            return one  # one generation, or one block: a ratio without an interval takes nothing
        found = replace(one, interval=drawn.interval, p=drawn.share_up_to(1.0 + margin), margin=margin)
        self._known[one.case, tuple(race.id for race in one.races), one.challenger, one.holder] = found
        return found

    def _margin(self, one: Standing) -> float:
        few = not self._promising(one)
        key = (one.case, tuple(race.id for race in one.races), few)
        if key not in self._noise:
            self._noise[key] = noise(one.races, one.case, few=few)
        loud = self._noise[key]
        return max(self.least, float(self.field.contract["max_noise"]) if loud is None else loud)

    def _adjusted(self, family: Mapping[int, Standing]) -> dict[int, Standing]:
        """The family with Holm's p: over the cases where the challenger is proved, as it can take no other. One
        without a p counts as 1: it is contested, and takes nothing."""
        cases = [case for case, one in family.items() if not self.field.unproved(one.challenger, case)]
        adjusted = holm([1.0 if (p := family[case].p) is None else p for case in cases])
        found = dict(family)
        for case, value in zip(cases, adjusted, strict=True):
            if family[case].p is not None:
                found[case] = replace(family[case], p_holm=value)
        return found

    def _judged(self, one: Standing, single: Sequence[Standing], family: int) -> Standing:
        """The standing with the rule's answer and its reason."""
        takes, said = self._rule(one, single, family)
        where = " and ".join(race.id for race in one.races)
        return replace(one, takes=takes, reason=f"{said}; beside {one.holder.name} in {where}")

    def _rule(self, one: Standing, single: Sequence[Standing], family: int) -> tuple[bool, str]:
        if one.interval is None or one.margin is None:
            return False, "no interval: too few generations or blocks"
        low, high, margin = one.interval.low, one.interval.high, percent(one.margin)
        if high < 1.0 + one.margin:
            return False, f"no faster: at most {difference(high)}, and the margin is {margin}"
        if why := self.field.unproved(one.challenger, one.case):
            return False, f"unproved: {why}"
        if low <= 1.0 + one.margin:
            return False, f"undecided: the interval holds the margin of {margin}"
        if one.p_holm is None or one.p_holm > ALPHA:
            return False, f"undecided: p does not stand Holm's correction over {family} cases"
        if len(one.races) < 2:
            return False, "unconfirmed: one race only"
        if not self._confirms(single):
            why = "no second race repeats it" if any(map(_passes, single)) else "no race carries it alone"
            return False, f"unconfirmed: {why}"
        return True, f"at least {difference(low)}, above the margin of {margin}, Holm over {family} cases"


def _passes(one: Standing) -> bool:
    if one.interval is None or one.p_holm is None or one.margin is None:
        return False
    return one.interval.low > 1.0 + one.margin and one.p_holm <= ALPHA


def _ratios(case: int, mine: Plan, theirs: Plan, races: Sequence[Seen]) -> dict[Process, list[float]]:
    names = [(race.right[case][mine.identity].name, race.right[case][theirs.identity].name) for race in races]
    return pair(races, case, names)


def _met(race: Seen, case: int, mine: Plan, theirs: Plan) -> bool:
    right = race.right.get(case, {})
    return mine.identity in right and theirs.identity in right and race.quiet


def _never(case: int, mine: Plan, theirs: Plan) -> Standing:
    return Standing(case, mine, theirs, (), reason=f"never met: no race held both it and {theirs.name} on this case")
