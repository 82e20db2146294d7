"""The folders under kernels/: workloads, their contracts, candidates and peers, read as text.

Nothing here is executed: what is asked of a file's literals is read from its syntax tree. Knows no contract's content.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gfast_pipeline.bench.messages import Plan
from gfast_pipeline.contract.errors import WorkloadError

CANDIDATE = re.compile(r"v(\d{3,})_[a-z0-9_]+")
LITERALS = {"SHAPE": tuple, "DIVISORS": dict, "WEIGHT_DRAWS": tuple, "STRUCTURED": tuple}


@dataclass(frozen=True)
class Source:
    """One candidate or peer file: `name` without .py, text, sha256 (hex) of its bytes, the docstring's first line, the
    schedule it starts from, and what keeps it from being read as Python (empty where nothing does)."""

    name: str
    path: Path
    source: str
    sha256: str
    hypothesis: str
    default_schedule: dict[str, Any]
    trouble: str = ""

    def plan(self, role: str, cases: list[int], prove: bool = False) -> Plan:
        """This file as a participant with its default schedule on every case."""
        schedules = {str(case): dict(self.default_schedule) for case in cases} if self.default_schedule else {}
        return Plan(self.name, role, self.source, self.sha256, schedules, prove)


@dataclass(frozen=True)
class Workload:
    """One folder under kernels/ with a reference.py."""

    name: str
    folder: Path

    @property
    def reference_path(self) -> Path:
        return self.folder / "reference.py"

    @property
    def reference_source(self) -> str:
        return _read(self.reference_path)

    @property
    def contracts_folder(self) -> Path:
        return self.folder / "contracts"

    def literals(self) -> dict[str, Any]:
        """SHAPE, DIVISORS, WEIGHT_DRAWS, STRUCTURED of reference.py. Raises WorkloadError."""
        found = module_literals(self.reference_source, tuple(LITERALS), self.reference_path)
        for name, kind in LITERALS.items():
            if not isinstance(found.get(name), kind):
                message = f"{self.reference_path}: {name} is missing or no literal {kind.__name__}."
                raise WorkloadError(f"{message} Write it at module level; contracts are checked against it.")
        return found

    def contracts(self) -> list[Path]:
        """The contract files, by name."""
        return sorted(p for p in self.contracts_folder.glob("*.toml") if not p.name.endswith(".approved.toml"))

    def candidates(self) -> list[Source]:
        """Every `vNNN_slug.py`, by number. Raises WorkloadError for two with one number."""
        found: dict[int, Path] = {}
        for path in sorted((self.folder / "candidates").glob("v*.py")):
            match = CANDIDATE.fullmatch(path.stem)
            if match is None:
                continue
            number = int(match[1])
            if number in found:
                raise WorkloadError(
                    f"{path}: {found[number].name} has the number too. Give one of them the next free one."
                )
            found[number] = path
        return [read_source(found[number]) for number in sorted(found)]

    def misnamed(self) -> list[Path]:
        """Python files in candidates/ that no one will pick up: their name is not `vNNN_slug.py`."""
        paths = sorted((self.folder / "candidates").glob("*.py"))
        return [path for path in paths if not CANDIDATE.fullmatch(path.stem) and path.name != "__init__.py"]

    def candidate(self, name: str) -> Source:
        """The candidate of this name, or of this number (`v007`). Raises WorkloadError naming those there are."""
        candidates = self.candidates()
        for source in candidates:
            if name in (source.name, source.name.split("_")[0]):
                return source
        there = ", ".join(source.name for source in candidates) or "none yet"
        raise WorkloadError(f"{self.folder / 'candidates'}: no candidate {name!r}. There are: {there}.")

    def peer(self, name: str) -> Source:
        """The peer of this name. Raises WorkloadError naming those there are."""
        path = self.folder / "peers" / f"{name}.py"
        if not path.is_file():
            there = ", ".join(sorted(p.stem for p in path.parent.glob("*.py"))) or "none yet"
            raise WorkloadError(
                f"{path}: no such peer. Write the file or correct `peers` in the contract; there are: {there}."
            )
        return read_source(path)


def kernels_root() -> Path:
    """The folder of workloads: $GFAST_KERNELS, else kernels/ beside the package, else under the working directory.
    Raises WorkloadError."""
    named = os.environ.get("GFAST_KERNELS")
    if named:
        if not Path(named).is_dir():
            raise WorkloadError(f"GFAST_KERNELS={named}: no such folder. Correct or unset it.")
        return Path(named)
    for home in (Path(__file__).parents[2], Path.cwd()):
        if (home / "kernels").is_dir():
            return home / "kernels"
    raise WorkloadError("No kernels/ folder found. Run inside a checkout of gfast, or set GFAST_KERNELS to the folder.")


def workloads(root: Path | None = None) -> list[Workload]:
    """Every workload under `root` (default `kernels_root()`), by name."""
    root = root or kernels_root()
    return [Workload(path.parent.name, path.parent) for path in sorted(root.glob("*/reference.py"))]


def workload(name: str, root: Path | None = None) -> Workload:
    """The workload of this name. Raises WorkloadError naming those there are."""
    root = root or kernels_root()
    for found in workloads(root):
        if found.name == name:
            return found
    there = ", ".join(found.name for found in workloads(root)) or "none"
    raise WorkloadError(f"{root / name}: no workload with a reference.py. There are: {there}.")


def find_contract(name: str, root: Path | None = None) -> Path:
    """The file of the contract `name` or `workload/name`. Raises WorkloadError when there is none, or several."""
    root = root or kernels_root()
    every = [path for found in workloads(root) for path in found.contracts()]
    where, _, stem = name.rpartition("/")
    fits = [path for path in every if path.stem == stem and where in ("", path.parent.parent.name)]
    if len(fits) == 1:
        return fits[0]
    if fits:
        ways = " or ".join(f"{path.parent.parent.name}/{stem}" for path in fits)
        raise WorkloadError(f"Several workloads have a contract {stem!r}. Say {ways}.")
    there = ", ".join(path.stem for path in every) or "none"
    raise WorkloadError(f"{root}: no contract {name!r}. There are: {there}. See: gfast contract list")


def read_source(path: Path) -> Source:
    """One candidate or peer file, not executed. A broken one is read too, with its `trouble`: it must not hide the
    others, and refusing it is a verdict. Raises WorkloadError where there is no file to read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read: {error.strerror}. Check the path and its permissions.") from None
    text, doc, schedule, trouble = content.decode(errors="replace"), "", {}, ""
    try:
        _text(content, path)
        literals = module_literals(text, ("SCHEDULES",), path)
        doc = ast.get_docstring(ast.parse(text)) or ""
        schedule = _first_values(literals.get("SCHEDULES", {}), path)
    except WorkloadError as error:
        trouble = str(error)
    return Source(path.stem, path, text, hashlib.sha256(content).hexdigest(), doc.split("\n")[0], schedule, trouble)


