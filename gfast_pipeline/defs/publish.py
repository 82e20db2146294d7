"""What the log holds, shown in Dagster without a run: materializations and check results of the right partitions.

For evidence that was ingested, pulled or rebuilt. Reads the log only; says nothing that Dagster shows already.
"""

from __future__ import annotations

from typing import Any

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_TAG, extract_data_version_from_entry

from gfast_pipeline.contract import approval
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import Loaded, load
from gfast_pipeline.contract.workload import workloads
from gfast_pipeline.defs import home
from gfast_pipeline.defs.lineage import key_of
from gfast_pipeline.defs.partitions import candidates
from gfast_pipeline.defs.show import metadata, said
from gfast_pipeline.defs.stage import STAGES, Stage
from gfast_pipeline.ledger.evidence import EvidenceError
from gfast_pipeline.stages.lab import Lab
from gfast_pipeline.stages.outcome import Missing, Outcome


def everything() -> int:
    """`publish` for every contract, in the warehouse's own instance: how many materializations were new to Dagster."""
    count, instance = 0, home.instance()
    for workload in workloads():
        for path in workload.contracts():
            try:
                count += publish(instance, load(f"{workload.name}/{path.stem}"))
            except GfastError:
                continue  # a contract that cannot be read says so when it is used
    return count


def publish(instance: dg.DagsterInstance, loaded: Loaded) -> int:
    """Report what the log holds under a contract: how many materializations were new to Dagster."""
    names = [source.name for source in loaded.workload.candidates()]
    partitions = candidates(loaded.workload.name).name or ""
    instance.add_dynamic_partitions(partitions, names)
    try:
        approval.check(loaded)
    except GfastError:
        return 0  # nothing counts under a contract that nobody approved
    lab, count = Lab(loaded, _never, reading=True), 0
    for stage in STAGES:
        for name in names if stage.starred else [None]:
            try:
                outcome = stage.call(lab, *([name] if name is not None else []))
            except (Missing, GfastError, EvidenceError):
                continue
            count += _report(instance, loaded, stage, name, outcome)
    return count


def _report(instance: dg.DagsterInstance, loaded: Loaded, stage: Stage, partition: str | None, outcome: Outcome) -> int:
    """1 where Dagster did not show this version yet."""
    key = key_of(loaded.workload.name, loaded.path.stem, stage.name)
    if _shown(instance, key, partition) == outcome.version:
        return 0
    instance.report_runless_asset_event(
        dg.AssetMaterialization(
            asset_key=key, partition=partition, metadata=metadata(outcome), tags={DATA_VERSION_TAG: outcome.version}
        )
    )
    for check in said(outcome, [name for name, _, _ in stage.checks]):
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=key,
                check_name=check.name,
                passed=check.passed,
                severity=dg.AssetCheckSeverity.WARN if check.warning else dg.AssetCheckSeverity.ERROR,
                description=check.description,
                partition=partition,
            )
        )
    return 1


def _shown(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str | None) -> str | None:
    """The data version that Dagster shows last for an asset or one of its partitions."""
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition] if partition else None), limit=1
    ).records
    if not records:
        return None
    version = extract_data_version_from_entry(records[0].event_log_entry)
    return version.value if version else None


def _never(job: Any) -> Any:
    raise Missing("nothing is measured here")
