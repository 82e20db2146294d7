"""A clean clone with its own environment, as somebody has it who follows the README; made once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ATTEMPTS, VOID = 3, "the session is void: its A/A control"
OURS = ("GFAST_", "DAGSTER_", "VIRTUAL_ENV", "PYTHON")


@dataclass(frozen=True)
class Said:
    """How a command ended, what it said on both outputs, and how long it took."""

    code: int
    text: str
    seconds: float

    @property
    def words(self) -> str:
        """What it said, without line breaks and padding."""
        return " ".join(self.text.split())


class Clone:
    """A clone, installed; commands run in it know nothing of who runs the tests."""

    def __init__(self, folder: Path, temporary: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        self.variables = {**kept, "TMPDIR": str(temporary)}

    def run(self, *command: str, path: str = "", timeout_s: float = 1500) -> Said:
        """Run a command in the clone, `path` (of the clone) first on its PATH."""
        searched = os.pathsep.join(filter(None, [str(self.folder / path) if path else "", self.variables["PATH"]]))
        began = time.monotonic()
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**self.variables, "PATH": searched},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
        return Said(done.returncode, done.stdout, time.monotonic() - began)

    def make(self, *targets: str) -> Said:
        """`make`, with the Python that runs the tests."""
        python = Path(sys.base_prefix) / "bin" / "python3"
        return self.run("make", *targets, f"PYTHON={python if python.exists() else sys.executable}")

    def evidence(self) -> dict[str, bytes]:
        """Name and content of every file of the log."""
        return {path.name: path.read_bytes() for path in self.folder.glob("warehouse/evidence/*/*.json.gz")}


@dataclass(frozen=True)
class Made:
    """A clone in which `make run` ran once, and what that said."""

    clone: Clone
    first: Said
    shipped: set[str]  # names of the evidence that came with it


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Clone, install, `make run`. Where other work on this machine made a race void, the same in a clean warehouse."""
    place = tmp_path_factory.mktemp("clean")
    folder, temporary = place / "clone", place / "t"
    temporary.mkdir()
    if (ROOT / ".git").exists():
        subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    else:
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".venv", "__pycache__", "local"))
    clone = Clone(folder, temporary)
    installed = clone.make(".venv/.installed")
    assert installed.code == 0, installed.text[-3000:]
    shutil.copytree(folder / "warehouse", place / "warehouse")
    shipped = set(clone.evidence())
    for attempt in range(1, ATTEMPTS + 1):
        first = clone.make("run")
        print(f"\ninstalled in {installed.seconds:.0f} s; make run: {first.seconds:.0f} s")
        if VOID not in first.words or attempt == ATTEMPTS:
            break
        print("a race was void: this machine is not quiet; once more from a clean warehouse")
        shutil.rmtree(folder / "warehouse")
        shutil.copytree(place / "warehouse", folder / "warehouse")
    return Made(clone, first, shipped)
