"""Sessions and decisions in the log: append, load, list, join. No statistics, and no title."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from gfast_pipeline.bench.messages import TRUSTED, Session, canonical, from_plain, to_plain
from gfast_pipeline.ledger import evidence
from gfast_pipeline.ledger.columns import decode_visits, encode_visits
from gfast_pipeline.ledger.evidence import Entry, EvidenceError

SESSION, DECISION = "session", "decision"
PROVING = ("screen", "decide")
"""Kinds of session in which the challenger is proved right before it is timed."""


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
    """The session whose id, or file name, begins with `identity`; its lists are shared, to be read and not changed.
    Raises EvidenceError on none, several or damage."""
    entry = evidence.find(identity, folders, SESSION)
    return replace(_session(entry, *_stamp(entry)))


@functools.lru_cache(maxsize=128)
def _session(entry: Entry, size: int, changed: int) -> Session:
    del size, changed
    payload = evidence.read(entry.path)
    try:
        return from_plain(Session, {**payload, "visits": decode_visits(payload["visits"])})
    except (ValueError, KeyError, TypeError) as error:
        raise EvidenceError(
            f"{entry.path}: written by another version of gfast ({error}); read it with that one"
        ) from None


def load_whole(identity: str, folders: Sequence[Path] | None = None, before: str | None = None) -> Session:
    """The session joined with its remainders: those whose `rest_of` is its id, and theirs, in the order of the log.

    One session as if measured in one go. A cell that several measured counts as the first did; later visits, clocks and
    usage of it are dropped, which `reason` says. `complete` only where no part is void or failed and none is missing,
    but for those that the judge left because all was `settled`. Raises EvidenceError as `load_session`, and naming both
    where a remainder does not fit its session.
    """
    entry = evidence.find(identity, folders, SESSION)
    heads = [head for head in list_sessions(folders) if before is None or head.utc < before]
    known, count = {entry.id}, 0
    while len(known) > count:
        count = len(known)
        known |= {head.id for head in heads if head.rest_of in known}
    later = [head.id for head in heads if head.id in known and head.id != entry.id]
    parts = {part: load_session(part, folders) for part in (entry.id, *later)}
    whole = _joined(parts) if later else parts[entry.id]
    reason = ""
    if whole.cells_missing and not settled(whole):
        generation, case = whole.cells_missing[0]
        reason = f"{len(whole.cells_missing)} cells are missing, first generation {generation} case {case}"
    elif later:
        reason = _unproved(parts[entry.id], whole)
    if whole.status != "complete" or not reason:
        return whole
    return replace(whole, status="partial", reason="; ".join(filter(None, [reason, whole.reason])))


def root(identity: str, folders: Sequence[Path] | None = None) -> str:
    """Id of the session that this one is a part of: its own, or for a remainder, that of the very first part."""
    entry = evidence.find(identity, folders, SESSION)
    rest_of = evidence.read(entry.path).get("rest_of")
    return entry.id if rest_of is None else root(rest_of, folders)


def settled(session: Session) -> bool:
    """Whether the judge had a reason of its own to leave cells: all whom it judged had failed, or declined to build."""
    judged = {record["name"] for record in session.participants if record["role"] not in TRUSTED}
    out = {
        v.participant for v in session.verdicts if v.status == "failed" or (v.gate, v.status) == ("build", "skipped")
    }
    return bool(judged) and judged <= out


def _joined(parts: Mapping[str, Session]) -> Session:
    """All parts in one. Its status is the worst among void, failed and complete: partial ones are made whole here."""
    first_id, first = next(iter(parts.items()))
    asked = [tuple(cell) for cell in (*first.cells_done, *first.cells_missing)]
    whole = replace(first, cells_done=[], visits=[], clocks=[], usage=[], verdicts=[], phases=[], not_run=[])
    whole.measured, whole.environment = {}, dict(first.environment)
    done: dict[tuple[int, ...], str] = {}
    said: list[str] = []
    for part_id, part in parts.items():
        cells = [tuple(cell) for cell in part.cells_done]
        if odd := _misfit(first, part) or ("cells" if set(cells) - set(asked) else ""):
            raise EvidenceError(
                f"session {part_id} is no remainder of session {first_id}: its {odd} differ; measure the rest of "
                f"{first_id} once more, under the same contract on the same machine"
            )
        for cell in cells:
            if cell in done:
                said.append(f"generation {cell[0]} case {cell[1]} counts as {done[cell]} measured it, not {part_id}")
        fresh = {cell for cell in cells if cell not in done}
        done |= dict.fromkeys(fresh, part_id)
        whole.cells_done += [list(cell) for cell in cells if cell in fresh]
        whole.visits += [record for record in part.visits if (record.generation, record.case) in fresh]
        whole.clocks += [record for record in part.clocks if (record.generation, record.case) in fresh]
        whole.usage += [record for record in part.usage if (record.generation, record.case) in fresh]
        whole.verdicts += part.verdicts
        whole.phases += part.phases
        whole.not_run += [entry for entry in part.not_run if entry not in whole.not_run]
        whole.measured = _first_wins(whole.measured, part.measured)
        whole.ended = part.ended
        whole.environment["after"] = part.environment.get("after")
        if part.status in ("void", "failed"):
            said.append(f"{part_id} is {part.status}: {part.reason or 'no reason recorded'}")
    whole.isolation = " and ".join(dict.fromkeys(part.isolation for part in parts.values()))
    whole.cells_missing = [list(cell) for cell in asked if cell not in done]
    statuses = {part.status for part in parts.values()}
    whole.status = next((status for status in ("void", "failed") if status in statuses), "complete")
    whole.reason = "; ".join(said)
    return whole


def _misfit(first: Session, part: Session) -> str:
    """In what two sessions differ that have to be alike to be one; empty where nothing does."""
    if first is not part and not same_scope(first.scope, part.scope):
        return "scope (device or software)"
    for name in ("contract_hash", "kind", "generations", "blocks", "modes"):
        if getattr(first, name) != getattr(part, name):
            return f"{name} ({getattr(first, name)} and {getattr(part, name)})"
    mine, theirs = (
        sorted((str(r["name"]), str(r["role"]), str(r["plan_hash"])) for r in one.participants) for one in (first, part)
    )
    odd = sorted({name for name, *_ in set(mine) ^ set(theirs)})
    return f"participants ({', '.join(odd)})" if odd else ""


def _first_wins(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables in one; tables in them too, anything else as `one` has it."""
    both = {**other, **one}
    for name in set(one) & set(other):
        if isinstance(one[name], dict) and isinstance(other[name], dict):
            both[name] = {**other[name], **one[name]}
    return both


