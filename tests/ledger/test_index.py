from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gfast_pipeline.bench.messages import Visit
from gfast_pipeline.ledger import database, evidence, index, snapshot
from gfast_pipeline.ledger.database import LedgerError
from gfast_pipeline.ledger.sessions import append_session, load_session
from gfast_pipeline.ledger.verify import verify
from tests.ledger.conftest import rows
from tests.ledger.payloads import EVERY, small


def spoil(path: Path, content: bytes) -> None:
    """Write over a file that is read-only on purpose."""
    path.chmod(0o644)
    path.write_bytes(content)


def test_every_kind_of_entry_fills_its_tables_once_and_unknown_ones_only_the_log(house: Path):
    append_session(small())
    for kind, payload in EVERY.items():
        evidence.append(kind, payload)
    evidence.append("packet", {"claim": "tiles of 64 fit"})
    assert index.sync() == len(EVERY) + 2
    assert index.sync() == index.sync(thorough=True) == 0
    for kind in ("session", *EVERY):
        assert rows(f"SELECT count(*) FROM {kind}") == [(1,)], kind
    assert rows("SELECT kind FROM entry ORDER BY name")[-1] == ("packet",)
    assert rows("SELECT what FROM history ORDER BY utc DESC LIMIT 1") == [
        ("a packet, which this version does not unfold",)
    ]
    assert verify() == []


def test_numbers_come_out_of_the_ledger_as_they_went_into_the_file(house: Path):
    entry = append_session(small())
    one = load_session(entry.id)
    fields = ("participant", "mode", "generation", "block", "turn", "position", "calls", "event_us", "judge_wall_us")
    columns = ", ".join(f'"{name}"' for name in fields)
    held = rows(f"SELECT {columns} FROM visit ORDER BY n")
    assert held == [tuple(getattr(visit, name) for name in fields) for visit in one.visits]
    verdicts = rows('SELECT gate, participant, "case", share FROM verdict ORDER BY n')
    assert verdicts == [(v.gate, v.participant, v.case, v.share) for v in one.verdicts]
    assert rows("SELECT cells_done, modes, accelerator, protocol FROM session") == [
        (one.cells_done, one.modes, "NVIDIA H200", 1)
    ]


us = st.floats(0.001, 1e7, allow_nan=False)
visits = st.builds(
    Visit, st.sampled_from(["reference", "v001_é", "it's \"quoted\""]), st.integers(1, 14), st.integers(0, 9),
    st.integers(0, 9), st.integers(0, 1), st.integers(0, 9), st.sampled_from(["official", "queued"]),
    st.integers(0, 50), st.none() | st.lists(us, max_size=5), us, us, us, us, st.sampled_from(["ok", "host_bound"]),
)  # fmt: skip


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(visits, max_size=6))
def test_visits_of_any_shape_are_held_to_the_last_digit(house: Path, made: list[Visit]):
    shutil.rmtree(house, ignore_errors=True)
    one = small()
    one.visits = made
    loaded = load_session(append_session(one).id)
    assert rows("SELECT participant, event_us, host_us FROM visit ORDER BY n") == [
        (visit.participant, visit.event_us, visit.host_us) for visit in loaded.visits
    ]
    assert verify() == []


def test_where_it_came_from_is_held_and_ingest_where_nobody_said(house: Path):
    evidence.append("packet", {"n": 1})
    token = evidence.origin.set({"run": "1234", "asset": "transformer_layer/test/decision"})
    try:
        entry = evidence.append("packet", {"n": 2})
    finally:
        evidence.origin.reset(token)
    assert evidence.content(entry.path)["origin"] == {"run": "1234", "asset": "transformer_layer/test/decision"}
    assert evidence.read(entry.path) == {"n": 2}
    assert rows("SELECT run, asset FROM entry ORDER BY name") == [
        ("ingest", ""),
        ("1234", "transformer_layer/test/decision"),
    ]


def test_older_evidence_of_another_branch_is_taken_in_and_the_order_is_that_of_names(house: Path, tmp_path: Path):
    early = append_session(small(1), tmp_path / "branch")
    late = append_session(small(2))
    assert index.sync() == 1
    shutil.copy(early.path, evidence.local_root())
    assert index.sync() == 1
    assert rows("SELECT id FROM entry ORDER BY name") == [(early.id,), (late.id,)]
    (chain,) = rows("SELECT sha256(string_agg(sha256, '' ORDER BY name)) FROM entry")[0]
    assert chain == evidence.chain()
    assert verify() == []


def test_one_damaged_file_is_told_and_all_others_are_taken_in(house: Path):
    good, bad = append_session(small(1)), append_session(small(2))
    spoil(bad.path, gzip.compress(gzip.decompress(bad.path.read_bytes()).replace(b'"seed":2', b'"seed":3')))
    with pytest.raises(LedgerError, match=f"{bad.name}: edited.*restore it from version control") as refusal:
        index.sync()
    assert str(refusal.value).count("\n") == 0
    connection = snapshot.reader()
    assert connection is not None and connection.execute("SELECT entry FROM session").fetchall() == [(good.id,)]
    connection.close()


@pytest.mark.parametrize(
    "change", [{"participants": None}, {"started": "yesterday"}, {"generations": "many"}, {"visits": {"encoding": "x"}}]
)
def test_an_entry_of_another_shape_is_told_by_name_and_blocks_nothing(house: Path, change):
    good = append_session(small(1))
    strange = evidence.append("session", {**evidence.read(good.path), **change})
    with pytest.raises(LedgerError, match=f"{strange.name}: written by another version of gfast") as refusal:
        index.sync()
    assert good.name not in str(refusal.value) and "/tmp/gfast-" not in str(refusal.value)
    connection = snapshot.reader()
    assert connection is not None and connection.execute("SELECT id FROM entry").fetchall() == [(good.id,)]
    connection.close()
    found = verify()
    assert found and all(strange.name in str(problem) for problem in found)


@pytest.mark.parametrize("what", ["gfast.duckdb", "read.duckdb", "both"])
def test_what_was_deleted_is_made_again_from_the_files(house: Path, what: str):
    append_session(small(1))
    index.sync()
    for name in ("gfast.duckdb", "read.duckdb") if what == "both" else (what,):
        (house / name).unlink()
    append_session(small(2))
    index.sync()
    assert verify() == []
    assert rows("SELECT count(*) FROM session") == [(2,)]


def test_a_damaged_snapshot_is_replaced(house: Path):
    append_session(small(1))
    index.sync()
    snapshot.path().write_bytes(snapshot.path().read_bytes()[:5000])
    assert rows("SELECT count(*) FROM session") == [(1,)]


def test_rebuilding_gives_the_same_ledger_and_sets_aside_one_that_held_more(house: Path):
    first, second = append_session(small(1)), append_session(small(2))
    evidence.append("decision", EVERY["decision"])
    index.sync()
    before = rows("FROM entry ORDER BY name"), rows("FROM decision"), rows("FROM visit ORDER BY entry, n")
    assert index.rebuild() == 3
    assert (rows("FROM entry ORDER BY name"), rows("FROM decision"), rows("FROM visit ORDER BY entry, n")) == before
    assert [path.name for path in house.glob("*set-aside*")] == []
    second.path.unlink()
    assert index.rebuild() == 2
    (aside,) = house.glob("*set-aside*")
    connection = database.connect(aside)
    assert connection.execute("SELECT count(*) FROM visit WHERE entry = ?", [second.id]).fetchone() != (0,)
    connection.close()
    assert rows("SELECT entry FROM session") == [(first.id,)]
