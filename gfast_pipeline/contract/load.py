"""From a TOML file to a checked contract; every fault with file, line, dotted key and remedy.

Knows files and lines; which values make sense is for `schema` and `rules`.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from gfast_pipeline.contract import hashing
from gfast_pipeline.contract.errors import ContractError, Problem, WorkloadError, dotted
from gfast_pipeline.contract.places import Place, line_of, places
from gfast_pipeline.contract.rules import breaches
from gfast_pipeline.contract.schema import Contract
from gfast_pipeline.contract.workload import Workload, find_contract

REMEDIES = {
    "missing": "Add it.",
    "greater_than": "Give a larger number.",
    "greater_than_equal": "Give a larger number.",
    "less_than": "Give a smaller number.",
    "less_than_equal": "Give a smaller number.",
    "finite_number": "Give a finite number.",
    "int_type": "Give a whole number.",
    "float_type": "Give a number.",
    "string_type": "Give a text in quotes.",
    "tuple_type": "Give a list in brackets.",
    "dict_type": "Give a table.",
    "model_type": "Give a table.",
    "literal_error": "Choose one of those.",
    "too_short": "Give at least one.",
    "string_too_short": "Write at least a word.",
    "string_too_long": "Shorten it.",
    "string_pattern_mismatch": "Keep to the letters that this pattern allows.",
}


@dataclass(frozen=True)
class Loaded:
    """A checked contract with its file and its workload."""

    contract: Contract
    path: Path
    workload: Workload

    @property
    def name(self) -> str:
        return self.contract.name

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The contract as JSON values: what travels in a job."""
        return self.contract.plain()

    @cached_property
    def reference_digest(self) -> str:
        """sha256 of the reference's code without docstrings."""
        return hashing.reference_digest(self.workload.reference_source)

    @cached_property
    def hash(self) -> str:
        """By what the contract is known; see `hashing`."""
        return hashing.hash_of(self.plain, self.reference_digest)


def load(name: str, root: Path | None = None) -> Loaded:
    """The contract called `name` or `workload/name` under kernels/. Raises WorkloadError, ContractError."""
    return load_file(find_contract(name, root))


def load_file(path: Path) -> Loaded:
    """The contract in `path`, which must lie in kernels/<workload>/contracts/. Raises WorkloadError, ContractError."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        remedy = "Name an existing contract file; see: gfast contract list"
        raise ContractError(path, [Problem("", 1, f"cannot be read: {error.strerror}", remedy)]) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ContractError(path, [Problem("", line, "not UTF-8", "Save the file as UTF-8.")]) from None
    return load_text(text, path)


def load_text(text: str, path: Path) -> Loaded:
    """As `load_file`, from a text that lies or will lie at `path`."""
    values = _parse(text, path)
    found = places(text)
    folder = path.resolve().parent.parent
    workload = Workload(folder.name, folder)
    if path.resolve().parent.name != "contracts" or not workload.reference_path.is_file():
        message = "no reference.py in the folder above its own"
        raise ContractError(path, [Problem("", 1, message, "Put it into kernels/<workload>/contracts/.")])
    try:
        contract = Contract.model_validate(values)
    except ValidationError as error:
        raise ContractError(path, _sorted(_problem(fault, values, found) for fault in error.errors())) from None
    problems = [
        Problem(dotted(at), line_of(found, at), message, remedy)
        for at, message, remedy in breaches(contract, workload.literals())
    ]
    problems += _misplaced(contract, path, workload, found)
    if problems:
        raise ContractError(path, _sorted(problems))
    loaded = Loaded(contract, path, workload)
    try:
        _ = loaded.reference_digest
    except SyntaxError as error:
        line = error.lineno or 1
        raise WorkloadError(f"{workload.reference_path}:{line}: not Python: {error.msg}. Correct this line.") from None
    return loaded


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        message = str(error)
        where = re.search(r" \(at line (\d+), column \d+\)| \(at end of document\)", message)
        line = int(where[1]) if where and where[1] else text.count("\n") + 1 if where else 1
        message = message.replace(where[0], "") if where else message
        raise ContractError(path, [Problem("", line, f"not TOML: {message}", "Correct this line.")]) from None


def _misplaced(contract: Contract, path: Path, workload: Workload, found: dict[tuple[str | int, ...], Place]):
    if contract.name != path.stem:
        message = f"{contract.name!r} is not the file's name"
        yield Problem("name", line_of(found, ("name",)), message, f'Write name = "{path.stem}" or rename the file.')
    if contract.workload != workload.name:
        message = f"{contract.workload!r} is not the folder's name"
        yield Problem("workload", line_of(found, ("workload",)), message, f'Write workload = "{workload.name}".')


def _problem(fault: Any, values: dict[str, Any], found: dict[tuple[str | int, ...], Place]) -> Problem:
    path = tuple(part for part in fault["loc"] if part != "[key]")
    kind, line = fault["type"], line_of(found, path)
    if kind == "extra_forbidden":
        known = _fields(path[:-1])
        near = get_close_matches(str(path[-1]), known, 1)
        remedy = f"Did you mean {near[0]!r}?" if near else f"Remove it; known here: {', '.join(known)}."
        return Problem(dotted(path), line, "unknown key", remedy)
    if kind == "missing":
        return Problem(dotted(path), line_of(found, path[:-1]), "is missing", REMEDIES[kind])
    message = fault["msg"][:1].lower() + fault["msg"][1:]
    if not isinstance(fault["input"], dict | list | tuple):
        message += f" (is {fault['input']!r})"
    return Problem(dotted(path), line, message, REMEDIES.get(kind, "Correct it."))


def _fields(path: tuple[str | int, ...]) -> list[str]:
    """The keys that a contract has at `path`."""
    model: Any = Contract
    for part in path:
        if isinstance(part, str):
            model = _model_in(model.model_fields[part].annotation)
    return sorted(model.model_fields)


def _model_in(annotation: Any) -> Any:
    """The record in an annotation such as `Case` or `tuple[Case, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(arg for arg in annotation.__args__ if isinstance(arg, type) and issubclass(arg, BaseModel))


def _sorted(problems: Any) -> list[Problem]:
    return sorted(problems, key=lambda problem: problem.line)
