"""Sessions with an end of their own: a plain loop beside our figure, and a judge that fails itself."""

from __future__ import annotations

import pytest

from tests.bench.sessions import HONEST, IDENTITY, REFERENCE, contract, job, plan, run

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
