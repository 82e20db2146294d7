from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfast_pipeline.bench.messages import Visit, to_plain
from gfast_pipeline.evaluation.decision import decide
from gfast_pipeline.ledger.columns import decode_visits, encode_visits, visit_records
from gfast_pipeline.ledger.evidence import MAX_BYTES, EvidenceError, keep, read
from gfast_pipeline.ledger.sessions import (
    append_decision,
    append_session,
    list_sessions,
    load_session,
    same_scope,
)
from tests.evaluation.synthetic import CHALLENGER, contract, session

us = st.floats(0.0, 1e9, allow_nan=False) | st.integers(0, 10**6)
visits = st.builds(
    Visit, st.sampled_from(["reference", "v001_é", ""]), st.integers(1, 14), st.integers(0, 9), st.integers(0, 9),
    st.integers(0, 1), st.integers(0, 9), st.sampled_from(["official", "queued"]), st.integers(0, 50),
    st.none() | st.lists(us, max_size=5), us, us, us, us, st.sampled_from(["ok", "host_bound"]),
)  # fmt: skip


@given(st.lists(visits, max_size=6))
def test_encoding_visits_rounds_to_a_nanosecond_once_and_loses_nothing_ever_after(records):
    plain = [to_plain(visit) for visit in records]
    once = decode_visits(encode_visits(plain))
    assert decode_visits(encode_visits(once)) == once
    for before, after in zip(plain, once, strict=True):
        assert list(before) == list(after)
        for name, value in before.items():
            if (name.endswith("_us") and name != "event_us") or (name == "event_us" and value is not None):
                assert after[name] == pytest.approx(value, abs=0.00051)
            else:
                assert after[name] == value


def test_a_nan_is_refused_with_its_visit_and_no_file_is_written(tmp_path: Path):
    one = session(generations=2, blocks=2)
    one.visits[3].event_us = [1.0, float("nan")]
    with pytest.raises(EvidenceError, match=r"visits\[3\]\.event_us = nan; a time that was not measured is null"):
        append_session(one, tmp_path)
    assert list_sessions([tmp_path]) == []


def test_another_encoding_or_a_short_column_is_refused():
    packed = encode_visits([to_plain(session(generations=2, blocks=2).visits[0])])
    assert len(visit_records(packed)) == 1
    with pytest.raises(ValueError, match="visit-columns-9"):
        decode_visits({**packed, "encoding": "visit-columns-9"})
    packed["columns"]["turn"] = []
    with pytest.raises(ValueError, match="column turn has 0 of 1 rows"):
        decode_visits(packed)


def test_a_session_comes_back_as_it_was_and_gives_the_same_decision(tmp_path: Path):
    one = session({CHALLENGER: 0.9})
    for visit in one.visits:
        visit.event_us = [round(us, 3) for us in visit.event_us or []]
        visit.judge_wall_us, visit.runner_wall_us = round(visit.judge_wall_us, 3), round(visit.runner_wall_us, 3)
    one.visits[0].event_us, one.visits[0].status = None, "host_bound"
    entry = append_session(one, tmp_path)
    again = load_session(entry.id[:6], [tmp_path])
    assert again == one
    assert decide([again], contract(), resamples=200) == decide([one], contract(), resamples=200)


def test_a_full_race_with_fifty_calls_a_visit_fits_into_one_file(tmp_path: Path):
    """13 cases × 5 participants × 40 visits × 2 modes × 50 calls, with 2 % of noise in every call."""
    rng = random.Random(1)
    one = session(cases=(1,), generations=2, blocks=2)
    one.visits = [
        Visit(
            name, case, generation, block, turn, position, mode, 50,
            [25.0 * case * rng.lognormvariate(0, 0.02) for _ in range(50)],
            1300.0 * case * rng.random(), 1200.0 * case * rng.random(), 30 + rng.random(),
        )
        for case in range(1, 14)
        for generation in range(4)
        for block in range(5)
        for turn in range(2)
        for position, name in enumerate(("reference", "v000_identity", "v003_fused", "twin", "v007_faster"))
        for mode in ("official", "queued")
    ]  # fmt: skip
    entry = append_session(one, tmp_path)
    assert entry.path.stat().st_size < 0.8 * MAX_BYTES
    assert len(load_session(entry.id, [tmp_path]).visits) == 5200


def test_sessions_are_listed_in_order_and_filtered_by_contract_scope_and_kind(tmp_path: Path):
    first, second, third = (session(seed=n, generations=2, blocks=2) for n in (1, 2, 3))
    second.contract_hash, third.scope, third.status = "d" * 64, {"accelerator": "other"}, "void"
    third.kind = "noise"
    ids = [append_session(one, tmp_path).id for one in (first, second, third)]
    assert [head.id for head in list_sessions([tmp_path])] == ids
    assert [head.id for head in list_sessions([tmp_path], contract_hash="d" * 64)] == [ids[1]]
    assert [head.id for head in list_sessions([tmp_path], scope=first.scope)] == ids[:2]
    assert [(head.id, head.status) for head in list_sessions([tmp_path], kind="noise")] == [(ids[2], "void")]


def test_a_scope_is_equal_whole_or_not_at_all_and_an_unknown_one_never():
    scope = {"accelerator": {"name": "H200", "sms": 132}, "driver": "1"}
    assert same_scope(scope, {"driver": "1", "accelerator": {"sms": 132, "name": "H200"}})
    assert not same_scope(scope, {**scope, "driver": "2"})
    assert not same_scope(scope, {"accelerator": scope["accelerator"]})
    assert not same_scope({}, {})


def test_a_decision_without_what_the_title_needs_is_refused(tmp_path: Path):
    with pytest.raises(EvidenceError, match="plan_hash is missing"):
        decision = decide([session({CHALLENGER: 0.9})], contract(), resamples=200).plain()
        del decision["plan_hash"]
        append_decision(decision, tmp_path)


def test_a_kept_session_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GFAST_WAREHOUSE", str(tmp_path))
    entry = append_session(session(generations=2, blocks=2))
    keep(entry.id)
    assert [head.id for head in list_sessions()] == [entry.id]


def test_a_session_of_an_unknown_shape_is_refused_with_its_file(tmp_path: Path):
    entry = append_session(session(generations=2, blocks=2), tmp_path)
    from gfast_pipeline.ledger import evidence

    strange = evidence.append("session", {**read(entry.path), "novelty": 1}, tmp_path)
    with pytest.raises(EvidenceError, match="novelty"):
        load_session(strange.id, [tmp_path])
