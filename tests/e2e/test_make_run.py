"""`make run` on a clean clone: the command of the README, from nothing to a confirmed promotion."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1500)]


def test_make_run_on_a_clean_clone_judges_races_and_confirms_a_faster_candidate(tmp_path: Path):
    clone = tmp_path / "clone"
    if (ROOT / ".git").exists():
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    else:
        shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".venv", "warehouse", "__pycache__"))
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("GFAST_", "VIRTUAL_ENV"))}
    python = Path(sys.base_prefix) / "bin" / "python3"
    command = ["make", "run", f"PYTHON={python if python.exists() else sys.executable}"]
    done = subprocess.run(command, cwd=clone, env=variables, capture_output=True, text=True, timeout=1400)
    said = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "decide" in said and "confirm" in said
    promoted = re.findall(r"v001_fused_qkv_sdpa is promoted: [\d,.]+ µs against [\d,.]+ µs of v000_identity", said)
    assert len(promoted) == 2, "a decision and its confirmation"
    assert re.search(r"95 % interval from [\d.]+ % faster to [\d.]+ % faster, all of it above the margin of", said)
    kinds = {path.name.split("-")[1] for path in clone.glob("warehouse/runs/*/evidence/local/*.json.gz")}
    assert kinds == {"session", "decision"}
