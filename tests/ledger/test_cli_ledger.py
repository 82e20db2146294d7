from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest
import typer
from typer.testing import CliRunner

from gfast_pipeline import decisions
from gfast_pipeline.cli_ledger import register
from gfast_pipeline.ledger import evidence
from gfast_pipeline.ledger.sessions import append_session
from tests.ledger.payloads import decision, small

app = typer.Typer()
register(app)


def gfast(*arguments: str) -> SimpleNamespace:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "240"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return SimpleNamespace(code=result.exit_code, out=result.stdout, err=result.stderr)


def test_sql_without_a_question_lists_what_there_is(house: Path):
    told = gfast("sql")
    assert told.code == 0 and "champions" in told.out and "Every verdict that failed" in told.out
    assert {"name": "history", "answers": "Everything that was recorded, in order and in words."} in json.loads(
        gfast("sql", "--json").out
    )


def test_sql_prints_a_table_json_and_files(house: Path, tmp_path: Path):
    append_session(small())
    assert "v007_faster" in gfast("sql", "champions").out
    rows = json.loads(gfast("sql", "champions", "--json").out)
    assert [row["case"] for row in rows] == [1, 2, 7]
    csv, parquet = tmp_path / "x.csv", tmp_path / "x.parquet"
    told = gfast("sql", "samples_of", "--param", "plan=v007", "--csv", str(csv), "--parquet", str(parquet))
    assert told.code == 0 and str(csv) in told.out and str(parquet) in told.out
    (count,) = duckdb.connect().execute(f"SELECT count(*) FROM '{parquet}'").fetchall()
    assert count == (len(csv.read_text().splitlines()) - 1,)
    assert "no rows" in gfast("sql", "refusals").out


def test_sql_refuses_with_one_message_and_exit_code_1(house: Path):
    for arguments in (("DROP TABLE visit",), ("nosuch",), ("SELECT 1; SELECT 2",), ("samples_of", "--param", "plan")):
        told = gfast("sql", *arguments)
        assert told.code == 1 and told.out == "" and len(told.err.strip().splitlines()) == 1


def test_verify_takes_in_says_what_holds_and_fails_where_something_does_not(house: Path):
    entry = append_session(small())
    told = gfast("ledger", "verify")
    assert told.code == 0 and told.out.startswith("took in 1; 1 entries, chain ")
    assert json.loads(gfast("ledger", "verify", "--json").out) == {"entries": 1, "problems": []}
    entry.path.unlink()
    told = gfast("ledger", "verify")
    assert told.code == 1 and "the file is missing; restore it" in told.err
    assert len(json.loads(gfast("ledger", "verify", "--json").out)["problems"]) == 1


def test_verify_recompute_computes_again_every_decision(house: Path, monkeypatch: pytest.MonkeyPatch):
    entry = evidence.append("decision", decision())
    monkeypatch.setattr(decisions, "recompute_decision", lambda identity: [f"{identity} differs"])
    told = gfast("ledger", "verify", "--recompute")
    assert told.code == 1 and f"{entry.id} differs" in told.err
    monkeypatch.setattr(decisions, "recompute_decision", lambda identity: [])
    assert "every decision comes out again" in gfast("ledger", "verify", "--recompute").out


def test_ledger_rebuild_sync_and_path(house: Path):
    append_session(small())
    assert gfast("ledger", "sync").out.startswith("took in 1 entries; ")
    assert "gfast.duckdb: 1 entries; " in gfast("ledger", "rebuild").out
    paths = json.loads(gfast("ledger", "path", "--json").out)
    assert paths["snapshot"] == str(house / "read.duckdb")
    (house / "gfast.duckdb").write_text("mine")
    (house / "read.duckdb").unlink()
    told = gfast("sql", "champions")
    assert told.code == 1 and "no DuckDB file" in told.err


def test_evidence_is_listed_and_kept(house: Path):
    entry = append_session(small())
    assert json.loads(gfast("evidence", "list", "--json").out)[0]["kept"] is False
    assert gfast("evidence", "keep", entry.id[:6]).out.strip().endswith(f"kept/{entry.name}")
    assert "kept" in gfast("evidence", "list", "--kind", "session").out
    assert gfast("evidence", "keep", "zzz").code == 1
