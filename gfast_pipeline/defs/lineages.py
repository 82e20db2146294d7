"""A lineage, its jobs and its sensors for every contract there is a file of."""

from __future__ import annotations

import dagster as dg

from gfast_pipeline.contract.workload import workloads
from gfast_pipeline.defs import lineage, sensors


@dg.definitions
def lineages() -> dg.Definitions:
    """Found anew whenever the code location loads: a new contract file is a new lineage."""
    assets, jobs = [], []
    for workload in workloads():
        for path in workload.contracts():
            assets += lineage.assets(workload.name, path.stem)
            jobs.append(sensors.race_job(workload.name, path.stem))
    return dg.Definitions(assets=assets, jobs=jobs, sensors=sensors.all_sensors())
