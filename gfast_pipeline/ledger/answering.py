"""The process in which a statement that somebody wrote is run; see `apart`, which starts it."""

from __future__ import annotations

from typing import Any

from gfast_pipeline.ledger import apart, query


def answer(sql: str, parameters: dict[str, Any], limit_s: float) -> tuple[list[str], list[str], list[tuple[Any, ...]]]:
    """(columns, types, rows). Raises LedgerError."""
    result = query.answer_here(sql, parameters, limit_s)
    return result.columns, result.types, result.rows


if __name__ == "__main__":
    apart.serve(answer)
