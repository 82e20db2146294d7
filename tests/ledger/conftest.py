"""A warehouse of its own for every test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gfast_pipeline.ledger import index, snapshot


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty warehouse."""
    folder = tmp_path / "warehouse"
    monkeypatch.setenv("GFAST_WAREHOUSE", str(folder))
    return folder


def rows(sql: str) -> list[tuple[Any, ...]]:
    """What the ledger answers, after taking in what it lacks."""
    index.sync()
    connection = snapshot.reader()
    assert connection is not None
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
