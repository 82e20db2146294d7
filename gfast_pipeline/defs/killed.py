"""Runs whose process was killed: Dagster would show them as running, and keep their place in a pool, for ever.

What ends in an orderly way says so itself. A process that was killed says nothing, so whoever comes next looks: is the
process that a run named still there? Knows processes of this machine and Dagster's storage, nothing of evidence.
"""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

PROCESS = "gfast/process"
"""Tag of a run: the number of its process, said before Dagster itself says it."""
UNENDED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_SLACK_S = 2.0
"""Boot time is known to the second."""


def bury(instance: dg.DagsterInstance) -> list[str]:
    """Report runs whose process is gone as failed, and free the places of all that ended: the ids of the former."""
    dead = []
    for record in instance.get_run_records(unended()):
        run = record.dagster_run
        found = _process(instance, run, record.create_timestamp.timestamp())
        if found is not None and not _alive(*found):
            instance.report_run_failed(
                run, f"Process {found[0]} of this run was killed. What it recorded is in the log."
            )
            dead.append(run.run_id)
    for pool in instance.event_log_storage.get_concurrency_keys():
        for run_id in _in_pool(instance, pool):
            run = instance.get_run_by_id(run_id)
            if run is None or run.is_finished:
                instance.event_log_storage.free_concurrency_slots_for_run(run_id)
    return dead


def unended() -> dg.RunsFilter:
    """Runs that Dagster shows as on their way."""
    return dg.RunsFilter(statuses=UNENDED)


def holder(instance: dg.DagsterInstance, pool: str) -> dg.DagsterRun | None:
    """The run that holds a place in a pool, None where all are free."""
    held = instance.event_log_storage.get_concurrency_info(pool).claimed_slots
    return instance.get_run_by_id(held[0].run_id) if held else None


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Runs whose process was killed are reported as failed: none of them keeps others waiting.",
)
def killed_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """What `bury` does, while the UI runs."""
    dead = bury(context.instance)
    return dg.SkipReason(f"{len(dead)} runs were killed: {', '.join(dead)}" if dead else "no run was killed")


def _in_pool(instance: dg.DagsterInstance, pool: str) -> set[str]:
    """Runs that hold a place in a pool or wait for one."""
    info = instance.event_log_storage.get_concurrency_info(pool)
    return {one.run_id for one in (*info.claimed_slots, *info.pending_steps)}


def _process(instance: dg.DagsterInstance, run: dg.DagsterRun, created: float) -> tuple[int, float] | None:
    """(number, when it was known to run, seconds since the epoch) of a run's process; None where it never began."""
    said = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    for entry in reversed(said):
        event = entry.dagster_event
        pid = event.engine_event_data.metadata.get("pid") if event is not None else None
        if pid is not None:
            return int(str(pid.value)), entry.timestamp
    return (int(run.tags[PROCESS]), created) if PROCESS in run.tags else None


def _alive(pid: int, when: float) -> bool:
    """Whether the process that had this number at a time still runs; a later one with its number is another."""
    if not os.path.isdir("/proc/self"):
        return True  # where nothing can be known, nobody is buried
    started = _started(pid)
    return started is not None and started <= when + _SLACK_S


def _started(pid: int) -> float | None:
    """When a process began, seconds since the epoch; None where none has this number, or it has ended."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    booted = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    return None if state in "ZX" else int(booted.split()[1]) + int(fields[18]) / os.sysconf("SC_CLK_TCK")
