"""Results taken in: damage, what does not belong here, what contradicts itself, and what is merely said."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gfast_pipeline.bench.messages import Session, Verdict, canonical, digest, seal, to_plain
from gfast_pipeline.contract import approval
from gfast_pipeline.contract.load import Loaded, load
from gfast_pipeline.execution.bundle import BundleError, ingest
from tests.execution.tiny import V001, result

# --- damage on the way back -------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True), packed=st.booleans())
def test_a_result_cut_anywhere_is_refused(loaded: Loaded, share: float, packed: bool):
    content = seal(result(loaded))
    content = gzip.compress(content) if packed else content
    with pytest.raises(BundleError, match=r"^cut\.json: .*cut short.*; carry it over again byte for byte"):
        ingest(content[: int(len(content) * share)], name="cut.json")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True), byte=st.integers(1, 255), packed=st.booleans())
def test_a_result_with_one_byte_changed_is_refused_or_unharmed(loaded: Loaded, share: float, byte: int, packed: bool):
    whole = result(loaded)
    content = bytearray(gzip.compress(seal(whole)) if packed else seal(whole))
    content[int(len(content) * share)] ^= byte
    try:
        session, _ = ingest(bytes(content), name="bad.json")
    except BundleError as error:
        assert str(error).startswith("bad.json: ")
    else:  # gzip has bytes that mean nothing: a time, padding
        assert packed
        assert session == whole


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b'{"sha256": "", "session": 3}', b"[" * 100_000, b"\x1f\x8b", b"\xff\xfe"],
)
def test_what_is_no_session_is_refused(content: bytes):
    with pytest.raises(BundleError, match=r"^odd\.json: "):
        ingest(content, name="odd.json")
    plain: Any = [1]
    with pytest.raises(BundleError, match="it is no session"):
        ingest(canonical({"sha256": digest(plain), "session": plain}))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(BundleError, match=r"none.json: cannot be read: No such file or directory; name what"):
        ingest(tmp_path / "none.json")


# --- results that do not belong here ----------------------------------------------------------------------------------


def test_another_protocol_is_refused(loaded: Loaded):
    with pytest.raises(BundleError, match="it speaks protocol 2 where this gfast speaks 1; make a new bundle"):
        ingest(seal(result(loaded, protocol=2)))


def test_another_contract_is_refused(loaded: Loaded):
    with pytest.raises(BundleError, match=rf"contract_hash: it was measured under dddd.* is {loaded.hash[:12]} here"):
        ingest(seal(result(loaded, contract_hash="d" * 64)))
    with pytest.raises(BundleError, match=r"contract transformer_layer/other: .*no contract 'transf"):
        ingest(seal(result(loaded, contract_name="other")))


def test_a_contract_that_changed_since_is_refused_even_when_approved_anew(loaded: Loaded):
    content = seal(result(loaded))
    assert ingest(content)[1] == []
    loaded.path.write_text(loaded.path.read_text().replace("margin = 0.02", "margin = 0.01"))
    now = load("tiny")
    approval.approve(now, now.hash, "Ada")
    with pytest.raises(BundleError, match="check that contract out as it was, or make a new bundle"):
        ingest(content)


def test_an_unapproved_contract_is_refused(loaded: Loaded):
    approval.approval_path(loaded).unlink()
    with pytest.raises(BundleError, match=r"no one has approved this contract\. Type: gfast approve tiny"):
        ingest(seal(result(loaded)))


def test_a_candidate_that_changed_or_went_is_said(loaded: Loaded):
    content, (path,) = seal(result(loaded)), [loaded.workload.candidate("v001").path]
    path.write_text(path.read_text() + "# edited\n")
    (problem,) = ingest(content, name="r.json")[1]
    assert problem.startswith(f"r.json: participants: {V001}.py has changed since (sha256 ")
    path.unlink()
    (problem,) = ingest(content)[1]
    assert f"there is no file of {V001} here" in problem
    assert "restore it" in problem


# --- results that contradict themselves -------------------------------------------------------------------------------


def visit(session: Session, **values: Any) -> None:
    session.visits[5] = dataclasses.replace(session.visits[5], **values)


def record(session: Session, **values: Any) -> None:
    session.participants[3] = {**session.participants[3], **values}


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda s: setattr(s, "kind", "party"), "kind: 'party' is none of judge"),
        (lambda s: setattr(s, "status", "fine"), "status: 'fine' is none of complete"),
        (lambda s: setattr(s, "cases", [1, 4]), "cases: 4 is no case of the contract"),
        (lambda s: record(s, role="judge"), "participants[3].role: 'judge' is none of reference"),
        (lambda s: record(s, schedules={"1": {"num_warps": 4}}), f"plan_hash: it is not that of {V001}"),
        (lambda s: s.cells_done.append([0, 1]), "cells_done: a cell stands there twice"),
        (lambda s: s.cells_missing.append([0, 1]), "generation 0 case 1 is measured and missing at once"),
        (lambda s: s.cells_missing.append([2, 1]), "the session has no generation 2 case 1"),
        (lambda s: setattr(s, "generations", 3), "generation 2 case 1 is neither measured nor missing"),
        (lambda s: setattr(s, "status", "partial"), "status: it is partial and no cell is missing"),
        (lambda s: s.cells_missing.append(s.cells_done.pop()), "visits[16] (reference, generation 1 case 1, official)"),
        (lambda s: visit(s, participant="v009"), "visits[5] (v009, generation 0 case 1, official): the session has no"),
        (lambda s: visit(s, mode="queued"), "queued): the session has no such participant or mode"),
        (lambda s: visit(s, block=2), "block 2 turn 1 is beyond 2 × 2"),
        (lambda s: visit(s, turn=0), "visits[5] (v000_identity, generation 0 case 1, official): block 0 turn 0 stands"),
        (lambda s: visit(s, calls=4), "event_us: 3 times for 4 calls"),
        (lambda s: visit(s, event_us=None), "event_us: 0 times for 3 calls"),
        (lambda s: visit(s, status="host_bound"), "event_us: a host-bound visit has no times"),
        (lambda s: visit(s, status="odd"), "status: 'odd' is neither ok nor host_bound"),
        (lambda s: visit(s, event_us=[1.0, -2.0, 3.0]), "event_us: -2.0 µs is no time"),
        (lambda s: visit(s, event_us=["1", 2.0, 3.0]), "not as this gfast writes a session"),
        (lambda s: setattr(s, "cells_done", [[0], [1]]), "not as this gfast writes a session"),
        (
            lambda s: s.visits.pop(7),
            f"visits: {V001}, generation 0 case 1 lacks 1 of 4 visits, first official block 0 turn 1",
        ),
        (lambda s: setattr(s, "blocks", 3), "lacks 2 of 6 visits, first official block 2 turn 0"),
        (lambda s: s.modes.append("queued"), "lacks 4 of 8 visits, first queued block 0 turn 0"),
        (
            lambda s: setattr(s, "visits", [v for v in s.visits if v.participant != "twin"]),
            "visits: twin, generation 0",
        ),
    ],
)
def test_a_result_that_contradicts_itself_is_refused_with_its_place(
    loaded: Loaded, spoil: Callable[[Session], Any], told: str
):
    session = result(loaded)
    spoil(session)
    with pytest.raises(BundleError) as caught:
        ingest(seal(session), name="result.json")
    assert str(caught.value).startswith("result.json: ")
    assert told in str(caught.value)
    assert "; " in str(caught.value), "no remedy"
    assert "\n" not in str(caught.value)


def test_a_field_of_another_version_is_refused(loaded: Loaded):
    plain = {**to_plain(result(loaded)), "novelty": 1}
    with pytest.raises(BundleError, match="unknown field 'novelty'"):
        ingest(json.dumps({"sha256": digest(plain), "session": plain}).encode())


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict("official", "failed", V001, 1, reason="wrong"),
        Verdict("build", "skipped", V001, 1, reason="no compiler"),
        Verdict("call", "skipped", V001, reason="too large"),
    ],
)
def test_who_fell_or_declined_needs_no_visits_but_who_could_not_be_told_does(loaded: Loaded, verdict: Verdict):
    session = result(loaded)
    session.visits = [visit for visit in session.visits if visit.participant != V001]
    session.verdicts = [Verdict("clock", "skipped", V001, 1)]
    with pytest.raises(BundleError, match=f"visits: {V001}, generation 0 case 1 lacks 4 of 4"):
        ingest(seal(session))
    session.verdicts.append(verdict)
    assert ingest(seal(session)) == (session, [])


def test_a_host_bound_visit_is_whole_and_a_peer_may_sit_a_case_out(loaded: Loaded):
    session = result(loaded)
    visit(session, status="host_bound", event_us=None)
    assert ingest(seal(session)) == (session, [])
    record(session, role="peer")
    session.visits = [one for one in session.visits if (one.participant, one.generation) != (V001, 0)]
    assert ingest(gzip.compress(seal(session))) == (session, [])
    session.visits = [one for one in session.visits if (one.participant, one.block) != (V001, 1)]
    with pytest.raises(BundleError, match=f"visits: {V001}, generation 1 case 1 lacks 2 of 4"):
        ingest(seal(session))


def test_a_void_session_is_taken_in_and_called_void(loaded: Loaded):
    session = result(loaded, status="void", reason="the reference failed")
    (problem,) = ingest(seal(session), name="r.json")[1]
    assert problem.startswith(
        "r.json: it is void: the reference failed; it is kept and decides nothing; run the bundle"
    )


def test_cells_left_because_the_challenger_fell_are_no_remainder_to_measure(loaded: Loaded):
    session = result(loaded)
    session.cells_missing.append(session.cells_done.pop())
    session.visits = [one for one in session.visits if one.generation == 0]
    assert "gfast bundle create --rest SESSION --contract tiny FILE" in ingest(seal(session))[1][0]
    session.verdicts.append(Verdict("timed_output", "failed", V001, 1, generation=0))
    assert ingest(seal(session))[1] == []


def test_a_judge_session_has_one_generation_of_cells(loaded: Loaded):
    whole = result(loaded, kind="judge", visits=[])
    whole.cells_done = [[0, case] for case in whole.cases]
    assert ingest(seal(whole)) == (whole, [])
    whole.cells_done = []
    with pytest.raises(BundleError, match=r"generation 0 case \d+ is neither measured nor missing"):
        ingest(seal(whole))
