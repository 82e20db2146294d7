from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from gfast_pipeline.ledger import database, evidence, index, migrate
from gfast_pipeline.ledger.database import LedgerError
from gfast_pipeline.ledger.sessions import append_session
from gfast_pipeline.ledger.verify import verify
from tests.ledger.conftest import rows
from tests.ledger.payloads import EVERY, small


def earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger as the version wrote it that knew the first schema file alone."""
    known = migrate.schema_files()[:1]
    monkeypatch.setattr(migrate, "schema_files", lambda: known)


def by_hand(sql: str) -> None:
    """Do something to the ledger behind everybody's back."""
    connection = duckdb.connect(str(database.path()))
    try:
        connection.execute(sql)
    finally:
        connection.close()


def test_a_ledger_of_an_earlier_schema_opens_migrates_and_verifies(house: Path, monkeypatch: pytest.MonkeyPatch):
    append_session(small(1))
    for kind, payload in EVERY.items():
        evidence.append(kind, payload)
    with monkeypatch.context() as then:
        earlier(then)
        index.sync()
        with database.transaction() as (connection, _):
            assert "candidate" not in migrate.tables(connection)
            held = connection.execute("FROM visit ORDER BY n").fetchall()
    assert index.sync() == 0  # nothing new in the log, and yet the tables that it lacked are filled
    assert rows("SELECT name FROM candidate") == [(EVERY["candidate"]["name"],)]
    assert rows("SELECT count(*) FROM holders_case") == [(1,)]
    assert rows("FROM visit ORDER BY n") == held
    assert verify() == []


def test_a_ledger_of_a_newer_version_is_refused_and_not_touched(house: Path):
    append_session(small(1))
    index.sync()
    by_hand("INSERT INTO schema_file VALUES (9, 9001, '9001_later.sql', 'abc')")
    append_session(small(2))
    before = database.path().read_bytes()
    with pytest.raises(LedgerError, match=r"newer version of gfast \(schema 9001_later.sql.*gfast ledger rebuild"):
        index.sync()
    assert database.path().read_bytes() == before
    assert any("newer version" in str(problem) for problem in verify())
    index.rebuild()
    assert verify() == []


@pytest.mark.parametrize("content", [b"", b"not a database", b"x" * 20_000])
def test_a_file_that_is_no_ledger_is_refused_and_set_aside_by_rebuild_not_lost(house: Path, content: bytes):
    append_session(small(1))
    house.mkdir(exist_ok=True)
    database.path().write_bytes(content)
    if content:
        with pytest.raises(LedgerError, match=r"gfast.duckdb: no DuckDB file.*gfast ledger rebuild"):
            index.sync()
    index.rebuild()
    assert verify() == []
    if content:
        (aside,) = house.glob("*set-aside*")
        assert aside.read_bytes() == content


def test_somebody_elses_database_is_refused(house: Path):
    append_session(small(1))
    by_hand("CREATE TABLE accounts (balance INTEGER)")
    with pytest.raises(LedgerError, match=r"no ledger of ours \(it holds accounts\); move it elsewhere"):
        index.sync()
    index.rebuild()
    (aside,) = house.glob("*set-aside*")
    assert duckdb.connect(str(aside), read_only=True).execute("FROM accounts").fetchall() == []


def test_a_table_that_only_bears_the_name_of_ours_is_refused(house: Path):
    append_session(small(1))
    house.mkdir(exist_ok=True)
    by_hand("CREATE TABLE schema_file (other INTEGER)")
    with pytest.raises(LedgerError, match="its schema_file is none of ours; move it elsewhere"):
        index.sync()


def test_a_ledger_whose_schema_was_changed_is_refused(house: Path, monkeypatch: pytest.MonkeyPatch):
    append_session(small(1))
    index.sync()
    known = migrate.schema_files()
    other = migrate.SchemaFile(1, known[0].name, known[0].sql + "\n-- another")
    monkeypatch.setattr(migrate, "schema_files", lambda: [other, *known[1:]])
    with pytest.raises(LedgerError, match=r"0001_.*differs from this version's"):
        index.sync()


def test_views_may_change_and_change_back(house: Path, monkeypatch: pytest.MonkeyPatch):
    append_session(small(1))
    index.sync()
    known = migrate.schema_files()
    assert [one.replays for one in known] == [False, False, True]
    other = migrate.SchemaFile(3, known[2].name, "CREATE OR REPLACE VIEW champions AS SELECT 42 AS answer")
    with monkeypatch.context() as then:
        then.setattr(migrate, "schema_files", lambda: [*known[:2], other])
        assert rows("FROM champions") == [(42,)]
    index.sync()
    with database.transaction() as (connection, fresh):
        assert fresh == set()
        assert connection.execute("SELECT count(*) FROM champions").fetchone() == (3,)


GUARDED = ["UPDATE {0} SET {1} = {1}", "DELETE FROM {}", "TRUNCATE {}"]


@pytest.mark.parametrize("attempt", GUARDED)
def test_nothing_recorded_can_be_changed_or_taken_away(house: Path, attempt: str):
    append_session(small(1))
    for kind, payload in EVERY.items():
        evidence.append(kind, payload)
    index.sync()
    connection = duckdb.connect(str(database.path()))
    guarded = migrate.tables(connection)
    assert len(guarded) > 20
    for table in sorted(guarded):
        before = connection.execute(f"FROM {table}").fetchall()
        if not before:
            continue
        column = connection.execute(f"DESCRIBE {table}").fetchall()[-1][0]
        with pytest.raises(duckdb.Error, match=f"{table} is append-only"):
            connection.execute(attempt.format(table, f'"{column}"'))
        assert connection.execute(f"FROM {table}").fetchall() == before
    connection.close()


def test_a_ledger_without_its_guards_is_refused_and_rebuilding_gives_them_back(house: Path):
    append_session(small(1))
    index.sync()
    by_hand("DROP TRIGGER guard_visit_update ON visit")
    append_session(small(2))
    with pytest.raises(LedgerError, match=r"took guards away: visit \(no guard against update\)"):
        index.sync()
    assert any("visit (no guard against update)" in str(problem) for problem in verify())
    index.rebuild()
    assert verify() == []
