"""The gates on time: an honest visit passes on any machine, a candidate's figures cannot hide or invent time."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gfast_pipeline.bench.conclude import clock_verdicts, physics_verdicts
from gfast_pipeline.bench.messages import Visit
from gfast_pipeline.bench.timing import LONG_US, Pace

RATIO = 1.6  # the contract's clock gate factor
HANDSHAKE = 60.0

call_us = st.floats(5, 20_000)
null_us = st.floats(1, 60)
calls = st.integers(2, 50)
untimed = st.integers(2, 10)
LIMITS = {
    "compute_tflops": {"float32": 66.9, "tf32": 494.7, "float16": 989.4},
    "memory_tb_s": 4.8,
    "l2_mb": 60,
    "exponentials_t_s": 4.2,
}


def visit(events: list[float], wall: float, more: int = 2, mode: str = "official", **changed: Any) -> Visit:
    values = {"spin_us": 0.0, "untimed": more, "status": "ok"} | changed
    return Visit("v1", 1, 0, 0, 0, 0, mode, len(events), events, wall, wall - HANDSHAKE, HANDSHAKE, **values)


def wall_of(events: list[float], more: int, null: float) -> float:
    """What an honest visit takes: the handshake, and for each call its time and the harness's own."""
    total = len(events) + more
    return HANDSHAKE + total * (statistics.mean(events) + null)


@given(call_us, null_us, calls, untimed, st.lists(st.floats(0.8, 1.25), min_size=50, max_size=50), st.floats(1, 1.3))
@settings(deadline=None)
def test_an_honest_visit_passes(call, null, count, more, jitter, slower):
    events = [call * factor for factor in jitter[:count]]
    wall = wall_of(events, more, null) * slower
    (verdict,) = clock_verdicts([visit(events, wall, more)], {(1, "official"): null}, RATIO)
    expected = "passed" if wall >= 20 * HANDSHAKE else "skipped"
    assert (verdict.gate, verdict.status) == ("clock", expected), verdict.reason


@given(call_us, null_us, calls, untimed, st.floats(3, 100))
@settings(deadline=None)
def test_events_reported_three_times_too_short_fail(call, null, count, more, factor):
    wall = wall_of([call] * count, more, null)
    assume(wall >= 20 * HANDSHAKE)
    assume(call > 2 * null)  # below, the harness's own time hides any event: nothing there is worth a lie
    (verdict,) = clock_verdicts([visit([call / factor] * count, wall, more)], {(1, "official"): null}, RATIO)
    assert verdict.status == "failed"
    assert "the judge's wall holds" in verdict.reason
    assert verdict.share is not None and verdict.share > 1 and verdict.limit == 1.0


@given(call_us, null_us, calls, st.floats(1.1, 100))
@settings(deadline=None)
def test_more_event_time_than_the_wall_holds_fails(call, null, count, factor):
    wall = wall_of([call] * count, 2, null)
    assume(wall >= 20 * HANDSHAKE)
    events = [factor * wall / count] * count
    (verdict,) = clock_verdicts([visit(events, wall)], {(1, "official"): null}, RATIO)
    assert verdict.status == "failed"
    assert "events exceed the judge's wall" in verdict.reason


def test_short_visits_cannot_tell_and_are_skipped():
    short = visit([1.0, 1.0], 19 * HANDSHAKE)  # a lie, but nobody could know
    (verdict,) = clock_verdicts([short], {(1, "official"): 5.0}, RATIO)
    assert (verdict.status, verdict.reason) == ("skipped", "visits last under 20 handshakes")
    long = visit([1.0, 1.0], 21 * HANDSHAKE)
    (verdict,) = clock_verdicts([short, long], {(1, "official"): 5.0}, RATIO)
    assert verdict.status == "failed", "one that is long enough speaks for the group"