def _unproved(first: Session, whole: Session) -> str:
    """What is wrong where a first part ended before its proof did: its remainders time, and may not prove again."""
    if first.cells_done or whole.kind not in PROVING:
        return ""
    fallen = {verdict.participant for verdict in whole.verdicts if verdict.status == "failed"}
    proved = {(verdict.participant, verdict.case) for verdict in whole.verdicts if verdict.gate == "official"}
    for record in whole.participants:
        if record["role"] == "challenger" and record["name"] not in fallen:
            for case in whole.cases:
                if (record["name"], case) not in proved:
                    return f"no part proved {record['name']} on case {case}; race it anew"
    return ""


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
        head = _head(entry, *_stamp(entry))
        if contract_hash is not None and head.contract_hash != contract_hash:
            continue
        if scope is not None and not same_scope(head.scope, scope):
            continue
        if kind is not None and head.kind != kind:
            continue
        heads.append(head)
    return heads


def payload(entry: Entry) -> dict[str, Any]:
    """What a small entry (no session) says; read once a process, as files of the log never change."""
    return _payload(entry, *_stamp(entry))


def _stamp(entry: Entry) -> tuple[int, int]:
    """Size and time of the file: one that was tampered with is read, and so refused, again."""
    try:
        found = entry.path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


@functools.lru_cache(maxsize=8192)
def _head(entry: Entry, size: int, changed: int) -> SessionHead:
    del size, changed
    content = evidence.read(entry.path)
    known = {name: content[name] for name in SessionHead.__dataclass_fields__ if name in content}
    return SessionHead(**{**known, "id": entry.id, "utc": entry.utc})


@functools.lru_cache(maxsize=8192)
def _payload(entry: Entry, size: int, changed: int) -> dict[str, Any]:
    del size, changed
    return evidence.read(entry.path)


def append_decision(decision: Mapping[str, Any], root: Path | None = None, *, utc: datetime | None = None) -> Entry:
    """Store a decision given as plain values. Raises EvidenceError when it lacks what the title reads."""
    for name in ("outcome", "confirmed", "contract_hash", "scope", "challenger", "candidate_hash", "plan_hash"):
        if name not in decision:
            raise EvidenceError(f"decision: {name} is missing; store what `decide` or `confirm` returned")
    return evidence.append(DECISION, dict(decision), root, utc=utc)


def same_scope(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether figures of two scopes may be ranked together: every part equal. A scope nobody stated equals none."""
    return bool(one) and canonical(dict(one)) == canonical(dict(other))
