"""Sessions and decisions as the tables and checks that a stage shows. Nothing is decided here."""

from __future__ import annotations

from typing import Any

from gfast_pipeline.bench.messages import Session
from gfast_pipeline.evaluation.timings import timing_rows
from gfast_pipeline.evaluation.validity import describe
from gfast_pipeline.measuring import beside, median_us
from gfast_pipeline.stages.outcome import Check


def timing_table(session: Session) -> list[dict[str, Any]]:
    """Rows of (case, participant): official and queued µs and the paired ratio to the incumbent, or the reference."""
    if not session.visits:
        return []
    table: dict[tuple[int, str], dict[str, Any]] = {}
    for row in timing_rows(session):
        blank = {"case": row.case, "participant": row.participant, **{f"{mode}_us": None for mode in session.modes}}
        cell = table.setdefault((row.case, row.participant), blank)
        cell[f"{row.mode}_us"] = round(row.median_us, 2)
        if row.interval is not None and "ratio" not in cell:
            cell |= {"base": row.base, "ratio": round(row.interval.ratio, 4)}
            cell |= {"low": round(row.interval.low, 4), "high": round(row.interval.high, 4)}
    for row in beside(session):
        cell = table.setdefault(
            (row["case"], row["participant"]), {"case": row["case"], "participant": row["participant"]}
        )
        cell[f"{row['mode']}_us"] = round(row["median_us"], 2)
    return [table[key] for key in sorted(table)]


def summary(session: Session, identity: str) -> str:
    """A race in one line: status, and the challenger's median µs on each case beside the incumbent's."""
    roles = {record["role"]: record["name"] for record in session.participants}
    mode = session.modes[0] if session.modes else ""
    told = []
    for case in session.cases:
        us = [median_us(session, roles[role], case, mode) for role in ("challenger", "incumbent") if role in roles]
        if len(us) == 2 and None not in us:
            told.append(f"case {case} {us[0]:,.1f} µs against {us[1]:,.1f}")
    what = "; ".join(told) or session.reason or "nothing was timed"
    return f"session {identity}, {session.status}: {what}"


def samples(session: Session) -> int:
    """Timed calls in a session."""
    return sum(len(visit.event_us or ()) for visit in session.visits)


def session_checks(session: Session) -> list[Check]:
    """What Dagster shows beside a session that timed."""
    checks = []
    for name, gates, good in (
        (
            "clocks_agree",
            ("clock", "physics"),
            "the judge's clock agrees with every participant's, none beats the floor",
        ),
        (
            "outputs_were_checked",
            ("timed_output", "pool_untouched"),
            "outputs of timed calls, drawn in secret, are right",
        ),
    ):
        found = [v for v in session.verdicts if v.gate in gates]
        bad = [v for v in found if v.status == "failed"]
        passed = bool(found) and not bad
        said = f"{bad[0].participant}: {describe(bad[0])}" if bad else good if found else "nothing was timed"
        checks.append(Check(name, passed, said, warning=not found))
    return checks


def shares(session: Session, name: str) -> list[dict[str, Any]]:
    """Per case and gate the largest share of its allowance that a participant used."""
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    for verdict in session.verdicts:
        if verdict.participant != name or verdict.case is None or verdict.share is None or not verdict.limit:
            continue
        if verdict.gate in ("clock", "physics"):
            continue
        row = rows.setdefault((verdict.case, verdict.gate), {"case": verdict.case, "gate": verdict.gate, "used": 0.0})
        if verdict.share / verdict.limit >= row["used"]:
            row |= {"used": round(verdict.share / verdict.limit, 4), "status": verdict.status}
            row |= {"input": "/".join(part for part in (verdict.draw, verdict.variant) if part)}
    return [rows[key] for key in sorted(rows)]


def decision_facts(plain: dict[str, Any]) -> dict[str, Any]:
    keys = ("outcome", "incumbent", "challenger_us", "incumbent_us", "ratio", "low", "high", "margin")
    return {key: plain[key] for key in keys if plain.get(key) is not None}


def decision_rows(plain: dict[str, Any]) -> list[dict[str, Any]]:
    keys = ("case", "mode", "challenger_us", "incumbent_us", "reference_us", "ratio", "low", "high")
    return [
        {
            key: round(row[key], 4) if isinstance(row[key], float) else row[key]
            for key in keys
            if row.get(key) is not None
        }
        for row in plain.get("cases", [])
    ]