def test_without_a_null_call_the_gate_says_so():
    (verdict,) = clock_verdicts([visit([900.0, 900.0], 4000.0)], {}, RATIO)
    assert (verdict.status, verdict.reason) == ("skipped", "no null call was measured")


def test_one_disturbed_visit_of_many_does_not_fail_a_candidate():
    honest = [visit([500.0] * 10, wall_of([500.0] * 10, 2, 10.0)) for _ in range(7)]
    disturbed = visit([500.0] * 10, 10 * wall_of([500.0] * 10, 2, 10.0))
    (verdict,) = clock_verdicts([*honest, disturbed], {(1, "official"): 10.0}, RATIO)
    assert verdict.status == "passed"


@given(call_us, null_us, calls, untimed, st.floats(500, 200_000), st.floats(0.95, 1.05))
@settings(deadline=None)
def test_the_spin_of_a_queued_visit_is_not_held_against_it(call, null, count, more, spin, clock):
    events = [call] * count
    wall = wall_of(events, more, null) + spin * clock  # its length follows the card's clock
    assume(wall >= 20 * HANDSHAKE)
    queued = visit(events, wall, more, "queued", spin_us=spin)
    found = clock_verdicts([queued], {(1, "queued"): null}, RATIO)
    assert [v.status for v in found] == ["passed"]
    hidden = visit([call / 100] * count, wall + 3 * count * call, more, "queued", spin_us=spin)
    assume(call * count > spin and call > 2 * null)
    found = clock_verdicts([hidden], {(1, "queued"): null}, RATIO)
    assert [v.status for v in found] == ["failed"]


def test_host_bound_visits_and_other_modes_are_kept_apart():
    bound = visit([1.0, 1.0], 1e6, mode="queued", status="host_bound")
    bound.event_us = None
    honest = visit([900.0, 900.0], wall_of([900.0] * 2, 2, 5.0))
    found = clock_verdicts([bound, honest], {(1, "official"): 5.0, (1, "queued"): 5.0}, RATIO)
    assert [(v.variant, v.status) for v in found] == [("official", "passed")]


@given(st.floats(0.01, 100), st.floats(1e6, 1e15), st.floats(1e3, 1e12), st.sampled_from(["official", "cold"]))
@settings(deadline=None)
def test_a_figure_below_the_hard_floor_fails_and_any_above_passes(times, flop, size, mode):
    arithmetic, memory = flop / 989.4e6, size / 4.8e6
    floor = max(arithmetic, memory if mode == "cold" or size > 60e6 else 0.0)
    assume(abs(times - 1) > 1e-6)
    found = physics_verdicts([visit([times * floor] * 3, 1e6, mode=mode)], {1: {"flop": flop, "bytes": size}}, LIMITS)
    assert [v.gate for v in found] == ["physics"]
    assert found[0].status == ("passed" if times > 1 else "failed")
    assert found[0].share == pytest.approx(1 / times)
    assert ("below the hard floor" in found[0].reason) == (times < 1)


@pytest.mark.parametrize("limits", [None, {}, {"compute_tflops": {}}])
def test_without_limits_there_are_no_verdicts_of_physics(limits):
    assert physics_verdicts([visit([1e-9], 1.0)], {1: {"flop": 1e15, "bytes": 1e12}}, limits) == []


@given(st.floats(1.0, 1e6), st.floats(0.1, 100.0), st.integers(2, 50), st.integers(2, 10))
def test_a_pace_times_as_many_calls_as_fit_the_visit_and_warms_up_with_no_more(call_us, visit_ms, most, untimed):
    pace = Pace(call_us, visit_ms, most, untimed)
    count = pace.calls["official"]
    assert pace.calls == {"official": count, "queued": count, "cold": count}
    assert 2 <= count <= most
    assert count == 2 or (count - 0.5) * call_us <= visit_ms * 1e3
    assert pace.untimed == (1 if call_us > LONG_US else max(2, min(untimed, count)))
    assert pace.spin_us == 0.0
