"""SQL for people and agents: named queries or any read-only statement, on the snapshot, in a sandbox with limits.

Knows how to ask and how to refuse; what the answers mean is in the schema. A statement can neither write nor read files
nor run for ever, whatever it says: DuckDB is opened so that it cannot, a timer interrupts it, and what comes from
outside runs in a process of its own.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from gfast_pipeline.ledger import apart, index, snapshot
from gfast_pipeline.ledger.database import LedgerError
from gfast_pipeline.ledger.evidence import warehouse

LIMIT_S = 30.0
MAX_ROWS = 2_000_000
MAX_BYTES = 500_000_000
"""Most of an answer that is held in memory, roughly."""
_READS = ("SELECT", "EXPLAIN", "MULTI")  # what a PIVOT parses to is MULTI; whatever it holds runs in the sandbox
_NAME = re.compile(r"[A-Za-z0-9_\-]+")


@dataclass(frozen=True)
class Query:
    """A named query: the file, what it answers (its first comment), its SQL."""

    name: str
    answers: str
    sql: str
    path: Path


@dataclass(frozen=True)
class Result:
    """Rows of Python values, the names of their columns (made unique) and DuckDB's types of them."""

    columns: list[str]
    types: list[str]
    rows: list[tuple[Any, ...]]

    def records(self) -> list[dict[str, Any]]:
        """One dict a row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def queries() -> dict[str, Query]:
    """All named queries: those that come with gfast, and those of this warehouse, which go before them."""
    found: dict[str, Query] = {}
    for folder in (Path(__file__).resolve().parents[2] / "warehouse" / "queries", warehouse() / "queries"):
        for path in sorted(folder.glob("*.sql")):
            sql = path.read_text(encoding="utf-8")
            first = sql.lstrip().partition("\n")[0]
            found[path.stem] = Query(
                path.stem, first.removeprefix("--").strip() if first[:2] == "--" else "", sql, path
            )
    return dict(sorted(found.items()))


def ask(what: str, parameters: Mapping[str, Any] | None = None, *, limit_s: float = LIMIT_S) -> Result:
    """The answer to a named query or to one read-only statement, after taking in evidence that the ledger lacks.

    Raises LedgerError with one message and its remedy: no such query, a parameter missing or unknown, more than one
    statement, one that is no reading, that reads files, that needs more memory or time than it may, or that is wrong.
    """
    sql = _sql(what)
    wanted = _checked(sql, parameters or {})
    index.sync()
    if sql != what:
        return answer_here(sql, wanted, limit_s)  # a named one is nobody's prank
    return Result(*apart.run(sql, wanted, limit_s))


def answer_here(sql: str, parameters: Mapping[str, Any], limit_s: float) -> Result:
    """The answer of the snapshot to one statement, in this process. Raises LedgerError."""
    connection = snapshot.reader()
    if connection is None:
        raise LedgerError(f"{snapshot.path()}: cannot be read; make it anew: gfast ledger rebuild")
    timer = threading.Timer(limit_s, connection.interrupt)
    timer.start()
    try:
        return _run(connection, sql, parameters, limit_s)
    except duckdb.Error as error:
        raise LedgerError(_refusal(error, limit_s)) from None
    finally:
        timer.cancel()
        connection.close()


def _sql(what: str) -> str:
    if not _NAME.fullmatch(what.strip()):
        return what
    known = queries()
    if what.strip() not in known:
        raise LedgerError(f"no query {what.strip()!r}; there are {', '.join(known)}, or give a statement: SELECT …")
    return known[what.strip()].sql


def _checked(sql: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, when `sql` is one statement that reads and takes exactly these."""
    parser = duckdb.connect()
    try:
        statements = parser.extract_statements(sql)
    except duckdb.Error as error:
        raise LedgerError(_refusal(error, LIMIT_S)) from None
    finally:
        parser.close()
    if len(statements) != 1:
        many = "no statement" if not statements else f"{len(statements)} statements"
        raise LedgerError(f"{many} where one is asked for; give one SELECT at a time")
    kind = statements[0].type.name
    if kind not in _READS:
        raise LedgerError(
            f"{kind} is refused: only reading is possible here (SELECT, WITH, FROM, DESCRIBE, SUMMARIZE, EXPLAIN); "
            "evidence is appended by measuring, never by hand"
        )
    wanted = set(statements[0].named_parameters)
    if missing := sorted(wanted - set(parameters)):
        raise LedgerError(f"parameter {missing[0]} is missing; add --param {missing[0]}=VALUE")
    if unknown := sorted(set(parameters) - wanted):
        takes = f"it takes {', '.join(sorted(wanted))}" if wanted else "it takes none"
        raise LedgerError(f"parameter {unknown[0]} is unknown to this query; {takes}")
    return dict(parameters)


def _run(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, Any], limit_s: float) -> Result:
    deadline = time.monotonic() + limit_s
    cursor = connection.execute(sql, dict(parameters)) if parameters else connection.execute(sql)
    rows: list[tuple[Any, ...]] = []
    held, many = 0, 16
    while batch := cursor.fetchmany(many):
        rows += batch
        held += sum(
            sys.getsizeof(value) + 8 * (len(value) if isinstance(value, list) else 0) for row in batch for value in row
        )
        if len(rows) > MAX_ROWS or held > MAX_BYTES:
            raise LedgerError(
                f"more than {MAX_ROWS:,} rows or {MAX_BYTES // 10**6} MB; add a LIMIT or a WHERE, or aggregate"
            )
        if time.monotonic() > deadline:
            raise LedgerError(_too_long(limit_s))
        many = max(1, min(10_000, 10_000_000 * len(rows) // max(held, 1)))
    names: list[str] = []
    for name, *_ in cursor.description or []:
        taken = sum(other == name or other.startswith(f"{name}_") for other in names) if name in names else 0
        names.append(f"{name}_{taken + 1}" if taken else name)
    return Result(names, [str(column[1]) for column in cursor.description or []], rows)


def _too_long(limit_s: float) -> str:
    return f"stopped after {limit_s:g} s; narrow it with WHERE or LIMIT, or aggregate"


def _refusal(error: duckdb.Error, limit_s: float) -> str:
    told = re.sub(r"\s*\n\s*", " ", str(error).partition("\n\nLINE")[0].strip())
    if isinstance(error, duckdb.InterruptException):
        return _too_long(limit_s)
    if isinstance(error, duckdb.OutOfMemoryException):
        return apart.TOO_LARGE
    if isinstance(error, duckdb.PermissionException):
        return f"reading or writing files is refused: {told}; ask the tables of the ledger: gfast sql 'SHOW TABLES'"
    if isinstance(error, duckdb.ParserException):
        return f"no SQL: {told}; case, session, limit and position are words of SQL: write them in double quotes"
    if isinstance(error, (duckdb.CatalogException, duckdb.BinderException)):
        return f"{told}; see what there is: gfast sql 'SHOW TABLES', gfast sql 'DESCRIBE champions'"
    return f"the query failed: {told}"
