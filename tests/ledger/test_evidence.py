from __future__ import annotations

import gzip
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gfast_pipeline.ledger import evidence
from gfast_pipeline.ledger.evidence import EvidenceError, append, chain, entries, find, keep, read

NOON = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)


leaves = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.floats(allow_nan=False, width=32)
json_values = st.recursive(
    leaves.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GFAST_WAREHOUSE", str(tmp_path))
    return tmp_path


def test_the_name_says_when_what_and_which_content(house: Path):
    entry = append("packet", {"claim": "µ"}, utc=NOON)
    assert entry.path.parent == house / "evidence" / "local"
    assert entry.name == f"20261130T120000.123456Z-packet-{entry.id}.json.gz"
    assert gzip.decompress(entry.path.read_bytes()) == (
        '{"kind":"packet","payload":{"claim":"µ"},"utc":"20261130T120000.123456Z"}'.encode()
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(json_values)
def test_what_is_appended_is_read_back_whatever_it_is(tmp_path: Path, value):
    try:
        entry = append("packet", {"value": value}, tmp_path)
    except EvidenceError as error:
        assert "surrogates" in str(error)  # text that is no Unicode has no UTF-8 either
        return
    assert read(entry.path) == {"value": value}


def test_the_same_event_gives_the_same_bytes(tmp_path: Path):
    one = append("packet", {"b": 1, "a": 2}, tmp_path / "a", utc=NOON)
    two = append("packet", {"a": 2, "b": 1}, tmp_path / "b", utc=NOON)
    assert one.name == two.name and one.path.read_bytes() == two.path.read_bytes()


def test_nothing_is_ever_overwritten_and_no_half_written_file_stays(tmp_path: Path):
    entry = append("packet", {"a": 1}, tmp_path, utc=NOON)
    before = entry.path.read_bytes()
    with pytest.raises(EvidenceError, match="never overwritten"):
        append("packet", {"a": 1}, tmp_path, utc=NOON)
    assert entry.path.read_bytes() == before
    assert os.listdir(tmp_path) == [entry.name]
    assert not entry.path.stat().st_mode & 0o222


def test_a_clock_that_went_back_does_not_change_the_order_of_events(tmp_path: Path):
    append("packet", {"n": 0}, tmp_path, utc=datetime(2999, 1, 1, tzinfo=UTC))
    later = [append("packet", {"n": n}, tmp_path) for n in (1, 2, 3)]
    assert [read(entry.path)["n"] for entry in entries([tmp_path])] == [0, 1, 2, 3]
    assert later[0].utc == "29990101T000000.000001Z"


def test_what_is_appended_here_comes_after_what_was_kept_by_a_clock_ahead(house: Path):
    append("packet", {"n": 0}, evidence.kept_root(), utc=datetime(2999, 1, 1, tzinfo=UTC))
    later = [append("packet", {"n": 1}), append("packet", {"n": 2}, evidence.local_root())]
    assert [read(entry.path)["n"] for entry in entries()] == [0, 1, 2]
    assert [entry.path.parent for entry in later] == [evidence.local_root()] * 2
    assert append("packet", {}, house / "elsewhere").utc < "2999"


@pytest.mark.parametrize("payload, place", [
    ({"ratio": float("nan")}, "payload.ratio = nan"),
    ({"rows": [{"us": [1.0, float("inf")]}]}, "payload.rows[0].us[1] = inf"),
    ({"path": Path("x")}, "payload.path of type PosixPath"),
])  # fmt: skip
def test_what_json_cannot_hold_is_refused_with_its_place(tmp_path: Path, payload, place):
    with pytest.raises(EvidenceError) as caught:
        append("packet", payload, tmp_path)
    assert place in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["Session", "a-b", "", "../x", "1a"])
def test_a_kind_that_would_spoil_the_name_is_refused(tmp_path: Path, kind):
    with pytest.raises(EvidenceError, match="kind"):
        append(kind, {}, tmp_path)


def test_an_event_too_large_is_refused_with_what_to_do(tmp_path: Path):
    with pytest.raises(EvidenceError, match="measure fewer cases"):
        append("session", {"noise": os.urandom(1_200_000).hex()}, tmp_path)
    assert os.listdir(tmp_path) == []


def damage_edit(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"1.5", b"2.5")))


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def damage_plain(path: Path) -> None:
    path.write_bytes(gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize(
    "damage, word", [(damage_edit, "edited"), (damage_cut, "cut short"), (damage_plain, "damaged")]
)
def test_an_edited_or_cut_file_is_named_with_the_remedy(tmp_path: Path, damage, word):
    entry = append("decision", {"ratio": 1.5}, tmp_path)
    whole = chain([tmp_path])
    entry.path.chmod(0o644)
    damage(entry.path)
    for look in (lambda: read(entry.path), lambda: chain([tmp_path])):
        with pytest.raises(EvidenceError, match=word) as caught:
            look()
        assert str(entry.path) in str(caught.value) and "restore it" in str(caught.value)
    entry.path.unlink()
    assert chain([tmp_path]) != whole


def test_a_file_under_a_later_time_or_another_kind_is_found_out(tmp_path: Path):
    entry = append("decision", {"ratio": 1.5}, tmp_path, utc=NOON)
    moved = entry.path.rename(entry.path.with_name(entry.name.replace("20261130", "20991130")))
    with pytest.raises(EvidenceError, match=r"renamed, it was 20261130T120000\.123456Z-decision"):
        read(moved)
    with pytest.raises(EvidenceError, match="no such file"):
        read(entry.path)


def test_a_stray_archive_is_an_error_and_other_files_are_none(tmp_path: Path):
    append("packet", {}, tmp_path)
    (tmp_path / "README.md").write_text("x")
    (tmp_path / ".half.json.gz").write_text("x")
    assert len(entries([tmp_path])) == 1
    (tmp_path / "mine.json.gz").write_text("x")
    with pytest.raises(EvidenceError, match=r"mine\.json\.gz"):
        entries([tmp_path])


def test_keeping_makes_a_tracked_copy_that_counts_once(house: Path):
    first, second = append("packet", {"n": 1}), append("packet", {"n": 2})
    before = chain()
    kept = keep(first.id[:6])
    assert kept.path == house / "evidence" / "kept" / first.name and len(kept.copies) == 2
    assert [entry.id for entry in entries()] == [first.id, second.id]
    assert chain() == before
    assert keep(first.id) == kept
    first.path.unlink()
    assert chain() == before


def test_a_damaged_copy_is_found_even_when_the_other_is_whole(house: Path):
    entry = append("packet", {"ratio": 1.5})
    keep(entry.id)
    entry.path.chmod(0o644)
    damage_edit(entry.path)
    with pytest.raises(EvidenceError, match="edited"):
        chain()


def test_the_chain_is_a_function_of_the_set_of_events(tmp_path: Path):
    for n in range(3):
        append("packet", {"n": n}, tmp_path / "all")
    for n, entry in enumerate(entries([tmp_path / "all"])):
        folder = tmp_path / ("a" if n % 2 else "b")
        folder.mkdir(exist_ok=True)
        (folder / entry.name).write_bytes(entry.path.read_bytes())
    assert (
        chain([tmp_path / "a", tmp_path / "b"]) == chain([tmp_path / "b", tmp_path / "a"]) == chain([tmp_path / "all"])
    )
    assert chain([tmp_path / "a"]) != chain([tmp_path / "all"])


def test_an_event_is_found_by_the_beginning_of_its_id_or_name(house: Path):
    one, _ = append("packet", {"n": 1}, utc=NOON), append("decision", {"n": 2}, utc=NOON)
    assert find(one.id[:5]).id == one.id
    assert find("20261130T120000", kind="packet").id == one.id
    with pytest.raises(EvidenceError, match="begins several"):
        find("20261130")
    with pytest.raises(EvidenceError, match="no decision begins with"):
        find(one.id, kind="decision")
    with pytest.raises(EvidenceError, match="no entry"):
        find("")


def test_the_warehouse_is_beside_the_package_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GFAST_WAREHOUSE", raising=False)
    assert evidence.warehouse() == Path(evidence.__file__).resolve().parents[2] / "warehouse"
    monkeypatch.setenv("GFAST_WAREHOUSE", "/elsewhere")
    assert evidence.roots() == [Path("/elsewhere/evidence/kept"), Path("/elsewhere/evidence/local")]
