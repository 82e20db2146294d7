"""Outcomes as Dagster shows them: metadata, tables, plots, data versions, check results."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from gfast_pipeline.stages.outcome import Check, Outcome

HEADINGS = {
    "ratio": ("× as fast", "base's or incumbent's time ÷ its own, paired in time: above 1 it is faster"),
    "low": ("95 % low", "lower end of the interval of × as fast"),
    "high": ("95 % high", "upper end of the interval of × as fast"),
    "base": ("against", "whose time × as fast divides"),
    "official_us": ("official µs", "median of calls timed as the official script times them, the host's part included"),
    "queued_us": ("queued µs", "median with the device kept busy before: device time alone; none where the host binds"),
    "ratio_to_reference": ("× reference", "the reference's time ÷ its own: above 1 it is faster"),
    "ratio_to_best_peer": ("× best peer", "the best peer's time ÷ its own: above 1 it is faster"),
    "floor_us": ("floor µs", "what the device's measured ceilings allow at best"),
    "gap": ("gap", "measured device time ÷ floor: 1 is the floor reached"),
    "used": ("share of allowance", "largest error ÷ what the gate allows: above 1 it fails"),
}
"""What a column or figure is headed, and what it means; both beside the numbers."""
INTERVALS = {"ratio": ("low", "high"), "ratio_to_reference": ("ratio_low", "ratio_high")}
"""Columns with the ends of their 95 % interval, which a table shows in one."""
UNITS = {"_us": " µs", "_tflops": " TFLOP/s", "_tb_s": " TB/s", "_t_s": " T/s"}
BAR = "log₂ gap"
DIGITS = 5
"""Significant digits shown of a figure. What decides is in the log, with all of them."""


def metadata(outcome: Outcome) -> dict[str, Any]:
    """Summary, figures with their units, the table of cases, and plots.

    The table is one of Dagster's, and stands open: markdown of a thousand characters hides behind a click, as plots do.
    """
    found: dict[str, Any] = {"summary": dg.MetadataValue.text(outcome.summary), "how": outcome.status}
    told = {"session"} if outcome.sessions else set()
    found |= {_label(name, value): _value(value) for name, value in outcome.facts.items() if name not in told}
    if outcome.sessions:
        found["sessions"] = ", ".join(outcome.sessions)
    if outcome.rows:
        found["cases" if "case" in outcome.rows[0] else "table"] = as_table(outcome.rows)
    for title, svg in outcome.plots.items():
        found[title] = dg.MetadataValue.md(
            f"![{title}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"
        )
    return found


def result(key: dg.AssetKey, outcome: Outcome, checks: Sequence[str]) -> dg.MaterializeResult:
    """The materialization of a stage with the results of its declared checks."""
    return dg.MaterializeResult(
        asset_key=key,
        metadata=metadata(outcome),
        data_version=dg.DataVersion(outcome.version),
        check_results=[
            dg.AssetCheckResult(
                check_name=check.name,
                passed=check.passed,
                severity=dg.AssetCheckSeverity.WARN if check.warning else dg.AssetCheckSeverity.ERROR,
                description=check.description,
            )
            for check in said(outcome, checks)
        ],
    )


def unmeasured(key: dg.AssetKey, checks: Sequence[str], why: str) -> Iterator[dg.AssetCheckResult]:
    """Every declared check of a stage that could not measure: a warning that says what would."""
    for name in checks:
        warn = dg.AssetCheckSeverity.WARN
        yield dg.AssetCheckResult(asset_key=key, check_name=name, passed=False, severity=warn, description=why)


def said(outcome: Outcome, declared: Sequence[str]) -> list[Check]:
    """A result for every declared check: where the stage had nothing to check, that is what it says."""
    found = {check.name: check for check in outcome.checks}
    return [found.get(name) or Check(name, True, f"nothing to check: {outcome.summary}", True) for name in declared]


def as_table(rows: Sequence[Mapping[str, Any]]) -> dg.TableMetadataValue:
    """A table; columns in the order in which rows first name them, those without any value left out.

    A ratio and its interval share a column. Beside a gap stands its bar: the plot that needs no click.
    """
    ends = {end for name, pair in INTERVALS.items() for end in pair if any(name in row for row in rows)}
    named = dict.fromkeys(name for row in rows for name in row if name not in ends)
    columns = [name for name in named if any(_has(row, name) for row in rows)]
    records, described = [{} for _ in rows], []
    for name in columns:
        heading, said = _heading(name), HEADINGS.get(name, ("", None))[1]
        pair = INTERVALS.get(name, ())
        heading += " [95 %]" if pair else ""
        for record, row in zip(records, rows, strict=True):
            record[heading] = _cell(row.get(name)) + _between([row.get(end) for end in pair])
            if name == "gap":
                record[BAR] = _bar(row.get(name))
        described.append(dg.TableColumn(heading, "string", said))
        if name == "gap":
            described.append(dg.TableColumn(BAR, "string", "a block a doubling"))
    return dg.MetadataValue.table([dg.TableRecord(record) for record in records], dg.TableSchema(described))


def _between(ends: list[Any]) -> str:
    said = f" [{', '.join(map(_cell, ends))}]" if ends and None not in ends else ""
    return said.replace(" ", "\N{NO-BREAK SPACE}")


def _bar(gap: Any) -> str:
    return "█" * round(math.log2(gap)) if isinstance(gap, (int, float)) and gap >= 1 else ""


def _has(row: Mapping[str, Any], name: str) -> bool:
    return row.get(name) not in (None, "", [])


def _heading(name: str) -> str:
    """`challenger_us` → `challenger µs`."""
    if name in HEADINGS:
        return HEADINGS[name][0]
    for suffix, unit in UNITS.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix).replace("_", " ") + unit
    return name.replace("_", " ")


def _label(name: str, value: Any) -> str:
    """The heading of a figure; of an id of the log, that it is one."""
    names_entry = isinstance(value, str) and re.fullmatch("[0-9a-f]{12}", value)
    return f"{_heading(name)} entry" if names_entry else _heading(name)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_cell, value))
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return value[:12]  # the head of a hash names it
    return str(value)


def _value(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return dg.MetadataValue.text(str(value))
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, (int, str)):
        return value
    return dg.MetadataValue.json(value)
