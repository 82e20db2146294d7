"""Every night: does all of it still hold, and is Dagster's own storage no larger than it need be?"""

import time
from collections.abc import Iterator

import dagster as dg

from gfast_pipeline import laboratory
from gfast_pipeline.contract.workload import workloads
from gfast_pipeline.defs.bench import through_pipes
from gfast_pipeline.defs.lineage import OWNERS, key_of, pool_of, tagged
from gfast_pipeline.defs.publish import publish
from gfast_pipeline.defs.show import result
from gfast_pipeline.defs.stage import code_hash
from gfast_pipeline.stages.health import health
from gfast_pipeline.stages.lab import Lab

RUNS_KEPT_DAYS = 60
CHECKS = {
    "chain_is_whole": "Every file of the log proves itself, and the ledger holds exactly what they say.",
    "ceilings_hold": "The device reaches what it reached before.",
    "champion_beats_reference": "The champion is still faster than the reference.",
    "disk_has_room": "There is room for another month.",
}


def purge(instance: dg.DagsterInstance, days: float = RUNS_KEPT_DAYS) -> int:
    """Delete runs that ended more than `days` ago, and with them their events: how many. The log keeps the evidence."""
    ended = [s for s in dg.DagsterRunStatus if s in (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE)]
    old = [
        record.dagster_run.run_id
        for record in instance.get_run_records(dg.RunsFilter(statuses=[*ended, dg.DagsterRunStatus.CANCELED]))
        if (record.end_time or time.time()) < time.time() - days * 86_400
        # a sensor's run is also the memory that it was asked for: without it all would be asked for again
        and "dagster/run_key" not in record.dagster_run.tags
    ]
    for run_id in old:
        instance.delete_run(run_id)
    return len(old)


def _asset(workload: str, contract: str) -> dg.AssetsDefinition:
    key = key_of(workload, contract, "health")

    @dg.asset(
        key=key,
        deps=[key_of(workload, contract, "contract")],
        group_name=workload,
        description="The log verified, ceilings and champion measured again, old runs of Dagster's storage deleted.",
        kinds={"python", "duckdb"},
        owners=OWNERS,
        code_version=code_hash(("stages/health.py",)),
        check_specs=[dg.AssetCheckSpec(name, asset=key, description=said) for name, said in CHECKS.items()],
        pool=pool_of(workload, contract),
    )
    def compute(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        loaded = laboratory.approved(f"{workload}/{contract}")
        with tagged(context):
            outcome = health(Lab(loaded, through_pipes(context)))
            context.log.info(f"{purge(context.instance)} runs older than {RUNS_KEPT_DAYS} days deleted")
            publish(context.instance, loaded)
        yield result(key, outcome, list(CHECKS))

    return compute


@dg.definitions
def nightly() -> dg.Definitions:
    """The health of every contract, at three in the night."""
    found = [_asset(workload.name, path.stem) for workload in workloads() for path in workload.contracts()]
    job = dg.define_asset_job(
        "nightly_health", selection=dg.AssetSelection.assets(*(asset.key for asset in found)), description=__doc__
    )
    schedule = dg.ScheduleDefinition(
        name="nightly_health", job=job, cron_schedule="0 3 * * *", default_status=dg.DefaultScheduleStatus.RUNNING
    )
    return dg.Definitions(assets=found, jobs=[job], schedules=[schedule])
