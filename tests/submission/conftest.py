"""A workload of the test's own, small enough to be called often."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gfast_pipeline.contract.load import Loaded, load_file

SHIPPED = Path(__file__).parents[2] / "kernels" / "transformer_layer"
CONTRACT = (SHIPPED / "contracts" / "cpu_fp32.toml").read_text()
SHAPE = "{ batch = 1, length = 128, d_model = 128, heads = 4, layers = 4 }"
SMALL = "{ batch = 2, length = 12, d_model = 16, heads = 4, layers = 2 }"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """The CPU contract with a small case 2 (SMALL), in a folder of its own."""
    folder = tmp_path / "kernels" / "transformer_layer"
    (folder / "contracts").mkdir(parents=True)
    shutil.copytree(SHIPPED / "candidates", folder / "candidates", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(SHIPPED / "reference.py", folder)
    assert SHAPE in CONTRACT
    (folder / "contracts" / "cpu_fp32.toml").write_text(CONTRACT.replace(SHAPE, SMALL))
    monkeypatch.setenv("GFAST_KERNELS", str(tmp_path / "kernels"))
    monkeypatch.setenv("GFAST_WAREHOUSE", str(tmp_path / "warehouse"))
    return load_file(folder / "contracts" / "cpu_fp32.toml")
