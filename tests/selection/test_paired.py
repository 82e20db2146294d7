from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfast_pipeline.evaluation.bootstrap import compare, log_ratios
from gfast_pipeline.evaluation.figures import figures
from gfast_pipeline.selection.paired import ALPHA, holm, paired, point
from tests.evaluation.synthetic import CHALLENGER, INCUMBENT
from tests.selection.races import race

probabilities = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=14)


def _naive(values: list[float], alpha: float) -> set[int]:
    """Holm as it is told: the smallest against α/n, the next against α/(n−1), until one does not hold."""
    rejected: set[int] = set()
    for rank, index in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        if values[index] * (len(values) - rank) > alpha:
            break
        rejected.add(index)
    return rejected


@given(probabilities, st.floats(0.001, 0.2))
def test_holm_rejects_what_the_step_down_rejects(values, alpha):
    assert {index for index, p in enumerate(holm(values)) if p <= alpha} == _naive(values, alpha)


@given(probabilities)
def test_holm_never_lowers_a_value_nor_changes_an_order_nor_exceeds_bonferroni(values):
    adjusted = holm(values)
    for mine, p in zip(adjusted, values, strict=True):
        assert p <= mine <= min(1.0, len(values) * p) or math.isclose(mine, p)
    order = sorted(range(len(values)), key=lambda i: values[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)


def test_holm_of_nothing_is_nothing_and_of_no_probability_is_refused():
    assert holm([]) == []
    for bad in (math.nan, -0.1, 1.1, math.inf):
        with pytest.raises(ValueError, match="is no probability"):
            holm([0.01, bad])


@pytest.mark.parametrize("seeds", [(1,), (1, 2)])
@pytest.mark.parametrize("blocks", [2, 7])  # a table of all resamples, and draws
def test_one_case_is_resampled_as_a_decision_resamples_it_to_the_last_digit(seeds, blocks):
    races = [race(seed, {CHALLENGER: 0.97}, blocks=blocks) for seed in seeds]
    theirs = compare(races, CHALLENGER, INCUMBENT, "official", {2: 1.0})
    found = figures(races)
    ratios = log_ratios(found, CHALLENGER, INCUMBENT, "official", [2])[2]
    mine = paired(ratios, ",".join(map(str, seeds)) + ":official")
    assert mine.interval == theirs.overall
    assert point(ratios) == pytest.approx(theirs.overall.ratio, rel=1e-12)
    low = mine.interval.low
    assert mine.share_up_to(low * (1 - 1e-9)) <= ALPHA <= mine.share_up_to(low * (1 + 1e-9))


ratios = st.dictionaries(
    st.tuples(st.integers(0, 1), st.integers(0, 3)),
    st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=4),
    min_size=2, max_size=5,
)  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(ratios, st.floats(0.7, 1.4))
def test_the_share_is_one_where_all_lies_below_and_grows_with_the_limit(found, limit):
    one = paired(found, "s", few=True)
    assert 0.0 <= one.share_up_to(limit) <= one.share_up_to(limit * 1.1) <= 1.0
    assert one.share_up_to(math.exp(0.51)) == 1.0
    assert one.share_up_to(math.exp(-0.51)) == 0.0
    assert one.interval.low <= one.interval.ratio <= one.interval.high


def test_too_little_to_resample_or_no_number_is_refused():
    for bad in ({}, {(0, 0): [0.1, 0.1]}, {(0, 0): [0.1, 0.2], (0, 1): [0.1]}):
        with pytest.raises(ValueError, match="at least two generations of two paired blocks"):
            paired(bad, "s")
    with pytest.raises(ValueError, match="NaN"):
        paired({(0, 0): [0.1, math.nan], (0, 1): [0.1, 0.2]}, "s")
