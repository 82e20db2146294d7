"""The schema: numbered files of the package, applied once each and recorded; and the guards of every table.

Knows SQL files and triggers, nothing of evidence. Files are add-only: a change is a further file. One that only
replaces views may change in place, and is applied again when it did.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import duckdb

RECORD, GUARD = "schema_file", "guard"
"""Which files were applied; and what the triggers write to, where they do not raise (they always do)."""
_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_EVENTS = ("update", "delete")


class Foreign(Exception):
    """A database that this version must not touch. Says which, why, and what to do."""


@dataclass(frozen=True)
class SchemaFile:
    """One numbered file; `replays` where all it does is replace views."""

    number: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def replays(self) -> bool:
        statements = [s for s in re.sub(r"--[^\n]*", "", self.sql).split(";") if s.strip()]
        return all(re.match(r"\s*CREATE\s+OR\s+REPLACE\s+(VIEW|MACRO)\s", s, re.I) for s in statements)


def schema_files() -> list[SchemaFile]:
    """All schema files of the package in order."""
    found = []
    for item in (files("gfast_pipeline.ledger") / "schema").iterdir():
        if match := _NAME.fullmatch(item.name):
            found.append(SchemaFile(int(match[1]), item.name, item.read_text(encoding="utf-8")))
    return sorted(found, key=lambda file: file.number)


def bring_up_to_date(connection: duckdb.DuckDBPyConnection, file: Path) -> set[str]:
    """Apply what `file` lacks, inside the caller's transaction. Returns tables added to a ledger that was in use.

    Raises Foreign: not ours, of a newer version, of another state of the schema, or without its guards.
    """
    known = schema_files()
    applied = _applied(connection, file, known)
    before = tables(connection)
    if not applied:
        connection.execute(
            f"CREATE TABLE {RECORD} (n INTEGER PRIMARY KEY, number INTEGER, name VARCHAR, sha256 VARCHAR); "
            f"CREATE TABLE {GUARD} (never VARCHAR)"
        )
    else:
        _check_guards(connection, file, before)
    for one in known:
        if applied.get(one.number) != one.sha256:
            connection.execute(one.sql)
            connection.execute(
                f"INSERT INTO {RECORD} SELECT count(*), ?, ?, ? FROM {RECORD}", [one.number, one.name, one.sha256]
            )
    added = tables(connection) - before
    for table in sorted(added):
        for event in _EVENTS:
            connection.execute(_guard(table, event))
    return added - {RECORD} if applied else set()


def tables(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """All guarded tables: every one but the guard itself."""
    rows = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE NOT temporary AND database_name = current_database()"
    ).fetchall()
    return {name for (name,) in rows} - {GUARD}


def guards(connection: duckdb.DuckDBPyConnection) -> set[tuple[str, str]]:
    """(table, event) of the guards that stand, with the very text that we give them."""
    rows = connection.execute(
        "SELECT table_name, lower(event_manipulation), sql FROM duckdb_triggers() "
        "WHERE database_name = current_database()"
    ).fetchall()
    return {(table, event) for table, event, sql in rows if _plain(sql) == _plain(_guard(table, event))}


def missing_guards(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Tables that could be changed, in words."""
    there = guards(connection)
    return [f"{t} (no guard against {e})" for t in sorted(tables(connection)) for e in _EVENTS if (t, e) not in there]


def _guard(table: str, event: str) -> str:
    told = (
        f"{table} is append-only: evidence is never changed; append a new entry (a withdrawal, a new decision) instead"
    )
    return (
        f"CREATE TRIGGER guard_{table}_{event} AFTER {event} ON {table} REFERENCING OLD TABLE AS old_rows "
        f"FOR EACH STATEMENT INSERT INTO {GUARD} SELECT error('{told}') FROM old_rows"
    )


def _plain(sql: str) -> str:
    return re.sub(r"[\s\";]", "", sql).lower()


def _applied(connection: duckdb.DuckDBPyConnection, file: Path, known: list[SchemaFile]) -> dict[int, str]:
    """number → sha256 of what was applied last. Raises Foreign."""
    there = tables(connection)
    aside = "or set it aside and make a new one from the evidence files: gfast ledger rebuild"
    if RECORD not in there:
        if there:
            some = ", ".join(sorted(there)[:3])
            raise Foreign(f"{file}: no ledger of ours (it holds {some}); move it elsewhere, {aside}")
        return {}
    ours = {one.number: one for one in known}
    try:
        applied = _last_applied(connection)
    except duckdb.BinderException:
        raise Foreign(f"{file}: its {RECORD} is none of ours; move it elsewhere, {aside}") from None
    for number, (name, sha) in applied.items():
        if number not in ours:
            raise Foreign(
                f"{file}: of a newer version of gfast (schema {name}, this one knows up to {known[-1].name}); "
                f"use that version, {aside}"
            )
        if sha != ours[number].sha256 and not ours[number].replays:
            raise Foreign(f"{file}: its schema {name} differs from this version's; use the gfast that made it, {aside}")
    return {number: sha for number, (_, sha) in applied.items()}


def is_current(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether all schema files of this version were applied, as they are now. Raises duckdb.Error: no ledger."""
    applied = _last_applied(connection)
    return all(applied.get(one.number, ("", ""))[1] == one.sha256 for one in schema_files())


def _last_applied(connection: duckdb.DuckDBPyConnection) -> dict[int, tuple[str, str]]:
    """number → (name, sha256): views may change, and change back."""
    rows = connection.execute(f"SELECT number, name, sha256 FROM {RECORD} ORDER BY n").fetchall()
    return {number: (name, sha) for number, name, sha in rows}


def _check_guards(connection: duckdb.DuckDBPyConnection, file: Path, there: set[str]) -> None:
    if missing := missing_guards(connection):
        raise Foreign(
            f"{file}: somebody took guards away: {', '.join(missing[:3])}; its rows may have been changed. "
            "Make it anew from the evidence files: gfast ledger rebuild"
        )
