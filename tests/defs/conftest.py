"""A warehouse and a kernels folder of the test's own, and the lineage of its tiny contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from gfast_pipeline.contract.load import Loaded


@pytest.fixture
def place(loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """The approved contract `tiny` of v000 to v002, its warehouse and DAGSTER_HOME under `tmp_path`."""
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    monkeypatch.setenv("GFAST_WAREHOUSE", str(warehouse))
    monkeypatch.setenv("DAGSTER_HOME", str(warehouse))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (loaded.workload.folder / "candidates" / "v003_fp16_operands_graph.py").unlink()
    return loaded
