"""Sessions, noise and ceilings as plain values: what `--json` prints and what the tables are drawn from.

Counts and groups what the records hold. Figures that need statistics (timing rows, decisions, noise) come in as plain
values from whoever computed them; nothing is decided or ranked here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gfast_pipeline.bench.messages import Session, Verdict, to_plain

Row = dict[str, Any]


def session_plain(
    session: Session,
    *,
    timings: Sequence[Mapping[str, Any]] = (),
    decision: Mapping[str, Any] | None = None,
    identity: str | None = None,
) -> Row:
    """All that `gfast show SESSION` tells, as JSON values.

    `timings` are timing rows as plain values (case, participant, mode, median_us, calls, host_bound, base, interval),
    `decision` a decision as stored, `identity` the session's id in the ledger. Times are µs, phases seconds.
    """
    return {
        "header": _header(session, identity),
        "participants": [dict(record) for record in session.participants],
        "gates": gate_counts(session.verdicts),
        "shares": worst_shares(session.verdicts),
        "failures": [to_plain(verdict) for verdict in session.verdicts if verdict.status == "failed"],
        "skips": [to_plain(verdict) for verdict in session.verdicts if verdict.status == "skipped"],
        "timings": [dict(row) for row in timings],
        "decision": dict(decision) if decision is not None else None,
        "phases": phase_seconds(session),
        "clocks": clock_ranges(session),
        "usage": [to_plain(usage) for usage in session.usage],
        "not_run": list(session.not_run),
        "measured": dict(session.measured),
    }


def gate_counts(verdicts: Iterable[Verdict]) -> list[Row]:
    """Verdicts counted by gate and status, gates in the order in which they first came."""
    counts: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        counts.setdefault(verdict.gate, Counter())[verdict.status] += 1
    return [{"gate": gate, **counter} for gate, counter in counts.items()]


def worst_shares(verdicts: Iterable[Verdict]) -> list[Row]:
    """Per (case, participant) the verdict that used most of what it was held against (share ÷ limit).

    `u` is the share that the reference used on the same input.
    """
    worst: dict[tuple[int, str], tuple[float, Verdict]] = {}
    for verdict in verdicts:
        # The clock's and physics' shares are of times, not of an error allowance: they would not compare.
        if verdict.share is None or verdict.case is None or not verdict.limit or verdict.gate in ("clock", "physics"):
            continue
        key, used = (verdict.case, verdict.participant), verdict.share / verdict.limit
        if key not in worst or used > worst[key][0]:
            worst[key] = (used, verdict)
    return [
        {
            "case": case,
            "participant": participant,
            "gate": verdict.gate,
            "input": "/".join(part for part in (verdict.draw, verdict.variant) if part),
            "share": verdict.share,
            "u": verdict.reference_share,
            "limit": verdict.limit,
            "used": used,
            "status": verdict.status,
        }
        for (case, participant), (used, verdict) in sorted(worst.items())
    ]


def phase_seconds(session: Session) -> list[Row]:
    """Seconds by phase: in all, the longest single one, and how many."""
    groups: dict[str, list[float]] = {}
    for phase in session.phases:
        groups.setdefault(phase.phase, []).append(phase.seconds)
    return [
        {"phase": name, "seconds": sum(found), "longest": max(found), "count": len(found)}
        for name, found in groups.items()
    ]


def clock_ranges(session: Session) -> Row:
    """Least and most of what the card said beside the blocks; a figure that it never said is left out."""
    ranges: Row = {}
    for name in ("sm_mhz", "memory_mhz", "temperature_c", "power_w"):
        found = [value for clock in session.clocks if (value := getattr(clock, name)) is not None]
        if found:
            ranges[name] = [min(found), max(found)]
    reasons = [clock.throttle_reasons for clock in session.clocks if clock.throttle_reasons is not None]
    if reasons:
        ranges["throttle_reasons"] = dict(Counter(f"{reason:#x}" for reason in reasons))
    return ranges


def ceilings_plain(session: Session, identity: str | None = None) -> Row:
    """What a session measured of the device itself: name → figure or figures."""
    return {"header": _header(session, identity), "measured": dict(session.measured)}


def noise_plain(report: Mapping[str, Any], session: Session | None = None, identity: str | None = None) -> Row:
    """A noise report given as plain values, with the session that it is of."""
    return {"header": _header(session, identity) if session is not None else None, **report}


def _header(session: Session, identity: str | None) -> Row:
    return {
        "id": identity,
        "kind": session.kind,
        "workload": session.workload,
        "contract": session.contract_name,
        "contract_hash": session.contract_hash,
        "scope": dict(session.scope),
        "isolation": session.isolation,
        "status": session.status,
        "reason": session.reason,
        "started": session.started,
        "ended": session.ended,
        "seed": session.seed,
        "protocol": session.protocol,
        "rest_of": session.rest_of,
        "cases": list(session.cases),
        "generations": session.generations,
        "blocks": session.blocks,
        "modes": list(session.modes),
        "cells_done": len(session.cells_done),
        "cells_missing": [list(cell) for cell in session.cells_missing],
    }
