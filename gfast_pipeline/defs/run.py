"""All stages of one contract in one process, in the order of the lineage, in the warehouse's own Dagster instance."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.events import RunFailureReason

from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.defs import home, killed, lineage
from gfast_pipeline.defs.stage import STAGES
from gfast_pipeline.stages.racing import CONTROL

Say = Callable[[str], None]
PAUSE_S = 1.0


@dataclass(frozen=True)
class Step:
    """What one stage came to: reused, done, not_needed, skipped (nothing to measure with here), or failed."""

    stage: str
    candidate: str | None
    status: str
    summary: str


def run(loaded: Loaded, say: Say, names: Sequence[str] | None = None) -> list[Step]:
    """Materialize the whole lineage: landing, ceilings, every candidate (or `names`), then what rests on all of them.

    `say` hears a line a stage. A candidate that fails a check ends its own branch and nothing else. Runs that were
    killed are ended first, and a measurement waits for whoever measures. Ctrl-C raises KeyboardInterrupt.
    """
    workload, contract = loaded.workload.name, loaded.path.stem
    assets = lineage.assets(workload, contract)
    instance = home.instance()
    for run_id in killed.bury(instance):
        say(f"{contract}  run {run_id[:8]} was killed; what it recorded is reused")
    first = ("contract", "catalogue", "ceilings")
    chosen = list(names or [source.name for source in loaded.workload.candidates()])
    chosen.sort(key=lambda name: name.startswith(f"{CONTROL}_"))  # last: its times are those of the others' races
    steps = _materialize(assets, instance, workload, contract, first, None, say)
    if any(step.status == "failed" for step in steps if step.stage != "ceilings"):
        return steps
    for name in chosen:
        starred = tuple(stage.name for stage in STAGES if stage.starred)
        steps += _materialize(assets, instance, workload, contract, starred, name, say)
    last = tuple(stage.name for stage in STAGES if not stage.starred and stage.name not in first)
    return steps + _materialize(assets, instance, workload, contract, last, None, say)


def _materialize(
    assets: list[dg.AssetsDefinition],
    instance: dg.DagsterInstance,
    workload: str,
    contract: str,
    stages: Sequence[str],
    name: str | None,
    say: Say,
) -> list[Step]:
    keys = [lineage.key_of(workload, contract, stage) for stage in stages]
    for pool in sorted({str(asset.op.pool) for asset in assets if asset.key in keys and asset.op.pool}):
        _wait(instance, pool, say)
    tags = {"gfast/contract": contract, killed.PROCESS: str(os.getpid())} | ({"gfast/candidate": name} if name else {})
    done = dg.materialize(
        assets,
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},  # `say` tells what a person wants
        selection=keys,
        partition_key=name,
        instance=instance,
        raise_on_error=False,
        tags=tags,
    )
    if any(_was_interrupted(event) for event in done.all_events):  # Dagster takes it for a failure of this run alone
        say("interrupted; what was recorded is reused by the next run")
        raise KeyboardInterrupt
    found = {}
    for event in done.get_asset_materialization_events():
        materialization = event.materialization
        said = materialization.metadata
        found[materialization.asset_key] = (str(said["how"].value), str(said["summary"].value))
    unmeasured = {check.asset_key: check.description for check in done.get_asset_check_evaluations()}
    failures = {event.step_key: event for event in done.all_events if event.is_step_failure}
    steps = []
    for stage, key in zip(stages, keys, strict=True):
        failure = failures.get(key.to_python_identifier())
        if failure is not None:
            error = failure.step_failure_data.error
            words = (error.message.splitlines() or ["?"])[0] if error else "?"
            status, summary = "failed", words.removeprefix("dagster._core.definitions.events.Failure: ")
        elif key in found:
            status, summary = found[key]
        else:
            status, summary = "skipped", unmeasured.get(key) or "an earlier stage ended this branch"
        steps.append(Step(stage, name, status, summary))
        say(f"{name or contract}  {stage}: {status}  {summary}")
    return steps


def _was_interrupted(event: dg.DagsterEvent) -> bool:
    ended = event.event_type is dg.DagsterEventType.RUN_FAILURE
    return ended and event.job_failure_data.failure_reason is RunFailureReason.UNEXPECTED_TERMINATION


def _wait(instance: dg.DagsterInstance, pool: str, say: Say) -> None:
    """Until nobody measures: Dagster would wait, too, but without a word, a pause, or an ear for Ctrl-C."""
    told = None
    while (run := killed.holder(instance, pool)) is not None:
        if run.run_id != told:
            say(f"run {run.run_id[:8]} measures; waiting for it to end")
            told = run.run_id
        time.sleep(PAUSE_S)
        killed.bury(instance)
