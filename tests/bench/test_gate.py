"""The gate's numbers: shares, limits, the official rule, the kind of an output, and the canaries."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gfast_pipeline.bench import gate

CPU = torch.device("cpu")
ATOL, RTOL = 0.002, 0.02
values = st.floats(-100, 100, width=32)
pairs = st.lists(st.tuples(values, values), min_size=1, max_size=40)


def tensors(rows: list[tuple[float, float]]) -> tuple[torch.Tensor, torch.Tensor]:
    y, y64 = zip(*rows, strict=True)
    return torch.tensor(y, dtype=torch.float32), torch.tensor(y64, dtype=torch.float64)


@given(pairs, st.integers(1, 50))
@settings(deadline=None)
def test_share_is_the_largest_error_in_units_of_the_larger_bound(rows, chunk):
    y, y64 = tensors(rows)
    naive = max(abs(float(a) - float(b)) / max(ATOL, RTOL * abs(float(b))) for a, b in zip(y, y64, strict=True))
    assert gate.share(y, y64, ATOL, RTOL, chunk=chunk) == pytest.approx(naive, rel=1e-12, abs=1e-12)


@given(pairs, st.integers(1, 50))
@settings(deadline=None)
def test_worst_names_the_element_that_uses_most(rows, chunk):
    y, y64 = tensors(rows)
    found = gate.worst(y, y64, ATOL, RTOL, chunk=chunk)
    alone = gate.share(y[found.index].reshape(1), y64[found.index].reshape(1), ATOL, RTOL)
    assert alone == found.share == gate.share(y, y64, ATOL, RTOL)
    assert (found.found, found.expected) == (float(y[found.index]), float(y64[found.index]))


@given(st.lists(st.tuples(values, st.floats(-0.03, 0.03), st.sampled_from([-1, 0, 1])), min_size=1, max_size=20))
@settings(deadline=None)
def test_official_share_passes_exactly_where_the_official_rule_does(rows):
    ref = torch.tensor([r for r, _, _ in rows])
    edge = torch.where(torch.tensor([r[1] for r in rows]) > 0, RTOL * ref.abs(), torch.full_like(ref, ATOL))
    y = ref + edge  # on the bound, then a neighbouring float to either side
    for index, (_, _, step) in enumerate(rows):
        if step:
            y[index] = torch.nextafter(y[index], torch.tensor(math.inf * step))
    error = (y - ref).abs()
    passes = bool(((error <= ATOL) | (error <= RTOL * ref.abs())).all())
    assert (gate.official_share(y, ref, ATOL, RTOL) <= 1.0) == passes


def test_the_two_bounds_are_alternatives_and_do_not_add():
    y64 = torch.tensor([0.1], dtype=torch.float64)  # either bound allows 0.002; torch.isclose would allow 0.004
    assert gate.share(y64 + 0.003, y64, ATOL, RTOL) == pytest.approx(1.5)
    assert torch.isclose(y64 + 0.003, y64, rtol=RTOL, atol=ATOL).all()
    assert gate.official_share((y64 + 0.003).float(), y64.float(), ATOL, RTOL) > 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("share", [gate.share, gate.official_share])
def test_one_element_that_is_not_finite_fails_on_either_side(bad, side, share):
    y, y64 = torch.zeros(4, 5), torch.zeros(4, 5)
    (y, y64)[side][2, 3] = bad
    found = share(y, y64, ATOL, RTOL, chunk=7)
    assert found == math.inf
    assert not found <= gate.anchored_limit(1e9, 3.0)
    assert gate.worst(y, y64, ATOL, RTOL, chunk=7).index == (2, 3)


def test_equal_infinities_fail_too():
    y = torch.full((3,), math.inf)
    assert gate.share(y, y.double(), ATOL, RTOL) == math.inf


def test_the_first_of_equal_shares_is_named_and_an_exact_output_uses_nothing():
    y64 = torch.zeros(2, 3, 4, dtype=torch.float64)
    assert gate.worst(y64.float(), y64, ATOL, RTOL).index == (0, 0, 0)
    assert gate.share(y64.float(), y64, 0.0, 0.0) == 0.0


def test_shapes_that_would_broadcast_are_refused():
    with pytest.raises(ValueError, match="shapes differ"):
        gate.share(torch.zeros(1, 4), torch.zeros(3, 4), ATOL, RTOL)


@given(st.floats(0, 1e6), st.floats(0.1, 10))
def test_the_anchored_limit_never_falls_below_one_and_grows_with_the_reference(u, k):
    assert gate.anchored_limit(u, k) == max(1.0, k * u)


@pytest.mark.parametrize("u", [math.nan, math.inf])
def test_a_reference_that_is_not_finite_anchors_nothing(u):
    assert gate.anchored_limit(u, 3.0) < 0.0  # a share is never negative


def good() -> tuple[torch.Tensor, torch.Tensor]:
    y64 = torch.randn(3, 16, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    y64[1, 12:] = 0.0  # padding
    return y64.float(), y64


def facts(y: object, *memory) -> str:
    return gate.output_facts(y, (3, 16, 8), torch.float32, CPU, *memory)


def test_every_known_bad_output_fails_both_rules_and_the_good_one_passes():
    ref, y64 = good()
    assert gate.share(ref, y64, ATOL, RTOL) < 1e-3
    names = []
    for name, bad in gate.known_bad(ref, y64):
        names.append(name)
        assert facts(bad, [ref]) == "", name
        assert gate.share(bad, y64, ATOL, RTOL) > 1, name
        assert gate.official_share(bad, ref, ATOL, RTOL) > 1, name
    assert len(names) == len(set(names)) == 9
    assert gate.share(ref, y64, ATOL, RTOL) < 1e-3  # making them did not touch the good one


def test_every_known_bad_kind_is_refused_with_a_reason_of_its_own():
    ref, _ = good()
    reasons = {name: facts(bad, [ref]) for name, bad in gate.known_bad_kinds(ref)}
    assert all(reasons.values())
    assert len(set(reasons.values())) == len(reasons) == 10


def test_a_plain_new_tensor_is_what_is_wanted():
    ref, _ = good()
    assert facts(ref.clone(), [ref], {"weight": ref}) == ""


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda x: x, "shares memory"),
        (lambda x: x.view(-1).view(3, 16, 8), "shares memory"),
        (lambda x: torch.nn.Parameter(x.clone()), "Parameter"),
        (lambda x: x.clone().requires_grad_(), "requires grad"),
        (lambda x: torch.complex(x, x).conj().imag, "lazily"),
        (lambda x: x.to("meta"), "meta"),
        (lambda x: x.to_sparse(), "dense"),
        (lambda x: torch.zeros(4, 16, 8)[1:], "owns its storage"),
        (lambda x: x[:1].expand(3, 16, 8), "contiguous"),
        (lambda x: [x.clone()], "list"),
    ],
)
def test_an_output_of_another_kind_is_named(make, word):
    x = torch.zeros(3, 16, 8)
    assert word in facts(make(x), {"x": x})
