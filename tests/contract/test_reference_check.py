"""The check runs for real, on our reference and the CPU contract; an independent model plays the official script."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gfast_pipeline.cli_contract import reference_app

pytest.importorskip("torch")

SCRIPT = """
from dataclasses import dataclass
import torch
from torch import nn


@dataclass
class TransformerConfig:
    batch_size: int
    seq_len: int
    d_model: int
    num_heads: int
    ffn_dim: int
    num_layers: int
    causal: bool = False


class Heads(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, nn.Linear(c.d_model, c.d_model))

    def forward(self, x, valid):
        b, s, d = x.shape
        h = self.c.num_heads
        q, k, v = (f(x).view(b, s, h, d // h).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        scores = q @ k.transpose(-1, -2) * (d // h) ** -0.5
        hidden = ~valid[:, None, None, :]
        if self.c.causal:
            hidden = hidden | torch.ones(s, s, dtype=torch.bool).triu(1)
        p = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return self.out_proj((p @ v).transpose(1, 2).reshape(b, s, d))


class Step(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(c.d_model), nn.LayerNorm(c.d_model)
        self.attention = Heads(c)
        self.ffn_in, self.ffn_out = nn.Linear(c.d_model, c.ffn_dim), nn.Linear(c.ffn_dim, c.d_model)

    def forward(self, x, valid):
        x = x + self.attention(self.norm1(x), valid)
        x = x + self.ffn_out(nn.functional.gelu(self.ffn_in(self.norm2(x))))
        return x * valid[..., None]


class BaselineTransformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList(Step(config) for _ in range(config.num_layers))
        self.final_norm = nn.LayerNorm(config.d_model)

    def forward(self, x, valid):
        for layer in self.layers:
            x = layer(x, valid)
        return self.final_norm(x) * valid[..., None]
"""


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Runs the check against an edited script; gives exit code, stdout, stderr."""
    monkeypatch.delenv("GFAST_KERNELS", raising=False)
    script = tmp_path / "official.py"

    def run(*words, old="", new=""):
        assert old in SCRIPT
        script.write_text(SCRIPT.replace(old, new) if old else SCRIPT)
        words = (str(script), "--contract", "cpu_fp32", "--device", "cpu", *words)
        done = CliRunner().invoke(reference_app, words)
        return done.exit_code, done.stdout, done.stderr

    return run


def test_the_same_mathematics_under_the_official_names_passes_on_every_case(check):
    code, out, _ = check("--json")
    told = json.loads(out)
    assert code == 0
    assert told["same"] is True
    assert [(row["case"], row["status"]) for row in told["cases"]] == [(2, "same"), (7, "same")]
    assert all(row["largest"] <= 1e-6 * row["scale"] for row in told["cases"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gelu(self", "gelu(approximate='tanh', input=self"),
        ("dtype=torch.bool).triu(1)", "dtype=torch.bool).triu(2)"),
        ("nn.LayerNorm(config.d_model)", "nn.LayerNorm(config.d_model, eps=1e-3)"),
        ("** -0.5", "** -0.4999"),
    ],
)
def test_other_mathematics_is_found_out_with_its_size(check, old, new):
    code, out, err = check(old=old, new=new)
    assert code == 1
    assert "differs from our reference in cases" in err
    assert "differs  largest difference" in out


def test_an_output_that_is_no_number_differs(check):
    code, out, _ = check("--json", old="return self.final_norm(x)", new="return float('nan') * self.final_norm(x)")
    assert code == 1
    assert {row["status"] for row in json.loads(out)["cases"]} == {"differs"}


def test_cases_above_the_cap_are_skipped_with_the_reason_and_none_left_is_a_failure(check):
    code, out, _ = check("--max-gb", "0.005")
    assert code == 0
    assert "case  7  skipped  its score tensor has 0.0168 GB, above --max-gb 0.005" in out
    code, out, err = check("--max-gb", "0", "--json")
    assert code == 1
    assert json.loads(out)["same"] is False
    assert err == "No case was compared. Raise --max-gb.\n"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("final_norm", "last_norm", "its model does not take case 2: RuntimeError"),
        ("num_heads: int", "heads_: int", "its model does not take case 2: TypeError"),
        ("class BaselineTransformer", "class Other", "defines no BaselineTransformer"),
        ("import torch\n", "import no_such_module\n", "cannot be loaded: ModuleNotFoundError"),
        (
            "def forward(self, x, valid):\n        for",
            "def forward(self, x):\n        for",
            "does not take case 2: TypeError",
        ),
        ("@dataclass\n", "raise SystemExit(3)\n@dataclass\n", "cannot be loaded: SystemExit"),
    ],
)
def test_a_script_that_is_not_the_official_one_is_one_clear_refusal(check, old, new, words):
    code, out, err = check(old=old, new=new)
    assert code == 1
    assert out == ""
    assert words in err
    assert "Traceback" not in err
    assert err.strip().count("\n") == 0


def test_a_script_that_is_not_there_is_refused(check, tmp_path):
    done = CliRunner().invoke(reference_app, [str(tmp_path / "none.py"), "--contract", "cpu_fp32", "--device", "cpu"])
    assert done.exit_code == 1
    assert "no such Python file" in done.stderr
