"""Sessions with an end of their own: a plain loop beside our figure, and a judge that fails itself."""

from __future__ import annotations

import pytest

from gfast_pipeline.bench.messages import Verdict
from tests.bench.sessions import HONEST, IDENTITY, REFERENCE, TINY, contract, job, plan, run

BREAKS_ALONE = (
    HONEST
    + """

_build = build


def build(reference, case, schedule):
    import pathlib

    if "plain" in str(pathlib.Path.cwd()):
        raise RuntimeError("not without a judge")
    return _build(reference, case, schedule)
"""
)


def test_parity_puts_a_plain_loop_beside_our_figure_and_says_why_there_is_none(tmp_path):
    plans = [REFERENCE, plan("v001", HONEST, "peer", prove=False), plan("alone", BREAKS_ALONE, "peer", prove=False)]
    done = run(job("parity", plans, contract(ratio_gate=50.0)), tmp_path)
    assert done.session.status == "complete", done.session.reason
    for name in ("reference", "v001"):
        found = done.session.measured[f"1/{name}"]
        assert found["ours_us"] > 0 and found["plain_us"] > 0
        assert found["ratio"] == pytest.approx(found["ours_us"] / found["plain_us"], rel=1e-3)
        assert found["ours_host"] >= 1 and found["plain_host"] >= 1
    assert done.session.measured["1/alone"]["error"] == "RuntimeError: not without a judge"
    assert done.left == []


FAILING = """

_whole_draw = draw_weights


def draw_weights(case, draw, seed, _calls=[]):
    _calls.append(case)
    if len(_calls) > 4 + 1:  # the four draws of the proof, then the first cell
        raise RuntimeError("the disk is on fire")
    return _whole_draw(case, draw, seed)
"""


def test_a_failure_of_the_judge_itself_keeps_what_was_measured_whole(tmp_path):
    work = job("decide", race_plans(), contract(ratio_gate=50.0))  # a busy host is not the matter here
    work.reference_source += FAILING
    done = run(work, tmp_path)
    session = done.session
    assert (done.code, session.status) == (3, "partial")
    assert session.reason == "the judge itself failed: RuntimeError: the disk is on fire"
    assert (session.cells_done, session.cells_missing) == ([[0, 1]], [[1, 1]])
    assert {visit.generation for visit in session.visits} == {0}
    assert done.left == []


def race_plans():
    return [
        REFERENCE,
        plan("v000_identity", IDENTITY, "incumbent", prove=False),
        plan("twin", IDENTITY, "twin", prove=False),
        plan("v001_fused_qkv_sdpa", HONEST),
    ]


WRONG_ON_CASE_1 = HONEST.replace("return final_norm(x)", "return (1 if case.id == 2 else 1.5) * final_norm(x)")


def test_a_peer_refused_on_one_case_is_measured_on_the_others(tmp_path):
    assert WRONG_ON_CASE_1 != HONEST
    rules = contract(TINY, {**TINY, "batch": 3}, ratio_gate=50.0)
    done = run(job("peers", [REFERENCE, plan("library", WRONG_ON_CASE_1, "peer")], rules), tmp_path)
    session = done.session
    failed = {(v.participant, v.case, v.gate) for v in session.verdicts if v.status == "failed"}
    assert failed == {("library", 1, "official")}
    assert {(v.case, v.generation) for v in session.visits if v.participant == "library"} == {(2, 0), (2, 1)}
    assert {v.case for v in session.visits} == {2}, "without a peer a case is not measured at all"
    assert (session.status, session.cells_missing) == ("complete", [])


def test_the_rest_of_a_peers_session_knows_what_was_refused_where(tmp_path):
    rules = contract(TINY, {**TINY, "batch": 3}, ratio_gate=50.0)
    work = job("peers", [REFERENCE, plan("library", HONEST, "peer", prove=False)], rules)
    work.cells = [[1, 1], [1, 2]]
    work.verdicts = [Verdict("anchored", "failed", "library", 1, reason="off")]
    done = run(work, tmp_path)
    assert {(v.case, v.generation) for v in done.session.visits if v.participant == "library"} == {(2, 1)}
    work.verdicts = [Verdict("call", "failed", "library", 1, reason="it hung")]
    done = run(work, tmp_path)
    assert not [v for v in done.session.visits if v.participant == "library"], "who hung is out of all of it"
