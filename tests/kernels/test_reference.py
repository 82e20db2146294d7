"""The transformer layer workload: mathematics against a formula written out by hand, inputs, weights, oracles, work."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location(
    "layer_reference", ROOT / "kernels" / "transformer_layer" / "reference.py"
)
assert _spec is not None and _spec.loader is not None
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)


def case_of(batch=3, length=9, d_model=12, heads=3, layers=2):
    return SimpleNamespace(
        id=0, batch=batch, length=length, d_model=d_model, heads=heads, layers=layers, dtype="float32",
        matmul_precision="highest", device=SimpleNamespace(type="cpu", name="cpu", capability=None),
    )  # fmt: skip


def model_of(case, draw="official", seed=7, dtype=torch.float64):
    model = reference.make(case).to(dtype)
    model.load_state_dict(reference.draw_weights(case, draw, seed), strict=True)
    return model


def by_hand(state, case, x, valid):
    """One sequence at a time, one head at a time, one query at a time, in Python sums where it is cheap."""
    s = {name: value.double() for name, value in state.items()}

    def linear(rows, name):
        return rows @ s[name + ".weight"].T + s[name + ".bias"]

    def norm(rows, name):
        centred = rows - rows.mean(1, keepdim=True)
        spread = centred.pow(2).mean(1, keepdim=True)
        return centred / torch.sqrt(spread + 1e-5) * s[name + ".weight"] + s[name + ".bias"]

    out = []
    for b in range(case.batch):
        rows, keep = x[b].double(), valid[b]
        for i in range(case.layers):
            at = f"layers.{i}."
            h = norm(rows, at + "norm1")
            q, k, v = (linear(h, f"{at}attention.{n}_proj") for n in "qkv")
            mixed = torch.zeros_like(rows)
            width = case.d_model // case.heads
            for head in range(case.heads):
                cols = slice(head * width, (head + 1) * width)
                for t in range(case.length):
                    seen = [j for j in range(t + 1) if keep[j]]
                    logits = [float(q[t, cols] @ k[j, cols]) / math.sqrt(width) for j in seen]
                    top = max(logits)
                    raw = [math.exp(logit - top) for logit in logits]
                    mixed[t, cols] = sum((w / sum(raw)) * v[j, cols] for w, j in zip(raw, seen, strict=True))
            rows = rows + linear(mixed, at + "attention.out_proj") * keep[:, None]
            h = linear(norm(rows, at + "norm2"), at + "ffn_in")
            h = h * 0.5 * (1.0 + torch.erf(h / math.sqrt(2.0)))
            rows = (rows + linear(h, at + "ffn_out")) * keep[:, None]
        out.append(norm(rows, "final_norm") * keep[:, None])
    return torch.stack(out)


@pytest.mark.parametrize("draw", reference.WEIGHT_DRAWS)
@pytest.mark.parametrize("padding", [0.0, 0.7])
@pytest.mark.parametrize("heads", [1, 3])
def test_the_reference_is_the_written_formula(draw, padding, heads):
    case = case_of(heads=heads)
    x, valid = reference.draw_inputs(case, 5, 1.5, padding, "cpu")
    state = reference.draw_weights(case, draw, 3)
    model = reference.make(case).double()
    model.load_state_dict(state, strict=True)
    assert (model(x.double(), valid) - by_hand(state, case, x, valid)).abs().max() < 1e-12


def test_invalid_tokens_come_out_as_zero_and_do_not_reach_valid_ones():
    case = case_of(length=20)
    model = model_of(case, "gains")
    x, valid = reference.draw_inputs(case, 44, 1.0, 0.7, "cpu")
    assert not valid.all()
    y = model(x.double(), valid)
    assert (y[~valid] == 0).all() and (y[valid] != 0).any(-1).all()
    noisy = x.double() + 1e3 * torch.randn(x.shape, dtype=torch.float64).masked_fill(valid[..., None], 0)
    assert (model(noisy, valid) - y).abs().max() < 1e-12


def test_without_a_mask_every_token_is_valid():
    case = case_of()
    model = model_of(case)
    x, valid = reference.draw_inputs(case, 1, 1.0, 0.0, "cpu")
    assert torch.equal(model(x.double()), model(x.double(), valid))


def test_later_tokens_do_not_change_earlier_answers():
    model = model_of(case_of())
    x = torch.randn(3, 9, 12, dtype=torch.float64)
    changed = x.clone()
    changed[:, 6:] = changed[:, 6:].flip(2)  # adding a constant would change nothing: every branch is normed
    assert (model(x)[:, :6] - model(changed)[:, :6]).abs().max() < 1e-12
    assert (model(x)[:, 6:] - model(changed)[:, 6:]).abs().max() > 1e-2


def test_the_state_dict_has_the_official_names_in_the_official_order():
    expected = []
    for i in range(2):
        parts = ["norm1", *(f"attention.{p}_proj" for p in ("q", "k", "v", "out")), "norm2", "ffn_in", "ffn_out"]
        expected += [f"layers.{i}.{part}.{kind}" for part in parts for kind in ("weight", "bias")]
    expected += ["final_norm.weight", "final_norm.bias"]
    assert list(reference.make(case_of()).state_dict()) == expected


def test_the_official_draw_is_the_frameworks_own_initialisation_and_leaves_the_random_state():
    case = case_of()
    torch.manual_seed(99)
    following = torch.rand(3)
    torch.manual_seed(99)
    drawn = reference.draw_weights(case, "official", 1234)
    assert torch.equal(torch.rand(3), following)
    torch.manual_seed(1234)
    fresh = reference.make(case).state_dict()
    assert all(torch.equal(drawn[name], fresh[name]) for name in fresh)


def test_the_draws_are_what_they_are_called():
    case = case_of(d_model=96, layers=4)
    plain = reference.draw_weights(case, "official", 8)
    peaked = reference.draw_weights(case, "peaked", 8)
    near = reference.draw_weights(case, "near_zero", 8)
    gains = reference.draw_weights(case, "gains", 8)
    for name, value in plain.items():
        owner, kind = name.split(".")[-2:]
        scale = 6.0 if owner in ("q_proj", "k_proj") and kind == "weight" else 1.0
        assert torch.equal(peaked[name], value * scale)
        assert torch.equal(near[name], value * 1e-3 if owner in ("out_proj", "ffn_out") else value)
        if kind == "bias":
            assert 0.3 < gains[name].std() < 0.7
        elif "norm" in owner:
            assert 0.2 < gains[name].std() < 0.4 and 0.85 < gains[name].mean() < 1.15
        else:
            assert torch.equal(gains[name], value)
    again, other = reference.draw_weights(case, "gains", 8), reference.draw_weights(case, "gains", 9)
    assert all(torch.equal(gains[name], again[name]) for name in gains)
    assert not any(torch.equal(gains[name], other[name]) for name in gains)
    with pytest.raises(ValueError, match="one of official"):
        reference.draw_weights(case, "heavy", 1)


def test_inputs_follow_the_official_recipe():
    case = case_of(batch=200, length=20, d_model=6)
    x, valid = reference.draw_inputs(case, 44, 8.0, 0.3, "cpu")
    generator = torch.Generator().manual_seed(44)
    wanted = torch.randn(200, 20, 6, generator=generator) * 8.0
    lengths = torch.randint(14, 21, (200,), generator=generator)
    assert torch.equal(valid.sum(1), lengths) and set(lengths.tolist()) == set(range(14, 21))
    assert torch.equal(valid, torch.arange(20)[None] < lengths[:, None])
    assert torch.equal(x, wanted * valid[..., None])
    assert (x.dtype, valid.dtype) == (torch.float32, torch.bool)


def test_a_given_generator_is_reseeded_and_an_extreme_padding_keeps_one_token():
    case = case_of(batch=50)
    mine = torch.Generator().manual_seed(1)
    first = reference.draw_inputs(case, 3, 1.0, 0.5, "cpu", mine)
    again = reference.draw_inputs(case, 3, 1.0, 0.5, "cpu", mine)
    assert torch.equal(first[0], again[0]) and torch.equal(first[0], reference.draw_inputs(case, 3, 1.0, 0.5, "cpu")[0])
    assert reference.draw_inputs(case, 3, 1.0, 0.999, "cpu")[1].sum(1).min() == 1


@pytest.mark.parametrize("name", reference.STRUCTURED)
def test_a_structured_input_is_seeded_finite_and_unlike_randn(name):
    case = case_of(batch=8, length=32, d_model=16)
    x, valid = reference.structured_inputs(case, name, 5, "cpu")
    assert x.shape == (8, 32, 16) and x.dtype == torch.float32 and valid.all() and torch.isfinite(x).all()
    assert torch.equal(x, reference.structured_inputs(case, name, 5, "cpu")[0])
    assert not torch.equal(x, reference.structured_inputs(case, name, 6, "cpu")[0])
    spreads = {
        "outlier_suffix": x[:, -4:].std() / x[:, :-4].std() > 30,
        "constant_prefix": bool((x[:, :8].std((1, 2)) < 1e-5).all()) and bool((x[:, 8:].std(1) > 0.1).all()),
        "offset": bool(x.mean() > 999) and bool(x.std() < 0.6),
        "decisive_token": bool(((x.abs().amax(2) > 50).sum(1) == 1).all()),
    }
    assert spreads[name]


def test_a_one_pass_variance_is_caught_by_the_offset():
    """What the structured input is for: mean of squares less squared mean loses the spread in float32."""
    case = case_of(batch=4, length=16, d_model=128)
    x, _ = reference.structured_inputs(case, "offset", 1, "cpu")
    exact = torch.nn.functional.layer_norm(x.double(), (128,))
    one_pass = (x - x.mean(-1, keepdim=True)) / (x.pow(2).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2).sqrt()
    honest = torch.nn.functional.layer_norm(x, (128,))
    assert not (one_pass - exact).abs().max() < 0.02 and (honest - exact).abs().max() < 0.002


@pytest.mark.parametrize("padding", [0.0, 0.7])
@pytest.mark.parametrize("limit", [10**9, 30_000, 4_000])
def test_the_oracle_is_the_double_precision_model_in_any_chunking(padding, limit):
    case = case_of(batch=5, length=24)
    model = model_of(case, "gains")
    inputs = reference.draw_inputs(case, 6, 1.0, padding, "cpu")
    whole = model(inputs[0].double(), inputs[1])
    y64 = reference.oracle(model, inputs, limit)
    assert y64.dtype == torch.float64 and (y64 - whole).abs().max() < 1e-13


@pytest.mark.parametrize(("length", "block"), [(40, 1), (40, 3000), (301, 200_000), (300, 10**9)])
@pytest.mark.parametrize("draw", ["official", "peaked"])
@pytest.mark.parametrize("padding", [0.0, 0.7])
def test_the_serial_oracle_gives_the_same_rows_without_the_square_of_the_length(length, block, draw, padding):
    case = case_of(batch=2, length=length)
    inputs = reference.draw_inputs(case, 6, 1.0, padding, "cpu")
    state = reference.draw_weights(case, draw, 3)
    model = reference.make(case).double()
    model.load_state_dict(state)
    whole = model(inputs[0].double(), inputs[1])
    rows = list(reference.serial_oracle(state, case, inputs, "cpu", block_bytes=block))
    assert [b for b, _ in rows] == [0, 1]
    for b, y64 in rows:
        assert y64.dtype == torch.float64 and (y64 - whole[b]).abs().max() < 1e-12


def test_score_blocks_of_the_longest_case_stay_under_their_limit():
    start, blocks = 0, 0
    while start < 100_000:
        rows = reference._block_rows(start, reference.SCORE_BLOCK_BYTES)
        stop = min(100_000, start + rows)
        assert (stop - start) * stop * 8 <= reference.SCORE_BLOCK_BYTES and (rows % 128 == 0)
        start, blocks = stop, blocks + 1
    assert blocks < 30


CASES = {
    1: ((64, 128, 128, 4, 4), 7.525, 9.98, 2.17), 2: ((1, 128, 128, 4, 4), 0.118, 1.73, 0.03),
    3: ((4, 128, 128, 4, 4), 0.470, 2.12, 0.14), 4: ((16, 128, 128, 4, 4), 1.88, 3.69, 0.54),
    5: ((128, 128, 128, 4, 4), 15.05, 18.4, 4.34), 6: ((10000, 128, 128, 4, 4), 1176, 1312, 339),
    7: ((64, 128, 32, 4, 4), 0.673, 2.20, 2.17), 8: ((64, 128, 1024, 4, 4), 421, 168, 2.17),
    9: ((64, 128, 128, 1, 4), 7.525, 9.98, 0.54), 10: ((64, 128, 128, 2, 4), 7.525, 9.98, 1.08),
    11: ((64, 128, 128, 16, 4), 7.525, 9.98, 8.67), 12: ((64, 32, 128, 4, 4), 1.68, 3.69, 0.14),
    13: ((64, 1024, 128, 4, 4), 120.3, 68.7, 138), 14: ((32, 100000, 1024, 16, 2), 1.391e6, 26260, 1.31e6),
}  # fmt: skip


@pytest.mark.parametrize("number", CASES)
def test_the_counted_work_is_that_of_the_published_table(number):
    """GFLOP, MB and exponentials at 3.9 a picosecond, in µs, as printed there (three or four digits)."""
    shape, gflop, megabytes, microseconds = CASES[number]
    work = reference.work(SimpleNamespace(**dict(zip(reference.SHAPE, shape, strict=True)), dtype="float32"))
    assert work["flop"] / 1e9 == pytest.approx(gflop, rel=5e-3)
    assert work["bytes"] / 1e6 == pytest.approx(megabytes, rel=5e-3)
    assert work["exponentials"] / 3.9e6 == pytest.approx(microseconds, rel=5e-3, abs=0.006)
    assert work["bytes"] == 2 * work["output_bytes"] + work["weight_bytes"]


def test_weight_bytes_and_output_shape_are_those_of_the_module():
    case = case_of()
    held = sum(p.numel() * 4 for p in reference.make(case).parameters())
    assert reference.work(case)["weight_bytes"] == held
    assert reference.output_shape(case) == tuple(model_of(case)(torch.zeros(3, 9, 12, dtype=torch.float64)).shape)


def test_only_the_longest_case_cannot_run():
    cases = {n: SimpleNamespace(**dict(zip(reference.SHAPE, shape, strict=True))) for n, (shape, *_) in CASES.items()}
    assert [n for n, case in cases.items() if not reference.runnable(case)] == [14]


def test_the_literals_agree_with_the_functions():
    assert set(reference.SHAPE) == {"batch", "length", "d_model", "heads", "layers"}
    assert reference.DIVISORS == {"d_model": "heads"}
    with pytest.raises(ValueError, match="multiple of heads"):
        reference.make(case_of(d_model=10, heads=3))
    with pytest.raises(ValueError, match="outlier_suffix"):
        reference.structured_inputs(case_of(), "spiky", 1, "cpu")
    with torch.device("meta"):
        assert all(p.is_meta for p in reference.make(case_of()).parameters())
