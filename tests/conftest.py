"""A tiny approved contract, for tests that really measure."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from gfast_pipeline.contract import approval
from gfast_pipeline.contract.load import Loaded, load

SHIPPED = Path(__file__).parents[1] / "kernels" / "transformer_layer"
CASE = """\
[[cases]]
id = 1
status = "scored"
regime = "base"
weight = 1.0
shape = { batch = 2, length = 8, d_model = 16, heads = 2, layers = 1 }

[profiles]
neutral = [1]

"""
# Little to measure, and gates wide enough for a machine that does other work beside.
SMALL = {
    "name": '"tiny"', "visit_ms": "2.0", "generations": "2", "blocks": "2", "trials": "1", "peers": "[]",
    "max_noise": "0.49", "ratio_gate": "50.0",
}  # fmt: skip


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """The approved contract `tiny` in a kernels/ folder of its own: one tiny case on the CPU, v000 and v001."""
    folder = tmp_path / "kernels" / "transformer_layer"
    (folder / "contracts").mkdir(parents=True)
    shutil.copytree(SHIPPED / "candidates", folder / "candidates", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(SHIPPED / "reference.py", folder)
    text = (SHIPPED / "contracts" / "cpu_fp32.toml").read_text()
    text = re.sub(r"(?ms)^\[\[cases\]\].*?(?=^\[\[variants)", CASE, text, count=1)
    for key, value in SMALL.items():
        text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", text, count=1)
        assert count, key
    (folder / "contracts" / "tiny.toml").write_text(text)
    monkeypatch.setenv("GFAST_KERNELS", str(tmp_path / "kernels"))
    contract = load("tiny")
    approval.approve(contract, contract.hash, "Ada")
    return contract
