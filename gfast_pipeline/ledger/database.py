"""The database file: opened late, one short write transaction, closed whatever happens. Knows locks, not evidence.

One process may hold it at a time, so nobody keeps it open; readers use the snapshot. Closing any other handle on the
file in the process that has it open would drop the lock (POSIX), so this process never reads it as a file meanwhile.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.ledger import migrate
from gfast_pipeline.ledger.evidence import warehouse

WAIT_S = 60.0
"""How long a writer waits for another one."""
_PAUSE_S = (0.005, 0.05)  # jittered: two that collided must not collide again
_HOLDER = re.compile(r"held in (?P<program>.*?) \(PID (?P<pid>\d+)\)")
_mine = threading.RLock()  # threads of one process share one database, where two transactions would conflict


class LedgerError(GfastError):
    """A ledger that cannot be opened, or holds what it should not. Says what is wrong and what to do."""


class Held(LedgerError):
    """Another process has the ledger open, and kept it open."""


def path() -> Path:
    """The ledger of this warehouse."""
    return warehouse() / "gfast.duckdb"


@contextmanager
def transaction(file: Path | None = None) -> Iterator[tuple[duckdb.DuckDBPyConnection, set[str]]]:
    """(connection, tables that this opening brought into an older ledger), in one transaction, the schema up to date.

    Commits when the block ends, rolls back when it raises; either way the file is closed. Raises LedgerError: held by
    another process for longer than WAIT_S, of a newer version, or no ledger at all.
    """
    file = file or path()
    file.parent.mkdir(parents=True, exist_ok=True)
    with _mine:
        connection = connect(file)
        try:
            connection.execute("BEGIN")
            fresh = migrate.bring_up_to_date(connection, file)
            yield connection, fresh
            connection.execute("COMMIT")
        except migrate.Foreign as error:
            raise LedgerError(str(error)) from None
        except duckdb.Error as error:
            raise LedgerError(_unreadable(file, str(error))) from None
        finally:
            connection.close()


def connect(file: Path, *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """Open `file`, waiting for whoever holds it. Raises LedgerError naming the holder, or saying why it cannot be."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return duckdb.connect(str(file), read_only=read_only)
        except duckdb.Error as error:
            told = str(error)
            if "Could not set lock" not in told:
                raise LedgerError(_unreadable(file, told)) from None
            if time.monotonic() > deadline:
                raise Held(_held(file, told)) from None
        time.sleep(random.uniform(*_PAUSE_S))


def _held(file: Path, told: str) -> str:
    found = _HOLDER.search(told)
    who = f"process {found['pid']} ({found['program']})" if found else f"another process ({_first_line(told)})"
    return (
        f"{file}: held by {who} for more than {WAIT_S:g} s; close it there (a notebook or a duckdb shell keeps it "
        f"open: let those read {file.with_name('read.duckdb').name}), then try again. Nothing recorded is lost: "
        "evidence is in files"
    )


def _unreadable(file: Path, told: str) -> str:
    if "version number" in told or "newer version" in told:
        what = "written by a newer DuckDB than this gfast uses; use the gfast that wrote it"
    elif "not a valid DuckDB" in told:
        what = "no DuckDB file, so no ledger of ours; if it is yours, move it elsewhere"
    else:
        what = f"damaged, or the disk is full ({_first_line(told)}); make room and try again"
    aside = "or let gfast make a new one from the evidence files, setting this one aside: gfast ledger rebuild"
    return f"{file}: {what}, {aside}"


def _first_line(told: str) -> str:
    return told.strip().splitlines()[0] if told.strip() else "no reason given"
