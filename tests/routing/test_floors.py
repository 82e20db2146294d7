"""The mathematics of the floors: what they grow with, what they never exceed, and what they ask for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfast_pipeline.bench.conclude import physics_verdicts
from gfast_pipeline.bench.messages import Visit
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import load
from gfast_pipeline.routing.floors import ADMISSIBLE, TERMS, dependent_step, floors, hard_floor
from tests.routing.measured import MEASURED, WORK

H200, CPU = load("h200_fp32"), load("cpu_fp32")
amounts = st.floats(0, 1e15)
rates = st.floats(1e-3, 1e4)
works = st.fixed_dictionaries(dict.fromkeys(("flop", "bytes", "exponentials"), amounts))
RATES = ("memory_tb_s", "l2_tb_s", "gemm_float16_tflops", "gemm_tf32_tflops", "exponentials_t_s")
devices = st.fixed_dictionaries(dict.fromkeys(RATES, rates)).map(lambda found: {**MEASURED, **found})


@given(works, devices, st.integers(0, 200), st.sampled_from(["official", "queued", "cold"]))
def test_the_floor_is_the_launch_and_the_largest_other_term(work, measured, phases, mode):
    found = floors(work, H200.contract, measured, phases, mode)
    assert set(found.terms) == set(TERMS)
    others = [us for term, us in found.terms.items() if term != "launch"]
    assert found.floor_us == found.terms["launch"] + max(others)
    assert found.floor_us <= sum(found.terms.values()) * (1 + 1e-12)
    assert found.terms[found.binding_term] == max(found.terms.values()) <= found.floor_us
    assert found.floor_us >= MEASURED["null_queued_us"]


@given(works, devices, st.integers(0, 200), st.floats(1, 100), st.sampled_from(["flop", "bytes", "exponentials"]))
def test_more_work_never_lowers_the_floor_in_one_state_of_the_caches(work, measured, phases, times, what):
    # Only the step from L2 to memory could lower it, on a device whose memory were the faster of the two.
    measured = {**measured, "l2_tb_s": max(measured["l2_tb_s"], measured["memory_tb_s"])}
    more = {**work, what: work[what] * times}
    before, after = (floors(one, H200.contract, measured, phases) for one in (work, more))
    assert after.floor_us >= before.floor_us * (1 - 1e-12)
    assert floors(work, H200.contract, measured, phases + 1).floor_us >= before.floor_us
    assert before.hard_us is not None and after.hard_us is not None and after.hard_us >= before.hard_us


@given(works, devices, st.sampled_from(RATES), st.floats(1, 100))
def test_a_faster_device_never_raises_the_floor(work, measured, rate, times):
    faster = {**measured, rate: measured[rate] * times}
    assert floors(work, H200.contract, faster).floor_us <= floors(work, H200.contract, measured).floor_us * (1 + 1e-12)


@given(works)
def test_where_ceilings_stay_below_limits_the_hard_floor_stays_below_the_reachable_one(work):
    limits = H200.contract.limits
    found = floors(work, H200.contract, MEASURED, 21, "cold")
    assert MEASURED["gemm_bfloat16_tflops"] < max(limits.compute_tflops.values())
    assert limits.memory_tb_s and MEASURED["memory_tb_s"] < limits.memory_tb_s
    assert found.hard_us is not None and found.hard_us < found.floor_us


@given(works, st.sampled_from(["official", "queued", "cold"]))
def test_the_hard_floor_is_the_one_that_the_bench_refuses_by(work, mode):
    visit = Visit("v007", 1, 1, 1, 0, 0, mode, 1, [1.0], 1.0, 1.0, 1.0)
    (verdict,) = physics_verdicts([visit], {1: work}, H200.plain["limits"])
    assert verdict.share == pytest.approx(hard_floor(work, H200.contract.limits, mode))


@pytest.mark.parametrize("mode", ["official", "queued"])
def test_bytes_that_fit_in_l2_are_hot_and_cost_l2_only(mode):
    hot, large = {**WORK, "bytes": 59e6}, {**WORK, "bytes": 61e6}
    assert floors(hot, H200.contract, MEASURED, mode=mode).terms["memory"] == pytest.approx(59 / 5.8)
    assert floors(large, H200.contract, MEASURED, mode=mode).terms["memory"] == pytest.approx(61 / 4.2)
    assert floors(hot, H200.contract, MEASURED, mode="cold").terms["memory"] == pytest.approx(59 / 4.2)
    unknown = {name: value for name, value in MEASURED.items() if name != "l2_tb_s"}
    assert floors(hot, H200.contract, unknown, mode=mode).terms["memory"] == 0


def test_an_l2_slower_than_memory_was_held_up_by_its_host_and_does_not_count():
    slow = {**MEASURED, "l2_tb_s": 2.7}
    assert floors(WORK, H200.contract, slow).terms["memory"] == pytest.approx(10 / 4.2)


def test_arithmetic_takes_the_fastest_precision_that_passes_the_gate():
    found = floors(WORK, H200.contract, MEASURED)
    assert (found.precision, found.terms["arithmetic"]) == ("float16", pytest.approx(7500 / 756))
    assert "bfloat16" not in ADMISSIBLE["high"]
    faster_tf32 = {**MEASURED, "gemm_tf32_tflops": 800.0}
    assert floors(WORK, H200.contract, faster_tf32).precision == "tf32"


def test_at_the_highest_precision_split_products_take_three_for_one():
    target = H200.contract.target.model_copy(update={"matmul_precision": "highest"})
    strict = H200.contract.model_copy(update={"target": target})
    found = floors(WORK, strict, MEASURED)
    assert (found.precision, found.terms["arithmetic"]) == ("float16", pytest.approx(3 * 7500 / 756))
    assert floors(WORK, strict, {**MEASURED, "gemm_float32_tflops": 300.0}).precision == "float32"


def test_a_cpu_has_arithmetic_and_exponentials_and_no_hard_floor():
    found = floors(
        WORK, CPU.contract, {"gemm_float32_tflops": 0.1, "exponentials_t_s": 0.0015, "memory_tb_s": 0.03}, 21
    )
    assert found.hard_us is None
    assert found.terms == {
        "memory": 0, "arithmetic": pytest.approx(75_000), "exponentials": pytest.approx(5600), "launch": 0, "chain": 0,
    }  # fmt: skip
    assert found.binding_term == "arithmetic" and found.floor_us == pytest.approx(75_000)


def test_a_step_of_the_chain_is_an_l2_trip_or_what_stands_for_it():
    assert dependent_step(MEASURED) == (0.135, "one L2 round trip")
    older = {name: value for name, value in MEASURED.items() if name != "l2_trip_us"}
    step = dependent_step(older)
    assert step is not None and step[0] == pytest.approx((20.8 - 2.9) / 19 / 7) and "graph node" in step[1]
    # Barriers in a running kernel were measured at 0.5 to 0.9 µs: a bound has to stay below them.
    assert step[0] < 0.5
    assert dependent_step({"memory_tb_s": 0.03}) is None


@pytest.mark.parametrize("name", ["exponentials_t_s", "null_queued_us", "memory_tb_s"])
@pytest.mark.parametrize("value", [None, 0.0, "fast"])
def test_a_missing_ceiling_names_the_command_that_measures_it(name, value):
    with pytest.raises(GfastError, match=f"no {name}.*gfast measure ceilings -c h200_fp32"):
        floors({**WORK, "bytes": 1e9}, H200.contract, {**MEASURED, name: value})
    bare = {key: figure for key, figure in MEASURED.items() if not key.startswith("gemm")}
    with pytest.raises(GfastError, match="no gemm_float32_tflops"):
        floors(WORK, H200.contract, bare)


def test_floors_are_a_record_that_stays_as_it_is():
    found = floors(WORK, H200.contract, MEASURED)
    assert replace(found) == found
    with pytest.raises(AttributeError):
        found.floor_us = 1.0  # type: ignore[misc]
