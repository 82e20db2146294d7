"""What a finished session says of itself: the gates that need all its visits, and its status in words.

Pure functions of the records. Knows nothing of devices, processes or statistics that decide.
"""

from __future__ import annotations

import statistics
from typing import Any

from gfast_pipeline.bench.messages import TRUSTED, Session, Verdict, Visit


def conclude(
    session: Session,
    contract: dict[str, Any],
    work: dict[int, dict[str, float]],
    nulls: dict[tuple[int, str], float],
    pointless: bool,
) -> None:
    """Add the verdicts of clock and physics and settle status and reason; `pointless`: nothing was left to measure."""
    session.verdicts += clock_verdicts(session.visits, nulls, contract["ratio_gate"])
    session.verdicts += physics_verdicts(session.visits, work, contract.get("limits"))
    if session.visits and not (contract.get("limits") or {}).get("compute_tflops"):
        session.not_run.append("physics: the contract names no limits")
    if any(v.gate == "canaries" and v.status == "failed" for v in session.verdicts):
        session.status, session.reason = "void", "a known-bad output passed the gate"
    roles = {record["name"]: record["role"] for record in session.participants}
    fallen = [v for v in session.verdicts if v.status == "failed" and roles.get(v.participant) in TRUSTED]
    if session.status == "complete" and fallen:
        v = fallen[0]
        session.status = "void"
        session.reason = f"{v.participant} ({roles[v.participant]}) failed {v.gate} on case {v.case}: {v.reason}"
    if session.status == "complete" and session.cells_missing and not pointless:
        session.status = "partial"
        session.reason = f"stopped at a case boundary with {len(session.cells_missing)} cells to go"


def clock_verdicts(visits: list[Visit], nulls: dict[tuple[int, str], float], ratio_gate: float) -> list[Verdict]:
    """The clock gate on the median of visits of each (participant, case, mode): events against the judge's wall.

    judge_wall − handshake − calls·null ≤ ratio_gate·(calls ÷ N)·Σ events + 0.25·calls·null and Σ events ≤
    1.05·judge_wall, with N timed of `calls` calls. In the queued mode the spin is taken off the wall, with a tenth of
    it as slack (its length follows the SM clock), and the untimed calls, which run before it, may last ratio_gate
    times the participant's own official figure: device time says nothing of a call that waits for its host. Visits
    shorter than 20 handshakes cannot tell and are `skipped`.
    """
    groups: dict[tuple[str, int, str], list[Visit]] = {}
    for visit in visits:
        if visit.event_us is not None:
            groups.setdefault((visit.participant, visit.case, visit.mode), []).append(visit)
    official = {
        (name, case): statistics.median(statistics.median(v.event_us or []) for v in found)
        for (name, case, mode), found in groups.items()
        if mode == "official"
    }
    verdicts = []
    for (name, case, mode), found in sorted(groups.items()):
        null = nulls.get((case, mode))
        excess, inverse = [], []
        for visit in found:
            calls, events = visit.calls + visit.untimed, sum(visit.event_us or [])
            if null is None or visit.judge_wall_us < 20 * visit.handshake_us:
                continue
            host = visit.judge_wall_us - visit.handshake_us - visit.spin_us - calls * null
            accounted = events * calls / visit.calls
            if mode == "queued" and visit.spin_us:
                accounted = events + visit.untimed * official.get((name, case), events / visit.calls)
            allowed = ratio_gate * accounted + 0.25 * calls * null + visit.spin_us / 10
            excess.append(host / allowed)
            inverse.append(events / (1.05 * visit.judge_wall_us))
        if not excess:
            why = "no null call was measured" if null is None else "visits last under 20 handshakes"
            verdicts.append(Verdict("clock", "skipped", name, case, variant=mode, reason=why))
            continue
        worst, above = statistics.median(excess), statistics.median(inverse)
        reason = ""
        if worst > 1:
            reason = f"the judge's wall holds {worst:.2f} times what the candidate's events can account for"
        elif above > 1:
            reason = f"the candidate's events exceed the judge's wall {above:.2f} times"
        status = "failed" if reason else "passed"
        verdicts.append(
            Verdict("clock", status, name, case, variant=mode, share=max(worst, above), limit=1.0, reason=reason)
        )
    return verdicts


def physics_verdicts(
    visits: list[Visit], work: dict[int, dict[str, float]], limits: dict[str, Any] | None
) -> list[Verdict]:
    """No result below the hard floor: arithmetic at the fastest datasheet rate, and memory when cold or beyond L2."""
    if not limits or not limits.get("compute_tflops"):
        return []
    verdicts = []
    groups: dict[tuple[str, int, str], list[float]] = {}
    for visit in visits:
        if visit.event_us:
            groups.setdefault((visit.participant, visit.case, visit.mode), []).append(statistics.median(visit.event_us))
    for (name, case, mode), medians in sorted(groups.items()):
        arithmetic = work[case]["flop"] / (max(limits["compute_tflops"].values()) * 1e6)
        memory = work[case]["bytes"] / (limits["memory_tb_s"] * 1e6)
        through = mode == "cold" or work[case]["bytes"] > limits["l2_mb"] * 1e6
        floor = max(arithmetic, memory if through else 0.0)
        median = statistics.median(medians)
        good = median >= floor
        reason = "" if good else f"{median:.2f} µs is below the hard floor of {floor:.2f} µs"
        verdicts.append(
            Verdict(
                "physics",
                "passed" if good else "failed",
                name,
                case,
                variant=mode,
                share=floor / median,
                limit=1.0,
                reason=reason,
            )
        )
    return verdicts
