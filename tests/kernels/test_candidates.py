"""The candidates and peers that we ship, on the CPU: right on every draw and input, or a recorded skip."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gfast_pipeline.bench import gate, oracles
from gfast_pipeline.bench.workload import Case
from gfast_pipeline.generation.policy import check

ROOT = Path(__file__).parents[2]
KERNEL = ROOT / "kernels" / "transformer_layer"
CPU = torch.device("cpu")
CONTRACT = tomllib.loads((KERNEL / "contracts" / "cpu_fp32.toml").read_text())
CANDIDATES = sorted(path.stem for path in (KERNEL / "candidates").glob("v*.py"))
PEERS = sorted(path.stem for path in (KERNEL / "peers").glob("*.py"))
ON_CPU = ["candidates/v000_identity", "candidates/v001_fused_qkv_sdpa", "peers/encoder_layer_native"]
CUDA_ONLY = [
    "candidates/v002_sdpa_graph", "candidates/v003_fp16_operands_graph", "peers/compile_reduce_overhead",
    "peers/compile_max_autotune", "peers/sdpa_fp16", "peers/sdpa_fp16_graph",
]  # fmt: skip


def load(stem: str):
    name = "shipped_" + Path(stem).name
    spec = importlib.util.spec_from_file_location(name, KERNEL / f"{stem}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


workload = load("reference")


def case_of(batch=3, length=17, d_model=32, heads=4, layers=2, number=7):
    return SimpleNamespace(
        id=number, batch=batch, length=length, d_model=d_model, heads=heads, layers=layers, dtype="float32",
        matmul_precision="highest", device=SimpleNamespace(type="cpu", name="cpu", capability=None),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def inference():
    with torch.inference_mode():
        yield


def model_of(case, draw, seed):
    state = workload.draw_weights(case, draw, seed)
    model = workload.make(case)
    model.load_state_dict(state, strict=True)
    return model, state


@pytest.mark.parametrize("stem", ON_CPU)
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("draw", CONTRACT["weight_draws"], ids=lambda draw: draw["name"])
def test_a_cpu_implementation_passes_every_paired_draw_variant_and_structured_input(stem, heads, draw):
    case = case_of(heads=heads)
    model, state = model_of(case, draw["name"], draw["seed"])
    oracle = oracles.Oracle(workload, case, state, CPU)
    forward = load(stem).build(model, case, {})
    variants = [v for v in CONTRACT["variants"] if v["name"] in draw["variants"]]
    inputs = [workload.draw_inputs(case, v["seed"], v["scale"], v["padding"], CPU) for v in variants]
    if draw["name"] == "official":
        inputs += [workload.structured_inputs(case, name, 1234, CPU) for name in workload.STRUCTURED]
    for x, valid in inputs:
        before = x.clone(), valid.clone()
        y, y64, ref = forward(x, valid), oracle.y64((x, valid)), oracle.reference((x, valid))
        u = gate.share(ref, y64, 0.002, 0.02)
        assert gate.share(y, y64, 0.002, 0.02) <= min(0.9, gate.anchored_limit(u, 3.0))
        assert gate.official_share(y, ref, 0.002, 0.02) <= 1
        assert (y[~valid] == 0).all()
        assert gate.output_facts(y, y64.shape, torch.float32, CPU, [x, valid], state, model.parameters()) == ""
        assert torch.equal(x, before[0]) and torch.equal(valid, before[1])
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("stem", ON_CPU)
def test_a_kept_output_survives_the_next_call_and_follows_its_own_input(stem):
    case = case_of()
    model, _ = model_of(case, "gains", 2)
    forward = load(stem).build(model, case, {})
    first, second = (workload.draw_inputs(case, seed, 1.0, 0.3, CPU) for seed in (1, 2))
    kept = forward(*first)
    copy = kept.clone()
    assert not torch.equal(forward(*second), kept)
    assert torch.equal(kept, copy)


def test_a_batch_beyond_the_workspace_runs_in_steps_with_the_same_answer(monkeypatch):
    case = case_of(batch=5)
    model, _ = model_of(case, "gains", 2)
    inputs = workload.draw_inputs(case, 1, 1.0, 0.7, CPU)
    module = load("candidates/v001_fused_qkv_sdpa")
    whole = module.build(model, case, {})(*inputs)
    monkeypatch.setattr(module, "WORKSPACE_BYTES", 2 * 10 * case.length * case.d_model * 4)
    in_steps = module.build(model, case, {})(*inputs)
    assert (whole - in_steps).abs().max() < 1e-5 and in_steps.is_contiguous()


@pytest.mark.parametrize("stem", CUDA_ONLY)
def test_what_needs_cuda_says_unavailable_on_a_cpu(stem):
    case = case_of()
    with pytest.raises(Exception) as caught:
        load(stem).build(workload.make(case), case, {})
    assert type(caught.value).__name__ == "Unavailable" and "NVIDIA" in str(caught.value)


def test_everything_shipped_is_in_one_of_the_two_lists():
    shipped = {f"candidates/{stem}" for stem in CANDIDATES} | {f"peers/{stem}" for stem in PEERS}
    assert shipped == {*ON_CPU, *CUDA_ONLY, "peers/compile_default"}


@pytest.mark.parametrize("contract", ["h200_fp32", "cpu_fp32"])
def test_the_policy_accepts_everything_shipped_and_every_named_peer_exists(contract):
    values = tomllib.loads((KERNEL / "contracts" / f"{contract}.toml").read_text())
    assert set(values["peers"]) <= set(PEERS)
    for folder, stems in (("candidates", CANDIDATES), ("peers", PEERS)):
        for stem in stems:
            path = KERNEL / folder / f"{stem}.py"
            found = check(path.read_text(), values["prohibited"], str(path), peer=folder == "peers")
            assert [str(finding) for finding in found] == []


@pytest.mark.parametrize(
    ("stem", "refused"),
    [
        ("candidates/v000_identity", [14]),
        ("candidates/v002_sdpa_graph", [14]),
        ("peers/compile_default", [14]),
        ("peers/compile_reduce_overhead", [14]),
        ("peers/compile_max_autotune", [14]),
        ("peers/encoder_layer_native", [14]),
    ],
)
def test_supports_refuses_only_the_case_that_cannot_run(stem, refused):
    values = tomllib.loads((KERNEL / "contracts" / "h200_fp32.toml").read_text())
    cases = [case_of(**row["shape"], number=row["id"]) for row in values["cases"]]
    assert [case.id for case in cases if not load(stem).supports(case)] == refused


def test_the_native_peer_really_takes_the_fused_operator_with_an_even_number_of_heads():
    used = {}
    for heads in (1, 2):
        case = case_of(heads=heads)
        model, _ = model_of(case, "official", 1)
        forward = load("peers/encoder_layer_native").build(model, case, {})
        inputs = workload.draw_inputs(case, 1, 1.0, 0.3, CPU)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            forward(*inputs)
        used[heads] = any("_transformer_encoder_layer_fwd" in event.key for event in profile.key_averages())
    assert used == {1: False, 2: True}


@pytest.mark.skipif(shutil.which(os.environ.get("CXX", "g++")) is None, reason="torch.compile needs a C++ compiler")
def test_the_compiled_peer_agrees_with_the_reference():
    case = Case(vars(case_of(batch=2, length=8, d_model=16, layers=1)))
    model, state = model_of(case, "gains", 2)
    forward = load("peers/compile_default").build(model, case, {})
    x, valid = workload.draw_inputs(case, 1, 1.0, 0.7, CPU)
    y = forward(x, valid)
    assert (y - model(x, valid)).abs().max() < 1e-4
    assert gate.output_facts(y, x.shape, torch.float32, CPU, [x, valid], state, model.parameters()) == ""


def test_a_compiled_peer_compiles_once_a_case_however_many_cases_and_weights(monkeypatch):
    graphs = []

    def counting(graph, _example):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=counting))
    peer = load("peers/compile_default")
    for batch in range(2, 12):  # more cases than the framework compiles one piece of code for
        case = Case(vars(case_of(batch=batch, length=4, d_model=8, heads=2, layers=1)))
        for draw in ("official", "gains"):
            model, _ = model_of(case, draw, batch)
            forward = peer.build(model, case, {})
            with torch.inference_mode(False):  # as a runner's inputs, which are there before any build
                x, valid = workload.draw_inputs(case, batch, 1.0, 0.7, CPU)
            assert (forward(x, valid) - model(x, valid)).abs().max() < 1e-5
    assert len(graphs) == 10
