"""What keeps sessions from deciding anything: roles, voided sessions, failed verdicts, holes. Answers in one sentence.

Knows the records of the bench and the contract's cases. Knows no statistics. Everything here fails closed: what is
not positively there counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gfast_pipeline.bench.messages import TRUSTED, Session, Verdict, canonical
from gfast_pipeline.evaluation.figures import missing_visits

RACES = ("screen", "decide", "confirm")
PROOF = "timed_output"  # the gate that ties the timings to right answers: without its verdict a time proves nothing
PROVED = ("official", "budget", "anchored", "determinism", "sensitivity", "inputs_untouched", "globals_untouched")
"""Gates that a challenger must have passed on every case, in the deciding session or in the one it confirms."""


@dataclass(frozen=True)
class Cast:
    """Who plays which part, by plan name. `control` is v000: its own participant, or the incumbent when it is v000."""

    challenger: str
    incumbent: str
    twin: str | None
    reference: str | None
    control: str | None
    records: dict[str, dict[str, Any]]

    @property
    def anchors(self) -> list[str]:
        """All whose times a decision leans on, each once."""
        names = (self.challenger, self.incumbent, self.twin, self.reference, self.control)
        return [name for name in dict.fromkeys(names) if name is not None]


def cast(session: Session, challenger: str | None = None) -> Cast:
    """The roles of a session. `challenger` picks one of several. Raises ValueError on a role empty or ambiguous."""
    records = {str(record["name"]): record for record in session.participants}
    by_role: dict[str, list[str]] = {}
    for name, record in records.items():
        by_role.setdefault(str(record["role"]), []).append(name)
    challengers = by_role.get("challenger", [])
    if challenger is not None and challenger not in challengers:
        raise ValueError(f"{challenger} is no challenger of the session; it has {', '.join(challengers) or 'none'}")
    if challenger is None and len(challengers) != 1:
        raise ValueError(f"the session has {len(challengers)} challengers; name the one to decide on")
    for role in ("incumbent", "twin", "reference", "control"):
        if len(by_role.get(role, [])) > 1:
            raise ValueError(f"the session has several participants with the role {role}: {', '.join(by_role[role])}")
    if "incumbent" not in by_role:
        raise ValueError("the session has no incumbent to beat")

    def one(role: str) -> str | None:
        return by_role[role][0] if role in by_role else None

    incumbent = by_role["incumbent"][0]
    control = one("control") or (incumbent if incumbent.startswith("v000") else None)
    return Cast(challenger or challengers[0], incumbent, one("twin"), one("reference"), control, records)


def scored(contract: Mapping[str, Any]) -> dict[int, float]:
    """Weight of every scored case of the contract."""
    return {int(case["id"]): float(case["weight"]) for case in contract["cases"] if case["status"] == "scored"}


def first_problem(
    sessions: Sequence[Session], contract: Mapping[str, Any], players: Cast, cases: Sequence[int], modes: Sequence[str]
) -> str | None:
    """Why these sessions can decide nothing, or None. `modes` are those that count and have to be complete.

    The order matters: a void session says nothing about the challenger, so it comes before the challenger's failures;
    those come before holes, which they often cause.
    """
    for session in sessions:
        if trouble := _wrong_kind(session, contract):
            return trouble
    for session in sessions[1:]:
        if trouble := _not_alike(sessions[0], session, players):
            return trouble
    for session in sessions:
        if trouble := _void(session, players):
            return trouble
    for session in sessions:
        if trouble := challenger_failure(session.verdicts, players.challenger):
            return trouble
    for session in sessions:
        if trouble := _incomplete(session, players, cases, modes):
            return trouble
    return None


def challenger_failure(verdicts: Iterable[Verdict], name: str) -> str | None:
    """The first verdict that ends the challenger's race: a failed gate, or a build that was skipped."""
    for verdict in verdicts:
        if verdict.participant == name and verdict.status == "failed":
            return f"{name} is invalid: {describe(verdict)}"
        if verdict.participant == name and verdict.gate == "build" and verdict.status == "skipped":
            return f"{name} is invalid: it was skipped, {verdict.reason or 'its build is unavailable here'}"
    return None


def clock_unseen(sessions: Sequence[Session], name: str, mode: str) -> list[int]:
    """Cases on which the clock gate was skipped for a participant in a mode, in any of the sessions."""
    skipped = {
        verdict.case
        for session in sessions
        for verdict in session.verdicts
        if (verdict.gate, verdict.status, verdict.participant, verdict.variant) == ("clock", "skipped", name, mode)
    }
    return sorted(case for case in skipped if case is not None)


def gates_not_run(sessions: Sequence[Session], challenger: str) -> list[str]:
    """Gates that no one ran, as "gate: why", each once: the sessions' lists, and the challenger's own `not_run`."""
    listed = [entry for session in sessions for entry in session.not_run]
    own = [
        f"{verdict.gate}: {verdict.reason or 'no reason recorded'}"
        for session in sessions
        for verdict in session.verdicts
        if verdict.participant == challenger and verdict.status == "not_run"
    ]
    return list(dict.fromkeys(listed + own))


