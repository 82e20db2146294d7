"""A human's word for one contract hash: the tracked file <name>.approved.toml, its check and what changed since.

Any change to the contract or to the reference's code voids it. Knows no terminal; asking is for the command line.
"""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gfast_pipeline.contract.errors import GfastError, NotApproved
from gfast_pipeline.contract.load import Loaded


@dataclass(frozen=True)
class Approval:
    """Who approved which hash when (UTC, ISO 8601), with the contract and the reference's digest as they were."""

    hash: str
    by: str
    date: str
    reference: str
    contract: dict[str, Any]


def approval_path(loaded: Loaded) -> Path:
    """Where the contract's approval record lies."""
    return loaded.path.with_name(f"{loaded.name}.approved.toml")


def read(loaded: Loaded) -> Approval | None:
    """The last approval of this contract, valid or not; None without one. Raises GfastError if broken."""
    path = approval_path(loaded)
    if not path.is_file():
        return None
    try:
        record = tomllib.loads(path.read_text(encoding="utf-8"))
        texts = {key: str(record[key]) for key in ("hash", "by", "date", "reference")}
        contract = json.loads(record["contract"])
        if not isinstance(contract, dict):
            raise ValueError("`contract` holds no table")
        return Approval(**texts, contract=contract)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        message = f"{path}: not a readable approval record: {reason}."
        raise GfastError(
            f"{message} Restore it from history, or delete it and type: gfast approve {loaded.name}"
        ) from None


def check(loaded: Loaded) -> Approval:
    """The approval that holds for the contract as it stands. Raises NotApproved naming the one command to type."""
    approval = read(loaded)
    if approval is None:
        raise NotApproved(f"{loaded.path}: no one has approved this contract. Type: gfast approve {loaded.name}")
    if approval.hash != loaded.hash:
        changes = difference(approval, loaded)
        shown = "; ".join(changes[:3]) + (f"; and {len(changes) - 3} more" if len(changes) > 3 else "")
        raise NotApproved(
            f"{loaded.path}: changed since {approval.by} approved it on {approval.date}: {shown}. "
            f"Type: gfast approve {loaded.name}"
        )
    return approval


def approve(loaded: Loaded, full_hash: str, by: str) -> Path:
    """Writes the approval record and returns its path. Raises GfastError unless `full_hash` is the contract's hash and
    `by` names someone."""
    if full_hash != loaded.hash:
        raise GfastError(
            f"{loaded.path}: its hash is {loaded.hash}, not {full_hash}. "
            "Look at what changed, then give the hash as it is."
        )
    if not by.strip() or not by.isprintable():
        raise GfastError("An approval needs a name. Give it with --as NAME.")
    for peer in loaded.contract.peers:
        loaded.workload.peer(peer)
    contract = json.dumps(loaded.plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    text = "\n".join(
        [
            "# Written by `gfast approve`. Void as soon as the contract or the reference's code changes.",
            f"hash = {_quoted(loaded.hash)}",
            f"by = {_quoted(by.strip())}",
            f"date = {_quoted(datetime.now(UTC).isoformat(timespec='seconds'))}",
            f"reference = {_quoted(loaded.reference_digest)}",
            f"contract = {_quoted(contract)}",
            "",
        ]
    )
    path = approval_path(loaded)
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)
    return path


def difference(approval: Approval, loaded: Loaded) -> list[str]:
    """What changed since the approval, one line a value, in the order of the contract; empty where nothing did."""
    lines = list(_changes("", approval.contract, loaded.plain))
    if approval.reference != loaded.reference_digest:
        lines.append(f"{loaded.workload.reference_path.name}: its code changed")
    if not lines and approval.hash != loaded.hash:
        lines.append("the record's hash belongs to another contract")
    return lines


def _changes(at: str, old: Any, new: Any):
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            place = f"{at}.{key}" if at and not key.startswith("[") else f"{at}{key}"
            if key not in new:
                yield f"{place}: removed (was {_brief(old[key])})"
            elif key not in old:
                yield f"{place}: added {_brief(new[key])}"
            else:
                yield from _changes(place, old[key], new[key])
    elif _named(old) and _named(new):
        before, after = _by_name(old), _by_name(new)
        yield from _changes(at, before, after)
        if [name for name in before if name in after] != [name for name in after if name in before]:
            yield f"{at}: order changed"
    elif old != new or type(old) is not type(new):
        yield f"{at}: {_brief(old)} → {_brief(new)}"


def _named(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(v, dict) and ("id" in v or "name" in v) for v in value)
    )


def _by_name(records: Any) -> dict[str, Any]:
    return {f"[{record.get('id', record.get('name'))}]": record for record in records}


def _brief(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _quoted(text: str) -> str:
    """A TOML basic string. JSON's escapes are TOML's, but for the one control character that JSON lets pass."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
