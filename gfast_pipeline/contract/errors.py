"""What this layer refuses, as exceptions whose text is the whole message: file, place and remedy. Knows no printing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class GfastError(Exception):
    """Something a person or a model wrote or asked for is wrong. `str()` is one clear message; no traceback is due."""


class WorkloadError(GfastError):
    """A workload, its reference, a candidate or a peer is missing or cannot be read."""


class NotApproved(GfastError):
    """A contract that no human has approved as it stands. The message names the command to type."""


@dataclass(frozen=True)
class Problem:
    """One fault in a contract file. `key` is dotted with list places in brackets, `line` counts from 1."""

    key: str
    line: int
    message: str
    remedy: str


class ContractError(GfastError):
    """A contract file that cannot be used: every fault with file, line, key and remedy, one a line."""

    def __init__(self, path: Path | str, problems: list[Problem]) -> None:
        self.path = Path(path)
        self.problems = problems
        super().__init__("\n".join(self._line(problem) for problem in problems))

    def _line(self, problem: Problem) -> str:
        key = f" {problem.key}:" if problem.key else ""
        return f"{self.path}:{problem.line}:{key} {problem.message}. {problem.remedy}"


def dotted(path: tuple[str | int, ...]) -> str:
    """`("cases", 3, "shape", "batch")` as `cases[3].shape.batch`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
