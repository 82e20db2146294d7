"""The lineage of one contract as assets, key = [workload, contract, stage]; one factory for all of them."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from gfast_pipeline import laboratory
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import load
from gfast_pipeline.contract.workload import kernels_root
from gfast_pipeline.defs.automation import when_inputs_change
from gfast_pipeline.defs.bench import through_pipes
from gfast_pipeline.defs.partitions import candidates
from gfast_pipeline.defs.show import result, unmeasured
from gfast_pipeline.defs.stage import STAGES, Stage
from gfast_pipeline.ledger import evidence, index
from gfast_pipeline.ledger.evidence import EvidenceError
from gfast_pipeline.stages.lab import Lab
from gfast_pipeline.stages.outcome import Missing

OWNERS = ["team:judge"]


class Anew(dg.Config):
    """Measure although the log has it already: a further session, never a replaced one."""

    again: bool = False


def key_of(workload: str, contract: str, stage: str) -> dg.AssetKey:
    """[workload, contract, stage]."""
    return dg.AssetKey([workload, contract, stage])


def pool_of(workload: str, contract: str) -> str:
    """One pool a device, whatever the contract: its lease is one, too. Nothing is imported to find out which."""
    text = (kernels_root() / workload / "contracts" / f"{contract}.toml").read_text(encoding="utf-8")
    return "device_cpu" if 'device = "cpu"' in text else "device_cuda"


def assets(workload: str, contract: str) -> list[dg.AssetsDefinition]:
    """All stages of one contract."""
    return [_asset(workload, contract, stage) for stage in STAGES]


def starred(workload: str, contract: str) -> dg.AssetSelection:
    """The stages with one partition a candidate."""
    return dg.AssetSelection.assets(*(key_of(workload, contract, stage.name) for stage in STAGES if stage.starred))


@contextmanager
def tagged(context: dg.AssetExecutionContext) -> Iterator[None]:
    """What the body appends carries this run and asset, and is in the database when the body ends."""
    token = evidence.origin.set({"run": context.run.run_id, "asset": context.asset_key.to_user_string()})
    try:
        yield
    finally:
        evidence.origin.reset(token)
        try:
            index.sync()
        except GfastError as error:  # the log has it; whoever asks takes it in
            context.log.warning(f"the ledger was not brought up to date: {error}")


def _asset(workload: str, contract: str, stage: Stage) -> dg.AssetsDefinition:
    key, partitions = key_of(workload, contract, stage.name), candidates(workload) if stage.starred else None
    checks = [
        dg.AssetCheckSpec(name, asset=key, description=said, blocking=blocking, partitions_def=partitions)
        for name, said, blocking in stage.checks
    ]

    @dg.asset(
        key=key,
        deps=[key_of(workload, contract, name) for name in stage.after],
        group_name=workload,
        description=f"{contract}: {stage.description}",
        kinds={*stage.kinds, "duckdb"},
        owners=OWNERS,
        code_version=stage.code_version,
        partitions_def=partitions,
        check_specs=checks,
        automation_condition=None if stage.starred or stage.measures or not stage.after else when_inputs_change,
        pool=pool_of(workload, contract) if stage.measures else None,
        output_required=False,
    )
    def compute(context: dg.AssetExecutionContext, config: Anew):
        yield from _run(context, stage, f"{workload}/{contract}", config.again)

    return compute


def _run(
    context: dg.AssetExecutionContext, stage: Stage, name: str, again: bool
) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
    """One step: the stage, its evidence indexed, its result. What cannot be measured here is a skip that says so."""
    arguments = [context.partition_key] if stage.starred else []
    options = {"again": True} if again and stage.repeatable else {}
    if again and not options:
        context.log.warning(f"{stage.name} is not measured again: ask correctness, timings or ceilings")
    try:
        with tagged(context):
            loaded = load(name) if stage.name == "contract" else laboratory.approved(name)
            outcome = stage.call(Lab(loaded, through_pipes(context)), *arguments, **options)
    except Missing as missing:
        # no materialization, so that what rests on it is skipped; a declared check has to say something all the same
        context.log.warning(f"skipped: {missing}")
        yield from unmeasured(context.asset_key, [check for check, _, _ in stage.checks], str(missing))
        return
    except (GfastError, EvidenceError) as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    if stage.name == "catalogue":
        context.instance.add_dynamic_partitions(
            candidates(name.split("/")[0]).name or "", [row["candidate"] for row in outcome.rows]
        )
    context.log.info(f"{outcome.status}: {outcome.summary}")
    yield result(context.asset_key, outcome, [check for check, _, _ in stage.checks])
