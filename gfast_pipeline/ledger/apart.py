"""A statement that somebody wrote, run in a process of its own that may use only so much memory and time.

DuckDB's own limits hold for what it plans, not for one huge text or list, nor while it makes one. Knows processes and
nothing of SQL: `answering` is the other side, with a pickled question on its input and a pickled answer on its output.
"""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gfast_pipeline.ledger.database import LedgerError
from gfast_pipeline.ledger.evidence import warehouse

MEMORY = 4_000_000_000
"""Bytes of address space: what DuckDB may plan with, its threads, and the answer as Python values."""
GRACE_S = 3.0
"""What it gets to start, and to stop by itself, before it is killed."""
TOO_LARGE = "it needs more memory than a query may use; narrow it with WHERE, or aggregate"


def run(sql: str, parameters: dict[str, Any], limit_s: float) -> tuple[list[str], list[str], list[tuple[Any, ...]]]:
    """(columns, types, rows) of one statement. Raises LedgerError with what that process said, or how it ended."""
    question = pickle.dumps((sql, parameters, limit_s))
    variables = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "GFAST_WAREHOUSE": str(warehouse().resolve()),
        "MALLOC_ARENA_MAX": "2",  # an arena a thread reserves address space that nobody uses
    }
    command = [sys.executable, "-m", "gfast_pipeline.ledger.answering"]
    try:
        done = subprocess.run(
            command, input=question, capture_output=True, timeout=limit_s + GRACE_S, env=variables, check=False
        )
    except subprocess.TimeoutExpired:
        raise LedgerError(f"stopped after {limit_s:g} s; narrow it with WHERE or LIMIT, or aggregate") from None
    if done.returncode != 0 or not done.stdout:
        raise LedgerError(TOO_LARGE)
    refusal, answer = pickle.loads(done.stdout)
    if refusal is not None:
        raise LedgerError(refusal)
    return answer


def serve(answer: Callable[[str, dict[str, Any], float], Any]) -> None:
    """The other side: limit this process, answer the one question."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sql, parameters, limit_s = pickle.loads(sys.stdin.buffer.read())
    try:
        told: tuple[str | None, Any] = (None, answer(sql, parameters, limit_s))
    except LedgerError as error:
        told = (str(error), None)
    except MemoryError:
        told = (TOO_LARGE, None)
    sys.stdout.buffer.write(pickle.dumps(told))
