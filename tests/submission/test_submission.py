"""The compiled model in use: dispatch, rebuilds, fallbacks, and what the reference would have done."""

from __future__ import annotations

import copy
import io
from types import SimpleNamespace

import pytest

from tests.submission.portfolios import candidate, compiled

torch = pytest.importorskip("torch")

SIZES = {"batch_size": 2, "seq_len": 12, "d_model": 16, "num_heads": 4, "ffn_dim": 16, "num_layers": 2, "causal": True}
V000, V001, V002 = "v000_identity", "v001_fused_qkv_sdpa", "v002_sdpa_graph"
COUNTING = """
import torch
BUILT = []

def build(reference, case, schedule):
    BUILT.append((case.batch, case.length))
    def forward(x, valid):
        return reference(x, valid)
    return forward
"""


@pytest.fixture
def made(bench):
    """A submission whose case 2 is held by a candidate that counts its builds; the generalist is v001."""
    candidate(bench, 7, COUNTING)
    return compiled(bench, {2: "v007_made", 7: V001}, V001)


def config(**sizes):
    return SimpleNamespace(**{**SIZES, **sizes})


def pair(module, **sizes):
    """(reference, submission) of one configuration with the same weights, in eval mode."""
    c = config(**sizes)
    torch.manual_seed(5)
    reference = module.ref_TransformerLayer(c.d_model, c.num_heads, c.num_layers).eval()
    model = module.build_model(c).eval()
    model.load_state_dict(reference.state_dict(), strict=True)
    return reference, model


def draw(batch=2, length=12, d_model=16, seed=0):
    return torch.randn(batch, length, d_model, generator=torch.Generator().manual_seed(seed))


def prefixes(*lengths, length=12):
    return torch.arange(length)[None, :] < torch.tensor(lengths)[:, None]


def close(got, want):
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


def plans(model):
    return [row["plan"] for row in model.choices()]


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_the_holder_serves_its_case_and_the_generalist_another_shape(made, mode):
    reference, model = pair(made)
    with mode():
        for _ in range(2):
            close(model(draw(), prefixes(12, 5)), reference(draw(), prefixes(12, 5)))
        close(model(draw(3, 9), prefixes(9, 4, 1, length=9)), reference(draw(3, 9), prefixes(9, 4, 1, length=9)))
    first, second = model.choices()
    assert (first["case"], first["plan"], first["why"]) == (2, "v007_made", "holds case 2")
    assert (second["case"], second["plan"]) == (None, V001) and "checked at its first call" in second["why"]
    assert made.v007_BUILT == [(2, 12)]


def test_a_build_made_in_inference_mode_serves_later_calls_outside_it_and_the_other_way_round(made):
    reference, model = pair(made)
    x = draw(4, 9)
    for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode):
        with mode():
            y = model(x)
            close(y, reference(x, torch.ones(4, 9, dtype=torch.bool)))
    with torch.no_grad():
        model(x).add_(1)  # no inference tensor outside inference mode
    assert len(model.choices()) == 1


def test_without_a_mask_every_token_is_valid(made):
    reference, model = pair(made)
    with torch.no_grad():
        close(model(draw()), reference(draw()))


def test_new_weights_are_built_anew(made):
    reference, model = pair(made)
    changes = {
        "load_state_dict": lambda m: m.load_state_dict({k: v * 1.1 for k, v in m.state_dict().items()}),
        "assign": lambda m: m.load_state_dict({k: v * 1.1 for k, v in m.state_dict().items()}, assign=True),
        "in place": lambda m: m.layers[1].ffn_in.weight.add_(0.05),
        "another parameter": lambda m: setattr(m.final_norm, "bias", torch.nn.Parameter(torch.full((16,), 0.5))),
        "another tensor": lambda m: setattr(m.final_norm.weight, "data", torch.full((16,), 2.0)),
    }
    x = draw(3, 10)  # the generalist packs weights: stale ones would show
    with torch.no_grad():
        before = model(x)
        for name, change in changes.items():
            change(model)
            change(reference)
            after = model(x)
            close(after, reference(x))
            assert not torch.equal(after, before), name
            before = after
    assert plans(model) == [V001]


def test_writes_through_data_need_a_refresh(made):
    reference, model = pair(made)
    with torch.no_grad():
        model(draw(3, 10))
        for m in (model, reference):
            m.layers[0].attention.q_proj.weight.data.mul_(2)
        model.refresh()
        close(model(draw(3, 10)), reference(draw(3, 10)))


