"""The submission as the official script would meet it, and as its own `--official` does."""

from __future__ import annotations

import copy
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from gfast_pipeline.submission.compile import compile_to, portfolio
from tests.submission.portfolios import compiled, holders

torch = pytest.importorskip("torch")

V001, V002 = "v001_fused_qkv_sdpa", "v002_sdpa_graph"


@dataclass(frozen=True)
class TransformerConfig:
    """The official script's configuration, by its names."""

    batch_size: int
    seq_len: int
    d_model: int
    num_heads: int
    ffn_dim: int
    num_layers: int
    causal: bool


def official_flow(baseline, optimized, config, repeats=100, warmup=20, rounds=3, padding=0.0):
    """Accuracy on five seeds, then medians (µs) of both after alternating rounds, on one fixed input."""

    def case(seed):
        random = torch.Generator().manual_seed(seed)
        x = torch.randn(config.batch_size, config.seq_len, config.d_model, generator=random)
        mask = torch.ones(config.batch_size, config.seq_len, dtype=torch.bool)
        if padding:
            least = max(1, round(config.seq_len * (1 - padding)))
            lengths = torch.randint(least, config.seq_len + 1, (config.batch_size,), generator=random)
            mask = torch.arange(config.seq_len)[None, :] < lengths[:, None]
            x = x.masked_fill(~mask[..., None], 0)
        return x, mask

    optimized.load_state_dict(copy.deepcopy(baseline.state_dict()), strict=True)
    baseline, optimized = (m.to(device="cpu", dtype=torch.float32).eval() for m in (baseline, optimized))
    with torch.inference_mode():
        for trial in range(5):
            x, mask = case(1234 + trial)
            want, got = baseline(x, mask), optimized(x, mask)
            off = (got - want).abs()
            assert bool(((off <= 0.002) | (off <= 0.02 * want.abs())).all()) and bool(got.isfinite().all())
        x, mask = case(1234 + 100_000)
        for model in (baseline, optimized):
            for _ in range(warmup):
                model(x, mask)
        samples = {baseline: [], optimized: []}
        for turn in range(rounds):
            for model in (baseline, optimized)[:: 1 if turn % 2 == 0 else -1]:
                for _ in range(repeats):
                    began = time.perf_counter_ns()
                    model(x, mask)
                    samples[model].append((time.perf_counter_ns() - began) / 1e3)
    assert all(len(times) == rounds * repeats for times in samples.values())
    return statistics.median(samples[baseline]), statistics.median(samples[optimized])


@pytest.mark.parametrize("padding", [0.0, 0.5])
@pytest.mark.parametrize("shape", [(2, 12, 16, 4, 2), (1, 20, 32, 2, 1)], ids=["official case", "another shape"])
def test_the_official_flow_takes_the_submission_for_its_own_class(bench, shape, padding):
    module = compiled(bench, {2: V002, 7: V001}, V001)
    batch, length, d_model, heads, layers = shape
    config = TransformerConfig(batch, length, d_model, heads, d_model, layers, True)
    torch.manual_seed(1234)
    baseline = module.ref_TransformerLayer(d_model, heads, layers)
    optimized = module.UserOptimizedTransformer(config)
    official_flow(baseline, optimized, config, padding=padding)
    (row,) = optimized.choices()
    assert row["plan"] == V001 and (row["case"] == 2) == (shape[0] == 2)


@pytest.fixture
def file(bench):
    made = portfolio(bench, holders(bench, {2: V001, 7: V002}), bench.workload.candidate(V001))
    return compile_to(bench, made, bench.workload.folder / "submission.py")[0]


def run(file, *arguments):
    return subprocess.run(
        [sys.executable, str(file), *arguments], capture_output=True, text=True, cwd=file.parent, timeout=200
    )


QUICK = ("--device", "cpu", "--warmup", "2", "--repeats", "3", "--rounds", "2", "--trials", "2")


def test_it_drives_itself_and_prints_microseconds_by_case(file):
    done = run(file, "--official", "--cases", "2,7", *QUICK)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    two = next(line for line in lines if line.startswith("    2 "))
    seven = next(line for line in lines if line.startswith("    7 "))
    assert "pass" in two and "×" in two and V001 in two and "70.5" in two
    assert f"{V001} ({V002}: v002_Unavailable" in seven


def test_it_prints_json_for_programs(file):
    done = run(file, "--official", "--cases", "2", "--json", *QUICK)
    (row,) = json.loads(done.stdout)["cases"]
    assert row["accuracy"] == "pass" and row["submission_us"] > 0 and row["recorded_official_us"] == 70.5
    assert row["ratio"] == pytest.approx(row["reference_us"] / row["submission_us"])


def test_bad_arguments_are_one_message(file):
    done = run(file, "--official", "--cases", "99")
    assert done.returncode == 2 and "this submission knows 2, 7" in done.stderr
    assert "--official" in run(file).stdout
