"""The sentence that goes with a decision: who, µs against µs, how sure, against which margin. Knows no rules."""

from __future__ import annotations

from collections.abc import Sequence

from gfast_pipeline.evaluation.bootstrap import Interval

VERBS = {"promote": "is promoted", "reject": "is rejected", "uncertain": "stays undecided"}
SCREEN_VERBS = {"promote": "screens as faster", "reject": "screens as no faster", "uncertain": "screens as undecided"}


def microseconds(us: float) -> str:
    """Three significant digits and the unit, in µs throughout so that figures stay comparable."""
    if us >= 1000:
        return f"{us:,.0f} µs"
    return f"{us:.{1 if us >= 10 else 2 if us >= 1 else 3}f} µs"


def difference(ratio: float) -> str:
    """A ratio of times (other ÷ mine) in words: "3.1 % faster", "0.4 % slower", "equally fast"."""
    percent = (ratio - 1.0) * 100.0
    if abs(percent) < 0.005:
        return "equally fast"
    return f"{_digits(abs(percent))} % {'faster' if percent > 0 else 'slower'}"


def percent(fraction: float) -> str:
    """A fraction as "1.5 %"."""
    return f"{_digits(fraction * 100.0)} %"


def race_sentence(
    *,
    verdict: str,
    screen: bool,
    challenger: str,
    incumbent: str,
    challenger_us: float,
    incumbent_us: float,
    cases: int,
    mode: str,
    interval: Interval,
    margin: float,
    path: str | None = None,
    path_interval: Interval | None = None,
    path_margin: float = 0.0,
) -> str:
    """One sentence on a race that could be measured. `path` is the mode that carried it when not the headline's own."""
    verb = (SCREEN_VERBS if screen else VERBS)[verdict]
    where = "geometric mean of 1 case" if cases == 1 else f"geometric mean of {cases} cases"
    measured = (
        f"{challenger} {verb}: {microseconds(challenger_us)} against {microseconds(incumbent_us)} of {incumbent} "
        f"({where}, {mode}), {difference(interval.ratio)}, 95 % interval from {difference(interval.low)} "
        f"to {difference(interval.high)}"
    )
    if path is not None and path_interval is not None:
        return (
            f"{measured}, which is no loss beyond the margin of {percent(margin)}, and {path} it is "
            f"{difference(path_interval.ratio)}, at least {difference(path_interval.low)}, "
            f"which clears the margin of {percent(path_margin)}."
        )
    if verdict == "promote":
        return f"{measured}, all of it above the margin of {percent(margin)}."
    if verdict == "reject":
        return f"{measured}, all of it below the margin of {percent(margin)}."
    return f"{measured}, which holds the margin of {percent(margin)} and so settles nothing."


def held_back(sentence: str, missing: Sequence[str]) -> str:
    """The sentence of a promotion that gates nobody ran keep from being one."""
    would = sentence.replace(f" {VERBS['promote']}:", " would be promoted:", 1)
    return f"{would[:-1]}, but it stays undecided because gates were not run ({'; '.join(missing)})."


def _digits(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"
