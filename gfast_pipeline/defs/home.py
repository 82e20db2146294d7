"""Where Dagster keeps what it knows: DAGSTER_HOME is the warehouse. A view of the log, never the record."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import dagster as dg

from gfast_pipeline.ledger import evidence


def home() -> Path:
    """The warehouse as DAGSTER_HOME, with its dagster.yaml; sets the variable for this process and its children."""
    folder = evidence.warehouse().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tracked = Path(__file__).parents[2] / "warehouse" / "dagster.yaml"
    if not (folder / "dagster.yaml").is_file() and tracked.is_file():
        shutil.copy(tracked, folder / "dagster.yaml")
    os.environ["DAGSTER_HOME"] = str(folder)
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "true")
    return folder


def instance() -> dg.DagsterInstance:
    """The instance of the warehouse."""
    home()
    return dg.DagsterInstance.get()
