from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import duckdb
import pytest

from gfast_pipeline.ledger import database, evidence, index
from gfast_pipeline.ledger.database import LedgerError
from gfast_pipeline.ledger.sessions import append_session
from gfast_pipeline.ledger.verify import Problem, verify
from tests.ledger.payloads import EVERY, small
from tests.ledger.test_index import spoil


@pytest.fixture
def taken(house: Path) -> list[evidence.Entry]:
    """Two sessions and a decision, in the ledger."""
    made = [append_session(small(1)), append_session(small(2)), evidence.append("decision", EVERY["decision"])]
    index.sync()
    return made


def behind_its_back(sql: str) -> None:
    """Change rows the way that triggers cannot stop: without them, and put them back."""
    connection = duckdb.connect(str(database.path()))
    guards = connection.execute("SELECT trigger_name, table_name, sql FROM duckdb_triggers()").fetchall()
    for name, table, _ in guards:
        connection.execute(f"DROP TRIGGER {name} ON {table}")
    connection.execute(sql)
    for *_, text in guards:
        connection.execute(text)
    connection.close()


def only(problems: list[Problem]) -> str:
    assert len(problems) == 1, problems
    assert problems[0].what and problems[0].remedy
    return str(problems[0])


def test_a_missing_file_is_told_with_its_name_and_nothing_of_it_is_lost(taken):
    content = taken[1].path.read_bytes()
    taken[1].path.unlink()
    told = only(verify())
    assert f"{taken[1].name}: in the ledger, but the file is missing; restore it" in told
    assert index.sync() == 0
    taken[1].path.write_bytes(content)
    assert verify() == []


def test_an_edited_file_is_told_with_its_name(taken):
    content = gzip.decompress(taken[0].path.read_bytes())
    spoil(taken[0].path, gzip.compress(content.replace(b'"v007_faster"', b'"v008_faster"')))
    told = only(verify())
    assert f"{taken[0].name}: edited" in told and "restore it from version control" in told


def test_one_copy_that_was_edited_is_told_though_the_other_holds(taken):
    evidence.keep(taken[0].id)
    assert verify() == []
    spoil(taken[0].path, taken[0].path.read_bytes()[:-20])
    assert f"local/{taken[0].name}: damaged or cut short" in only(verify())
    with pytest.raises(LedgerError, match="damaged or cut short"):
        index.rebuild()
    assert len(verify()) == 1  # the copy; the other one was taken in


def test_a_duplicate_under_another_name_is_told(taken):
    shutil.copy(taken[0].path, taken[0].path.with_name(taken[0].name.replace("20", "19", 1)))
    assert ": renamed, it was" in str(verify()[0])
    shutil.move(taken[0].path.with_name(taken[0].name.replace("20", "19", 1)), taken[0].path.with_name("copy.json.gz"))
    assert "copy.json.gz: no name of evidence" in only(verify())


def test_one_run_of_the_judge_recorded_twice_is_told(taken):
    again = append_session(small(1))
    index.sync()
    told = only(verify())
    assert taken[0].id in told and again.id in told and "recorded 2 times" in told


def test_a_file_that_is_not_taken_in_yet_is_told(taken):
    late = append_session(small(3))
    assert f"does not hold {late.name}; take it in: gfast ledger sync" in only(verify())
    index.sync()
    assert verify() == []


@pytest.mark.parametrize(
    ("sql", "table"),
    [
        ("UPDATE visit SET event_us = list_transform(event_us, lambda us: us * 0.9) WHERE n = 3", "visit"),
        ("UPDATE decision SET ratio = 2", "decision"),
        ("DELETE FROM verdict WHERE n = 0", "verdict"),
        ("INSERT INTO phase SELECT entry, 99, 'timing', 1, NULL, NULL, NULL FROM session LIMIT 1", "phase"),
        ("UPDATE entry SET run = 'somebody' WHERE kind = 'decision'", "entry"),
        ("UPDATE session SET scope = NULL", "session"),
    ],
)
def test_rows_changed_behind_its_back_are_told_with_table_and_entry_and_rebuilt(taken, sql: str, table: str):
    behind_its_back(sql)
    told = " ".join(map(str, verify()))
    assert f"rows of {table} differ from the file of entry" in told and "gfast ledger rebuild" in told
    index.rebuild()
    assert verify() == []


def test_a_hash_changed_in_the_ledger_breaks_the_chain(taken):
    behind_its_back("UPDATE entry SET sha256 = repeat('0', 64) WHERE kind = 'decision'")
    told = [str(problem) for problem in verify()]
    assert any("its chain is" in one for one in told)
    assert any("rows of entry differ" in one for one in told)


def test_rows_of_no_entry_are_told(taken):
    behind_its_back("INSERT INTO measured VALUES ('0123456789ab', 'null_us', 1.0, NULL)")
    assert "measured has rows of 0123456789ab, which is no entry" in only(verify())


def test_an_entry_taken_out_of_the_ledger_is_found_and_taken_in_again(taken):
    behind_its_back(f"DELETE FROM entry WHERE id = '{taken[0].id}'")
    assert any(f"does not hold {taken[0].name}" in str(problem) for problem in verify())
    index.rebuild()
    assert verify() == []


def test_a_decision_that_comes_out_otherwise_is_told(taken):
    asked: list[str] = []

    def recompute(identity: str) -> list[str]:
        asked.append(identity)
        return ["ratio was 1.11, is 1.08"]

    told = only(verify(recompute))
    assert asked == [taken[2].id]
    assert f"decision {taken[2].id}, computed again: ratio was 1.11, is 1.08" in told
    assert verify(lambda identity: []) == []


def test_without_a_ledger_verifying_says_how_to_make_one(house: Path):
    assert verify() == []
    append_session(small(1))
    assert "there is no ledger yet; make it: gfast ledger sync" in only(verify())


def test_a_ledger_cut_short_is_told(taken):
    content = database.path().read_bytes()
    database.path().write_bytes(content[: len(content) // 2])
    assert "gfast.duckdb" in str(verify()[0])
    index.rebuild()
    assert verify() == []
