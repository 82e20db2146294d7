from __future__ import annotations

import itertools
import math
import random
import time

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from gfast_pipeline.evaluation.bootstrap import Ratios, bootstrap, compare, log_ratios
from gfast_pipeline.evaluation.figures import figures
from tests.evaluation.synthetic import CHALLENGER, INCUMBENT, session


def grid(
    generations: int, blocks: int, cases: int = 1, seed: int = 0, process: float = 0.02, block: float = 0.02
) -> Ratios:
    rng = random.Random(seed)
    shared = [rng.gauss(0, process) for _ in range(generations)]
    return {
        case: {(0, g): [shared[g] + rng.gauss(0, block) for _ in range(blocks)] for g in range(generations)}
        for case in range(1, cases + 1)
    }


def even(ratios: Ratios) -> dict[int, float]:
    return dict.fromkeys(ratios, 1.0)


def test_with_equal_blocks_it_is_scipys_bootstrap_over_generations():
    """Blocks that agree leave one level: the ordinary percentile bootstrap of the mean over generations."""
    rng = random.Random(4)
    values = [rng.gauss(0.05, 0.02) for _ in range(12)]
    ratios: Ratios = {1: {(0, g): [value] * 3 for g, value in enumerate(values)}}
    mine, _ = bootstrap(ratios, {1: 1.0}, seed=1, resamples=40_000)
    theirs = scipy.stats.bootstrap(
        (np.array(values),), np.mean, method="percentile", n_resamples=40_000, rng=np.random.default_rng(1)
    ).confidence_interval
    assert math.log(mine.ratio) == pytest.approx(np.mean(values))
    error = 0.02 * (max(values) - min(values)) / math.sqrt(12)
    assert math.log(mine.low) == pytest.approx(theirs.low, abs=error)
    assert math.log(mine.high) == pytest.approx(theirs.high, abs=error)


@pytest.mark.parametrize("blocks", [3, 7])  # listed resamples and drawn ones
def test_both_levels_agree_with_an_independent_numpy_bootstrap(blocks):
    ratios, weights = grid(4, blocks, cases=3, seed=2), {1: 1.0, 2: 2.0, 3: 0.5}
    mine, per_case = bootstrap(ratios, weights, seed=5, resamples=100_000)
    rng, count = np.random.default_rng(9), 100_000
    data = np.array([[ratios[c][(0, g)] for g in range(4)] for c in (1, 2, 3)])
    picks = rng.integers(0, 4, size=(count, 4))
    within = rng.integers(0, blocks, size=(3, count, 4, blocks))
    means = np.stack([data[c][picks[..., None], within[c]].mean(axis=(1, 2)) for c in range(3)])
    overall = np.average(means, axis=0, weights=list(weights.values()))
    for interval, expected in [(mine, overall), *((per_case[c + 1], means[c]) for c in range(3))]:
        error = 0.05 * expected.std()
        assert math.log(interval.low) == pytest.approx(np.quantile(expected, 0.025), abs=error)
        assert math.log(interval.high) == pytest.approx(np.quantile(expected, 0.975), abs=error)


def test_the_listed_block_means_are_exactly_those_of_all_equally_likely_resamples():
    """Two generations with two blocks have few enough outcomes to list: the interval's ends are among them."""
    ratios: Ratios = {1: {(0, 0): [0.0, 0.1], (0, 1): [0.3, 0.7]}}
    outcomes = []
    for drawn in itertools.product(ratios[1].values(), repeat=2):
        for blocks in itertools.product(*(itertools.product(values, repeat=2) for values in drawn)):
            outcomes.append(sum(sum(pair) / 2 for pair in blocks) / 2)
    outcomes.sort()
    interval, _ = bootstrap(ratios, {1: 1.0}, seed=3, resamples=60_000)
    assert math.log(interval.low) == pytest.approx(outcomes[int(0.025 * len(outcomes))])
    assert math.log(interval.high) == pytest.approx(outcomes[-1 - int(0.025 * len(outcomes))])


