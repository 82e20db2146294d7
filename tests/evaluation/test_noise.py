from __future__ import annotations

import pytest

from gfast_pipeline.evaluation.noise import noise_report
from gfast_pipeline.evaluation.timings import timing_rows
from tests.evaluation.synthetic import CHALLENGER, INCUMBENT, TWIN, contract, session


def test_the_table_tells_scatter_between_processes_from_scatter_within():
    wide = noise_report(session(process=0.02, block=0.001, call=0.0001, generations=20), resamples=200)
    calm = noise_report(session(process=0.0, block=0.02, call=0.0001, generations=20), resamples=200)
    for row in wide.rows:
        assert row.ratio_between > 1.5 and row.ratio_within < 0.4
        assert row.time_between == pytest.approx(2.0, rel=0.5)
    for row in calm.rows:
        assert row.ratio_between < 1.2 and row.ratio_within > 1.5
        assert row.time_within == pytest.approx(2.0 / 2**0.5, rel=0.4)  # a block is the mean of two turns


def test_the_smallest_decidable_difference_is_above_the_margin_and_grows_with_noise():
    calm = noise_report(session(process=0.001, seed=3), contract(), resamples=300)
    loud = noise_report(session(process=0.02, seed=3), contract(), resamples=300)
    for one in (calm, loud):
        assert (one.pair, one.twin) == (INCUMBENT, TWIN)
        for mode in one.modes:
            assert mode.margin >= 0.01 and mode.smallest > mode.margin
    assert loud.modes[0].smallest > 2 * calm.modes[0].smallest


def test_a_mode_that_cannot_be_compared_is_noted_and_a_session_without_a_pair_refused():
    one = session(generations=2, blocks=2)
    for visit in one.visits:
        if visit.mode == "queued":
            visit.event_us, visit.status = None, "host_bound"
    report = noise_report(one, resamples=200)
    assert [mode.mode for mode in report.modes] == ["official"] and report.notes[0].startswith("queued")
    one.participants = [p for p in one.participants if p["role"] != "twin"]
    with pytest.raises(ValueError, match="no twin"):
        noise_report(one)


def test_timing_rows_pair_everyone_with_the_incumbent_and_keep_rows_without_pairs():
    one = session({CHALLENGER: 0.5}, generations=2, blocks=2, cases=(1, 2))
    one.visits = [v for v in one.visits if (v.participant, v.case, v.generation) != (CHALLENGER, 2, 1)]
    rows = {(row.case, row.participant, row.mode): row for row in timing_rows(one, resamples=200)}
    whole, holed = rows[1, CHALLENGER, "official"], rows[2, CHALLENGER, "official"]
    assert (
        whole.interval is not None and whole.interval.ratio == pytest.approx(2.0, rel=0.02) and whole.base == INCUMBENT
    )
    assert holed.interval is None and holed.median_us == pytest.approx(12.0, rel=0.02)
    assert rows[1, INCUMBENT, "official"].interval is None
    with pytest.raises(ValueError, match="v099 is no participant"):
        timing_rows(one, "v099")
