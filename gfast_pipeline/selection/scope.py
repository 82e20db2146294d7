"""The guard between scopes: what was measured elsewhere, or under another contract, is shown beside and never ranked.

Knows what a scope is made of (contract hash, protocol, accelerator, software) and nothing of times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.ledger.sessions import same_scope

_ABSENT = "nothing stated"


class ScopeError(GfastError):
    """Figures of several scopes where only one can be ranked. Names what differs."""


def same(one: Any, other: Any) -> bool:
    """Whether two records (sessions, decisions, rows: anything with `contract_hash` and `scope`) may be ranked
    together: every part equal. A scope nobody stated equals none, not even itself."""
    (mine, my_scope), (theirs, their_scope) = _placed(one), _placed(other)
    return mine == theirs and same_scope(my_scope, their_scope)


def differences(one: Any, other: Any) -> list[str]:
    """In what two records differ in scope, as "accelerator.name: NVIDIA H200 and NVIDIA A100"; empty where in nothing.

    Two records without a scope differ in that: nobody knows whether they are alike.
    """
    (mine, my_scope), (theirs, their_scope) = _placed(one), _placed(other)
    left = {"contract_hash": mine[:12], **_flat(my_scope)}
    right = {"contract_hash": theirs[:12], **_flat(their_scope)}
    if mine != theirs and left["contract_hash"] == right["contract_hash"]:
        left["contract_hash"], right["contract_hash"] = mine, theirs
    unstated = [] if my_scope or their_scope else ["scope: stated by neither"]
    keys = dict.fromkeys([*left, *right])
    return unstated + [
        f"{key}: {left.get(key, _ABSENT)} and {right.get(key, _ABSENT)}"
        for key in keys
        if left.get(key, _ABSENT) != right.get(key, _ABSENT)
    ]


def refuse_across(records: Iterable[Any], what: str = "these figures") -> None:
    """Pass where all records are of one scope. Raises ScopeError naming what differs, and the way out."""
    first = None
    for record in records:
        if first is None:
            first = record
        if not same(first, record):
            raise ScopeError(
                f"{what} are of several scopes and cannot be ranked ({'; '.join(differences(first, record))}). "
                "Rank each scope alone, or show them beside each other unranked."
            )


def unranked(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of any scopes to be shown beside each other: copies in the order given, `rank` taken out (None), with
    `scope_differs` saying in what each differs from the first. Nothing here orders them by a figure."""
    shown: list[dict[str, Any]] = []
    for row in rows:
        against = differences(shown[0], row) if shown else []
        shown.append({**row, "rank": None, "scope_differs": "; ".join(against)})
    return shown


def _placed(record: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(record, Mapping):
        return str(record.get("contract_hash")), record.get("scope") or {}
    return str(record.contract_hash), record.scope or {}


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in sorted(values.items()):
        name = f"{above}{key}"
        flat.update(_flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value})
    return flat
