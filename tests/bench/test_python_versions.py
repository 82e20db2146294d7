"""The bench runs where a GPU is, on whatever Python from 3.10 on is there, with torch and triton and nothing else."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gfast_pipeline
from gfast_pipeline.bench.places import bench_zip

BENCH = Path(gfast_pipeline.__file__).parent / "bench"
FILES = [Path(gfast_pipeline.__file__), *sorted(BENCH.rglob("*.py"))]
# Those without torch can be imported under a bare interpreter.
BARE = ("messages", "channel", "isolation", "places", "participant", "runner", "nvml", "__main__")
USES_ALL = """
import socket, sys
sys.path.insert(0, sys.argv[1])
import importlib
for name in sys.argv[2:]:
    importlib.import_module("gfast_pipeline.bench." + name)
from gfast_pipeline.bench.messages import Session, Visit, seal, unseal
visit = Visit("v1", 1, 0, 0, 0, 0, "official", 2, [1.0, 2.0], 9.0, 8.0, 1.0)
session = Session("decide", "layer", "cpu", "hash", "job", 7, "now", visits=[visit])
assert unseal(seal(session)) == session
from gfast_pipeline.bench.channel import Channel, Deadline
left, right = map(Channel, socket.socketpair())
left.send({"do": "ping"})
assert right.receive(5) == {"do": "ping"}
try:
    right.receive(0.05)
except Deadline:
    print("well")
"""


def interpreter(version: str) -> str:
    """A Python of this version that starts, on PATH or kept by pyenv; skips where there is none."""
    name = f"python{version}"
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [shutil.which(name), *map(str, kept.glob(f"{version}.*/bin/{name}"))]
    for path in filter(None, places):
        if subprocess.run([path, "-c", "pass"], capture_output=True).returncode == 0:
            return path
    pytest.skip(f"no {name} on this machine")


def imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_parses_as_python_3_10_and_imports_nothing_foreign(path):
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 10))
    for name in imported(tree):
        own = name.startswith("gfast_pipeline.bench") or name == "gfast_pipeline"
        assert own or name.split(".")[0] in sys.stdlib_module_names | {"torch", "triton"}, name
        # newer than 3.10, or gone by 3.13
        assert name.split(".")[0] not in {"tomllib", "distutils", "imp", "cgi", "asyncore", "pipes", "telnetlib"}, name


def test_what_runners_read_is_the_whole_bench(tmp_path):
    with zipfile.ZipFile(bench_zip(str(tmp_path))) as package:
        names = set(package.namelist())
    assert names == {"gfast_pipeline/__init__.py", *(f"gfast_pipeline/bench/{path.name}" for path in FILES[1:])}


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_it_compiles_and_its_bare_part_works_on(version, tmp_path):
    python = interpreter(version)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    compiled = subprocess.run(
        [python, "-W", "error", "-m", "py_compile", *map(str, FILES)],
        capture_output=True,
        text=True,
        env={**clean, "PYTHONPYCACHEPREFIX": str(tmp_path)},
    )
    assert compiled.returncode == 0, compiled.stderr
    done = subprocess.run(
        [python, "-I", "-c", USES_ALL, bench_zip(str(tmp_path)), *BARE], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "well", done.stderr