def test_an_unchanged_model_is_built_once(made):
    _, model = pair(made)
    with torch.no_grad():
        for seed in range(4):
            model(draw(seed=seed))
        model.state_dict()
        model.eval()
        model(draw())
    assert made.v007_BUILT == [(2, 12)]


def test_other_precision_takes_the_references_path(made):
    reference, model = pair(made)
    with torch.no_grad():
        model(draw())
        model, reference = model.to(torch.float64), reference.to(torch.float64)
        assert torch.equal(model(draw().double()), reference(draw().double()))
        model, reference = model.to(torch.float32), reference.to(torch.float32)
        close(model(draw()), reference(draw()))
    assert len(made.v007_BUILT) == 2


def test_gradients_flow_as_through_the_reference(made):
    reference, model = pair(made)
    for m in (reference, model):
        m(draw(), prefixes(12, 5)).square().sum().backward()
    for (name, want), (_, got) in zip(reference.named_parameters(), model.named_parameters(), strict=True):
        assert torch.equal(got.grad, want.grad), name
    x = draw().requires_grad_()
    model.requires_grad_(False)(x).sum().backward()
    assert x.grad is not None and model.choices() == []


def test_training_mode_and_autocast_take_the_references_path(made):
    reference, model = pair(made)
    with torch.no_grad():
        assert torch.equal(model.train()(draw()), reference(draw()))
        model.eval()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(model(draw()), reference(draw()))
    assert model.choices() == []


def test_odd_inputs_get_what_the_reference_gives(made):
    reference, model = pair(made)
    skewed = draw().transpose(0, 1).contiguous().transpose(0, 1)
    holes = torch.rand(2, 12, generator=torch.Generator().manual_seed(1)) > 0.4
    holes[:, 0] = True
    transposed = prefixes(12, 5).t().contiguous().t()
    with torch.no_grad():
        good = [(skewed, prefixes(12, 5)), (draw(), holes), (draw(), transposed), (draw(0), prefixes()[:0])]
        good += [(draw(), prefixes(12, 5).float()), (draw(), prefixes(0, 1))]
        for x, mask in good:
            close(model(x, mask), reference(x, mask))
        bad = [(draw(d_model=17), None), (draw()[0], None), (draw().half(), None), (draw(), prefixes(12, 5, 3))]
        bad += [("x", None), (None, None)]
        for x, mask in bad:
            with pytest.raises(Exception) as mine:
                model(x, mask)
            with pytest.raises(type(mine.value)):
                reference(x, mask)


def test_an_output_is_the_callers_own(made):
    _, model = pair(made)
    with torch.no_grad():
        first = model(draw())
        kept = first.clone()
        second = model(draw(seed=1))
    assert first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr()
    assert torch.equal(first, kept)


def test_a_copy_shares_no_builds_and_a_pickle_carries_none(made):
    reference, model = pair(made)
    with torch.no_grad():
        model(draw())
        twin = copy.deepcopy(model)
        twin.final_norm.weight.mul_(2)
        assert twin.choices() == [] and not torch.equal(twin(draw()), model(draw()))
        buffer = io.BytesIO()
        torch.save(model, buffer)
        again = torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
        close(again(draw()), reference(draw()))


def test_state_dicts_go_both_ways_strictly(made):
    reference, model = pair(made)
    reference.load_state_dict(model.state_dict(), strict=True)
    assert list(model.state_dict()) == list(reference.state_dict())
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict({"final_norm.weight": torch.ones(16)}, strict=True)


