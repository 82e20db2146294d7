"""The readers' copy of the ledger: a file of its own, replaced whole, so that reading never waits and never blocks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import duckdb

from gfast_pipeline.ledger.database import LedgerError
from gfast_pipeline.ledger.evidence import warehouse

SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "max_temp_directory_size": "0B",  # a query that needs more than memory is refused, not spilled beside the ledger
    "memory_limit": "1GB",
    "threads": "2",
    "lock_configuration": "true",
}
"""How every reader opens it. One process cannot open one file in two ways, so there is one way."""


def path() -> Path:
    """The snapshot of this warehouse."""
    return warehouse() / "read.duckdb"


def refresh(connection: duckdb.DuckDBPyConnection, file: Path, target: Path | None = None) -> None:
    """Copy the ledger `file`, held by `connection` outside of any transaction, to `target`, whole or not at all."""
    target = target or path()
    connection.execute("CHECKPOINT")
    beside = scratch(target)
    # Another process copies: were this one to open and close the file, it would lose its lock on it.
    done = subprocess.run(["cp", "--", str(file), str(beside)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LedgerError(
            f"{target}: the snapshot could not be written ({done.stderr.strip()}); make room, then try again"
        )
    os.replace(beside, target)


def scratch(target: Path) -> Path:
    """A name beside `target` that is this process's alone; what killed processes left under theirs is removed."""
    for left in target.parent.glob(f".{target.name}.*.tmp*"):
        number = left.name.removeprefix(f".{target.name}.").partition(".")[0]
        if number.isdigit() and not _alive(int(number)):
            left.unlink(missing_ok=True)
    return target.with_name(f".{target.name}.{os.getpid()}.tmp")


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def reader() -> duckdb.DuckDBPyConnection | None:
    """A sandboxed read-only connection, None where there is no snapshot or it is damaged. The caller closes it."""
    if not path().is_file():
        return None
    try:
        return duckdb.connect(str(path()), read_only=True, config=SETTINGS)
    except duckdb.Error:
        return None  # cut short by a full disk or a crash: the ledger makes a new one


def names() -> set[str] | None:
    """Names of the entries that the snapshot holds, None where there is none to ask."""
    connection = reader()
    if connection is None:
        return None
    try:
        return {name for (name,) in connection.execute("SELECT name FROM entry").fetchall()}
    except duckdb.Error:
        return None
    finally:
        connection.close()