def module_literals(source: str, names: tuple[str, ...], path: Path) -> dict[str, Any]:
    """The values of module-level literals among `names`, those that are there. Raises WorkloadError."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise WorkloadError(f"{path}:{line}: not Python: {getattr(error, 'msg', error)}. Correct this line.") from None
    found: dict[str, Any] = {}
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and target.id in names and isinstance(node, ast.Assign | ast.AnnAssign):
                try:
                    found[target.id] = ast.literal_eval(node.value) if node.value else None
                except (ValueError, TypeError, RecursionError, MemoryError):
                    message = f"{path}:{node.lineno}: {target.id} is no literal."
                    raise WorkloadError(f"{message} Write its values out: it is read without being run.") from None
    return found


def _first_values(schedules: Any, path: Path) -> dict[str, Any]:
    shaped = isinstance(schedules, dict) and all(
        isinstance(key, str) and isinstance(values, list | tuple) and values for key, values in schedules.items()
    )
    if not shaped:
        raise WorkloadError(
            f'{path}: SCHEDULES is not {{"name": [first, ...]}}. Give each parameter its list of values.'
        )
    return {key: values[0] for key, values in schedules.items()}


def _read(path: Path) -> str:
    try:
        return _text(path.read_bytes(), path)
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read: {error.strerror}. Check the path and its permissions.") from None


def _text(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path}: not UTF-8 at byte {error.start}. Save it as UTF-8.") from None
