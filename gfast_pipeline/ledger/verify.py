"""Does the ledger say what the evidence files say, and do the files prove themselves? Finds faults, changes nothing.

Works on a private copy of the database, so that nobody waits meanwhile. Knows files, rows and the chain; how a decision
is computed again is the caller's business.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import duckdb

from gfast_pipeline.ledger import database, evidence, migrate, snapshot
from gfast_pipeline.ledger.database import LedgerError
from gfast_pipeline.ledger.evidence import Entry, EvidenceError
from gfast_pipeline.ledger.staging import Stage, Unfit

Recompute = Callable[[str], list[str]]
"""A decision's id → in what the decision computed again from its sessions differs from the recorded one, in words."""

_REBUILD = "make it anew from the files: gfast ledger rebuild"


@dataclass(frozen=True)
class Problem:
    """One fault: `what` and where, and the `remedy`."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}" if self.remedy else self.what


def verify(recompute: Recompute | None = None) -> list[Problem]:
    """All that is wrong; empty when everything holds.

    Every copy of every file proves itself; the ledger has an entry for each file and no other; the chains are equal;
    all guards stand; the typed rows are, both ways, those that the files unfold to; no session is recorded twice; and
    with `recompute`, every decision comes out again. A ledger that cannot be opened is a problem too, not an exception;
    only one that another process holds raises LedgerError.
    """
    there, problems = _entries()
    with tempfile.TemporaryDirectory(prefix="gfast-") as name, Stage(Path(name)) as stage:
        stage.add_all(there)
        problems += [Problem(*_split(message)) for message in stage.problems]
        problems += _examine(Path(name), stage, there, whole=not problems)
    for entry in there:
        if recompute is not None and entry.kind == "decision" and entry.name in stage.names:
            problems += _again(entry, recompute)
    return problems


def _entries() -> tuple[list[Entry], list[Problem]]:
    """All entries; a file with no name of evidence is a problem, and the rest is listed all the same."""
    try:
        return evidence.entries(), []
    except EvidenceError as error:
        odd = [Problem(*_split(str(error)))]
    found: dict[str, Entry] = {}
    for folder in evidence.roots():
        for path in sorted(folder.glob("*.json.gz")):
            entry = _entry(path)
            if entry is not None and entry.name in found:
                first = found[entry.name]
                entry = Entry(first.utc, first.kind, first.id, first.path, (*first.copies, path))
            if entry is not None:
                found[entry.name] = entry
    return [found[name] for name in sorted(found)], odd


def _entry(path: Path) -> Entry | None:
    utc, _, rest = path.name.removesuffix(".json.gz").partition("-")
    kind, _, sha = rest.partition("-")
    return Entry(utc, kind, sha, path, (path,)) if len(sha) == 12 and utc.endswith("Z") else None


def _examine(folder: Path, stage: Stage, there: list[Entry], *, whole: bool) -> list[Problem]:
    try:
        copy = _copy(folder)
    except database.Held:
        raise
    except LedgerError as error:
        return [Problem(*_split(str(error)))]
    if copy is None:
        return [Problem(f"{database.path()}: there is no ledger yet", "make it: gfast ledger sync")] if there else []
    try:
        connection = duckdb.connect(str(copy))
        try:
            return _compare(connection, stage, there, whole)
        finally:
            connection.close()
    except duckdb.Error as error:
        return [Problem(f"{database.path()}: damaged ({str(error).splitlines()[0]})", _REBUILD)]


def _copy(folder: Path) -> Path | None:
    """The ledger as it is now; its own schema is looked at, not brought up to date."""
    file, copy = database.path(), folder / "copy.duckdb"
    if not file.is_file():
        return None
    connection = database.connect(file)
    try:
        snapshot.refresh(connection, file, copy)
    finally:
        connection.close()
    return copy


def _compare(connection: duckdb.DuckDBPyConnection, stage: Stage, there: list[Entry], whole: bool) -> list[Problem]:
    file = database.path()
    tables = migrate.tables(connection)
    if tables and not migrate.missing_guards(connection):
        unguarded: list[Problem] = []
    else:
        missing = ", ".join(migrate.missing_guards(connection)[:3]) or "it has no tables"
        unguarded = [Problem(f"{file}: guards are missing: {missing}; rows may have been changed", _REBUILD)]
    try:
        connection.execute("BEGIN")
        migrate.bring_up_to_date(connection, file)
        connection.execute("ROLLBACK")
    except migrate.Foreign as error:
        connection.execute("ROLLBACK")
        if not unguarded:
            return [Problem(*_split(str(error)))]
    if "entry" not in tables:
        return unguarded
    held = {name for (name,) in connection.execute("SELECT name FROM entry ORDER BY name").fetchall()}
    files = {entry.name for entry in there}
    problems = [*unguarded, *_missing(held, files, file)]
    (head,) = connection.execute(
        "SELECT sha256(coalesce(string_agg(sha256, '' ORDER BY name), '')) FROM entry"
    ).fetchone() or ("",)
    if whole and not problems and head != evidence.chain():
        problems.append(
            Problem(f"{file}: its chain is {head[:12]}, that of the files {evidence.chain()[:12]}", _REBUILD)
        )
    return [*problems, *_twice(connection), *_rows(connection, stage, tables, there, held)]


def _missing(held: set[str], files: set[str], file: Path) -> list[Problem]:
    restore = "restore it from version control or from the bundle it came with; what it held is still in the ledger"
    gone = [
        Problem(f"{evidence.local_root() / name}: in the ledger, but the file is missing", restore)
        for name in sorted(held - files)
    ]
    late = [Problem(f"{file}: does not hold {name}", "take it in: gfast ledger sync") for name in sorted(files - held)]
    return [*gone, *late]


def _twice(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    """The same run of the judge under two names would count twice. Those that never ran draw no seed."""
    found = connection.execute(
        "SELECT list(entry ORDER BY entry) FROM session WHERE seed <> 0 AND job_hash IS NOT NULL "
        "GROUP BY kind, job_hash, seed, started HAVING count(*) > 1 ORDER BY 1"
    ).fetchall()
    return [
        Problem(
            f"sessions {' and '.join(ids)} are one run of the judge, recorded {len(ids)} times",
            "move all files but one elsewhere, then: gfast ledger rebuild",
        )
        for (ids,) in found
    ]


def _rows(
    connection: duckdb.DuckDBPyConnection, stage: Stage, tables: set[str], there: list[Entry], held: set[str]
) -> list[Problem]:
    """Typed rows against what the files unfold to, of entries that both have."""
    looked_at = sorted(tables - {migrate.RECORD})
    both = sorted(held & set(stage.names))
    connection.execute("CREATE TEMP TABLE common AS SELECT id FROM main.entry WHERE name IN (SELECT unnest(?))", [both])
    try:
        _load_again(connection, stage, looked_at)
    except Unfit:  # most likely of a file that is not held for this very reason
        with tempfile.TemporaryDirectory(prefix="gfast-") as name, Stage(Path(name)) as known:
            known.add_all(entry for entry in there if entry.name in both)
            try:
                _load_again(connection, known, looked_at)
            except Unfit as error:
                return [Problem(f"values of files that the ledger holds fit no column ({error})", _REBUILD)]
    problems = []
    for table in looked_at:
        key = "id" if table == "entry" else "entry"
        differ = connection.execute(
            f"SELECT DISTINCT {key} FROM ((FROM main.{table} EXCEPT ALL FROM again_{table}) UNION ALL "
            f"(FROM again_{table} EXCEPT ALL FROM main.{table})) WHERE {key} IN (SELECT id FROM common) ORDER BY 1"
        ).fetchall()
        problems += [
            Problem(f"{database.path()}: rows of {table} differ from the file of entry {identity}", _REBUILD)
            for (identity,) in differ
        ]
        orphans = connection.execute(
            f"SELECT DISTINCT {key} FROM main.{table} WHERE {key} NOT IN (SELECT id FROM main.entry)"
        ).fetchall()
        problems += [
            Problem(f"{database.path()}: {table} has rows of {identity}, which is no entry", _REBUILD)
            for (identity,) in orphans
        ]
    return problems


def _load_again(connection: duckdb.DuckDBPyConnection, stage: Stage, looked_at: list[str]) -> None:
    for table in looked_at:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE again_{table} AS FROM main.{table} LIMIT 0")
    stage.load(connection, looked_at, "{id} IN (SELECT id FROM common)", into="temp.again_{table}")


def _again(entry: Entry, recompute: Recompute) -> Iterable[Problem]:
    remedy = "it stays as recorded; decide anew with this version if it matters"
    return [Problem(f"decision {entry.id}, computed again: {told}", remedy) for told in recompute(entry.id)]


def _split(message: str) -> tuple[str, str]:
    """What, and remedy, of a message that has both in one sentence."""
    what, mark, remedy = message.partition("; ")
    return (what, remedy) if mark else (message, "")
