from __future__ import annotations

import math
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gfast_pipeline.ledger import database, evidence, export, index, snapshot
from gfast_pipeline.ledger.database import LedgerError
from gfast_pipeline.ledger.query import ask, queries
from gfast_pipeline.ledger.sessions import append_session
from gfast_pipeline.ledger.verify import verify
from tests.evaluation.synthetic import CHALLENGER
from tests.ledger.payloads import small


@pytest.fixture
def asked(house: Path) -> Path:
    """A warehouse with one session in its ledger."""
    append_session(small())
    index.sync()
    return house


WRITES = [
    "DROP TABLE visit", "DELETE FROM visit", "UPDATE visit SET n = 1",
    "INSERT INTO measured VALUES ('a', 'b', 1, NULL)", "CREATE TABLE mine (a INTEGER)",
    "CREATE TEMP TABLE mine (a INTEGER)", "CREATE OR REPLACE VIEW champions AS SELECT 1",
    "ALTER TABLE visit ADD COLUMN more INTEGER", "TRUNCATE visit", "DROP TRIGGER guard_visit_update ON visit",
    "COPY visit TO 'out.csv'", "COPY visit FROM 'in.csv'", "EXPORT DATABASE 'out'", "IMPORT DATABASE 'out'",
    "ATTACH 'other.duckdb'", "DETACH read", "USE main", "SET threads = 64", "RESET threads", "PRAGMA database_list",
    "LOAD json", "INSTALL httpfs", "CHECKPOINT", "VACUUM", "BEGIN", "CALL pragma_version()", "PREPARE p AS SELECT 1",
    "WITH gone AS (SELECT 1) DELETE FROM visit",
]  # fmt: skip
READS_FILES = [
    "FROM read_csv('/etc/passwd')", "SELECT content FROM read_text('/etc/passwd')", "FROM read_blob('/etc/passwd')",
    "FROM read_json('/etc/passwd')", "FROM read_parquet('s3://bucket/x')", "FROM glob('/etc/*')", "FROM '/etc/passwd'",
    "FROM query('FROM read_csv(''/etc/passwd'')')", "FROM read_duckdb('gfast.duckdb')", "SELECT getenv('HOME')",
]  # fmt: skip


@pytest.mark.parametrize("sql", WRITES)
def test_what_is_no_reading_is_refused_with_one_message(asked: Path, sql: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(asked)
    before = sorted(path.name for path in asked.iterdir())
    with pytest.raises(LedgerError) as refusal:
        ask(sql)
    assert "\n" not in str(refusal.value) and ";" in str(refusal.value)
    assert sorted(path.name for path in asked.iterdir()) == before
    assert verify() == []


@pytest.mark.parametrize("sql", READS_FILES)
def test_files_cannot_be_read(asked: Path, sql: str):
    with pytest.raises(LedgerError) as refusal:
        ask(sql)
    assert "\n" not in str(refusal.value) and "root:" not in str(refusal.value)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT count(*) FROM range(1000000) a, range(10000000) b", "stopped after 0.5 s"),
        ("FROM range(1000000000000)", "rows or .* MB; add a LIMIT|stopped after 0.5 s"),
        ("WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i FROM x) SELECT count(*) FROM x", "stopped after 0.5 s"),
        ("SELECT repeat('x', 1000000) FROM range(2000000)", "MB; add a LIMIT|more memory|stopped after"),
        ("SELECT repeat('x', 2000000000)", "more memory|stopped after"),
        ("SELECT range(1000000000)", "more memory|stopped after"),
        ("SELECT a.range + b.range AS r FROM range(100000) a, range(3000) b ORDER BY r", "stopped after|more memory"),
    ],
)
def test_what_runs_for_ever_or_needs_too_much_is_stopped(asked: Path, sql: str, told: str):
    with pytest.raises(LedgerError, match=told):
        ask(sql, limit_s=0.5)
    assert ask("SELECT 1 AS one").rows == [(1,)]


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT 1; SELECT 2", "2 statements where one is asked for"),
        ("", "no statement"),
        ("-- nothing", "no statement"),
        ("nosuch", "no query 'nosuch'; there are budget_used, champions, history"),
        ("SELEC 1", "no SQL: .*SELEC"),
        ("SELECT case FROM visit", "write them in double quotes"),
        ("FROM nowhere", "nowhere does not exist.*SHOW TABLES"),
        ("SELECT nothing FROM visit", "nothing.*SHOW TABLES"),
        ("SELECT 'a'::INTEGER", "the query failed"),
    ],
)
def test_what_is_wrong_with_a_statement_is_said_in_one_message(asked: Path, sql: str, told: str):
    with pytest.raises(LedgerError, match=told) as refusal:
        ask(sql)
    assert "\n" not in str(refusal.value)


