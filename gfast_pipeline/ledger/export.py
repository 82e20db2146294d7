"""Answers as files: CSV, Parquet, JSON. Written outside the sandbox from values, so that no statement writes a file."""

from __future__ import annotations

import csv
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import duckdb

from gfast_pipeline.ledger.database import LedgerError
from gfast_pipeline.ledger.query import Result


def plain(value: Any) -> Any:
    """A value as JSON has it: times as ISO 8601, what is not finite and what JSON does not know as text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def to_json(result: Result) -> str:
    """A list with one object a row."""
    return json.dumps([plain(record) for record in result.records()], ensure_ascii=False, indent=2)


def to_csv(result: Result, path: Path) -> None:
    """One header and one line a row; lists and objects as JSON, NULL as nothing. Raises LedgerError."""
    with _beside(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(result.columns)
        for row in result.rows:
            writer.writerow([_cell(plain(value)) for value in row])


def to_parquet(result: Result, path: Path) -> None:
    """One column a column, with its type. Raises LedgerError."""
    with tempfile.TemporaryDirectory(prefix="gfast-") as folder, _beside(path) as temporary:
        lines = Path(folder) / "rows.ndjson"
        names = [f"c{position}" for position in range(len(result.columns))]
        longest = 1 << 20
        with lines.open("w", encoding="utf-8") as file:
            for row in result.rows:
                line = json.dumps(dict(zip(names, map(plain, row), strict=True)), ensure_ascii=False)
                longest = max(longest, 4 * len(line))
                file.write(line + "\n")
        columns = ", ".join(
            f"{name}: {_text(kind if kind != 'NULL' else 'VARCHAR')}"
            for name, kind in zip(names, result.types, strict=True)
        )
        shown = ", ".join(f'{name} AS "{_doubled(wanted)}"' for name, wanted in zip(names, result.columns, strict=True))
        with duckdb.connect() as connection:
            try:
                connection.execute(
                    f"COPY (SELECT {shown} FROM read_json({_text(str(lines))}, format = 'newline_delimited', "
                    f"maximum_object_size = {longest}, columns = {{{columns}}})) "
                    f"TO {_text(str(temporary))} (FORMAT parquet)"
                )
            except duckdb.Error as error:
                told = str(error).partition("\n")[0]
                raise LedgerError(f"{path}: no Parquet of this ({told}); cast the column, or use --csv") from None


class _beside:
    """A path beside `path` that takes its place when all went well: an old file stays whole otherwise."""

    def __init__(self, path: Path) -> None:
        self.path, self.temporary = path, path.with_name(f".{path.name}.tmp")

    def __enter__(self) -> Path:
        if not self.path.parent.is_dir():
            raise LedgerError(f"{self.path.parent}: no such folder; make it, or write elsewhere")
        if self.path.is_dir():
            raise LedgerError(f"{self.path}: is a folder; give a file's name")
        return self.temporary

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            os.replace(self.temporary, self.path)
        else:
            self.temporary.unlink(missing_ok=True)


def _cell(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else value


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _doubled(name: str) -> str:
    return name.replace('"', '""')
