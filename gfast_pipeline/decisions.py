"""Decisions on stored sessions: made once, stored, found again, computed again. Appends to the log; runs nothing.

Who decides is `evaluation`; here is which sessions a decision rests on, and whether it was for the title.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gfast_pipeline.bench.messages import Session, canonical
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import Loaded, load
from gfast_pipeline.evaluation.bootstrap import Interval
from gfast_pipeline.evaluation.decision import Decision, confirm, decide
from gfast_pipeline.evaluation.timings import CaseRow
from gfast_pipeline.ledger import evidence, sessions
from gfast_pipeline.ledger.sessions import Incumbent
from gfast_pipeline.selection import incumbent as titles


@dataclass(frozen=True)
class Race:
    """What a race left in the log: its decision, with the ids of the sessions that it rests on."""

    decision: Decision
    decision_id: str
    session_ids: list[str]


def settle(loaded: Loaded, session_id: str, keep: bool = False) -> Race:
    """Decide on a stored deciding session, with an earlier uncertain one of the same plans, and store the decision."""
    session = sessions.load_whole(session_id)
    earlier = [] if session.kind != "decide" else _uncertain(session)
    pooled = [sessions.load_whole(identity) for identity in earlier]
    decision = decide([*pooled, session], loaded.plain)
    return _store(loaded, decision, [*earlier, session_id], keep)


def settled_on(loaded: Loaded, session_id: str) -> Race:
    """The decision on a deciding session: the stored one, or where there is none, made now and stored."""
    identity = decision_id_on(session_id, confirmed=False)
    return load_race(identity) if identity is not None else settle(loaded, session_id)


def settle_confirmation(loaded: Loaded, raced: Race, session_id: str, keep: bool = False) -> Race:
    """Decide on decision and confirmation together, and store it."""
    decided = [sessions.load_whole(identity) for identity in raced.session_ids]
    decision = confirm(decided, sessions.load_whole(session_id), loaded.plain)
    return _store(loaded, decision, [*raced.session_ids, session_id], keep)


def conclude(loaded: Loaded, session_id: str, keep: bool = False) -> Race | None:
    """The decision that a stored session makes possible: of a race, or of the promotion that it confirms. None where it
    is of another kind, not whole, or confirms a promotion that is not in the log."""
    session = sessions.load_whole(session_id)
    if session.status != "complete":
        return None
    if session.kind in ("decide", "screen"):
        return settle(loaded, session_id, keep)
    promotion = _promotion(session) if session.kind == "confirm" else None
    return None if promotion is None else settle_confirmation(loaded, load_race(promotion), session_id, keep)


def load_race(identity: str) -> Race:
    """A stored decision by its id. Raises EvidenceError."""
    entry = evidence.find(identity, None, sessions.DECISION)
    plain = dict(evidence.read(entry.path))
    ids = list(plain.pop("session_ids"))
    known = {name: plain[name] for name in Decision.__dataclass_fields__ if name in plain}
    for name in ("shown", "queued", "noise", "noise_queued", "health", "ratio_to_reference"):
        if known.get(name) is not None:
            known[name] = Interval(**known[name])
    known["cases"] = [CaseRow(**row) for row in known.get("cases", [])]
    return Race(Decision(**known), entry.id, ids)


def recompute_decision(identity: str) -> list[str]:
    """A stored decision computed again from its sessions and contract: every field that differs, in words.

    Where contract or files are no longer what they were, says so instead: such a decision can be read, not repeated.
    """
    raced = load_race(identity)
    stored = raced.decision
    try:
        loaded = load(f"{stored.workload}/{stored.contract_name}")
    except GfastError as error:
        return [f"decision {identity}: cannot be computed again: {error}"]
    if loaded.hash != stored.contract_hash:
        return [f"decision {identity}: cannot be computed again: its contract has changed since"]
    made = evidence.find(identity, None, sessions.DECISION).utc
    found = [sessions.load_whole(one, before=made) for one in raced.session_ids]
    deciding, confirming = ([s for s in found if (s.kind == "confirm") is wanted] for wanted in (False, True))
    again = confirm(deciding, confirming[-1], loaded.plain) if confirming else decide(deciding, loaded.plain)
    mine, theirs = stored.plain(), again.plain()
    return [
        f"decision {identity}: {name} is recorded as {mine[name]!r} and computed as {theirs[name]!r}"
        for name in theirs
        if canonical([mine[name]]) != canonical([theirs[name]])
    ]


def decision_on(session_id: str) -> dict[str, Any] | None:
    """The last stored decision that rests on this session, as plain values."""
    return next((plain for _, plain in _decisions_on(session_id)), None)


def decision_id_on(session_id: str, confirmed: bool | None = None) -> str | None:
    """Id of the last stored decision that rests on this session; `confirmed` False: of the race alone, True: with a
    confirmation."""
    for identity, plain in _decisions_on(session_id):
        pooled = any(one.get("kind") == "confirm" for one in plain.get("sessions", []))
        if confirmed is None or pooled is confirmed:
            return identity
    return None


def confirmation_of(raced: Race) -> Race | None:
    """The stored decision that pools a race with its confirmation; None where there is none yet. An invalid one (its
    session was loud, or lost) says nothing, and the race may be confirmed again."""
    for identity, plain in _decisions_on(raced.session_ids[-1]):
        if plain["outcome"] != "invalid" and any(one.get("kind") == "confirm" for one in plain.get("sessions", [])):
            return load_race(identity)
    return None


def undecided_confirmation(raced: Race) -> str | None:
    """A whole confirmation of a race's very plans that no decision rests on yet: measured, and then interrupted."""
    mine = _plans(sessions.load_whole(raced.session_ids[-1]).participants)
    for head in reversed(sessions.list_sessions(contract_hash=raced.decision.contract_hash, kind="confirm")):
        fits = _plans(head.participants) == mine and sessions.same_scope(head.scope, raced.decision.scope)
        new = fits and head.rest_of is None and decision_id_on(head.id) is None
        if new and sessions.load_whole(head.id).status == "complete":
            return head.id
    return None


