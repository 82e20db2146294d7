"""Outcomes as Dagster shows them: metadata, tables, plots, data versions, check results."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from gfast_pipeline.stages.outcome import Check, Outcome


def metadata(outcome: Outcome) -> dict[str, Any]:
    """Summary, figures, the table of cases as a person reads it, and plots inline."""
    found: dict[str, Any] = {"summary": dg.MetadataValue.text(outcome.summary), "how": outcome.status}
    found |= {name: _value(value) for name, value in outcome.facts.items()}
    if outcome.sessions:
        found["sessions"] = ", ".join(outcome.sessions)
    if outcome.rows:
        found["cases"] = dg.MetadataValue.md(as_markdown(outcome.rows))
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


def as_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table; columns in the order in which rows first name them."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_cell(row.get(name)) for name in columns) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def _value(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return dg.MetadataValue.text(str(value))
    if isinstance(value, (int, float, str)):
        return value
    return dg.MetadataValue.json(value)
