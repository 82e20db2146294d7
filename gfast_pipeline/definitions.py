"""The one thing Dagster loads: every lineage that `defs/` declares, its sensors and schedules."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """All of `defs/`; steps run in the run's own process, a measurement in a bench process of its own."""
    found = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    return dg.Definitions.merge(found, dg.Definitions(executor=dg.in_process_executor))
