"""Files on their way into tables: proved, unfolded, laid down as JSON lines, loaded in bulk by the database itself.

Shared by what writes the ledger and by what verifies it, so that both read a file in one way only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import duckdb

from gfast_pipeline.ledger import evidence, rows
from gfast_pipeline.ledger.evidence import Entry, EvidenceError

_TIMES = ("judge_wall_us", "runner_wall_us", "handshake_us", "spin_us", "host_us")
_COUNTS = ("case", "generation", "block", "turn", "position", "calls", "untimed")
_NAMES = ("participant", "mode", "status")


class Unfit(Exception):
    """Some value of some entry fits no column; bulk loading does not say whose."""


class Stage:
    """Entries laid down in `folder` (empty, temporary), ready to be loaded as often as wanted.

    `problems` holds one message for each entry that could not be read; of those nothing is laid down.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []
        self.problems: list[str] = []
        self._files: dict[str, IO[str]] = {}
        self._longest = 0

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def add_all(self, entries: Iterable[Entry]) -> None:
        """Lay down every entry that has a copy which proves itself; of the others, and of damaged copies, complain."""
        for entry in entries:
            try:
                self.add(entry)
            except EvidenceError as error:
                self.problems.append(str(error))

    def add(self, entry: Entry) -> None:
        """Lay down one. Raises EvidenceError: damaged, edited, or of a shape that this version does not know."""
        proved = self._proved(entry)
        content = proved.content
        try:
            made = list(rows.unfold(entry.kind, entry.id, content["payload"]))
            said = content.get("origin") or {}
            head = {
                "name": entry.name,
                "utc": datetime.strptime(entry.utc, "%Y%m%dT%H%M%S.%fZ").isoformat(),
                "kind": entry.kind,
                "id": entry.id,
                "sha256": proved.sha256,
                "bytes": proved.bytes,
                "run": said.get("run") or "ingest",
                "asset": said.get("asset") or "",
            }
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise unreadable(entry, error) from None
        self._lay("entry", head)
        for table, row in made:
            self._lay(table, row)
        self.names.append(entry.name)

    def _proved(self, entry: Entry) -> evidence.Proved:
        """The first copy that holds; others that do not are told where one does."""
        held, errors = [], []
        for copy in entry.copies or (entry.path,):
            try:
                held.append(evidence.prove(copy))
            except EvidenceError as error:
                errors.append(error)
        if not held:
            raise errors[0]
        self.problems += map(str, errors)
        return held[0]

    def load(
        self, connection: duckdb.DuckDBPyConnection, tables: Collection[str], condition: str, into: str = "{table}"
    ) -> None:
        """Insert what was laid down into `tables` (named `into`), where `condition` (SQL on `{id}`, the entry's) holds.

        Raises Unfit where a value does not fit its column.
        """
        for file in self._files.values():
            file.flush()
        for table in sorted(tables):
            source = self._visits() if table == "visit" else self._rows(connection, table)
            if source is not None:
                key = "id" if table == "entry" else "entry"
                test = condition.replace("{id}", key)
                try:
                    connection.execute(
                        f"INSERT INTO {into.replace('{table}', table)} BY NAME SELECT * FROM ({source}) WHERE {test}"
                    )
                except (duckdb.DataError, duckdb.IntegrityError, duckdb.InvalidInputException) as error:
                    raise Unfit(str(error)) from None

    def _lay(self, table: str, row: dict[str, Any]) -> None:
        if table not in self._files:
            self._files[table] = (self.folder / f"{table}.ndjson").open("w", encoding="utf-8")
        line = json.dumps(row, ensure_ascii=False)
        self._longest = max(self._longest, 4 * len(line))  # UTF-8 needs at most four bytes a character
        self._files[table].write(line + "\n")

    def _rows(self, connection: duckdb.DuckDBPyConnection, table: str) -> str | None:
        if table not in self._files:
            return None
        columns = connection.execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? AND database_name = "
            "current_database() AND schema_name = 'main' ORDER BY column_index",
            [table],
        ).fetchall()
        # Times as texts first: the reader would take all of a column's in the format of the first.
        spec = ", ".join(f'"{name}": {_quoted("VARCHAR" if kind == "TIMESTAMP" else kind)}' for name, kind in columns)
        shown = ", ".join(
            f'"{name}"::{kind} AS "{name}"' if kind == "TIMESTAMP" else f'"{name}"' for name, kind in columns
        )
        return f"SELECT {shown} FROM ({self._read(table, spec)})"

    def _visits(self) -> str | None:
        """Visits out of their columns: indices back into names, nanoseconds into µs, distances into times."""
        if rows.PACKED not in self._files:
            return None
        inside = [*(f'"{name}" BIGINT[]' for name in (*_NAMES, *_COUNTS, *_TIMES)), "event_us BIGINT[][]"]
        columns = _quoted(f"STRUCT({', '.join(inside)})")
        packed = f"entry: 'VARCHAR', names: 'VARCHAR[]', count: 'BIGINT', columns: {columns}"
        spread = [f'unnest(columns."{name}") AS "{name}"' for name in (*_NAMES, *_COUNTS, *_TIMES, "event_us")]
        shown = [
            *(f'names["{name}" + 1] AS "{name}"' for name in _NAMES),
            *(f'"{name}"' for name in _COUNTS),
            *(f'"{name}" / 1000::DOUBLE AS "{name}"' for name in _TIMES),
            # the first is the least of the calls, the others are distances from it
            "list_transform(event_us[2:], lambda ns: (event_us[1] + ns) / 1000::DOUBLE) AS event_us",
        ]
        return (
            f"SELECT entry, n, {', '.join(shown)} FROM (SELECT entry, names, unnest(range(count)) AS n, "
            f"{', '.join(spread)} FROM ({self._read(rows.PACKED, packed)}))"
        )

    def _read(self, table: str, columns: str) -> str:
        path = _quoted(str(self.folder / f"{table}.ndjson"))
        size = max(self._longest, 1 << 20)
        return (
            f"SELECT * FROM read_json({path}, format = 'newline_delimited', maximum_object_size = {size}, "
            f"columns = {{{columns}}})"
        )


def unreadable(entry: Entry, error: Exception) -> EvidenceError:
    """What to say of an entry that proves itself, and yet is of no shape that this version knows."""
    told = re.sub(r'in file ".*/(\w+)\.ndjson", in line \d+: *', r"in its \1: ", str(error)).strip().splitlines()
    missing = f"{error} is missing" if isinstance(error, KeyError) else told[0] if told else type(error).__name__
    return EvidenceError(
        f"{entry.path}: written by another version of gfast ({missing}); read it with that one. It stays as it is, "
        "and out of the ledger"
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