def _plans(participants: list[dict[str, Any]]) -> list[Any]:
    return [r["plan_hash"] for role in ("incumbent", "challenger") for r in participants if r["role"] == role]


def for_title(decision_id: str) -> bool:
    """Whether a stored decision was against the holder of the title."""
    return sessions.payload(evidence.find(decision_id, None, sessions.DECISION)).get("for_title", True) is True


def title(contract_hash: str, scope: dict[str, Any] | None) -> Incumbent | None:
    """Who holds the title of a scope; None where v000 does (see `selection.incumbent.reigns`)."""
    return (
        titles.incumbent(contract_hash, scope, titles.stored_decisions(), titles.stored_withdrawals(contract_hash))
        if scope
        else None
    )


def _store(loaded: Loaded, decision: Decision, session_ids: list[str], keep: bool) -> Race:
    """Append a decision; `for_title` only where it beat the holder: beating a lesser plan takes nothing."""
    held = title(loaded.hash, decision.scope)
    holder = held.name if held is not None else loaded.workload.candidate("v000").name
    plain = {**decision.plain(), "session_ids": session_ids, "for_title": decision.incumbent == holder}
    entry = sessions.append_decision(plain)
    return Race(decision, evidence.keep(entry.id).id if keep else entry.id, session_ids)


def _uncertain(session: Session) -> list[str]:
    """Ids of the sessions of the last decision on these plans, when that was uncertain and rests on one race."""
    mine = {record["role"]: record["plan_hash"] for record in session.participants}
    for entry in reversed(evidence.entries(None, sessions.DECISION)):
        plain = sessions.payload(entry)
        if plain["contract_hash"] != session.contract_hash or not sessions.same_scope(plain["scope"], session.scope):
            continue
        if plain["plan_hash"] != mine.get("challenger"):
            continue
        first = sessions.load_whole(plain["session_ids"][0])
        theirs = {record["role"]: record["plan_hash"] for record in first.participants}
        if theirs.get("incumbent") != mine.get("incumbent") or first.kind != "decide":
            continue
        again = plain["outcome"] == "uncertain" and len(plain["session_ids"]) == 1
        return list(plain["session_ids"]) if again else []
    return []


def _promotion(session: Session) -> str | None:
    """Id of the last unconfirmed promotion of a confirmation's challenger under its contract and scope."""
    mine = next(record["plan_hash"] for record in session.participants if record["role"] == "challenger")
    for entry in reversed(evidence.entries(None, sessions.DECISION)):
        plain = sessions.payload(entry)
        if (
            (plain["outcome"], plain["confirmed"], plain["plan_hash"]) == ("promote", False, mine)
            and plain["contract_hash"] == session.contract_hash
            and sessions.same_scope(plain["scope"], session.scope)
        ):
            return entry.id
    return None


def _decisions_on(session_id: str) -> list[tuple[str, dict[str, Any]]]:
    found = [(entry.id, sessions.payload(entry)) for entry in evidence.entries(None, sessions.DECISION)]
    return [(identity, plain) for identity, plain in reversed(found) if session_id in plain.get("session_ids", [])]