def test_parameters_are_bound_and_those_missing_or_unknown_are_told(asked: Path):
    assert ask("SELECT count(*) AS n FROM participant WHERE role = $role", {"role": "peer"}).rows == [(1,)]
    assert ask("SELECT $x AS x", {"x": "'; DROP TABLE visit; --"}).rows == [("'; DROP TABLE visit; --",)]
    with pytest.raises(LedgerError, match="parameter plan is missing; add --param plan=VALUE"):
        ask("samples_of")
    with pytest.raises(LedgerError, match="parameter x is unknown to this query; it takes plan"):
        ask("samples_of", {"plan": "v007", "x": 1})


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60) | st.lists(st.sampled_from(
    ["SELECT", "FROM", "visit", "DROP TABLE", ";", "--", "(", ")", "*", "$x", "'", '"', "COPY", "TO", "'a'", "1", "µ"]
), max_size=9).map(" ".join))  # fmt: skip
def test_whatever_is_asked_gives_an_answer_or_one_message_and_changes_nothing(asked: Path, sql: str):
    before = snapshot.path().read_bytes(), database.path().read_bytes()
    try:
        ask(sql, limit_s=2.0)
    except LedgerError as error:
        assert str(error)
    assert (snapshot.path().read_bytes(), database.path().read_bytes()) == before


def test_evidence_that_just_came_is_in_the_answer(asked: Path):
    late = append_session(small(2))
    assert (late.id,) in ask("SELECT entry FROM session").rows


def test_a_reader_that_is_under_way_keeps_its_answer_while_the_ledger_grows(asked: Path):
    reader = snapshot.reader()
    assert reader is not None
    append_session(small(2))
    assert index.sync() == 1
    assert reader.execute("SELECT count(*) FROM session").fetchone() == (1,)
    reader.close()
    assert ask("SELECT count(*) FROM session").rows == [(2,)]


def test_every_named_query_says_what_it_answers_and_answers_with_nothing_recorded(house: Path):
    assert list(queries()) == [
        "budget_used", "champions", "history", "leaderboard", "noise", "refusals", "samples_of",
    ]  # fmt: skip
    for name, one in queries().items():
        assert one.answers
        assert ask(name, {"plan": "v007"} if name == "samples_of" else None).rows == []


def test_a_query_of_ones_own_goes_before_that_of_the_package(asked: Path):
    (asked / "queries").mkdir()
    (asked / "queries" / "champions.sql").write_text("-- Mine.\nSELECT 42 AS answer")
    assert queries()["champions"].answers == "Mine."
    assert ask("champions").rows == [(42,)]


def test_samples_of_gives_every_call_of_a_plan_by_name_number_or_hash(asked: Path):
    found = ask("samples_of", {"plan": CHALLENGER})
    one = next(iter(evidence.entries()))
    expected = sum(len(visit.event_us or []) for visit in small().visits if visit.participant == CHALLENGER)
    assert len(found.rows) == expected and {row[0] for row in found.rows} == {one.id}
    assert ask("samples_of", {"plan": "v007"}).rows == found.rows
    assert ask("samples_of", {"plan": f"p-{CHALLENGER}"}).rows == found.rows
    assert ask("samples_of", {"plan": "v00"}).rows == []


MIXED = (
    "SELECT 1 AS a, 2.5::DOUBLE AS b, 'it''s, \"µ\"' AS c, NULL AS d, [1, 2] AS e, {'x': 1} AS f, "
    "TIMESTAMP '2026-11-30 10:00:00.25' AS g, 'nan'::DOUBLE AS h, true AS a, 12345678901234567890::HUGEINT AS big"
)


def test_answers_are_written_as_csv_parquet_and_json(asked: Path, tmp_path: Path):
    result = ask(MIXED)
    assert result.columns == ["a", "b", "c", "d", "e", "f", "g", "h", "a_2", "big"]
    export.to_csv(result, tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text().splitlines()[1] == (
        '1,2.5,"it\'s, ""µ""",,"[1, 2]","{""x"": 1}",2026-11-30T10:00:00.250000,nan,True,12345678901234567890'
    )
    export.to_parquet(result, tmp_path / "x.parquet")
    connection = duckdb.connect()
    read = connection.execute(f"FROM '{tmp_path}/x.parquet'")
    (row,) = read.fetchall()
    assert row[:7] == result.rows[0][:7] and math.isnan(row[7]) and row[8] is True
    assert [column[0] for column in read.description or []] == result.columns
    connection.close()
    assert '"h": "nan"' in export.to_json(result)


def test_an_export_that_cannot_be_written_leaves_the_old_file_and_says_so(asked: Path, tmp_path: Path):
    result = ask("SELECT 1 AS a")
    with pytest.raises(LedgerError, match="no such folder; make it"):
        export.to_csv(result, tmp_path / "no" / "x.csv")
    with pytest.raises(LedgerError, match="is a folder"):
        export.to_csv(result, tmp_path)
    assert list(tmp_path.glob(".*tmp")) == []