def test_the_callers_random_numbers_are_left_alone(made):
    _, model = pair(made)
    torch.manual_seed(3)
    want = torch.rand(3)
    torch.manual_seed(3)
    with torch.no_grad():
        model(draw())
    assert torch.equal(torch.rand(3), want)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("class Unavailable(RuntimeError): ...\ndef build(r, c, s):\n    raise Unavailable('no card')", "no card"),
        ("def build(r, c, s):\n    raise KeyError('bug')", "KeyError"),
        ("def supports(case):\n    return case.batch > 5\ndef build(r, c, s):\n    return r", "supports() says no"),
        ("def build(r, c, s):\n    return lambda x, v: x[:1]", "gave no tensor like x"),
        ("def build(r, c, s):\n    return lambda x, v: x", "view of its input"),
        ("def build(r, c, s):\n    return lambda x, v: 1 / 0", "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_a_holder_that_cannot_leaves_its_case_to_the_generalist(bench, body, said):
    candidate(bench, 8, body)
    module = compiled(bench, {2: "v008_made"}, V001)
    reference, model = pair(module)
    with torch.no_grad():
        for _ in range(2):
            close(model(draw(), prefixes(12, 5)), reference(draw(), prefixes(12, 5)))
    (row,) = model.choices()
    assert row["plan"] == V001 and said in row["tried"]["v008_made"]


def test_where_no_plan_can_the_reference_answers(bench):
    module = compiled(bench, {2: V002}, "v003_fp16_operands_graph")  # both need CUDA
    reference, model = pair(module)
    with torch.no_grad():
        assert torch.equal(model(draw()), reference(draw()))
    (row,) = model.choices()
    assert row["plan"] == "reference" and set(row["tried"]) == {V002, "v003_fp16_operands_graph"}


def test_a_plan_that_fails_later_is_replaced(bench):
    later = (
        "def build(r, c, s):\n    left = [3]\n    def forward(x, v):\n        left[0] -= 1\n        assert left[0]\n"
    )
    candidate(bench, 8, later + "        return r(x, v)\n    return forward")
    module = compiled(bench, {2: "v008_made"}, V001)
    reference, model = pair(module)
    with torch.no_grad():
        for _ in range(4):
            close(model(draw()), reference(draw()))
    (row,) = model.choices()
    assert row["plan"] == V001 and "raised when called" in row["tried"]["v008_made"]


def test_a_generalist_that_is_wrong_on_a_shape_nobody_proved_is_found_out(bench):
    candidate(bench, 8, "def build(r, c, s):\n    return lambda x, v: r(x, v) + (0.5 if c.id == 0 else 0)")
    module = compiled(bench, {2: "v008_made"}, "v008_made")
    reference, model = pair(module)
    with torch.no_grad():
        close(model(draw()), reference(draw()))
        assert torch.equal(model(draw(5, 7)), reference(draw(5, 7)))
    assert plans(model) == ["v008_made", "reference"]
    assert "disagrees with the reference" in model.choices()[1]["tried"]["v008_made"]


def test_builds_are_bounded_and_the_least_used_goes_first(made):
    _, model = pair(made)
    with torch.no_grad():
        model(draw(1, 1))
        for length in range(2, made.MAX_BUILDS + 1):
            model(draw(1, length))
        model(draw(1, 1))
        model(draw(1, 40))
    lengths = [row["length"] for row in model.choices()]
    assert len(lengths) == made.MAX_BUILDS and 1 in lengths and 40 in lengths and 2 not in lengths


def test_builds_that_hold_much_memory_make_room(made, monkeypatch):
    monkeypatch.setattr(made, "CPU_BYTES", made.COPIES * 4 * 16 * 50)
    _, model = pair(made)
    with torch.no_grad():
        for length in (30, 31, 10):
            model(draw(1, length))
    assert [row["length"] for row in model.choices()] == [31, 10]


def test_the_matmul_precision_in_force_is_part_of_what_was_built(made):
    _, model = pair(made)
    before = torch.get_float32_matmul_precision()
    try:
        with torch.no_grad():
            for level in ("highest", "high"):
                torch.set_float32_matmul_precision(level)
                model(draw())
    finally:
        torch.set_float32_matmul_precision(before)
    assert [row["matmul_precision"] for row in model.choices()] == ["highest", "high"]


def test_a_compiled_or_captured_call_sees_the_reference(made):
    reference, model = pair(made)
    with torch.no_grad():
        program = torch.export.export(model, (draw(),))
        close(program.module()(draw()), reference(draw()))


@pytest.mark.parametrize("sizes", [{"ffn_dim": 64}, {"causal": False}])
def test_a_configuration_of_another_operation_is_refused(made, sizes):
    with pytest.raises(ValueError, match="the task has ffn_dim"):
        made.Submission(config(**sizes))
    with pytest.raises(TypeError, match="TransformerConfig"):
        made.Submission(SimpleNamespace(d_model=16))


def test_as_a_participant_it_is_built_once_and_answers_like_the_reference(made):
    reference, _ = pair(made)
    case = SimpleNamespace(id=2, batch=2, length=12, d_model=16, heads=4, layers=2)
    with torch.inference_mode():
        forward = made.build(reference, case, {})
        assert made.v007_BUILT == [(2, 12)]
        close(forward(draw(), prefixes(12, 5)), reference(draw(), prefixes(12, 5)))
    assert made.v007_BUILT == [(2, 12)]