def test_processes_are_drawn_jointly_so_a_shared_effect_does_not_average_out_over_cases():
    """Thirteen cases that share their processes are no thirteen independent looks at them."""
    shared = grid(4, 5, cases=13, process=0.03, block=0.001)
    rng = random.Random(8)
    apart: Ratios = {
        case: dict(zip(rows, rng.sample(list(rows.values()), 4), strict=True)) for case, rows in shared.items()
    }
    joint, _ = bootstrap(shared, even(shared), seed=1, resamples=4000)
    alone, _ = bootstrap({1: shared[1]}, {1: 1.0}, seed=1, resamples=4000)
    broken, _ = bootstrap(apart, even(apart), seed=1, resamples=4000)
    width = math.log(joint.high / joint.low)
    assert width == pytest.approx(math.log(alone.high / alone.low), rel=0.1)
    assert math.log(broken.high / broken.low) < 0.7 * width


def test_weights_move_the_ratio_towards_the_heavier_case():
    ratios: Ratios = {1: {(0, g): [math.log(2.0)] * 2 for g in (0, 1)}, 2: {(0, g): [0.0, 0.0] for g in (0, 1)}}
    interval, cases = bootstrap(ratios, {1: 3.0, 2: 1.0}, seed=0, resamples=200)
    assert interval.ratio == pytest.approx(2.0**0.75)
    assert (cases[1].ratio, cases[2].ratio) == (pytest.approx(2.0), pytest.approx(1.0))


values = st.floats(-0.5, 0.5, allow_nan=False)


@st.composite
def small_races(draw: st.DrawFn) -> Ratios:
    """One to three cases, two or three processes, two to four blocks."""
    cases, processes, blocks = draw(st.integers(1, 3)), draw(st.integers(2, 3)), draw(st.integers(2, 4))
    row = st.lists(values, min_size=blocks, max_size=blocks)
    return {case: {(0, g): draw(row) for g in range(processes)} for case in range(cases)}


@settings(max_examples=60, deadline=None)
@given(small_races(), st.integers(0, 10**6))
def test_swapping_the_participants_gives_exactly_the_inverse(ratios, seed):
    there, each = bootstrap(ratios, even(ratios), seed=seed, resamples=200)
    swapped = {case: {p: [-v for v in row] for p, row in rows.items()} for case, rows in ratios.items()}
    back, other = bootstrap(swapped, even(ratios), seed=seed, resamples=200)
    for one, two in [(there, back), *((each[case], other[case]) for case in each)]:
        inverse = two.inverse()
        assert (one.ratio, one.low, one.high) == pytest.approx((inverse.ratio, inverse.low, inverse.high), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(small_races(), st.integers(0, 10**6))
def test_the_interval_holds_its_estimate_and_stays_within_the_data(ratios, seed):
    overall, each = bootstrap(ratios, even(ratios), seed=seed, resamples=200)
    assert overall.low <= overall.ratio <= overall.high
    for case, interval in each.items():
        flat = [value for row in ratios[case].values() for value in row]
        assert min(flat) - 1e-12 <= math.log(interval.low) <= math.log(interval.ratio) <= math.log(interval.high)
        assert math.log(interval.high) <= max(flat) + 1e-12


@settings(max_examples=10, deadline=None)
@given(st.floats(1e-3, 1e3), st.integers(1, 50))
def test_a_clock_that_runs_at_another_rate_changes_no_ratio(scale, seed):
    one = session({CHALLENGER: 0.9}, seed=seed, generations=2, blocks=2, cases=(1, 2))
    before = compare([one], CHALLENGER, INCUMBENT, "official", {1: 1.0, 2: 1.0}, resamples=200).overall
    for visit in one.visits:
        visit.event_us = [us * scale for us in visit.event_us or []]
    after = compare([one], CHALLENGER, INCUMBENT, "official", {1: 1.0, 2: 1.0}, resamples=200).overall
    assert (after.ratio, after.low, after.high) == pytest.approx((before.ratio, before.low, before.high), rel=1e-9)


def test_neither_the_order_of_visits_nor_that_of_sessions_matters():
    weights = {1: 1.0, 2: 1.0, 7: 1.0}
    first, second = session(seed=1), session(seed=2)
    before = compare([first, second], CHALLENGER, INCUMBENT, "official", weights, resamples=500)
    random.Random(1).shuffle(first.visits)
    assert compare([second, first], CHALLENGER, INCUMBENT, "official", weights, resamples=500) == before
    assert before.processes == 8


def test_the_same_session_twice_is_refused_because_it_would_feign_precision():
    with pytest.raises(ValueError, match="given twice"):
        compare([session(seed=1), session(seed=1)], CHALLENGER, INCUMBENT, "official", {1: 1.0})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e5])
