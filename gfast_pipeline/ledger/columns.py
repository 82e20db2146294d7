"""Visits as columns: what makes a session's file small. Knows the fields of a visit and nothing of files.

Times become whole nanoseconds, because clocks resolve no more: encoding once rounds to 0.001 µs, and from then on
encoding and decoding lose nothing. A visit's calls are stored as the least of them and the distances from it, which
are short numbers that compress well.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from gfast_pipeline.bench.messages import Visit, from_plain

ENCODING = "visit-columns-1"
_NS = 1000  # per µs
_KINDS = {"str": "name", "float": "us", "list[float] | None": "calls"}  # by a field's annotation; others are kept as is


def encode_visits(visits: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Plain visits (`to_plain`) as {"encoding", "rows", "names", "columns"}; texts become indices into `names`.

    Raises ValueError naming the visit and the field when a time is NaN or infinite.
    """
    kinds = {field.name: _KINDS.get(str(field.type), "plain") for field in dataclasses.fields(Visit)}
    names: dict[str, int] = {}
    columns: dict[str, list[Any]] = {name: [] for name in kinds}
    for index, visit in enumerate(visits):
        for name, kind in kinds.items():
            columns[name].append(_encode(visit[name], kind, names, f"visits[{index}].{name}"))
    return {"encoding": ENCODING, "rows": len(visits), "names": list(names), "kinds": kinds, "columns": columns}


def decode_visits(packed: dict[str, Any]) -> list[dict[str, Any]]:
    """The plain visits again. Raises ValueError on another encoding or on columns of different lengths."""
    if packed.get("encoding") != ENCODING:
        raise ValueError(f"visits are encoded as {packed.get('encoding')!r}; this version reads {ENCODING!r}")
    rows, names = packed["rows"], packed["names"]
    visits: list[dict[str, Any]] = [{} for _ in range(rows)]
    for field, column in packed["columns"].items():
        if len(column) != rows:
            raise ValueError(f"visits: column {field} has {len(column)} of {rows} rows")
        kind = packed["kinds"][field]
        for visit, value in zip(visits, column, strict=True):
            visit[field] = _decode(value, kind, names)
    return visits


def visit_records(packed: dict[str, Any]) -> list[Visit]:
    """As `decode_visits`, as records."""
    return [from_plain(Visit, visit) for visit in decode_visits(packed)]


def _encode(value: Any, kind: str, names: dict[str, int], place: str) -> Any:
    if value is None or kind == "plain":
        return value
    if kind == "name":
        return names.setdefault(value, len(names))
    if kind == "us":
        return _nanoseconds(value, place)
    whole = [_nanoseconds(us, place) for us in value]
    least = min(whole, default=0)
    return [least, *(ns - least for ns in whole)]


def _decode(value: Any, kind: str, names: Sequence[str]) -> Any:
    if value is None or kind == "plain":
        return value
    if kind == "name":
        return names[value]
    if kind == "us":
        return value / _NS
    least, *rest = value
    return [(least + more) / _NS for more in rest]


def _nanoseconds(us: float, place: str) -> int:
    if not math.isfinite(us):
        raise ValueError(f"{place} = {us}; a time that was not measured is null")
    return round(us * _NS)
