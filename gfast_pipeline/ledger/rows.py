"""Entries as typed rows: which tables one file fills, and with what. Knows the payloads and nothing of files or SQL.

A row has the names of its table's columns; what a payload holds beyond them stays in its file alone, and what an older
one lacks is NULL. Kinds not listed here fill no table but `entry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gfast_pipeline.bench.messages import canonical
from gfast_pipeline.ledger.columns import ENCODING

Row = dict[str, Any]
Rows = Iterator[tuple[str, Row]]
PACKED = "packed_visits"
"""A pseudo table: one row a session, its visits as columns; unpacked in SQL, being most of all evidence."""


def unfold(kind: str, identity: str, payload: Mapping[str, Any]) -> Rows:
    """(table, row) of one entry. Raises ValueError, KeyError, TypeError, AttributeError on another shape."""
    maker = _MAKERS.get(kind)
    for table, row in maker(payload) if maker else ():
        yield table, {"entry": identity, **row}


def _session(payload: Mapping[str, Any]) -> Rows:
    scope = payload.get("scope") or {}
    accelerator, software = scope.get("accelerator") or {}, scope.get("software") or {}
    plain = ("kind", "workload", "contract_hash", "job_hash", "seed", "status", "reason", "rest_of", "isolation")
    listed = ("generations", "blocks", "cases", "modes", "cells_done", "cells_missing", "not_run", "environment")
    yield (
        "session",
        {
            **_taken(payload, (*plain, *listed)),
            **_scoped(payload),
            **{name: accelerator.get(name) for name in ("sms", "memory_mb", "power_limit_w")},
            "mig": _text(accelerator.get("mig")),
            **{name: software.get(name) for name in ("driver", "cuda", "torch", "triton")},
            "protocol": scope.get("protocol", payload.get("protocol")),
            "started": payload["started"] or None,
            "ended": payload.get("ended") or None,
        },
    )
    for table, key in (("participant", "participants"), ("verdict", "verdicts"), ("phase", "phases")):
        yield from _listed(table, payload[key])
    for table, key in (("clock", "clocks"), ("usage", "usage")):
        yield from _listed(table, payload.get(key) or [])
    for name, value in (payload.get("measured") or {}).items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        yield "measured", {"name": name, "figure" if number else "figures": value}
    yield PACKED, _packed(payload["visits"])


def _packed(visits: Any) -> Row:
    if not isinstance(visits, dict) or visits.get("encoding") != ENCODING:
        raise ValueError(f"its visits are not encoded as {ENCODING}")
    columns, rows = visits["columns"], visits["rows"]
    if short := next((name for name, column in columns.items() if len(column) != rows), None):
        raise ValueError(f"column {short} of its visits has {len(columns[short])} of {rows} rows")
    return {"count": rows, "names": visits["names"], "columns": columns}


def _decision(payload: Mapping[str, Any]) -> Rows:
    plain = ("outcome", "reason", "contract_hash", "challenger", "incumbent", "candidate_hash", "plan_hash", "mode")
    figures = ("challenger_us", "incumbent_us", "ratio", "low", "high", "margin", "margin_queued", "us", "resamples")
    scope = payload.get("scope") or {}
    software = scope.get("software") or {}
    shown = payload.get("shown") or {}
    yield (
        "decision",
        {
            **_taken(payload, (*plain, *figures, "workload", "not_run", "notes", "advances", "publishable")),
            **_scoped(payload),
            **{name: software.get(name) for name in ("driver", "torch")},
            "protocol": scope.get("protocol"),
            "shown_low": shown.get("low"),
            "shown_high": shown.get("high"),
            **_interval(payload, "queued", "queued_ratio", "queued"),
            **_interval(payload, "noise", "noise_ratio", "noise"),
            **_interval(payload, "noise_queued", "noise_queued_ratio", "noise_queued"),
            **_interval(payload, "health", "health_ratio", "health"),
            **_interval(payload, "ratio_to_reference", "ratio_to_reference", "reference"),
            "confirmed": payload["confirmed"],
            "for_title": payload.get("for_title", True),
        },
    )
    yield from _listed("decision_session", [{"session": one} for one in payload.get("session_ids") or []])
    yield from _listed("decision_case", payload.get("cases") or [])


def _interval(payload: Mapping[str, Any], key: str, ratio: str, prefix: str) -> Row:
    found = payload.get(key) or {}
    return {ratio: found.get("ratio"), f"{prefix}_low": found.get("low"), f"{prefix}_high": found.get("high")}


def _candidate(payload: Mapping[str, Any]) -> Rows:
    yield "candidate", dict(payload)


def _approval(payload: Mapping[str, Any]) -> Rows:
    yield "approval", {**payload, "contract": payload["contract_name"]}


def _withdrawal(payload: Mapping[str, Any]) -> Rows:
    yield "withdrawal", dict(payload)


def _headed(table: str, *lists: tuple[str, str]) -> Callable[[Mapping[str, Any]], Rows]:
    """Of a payload about one contract and scope: a head row, and a table for each (table, key) list."""

    def rows(payload: Mapping[str, Any]) -> Rows:
        inside = [key for _, key in lists]
        yield table, {**{k: v for k, v in payload.items() if k not in inside}, **_scoped(payload)}
        for name, key in lists:
            yield from _listed(name, payload.get(key) or [])

    return rows


def _submission(payload: Mapping[str, Any]) -> Rows:
    generalist = payload.get("generalist") or {}
    yield (
        "submission",
        {
            **_taken(payload, ("workload", "contract_hash", "path", "sha256")),
            **_scoped(payload),
            "generalist": generalist.get("name"),
            "generalist_hash": generalist.get("candidate_hash"),
        },
    )
    yield from _listed("submission_case", payload.get("cases") or [])


_MAKERS: dict[str, Callable[[Mapping[str, Any]], Rows]] = {
    "session": _session,
    "decision": _decision,
    "candidate": _candidate,
    "approval": _approval,
    "gap": _headed("gap", ("gap_case", "cases")),
    "holders": _headed("holders", ("holders_case", "cases"), ("holders_contested", "contested")),
    "route": _headed("route", ("route_case", "cases")),
    "withdrawal": _withdrawal,
    "submission": _submission,
}
KINDS = tuple(_MAKERS)
"""Kinds that fill tables; each has a table of its own name with one row an entry."""


def _scoped(payload: Mapping[str, Any]) -> Row:
    scope = payload.get("scope") or {}
    accelerator = scope.get("accelerator")
    return {
        "contract": payload["contract_name"],
        "scope": canonical(scope).decode() if scope else None,
        "accelerator": _text(accelerator.get("name") if isinstance(accelerator, dict) else accelerator),
    }


def _taken(payload: Mapping[str, Any], names: Sequence[str]) -> Row:
    return {name: payload.get(name) for name in names}


def _listed(table: str, items: Sequence[Mapping[str, Any]]) -> Rows:
    for n, item in enumerate(items):
        yield table, {"n": n, **item}


def _text(value: Any) -> str | None:
    return None if value is None else value if isinstance(value, str) else canonical(value).decode()