def test_a_ratio_that_is_none_gives_an_error_and_no_number(bad):
    ratios = grid(2, 2, cases=2)
    ratios[2][(0, 1)][0] = bad
    with pytest.raises(ValueError, match="case 2: generation 1 of session 1 holds a ratio that is none"):
        bootstrap(ratios, even(ratios), seed=0)


def test_too_little_to_resample_gives_an_error_and_no_number():
    with pytest.raises(ValueError, match="1 generation; at least 2"):
        bootstrap(grid(1, 5), {1: 1.0}, seed=0)
    with pytest.raises(ValueError, match="has 1 paired blocks; at least 2"):
        bootstrap(grid(4, 1), {1: 1.0}, seed=0)
    with pytest.raises(ValueError, match="no case"):
        bootstrap({}, {}, seed=0)
    with pytest.raises(ValueError, match="at least 100"):
        bootstrap(grid(4, 5), {1: 1.0}, seed=0, resamples=10)


def test_a_missing_case_process_or_weight_gives_an_error_and_no_number():
    ratios = grid(3, 3, cases=2)
    with pytest.raises(ValueError, match="case 2 has no weight"):
        bootstrap(ratios, {1: 1.0}, seed=0)
    with pytest.raises(ValueError, match="case 3 has a weight but no measurement"):
        bootstrap(ratios, {1: 1.0, 2: 1.0, 3: 1.0}, seed=0)
    for weight in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="case 2: weight"):
            bootstrap(ratios, {1: 1.0, 2: weight}, seed=0)
    del ratios[2][(0, 1)]
    with pytest.raises(ValueError, match="case 2: generation 1 of session 1 has 0 paired blocks"):
        bootstrap(ratios, even(ratios), seed=0)


def test_a_case_that_one_side_never_ran_gives_an_error_and_no_number():
    one = session(generations=2, blocks=2)
    one.visits = [visit for visit in one.visits if (visit.participant, visit.case) != (CHALLENGER, 7)]
    with pytest.raises(ValueError, match="case 7 has no block"):
        compare([one], CHALLENGER, INCUMBENT, "official", {1: 1.0, 2: 1.0, 7: 1.0})
    other = session(generations=2, blocks=2)
    other.visits = [v for v in other.visits if (v.participant, v.case, v.generation) != (CHALLENGER, 7, 1)]
    with pytest.raises(ValueError, match="case 7: generation 1 of session 1"):
        log_ratios(figures([other]), CHALLENGER, INCUMBENT, "official", [1, 2, 7])


def test_ten_thousand_resamples_of_a_full_race_take_about_a_second():
    ratios = grid(4, 5, cases=13)
    started = time.process_time()
    bootstrap(ratios, even(ratios), seed=0)
    assert time.process_time() - started < 3.0


def test_in_many_runs_the_interval_covers_the_truth_and_a_twin_seldom_looks_faster():
    """A/A with process effects as large as the block noise: how often does an interval miss 1, and by more than 1 %?

    With four processes a percentile interval is known to be short: about one in five misses instead of one in twenty,
    which is why a margin stands on top of it.
    """
    runs, missed, beyond = 300, 0, 0
    for seed in range(runs):
        ratios = grid(4, 5, cases=3, seed=seed, process=0.005, block=0.005)
        interval, _ = bootstrap(ratios, even(ratios), seed=seed, resamples=300)
        missed += not interval.low <= 1.0 <= interval.high
        beyond += interval.low > 1.01
    assert 0.02 < missed / runs < 0.30
    assert beyond / runs < 0.01