def describe(verdict: Verdict) -> str:
    """A verdict as "gate official failed on case 7 (official/randn, trial 2): reason"."""
    where = f" on case {verdict.case}" if verdict.case is not None else ""
    inputs = "/".join(part for part in (verdict.draw, verdict.variant) if part)
    details = [inputs] if inputs else []
    details += [f"trial {verdict.trial}"] if verdict.trial is not None else []
    details += [f"generation {verdict.generation}"] if verdict.generation is not None else []
    inside = f" ({', '.join(details)})" if details else ""
    reason = verdict.reason
    if not reason and verdict.share is not None and verdict.limit is not None:
        reason = f"used {verdict.share:.3g} of the allowance, the limit is {verdict.limit:.3g}"
    return f"gate {verdict.gate} {verdict.status}{where}{inside}: {reason or 'no reason recorded'}"


def _wrong_kind(session: Session, contract: Mapping[str, Any]) -> str | None:
    if session.kind not in RACES:
        return f"a session of kind {session.kind} is no race; decide on {', '.join(RACES)}"
    if (session.workload, session.contract_name) != (contract["workload"], contract["name"]):
        return (
            f"the session was measured under {session.workload}/{session.contract_name}, "
            f"not {contract['workload']}/{contract['name']}"
        )
    return None


def _not_alike(first: Session, other: Session, players: Cast) -> str | None:
    if first.contract_hash != other.contract_hash:
        return "the sessions were measured under different contract hashes, which are never pooled"
    if canonical(first.scope) != canonical(other.scope):
        return "the sessions have different scopes (device or software), which are never pooled"
    if set(first.cases) != set(other.cases):
        return "the sessions measured different cases; only the same cases are pooled"
    mine, theirs = players, cast(other, players.challenger)
    for role in ("challenger", "incumbent", "twin", "reference", "control"):
        name = getattr(mine, role)
        if name != getattr(theirs, role):
            return f"the sessions have different participants in the role {role}: {name}, {getattr(theirs, role)}"
        if name is not None and _plan(mine.records[name]) != _plan(theirs.records[name]):
            return f"{name} was measured with another source or schedule in each session"
    return None


def _plan(record: Mapping[str, Any]) -> tuple[Any, Any]:
    return record.get("candidate_hash"), record.get("plan_hash")


def _void(session: Session, players: Cast) -> str | None:
    """A void status, or a failure of anyone but the judged, be it the canaries' or a name that nobody knows."""
    for verdict in session.verdicts:
        role = players.records.get(verdict.participant, {}).get("role")
        if verdict.status == "failed" and (role is None or role in TRUSTED or verdict.gate == "canaries"):
            return f"the session is void: {verdict.participant}, {describe(verdict)}"
    if session.status == "void":
        return f"the session is void: {session.reason or 'no reason recorded'}"
    return None


def _incomplete(session: Session, players: Cast, cases: Sequence[int], modes: Sequence[str]) -> str | None:
    if session.status != "complete":
        return f"the session is {session.status}: {session.reason or 'no reason recorded'}"
    if session.cells_missing:
        generation, case = session.cells_missing[0]
        return (
            f"the session is incomplete: {len(session.cells_missing)} cells are missing, "
            f"first case {case} of generation {generation}"
        )
    if session.kind != "screen" and players.twin is None:
        return "the session has no twin of the incumbent, so nothing says how far its noise reaches"
    racing = [name for name in (players.challenger, players.incumbent, players.twin) if name is not None]
    for mode in modes:  # the bench measures reference and v000 in the headline mode alone: they decide nothing
        for name in players.anchors if mode == modes[0] else racing:
            for case in cases:
                if holes := missing_visits(session, case, name, mode):
                    return (
                        f"the session is incomplete: {name} on case {case} ({mode}) lacks {len(holes)} visits, "
                        f"first {holes[0]}"
                    )
    proved = {
        verdict.case
        for verdict in session.verdicts
        if (verdict.gate, verdict.status, verdict.participant) == (PROOF, "passed", players.challenger)
    }
    excused = any(entry.split(":")[0].strip() == PROOF for entry in session.not_run)
    if not excused and None not in proved and (unproved := sorted(set(cases) - proved)):
        return f"the timed answers of {players.challenger} on case {unproved[0]} were never checked ({PROOF})"
    if session.kind != "confirm":  # it confirms the very plan that its deciding session proved
        passed = {
            (v.gate, v.case) for v in session.verdicts if (v.status, v.participant) == ("passed", players.challenger)
        }
        for gate in PROVED:
            missing = [case for case in cases if (gate, case) not in passed and (gate, None) not in passed]
            if missing and not any(entry.split(":")[0].strip() == gate for entry in session.not_run):
                return f"{players.challenger} was never proved on case {missing[0]}: gate {gate} has no passed verdict"
    return None
