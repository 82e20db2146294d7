"""Sessions and decisions in the log: append, list, load, and who holds the title. Knows the records, no statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gfast_pipeline.bench.messages import Session, canonical, from_plain, to_plain
from gfast_pipeline.ledger import evidence
from gfast_pipeline.ledger.columns import decode_visits, encode_visits
from gfast_pipeline.ledger.evidence import Entry, EvidenceError

SESSION, DECISION = "session", "decision"


@dataclass(frozen=True)
class SessionHead:
    """A stored session without its samples, for lists; `load_session(head.id)` has all of it."""

    id: str
    utc: str
    kind: str
    workload: str
    contract_name: str
    contract_hash: str
    scope: dict[str, Any]
    status: str
    reason: str
    participants: list[dict[str, Any]]
    cases: list[int]
    rest_of: str | None


@dataclass(frozen=True)
class Incumbent:
    """The plan that holds the title of a scope, and the decision that gave it."""

    name: str
    candidate_hash: str
    plan_hash: str
    decision_id: str
    decision: dict[str, Any]


def append_session(session: Session, root: Path | None = None, *, utc: datetime | None = None) -> Entry:
    """Store a session, whatever its status, its times rounded to 0.001 µs.

    Decide on what `load_session` gives back, so that the decision can be computed again to the last digit. Raises
    EvidenceError as `append` does, and on a time that is NaN, naming the visit.
    """
    payload = to_plain(session)
    try:
        payload["visits"] = encode_visits(payload["visits"])
    except (ValueError, TypeError) as error:
        raise EvidenceError(f"session of {session.started}: {error}") from None
    return evidence.append(SESSION, payload, root, utc=utc)


def load_session(identity: str, folders: Sequence[Path] | None = None) -> Session:
    """The session whose id, or file name, begins with `identity`. Raises EvidenceError on none, several or damage."""
    entry = evidence.find(identity, folders, SESSION)
    payload = evidence.read(entry.path)
    try:
        return from_plain(Session, {**payload, "visits": decode_visits(payload["visits"])})
    except (ValueError, KeyError, TypeError) as error:
        raise EvidenceError(
            f"{entry.path}: written by another version of gfast ({error}); read it with that one"
        ) from None


def list_sessions(
    folders: Sequence[Path] | None = None,
    *,
    contract_hash: str | None = None,
    scope: Mapping[str, Any] | None = None,
    kind: str | None = None,
) -> list[SessionHead]:
    """Stored sessions in the order of the log, voided and partial ones too; each filter that is given has to match."""
    heads = []
    for entry in evidence.entries(folders, SESSION):
        payload = evidence.read(entry.path)
        if contract_hash is not None and payload["contract_hash"] != contract_hash:
            continue
        if scope is not None and not same_scope(payload["scope"], scope):
            continue
        if kind is not None and payload["kind"] != kind:
            continue
        known = {name: payload[name] for name in SessionHead.__dataclass_fields__ if name in payload}
        heads.append(SessionHead(**{**known, "id": entry.id, "utc": entry.utc}))
    return heads


def append_decision(decision: Mapping[str, Any], root: Path | None = None, *, utc: datetime | None = None) -> Entry:
    """Store a decision given as plain values. Raises EvidenceError when it lacks what `incumbent` reads."""
    for name in ("outcome", "confirmed", "contract_hash", "scope", "challenger", "candidate_hash", "plan_hash"):
        if name not in decision:
            raise EvidenceError(f"decision: {name} is missing; store what `decide` or `confirm` returned")
    return evidence.append(DECISION, dict(decision), root, utc=utc)


def incumbent(folders: Sequence[Path] | None, contract_hash: str, scope: Mapping[str, Any]) -> Incumbent | None:
    """The plan of the last confirmed promotion under this contract in this scope; None where there was none (v000)."""
    for entry in reversed(evidence.entries(folders, DECISION)):
        decision = evidence.read(entry.path)
        if (
            decision["outcome"] == "promote"
            and decision["confirmed"] is True
            and decision["contract_hash"] == contract_hash
            and same_scope(decision["scope"], scope)
        ):
            name, candidate, plan = (str(decision[key]) for key in ("challenger", "candidate_hash", "plan_hash"))
            return Incumbent(name, candidate, plan, entry.id, decision)
    return None


def same_scope(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether figures of two scopes may be ranked together: every part equal. A scope nobody stated equals none."""
    return bool(one) and canonical(dict(one)) == canonical(dict(other))
