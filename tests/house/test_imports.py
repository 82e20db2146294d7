"""The import rules that import-linter cannot state: closed lists, and what merely importing brings in."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import gfast_pipeline

PACKAGE = Path(gfast_pipeline.__file__).parent
DOORS = sorted(f"gfast_pipeline.{path.stem}" for path in PACKAGE.glob("cli*.py"))


def imported(path: Path) -> set[str]:
    """Every module that a file imports, at any depth, as written."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return names


def test_the_bench_imports_the_standard_library_torch_triton_and_itself():
    allowed = sys.stdlib_module_names | {"torch", "triton"}
    files = sorted((PACKAGE / "bench").rglob("*.py"))
    assert files
    for path in files:
        for name in imported(path):
            own = name == "gfast_pipeline.bench" or name.startswith(("gfast_pipeline.bench.", "."))
            assert own or name.split(".")[0] in allowed, f"{path.name} imports {name}"


def test_the_command_line_starts_without_torch():
    assert "gfast_pipeline.cli_contract" in DOORS
    code = (
        f"import sys, {', '.join(DOORS)}; sys.exit(', '.join({{'torch', 'triton', 'numpy'}} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr


def test_no_file_grows_past_four_hundred_lines():
    long = [path.name for path in PACKAGE.rglob("*.py") if len(path.read_text(encoding="utf-8").splitlines()) > 400]
    assert long == []
