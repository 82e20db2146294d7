"""Takes evidence files into the database: what it lacks, in the order of the log, in one transaction.

The files are the record; what is here can be made again from them at any time. Killed at any moment, it leaves either
all of a transaction or nothing, and the next call does what is missing.
"""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from gfast_pipeline.ledger import database, evidence, migrate, snapshot
from gfast_pipeline.ledger.database import Held, LedgerError
from gfast_pipeline.ledger.evidence import Entry, EvidenceError
from gfast_pipeline.ledger.staging import Stage, Unfit, unreadable


def sync(*, thorough: bool = False) -> int:
    """Take in every evidence file that the ledger lacks, and refresh the snapshot. Returns how many it took in.

    What the snapshot holds is taken to be in the ledger, unless `thorough`: then every file is read.
    A file that does not prove itself is left out and all others are taken in; then LedgerError is raised, with one
    message for each. Also raised where the ledger is held, of a newer version, or not ours.
    """
    there = evidence.entries()
    known = snapshot.names()
    lacking = [entry for entry in there if known is None or entry.name not in known]
    if thorough:
        lacking = there
    elif known is not None and not lacking and database.path().is_file() and _schema_is_current():
        return 0
    return _take_in(database.path(), lacking, there)


def rebuild() -> int:
    """Make the ledger anew from all evidence files and put it in the place of the old one. Returns how many entries.

    An old one that holds entries whose files are missing, or is not ours at all, is set aside under another name, never
    deleted. Raises LedgerError as `sync`; where files are damaged, after all others are in place.
    """
    target = database.path()
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = snapshot.scratch(target)
    for leftover in (beside, Path(f"{beside}.wal")):
        leftover.unlink(missing_ok=True)
    there = evidence.entries()
    message = ""
    try:
        _take_in(beside, there, there, publish=False)
    except _Damaged as error:
        message = str(error)
    aside = _set_aside(target, {entry.name for entry in there})
    os.replace(beside, target)
    connection = database.connect(target)
    try:
        snapshot.refresh(connection, target)
        count = len(_held(connection))
    finally:
        connection.close()
    if message:
        raise LedgerError(f"{message}\nAll else is in the new ledger." + (f" The old one is {aside}" if aside else ""))
    return count


class _Damaged(LedgerError):
    """All that could be taken in was; the rest is told."""


def _take_in(target: Path, lacking: list[Entry], there: list[Entry], *, publish: bool = True) -> int:
    told: list[str] = []
    with tempfile.TemporaryDirectory(prefix="gfast-") as name, Stage(Path(name)) as stage:
        stage.add_all(lacking)  # before anybody is made to wait
        try:
            before, held = _load(target, stage, there)
            told += stage.problems
            taken = len(held) - before
        except Unfit as error:
            taken, held, told = _without_the_odd_one(target, lacking, there, error)
    # The snapshot knew them, the ledger does not: it was deleted, or a damaged disk took its end.
    if forgotten := [entry for entry in there if entry.name not in held and entry not in lacking]:
        try:
            taken += _take_in(target, forgotten, forgotten, publish=False)
        except _Damaged as error:
            told.append(str(error))
    if publish:
        _publish(target)
    if told:
        raise _Damaged("\n".join(told))
    return taken


def _load(target: Path, stage: Stage, there: list[Entry]) -> tuple[int, set[str]]:
    """Returns how many entries there were before, and the names of all that there are now."""
    with database.transaction(target) as (connection, fresh):
        connection.execute("CREATE TEMP TABLE present AS SELECT id FROM entry")
        before = len(_held(connection))
        if fresh:
            _backfill(connection, fresh, there)
        tables = migrate.tables(connection) - {migrate.RECORD}
        stage.load(connection, tables, "{id} NOT IN (SELECT id FROM present)")
        return before, _held(connection)


def _backfill(connection: duckdb.DuckDBPyConnection, fresh: set[str], there: list[Entry]) -> None:
    """Fill tables that are new in an older ledger from the files of the entries that it holds already."""
    present = _held(connection)
    with tempfile.TemporaryDirectory(prefix="gfast-") as name, Stage(Path(name)) as stage:
        stage.add_all(entry for entry in there if entry.name in present)
        stage.load(connection, fresh, "{id} IN (SELECT id FROM present)")


def _without_the_odd_one(
    target: Path, lacking: list[Entry], there: list[Entry], error: Unfit
) -> tuple[int, set[str], list[str]]:
    """Try each file alone, then take in all that fit. Returns how many those were, what is held now, and complaints."""
    odd: dict[str, EvidenceError] = {}
    for entry in lacking:
        with tempfile.TemporaryDirectory(prefix="gfast-") as name, Stage(Path(name)) as stage:
            stage.add_all([entry])
            try:
                _load(Path(name) / "alone.duckdb", stage, [])
            except Unfit as reason:
                odd[entry.name] = unreadable(entry, reason)
    if not odd:
        raise LedgerError(f"{target}: {error}; try again, and if it stays so: gfast ledger rebuild") from None
    with tempfile.TemporaryDirectory(prefix="gfast-") as name, Stage(Path(name)) as stage:
        stage.add_all(entry for entry in lacking if entry.name not in odd)
        before, held = _load(target, stage, there)
        return len(held) - before, held, [*map(str, odd.values()), *stage.problems]


def _publish(target: Path) -> None:
    connection = database.connect(target)
    try:
        snapshot.refresh(connection, target)
    finally:
        connection.close()


def _schema_is_current() -> bool:
    connection = snapshot.reader()
    if connection is None:
        return False
    try:
        return migrate.is_current(connection)
    except duckdb.Error:
        return False
    finally:
        connection.close()


def _set_aside(target: Path, files: set[str]) -> Path | None:
    """Move an old ledger away unless it is ours and holds nothing but what the files hold. Returns where it is now."""
    if not target.exists():
        return None
    try:
        # opening it brings in what a crash left in its log, and waits for whoever holds it
        connection = database.connect(target)
    except Held:
        raise
    except LedgerError:
        keep = True
    else:
        try:
            keep = not _held(connection) <= files
        except duckdb.Error:
            keep = True
        finally:
            connection.close()
    wal = Path(f"{target}.wal")
    if not keep:
        wal.unlink(missing_ok=True)
        return None
    aside = target.with_name(f"{target.stem}.set-aside-{datetime.now(UTC):%Y%m%dT%H%M%S}{target.suffix}")
    os.rename(target, aside)
    if wal.exists():
        os.rename(wal, f"{aside}.wal")
    return aside


def _held(connection: duckdb.DuckDBPyConnection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM entry").fetchall()}
