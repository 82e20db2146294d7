"""A folder that stands for another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.execution.tiny import Elsewhere


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    return Elsewhere(tmp_path / "elsewhere")
