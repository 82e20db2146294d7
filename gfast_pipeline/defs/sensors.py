"""What sets stages going: a candidate file that landed, a contract that changed, inputs that changed.

A tick lists directories and opens no database: a handle held here would keep every step from writing.
"""

import functools
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import dagster as dg

from gfast_pipeline.contract.workload import CANDIDATE, Workload, workloads
from gfast_pipeline.defs import lineage
from gfast_pipeline.defs.partitions import candidates

SETTLED_S = 2.0
"""A file younger than this may still be being written."""


@functools.cache
def race_job(workload: str, contract: str):
    """All starred stages of one candidate."""
    return dg.define_asset_job(
        f"race_{workload}_{contract}",
        selection=lineage.starred(workload, contract),
        partitions_def=candidates(workload),
        description=f"Judge, race and confirm one candidate under {contract}.",
    )


def all_sensors() -> list[dg.SensorDefinition]:
    """Landing and contract sensors of every workload, and the one that follows changed inputs; all running."""
    found: list[dg.SensorDefinition] = [
        dg.AutomationConditionSensorDefinition(
            "inputs_changed",
            target=dg.AssetSelection.all(),
            default_status=dg.DefaultSensorStatus.RUNNING,
            minimum_interval_seconds=10,
        )
    ]
    for workload in workloads():
        found += [_landing(workload), _contracts(workload)]
    return found


def _landing(workload: Workload) -> dg.SensorDefinition:
    jobs = {path.stem: race_job(workload.name, path.stem) for path in workload.contracts()}

    @dg.sensor(
        name=f"{workload.name}_candidate_landed",
        jobs=list(jobs.values()),
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="A candidate file that has lain still for two seconds is judged and raced, where this machine can.",
    )
    def landed(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        files = [path for path in settled(workload.folder / "candidates") if CANDIDATE.fullmatch(path.stem)]
        files.sort(key=lambda path: path.stem.startswith("v000_"))  # last: it shows its times of the others' races
        memory = Memory(context.cursor)
        requests = []
        for contract, job in jobs.items():
            stem = workload.contracts_folder / contract
            for path in files if measurable(stem.with_suffix(".toml")) else []:
                key = f"{contract}-{path.stem}"
                run_key = memory.key(key, f"{_sha12(path)}-{_constitution(stem)}")
                tags = {"gfast/candidate": path.stem, "gfast/contract": contract}
                requests.append(dg.RunRequest(run_key=run_key, job_name=job.name, partition_key=path.stem, tags=tags))
        added = candidates(workload.name).build_add_request([path.stem for path in files])
        return dg.SensorResult(requests, cursor=memory.cursor(), dynamic_partitions_requests=[added])

    return landed


def _contracts(workload: Workload) -> dg.SensorDefinition:
    selection = dg.AssetSelection.assets(
        *(
            lineage.key_of(workload.name, path.stem, stage)
            for path in workload.contracts()
            for stage in ("contract", "catalogue", "ceilings")
        )
    )

    @dg.sensor(
        name=f"{workload.name}_contract_edited",
        target=selection,
        minimum_interval_seconds=10,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="A contract, its approval or a candidate's name changed: contract and catalogue are read again.",
    )
    def edited(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        memory, requests = Memory(context.cursor), []
        names = sorted(file.stem for file in settled(workload.folder / "candidates"))
        for path in workload.contracts():
            first = ["contract", "catalogue", *(["ceilings"] if measurable(path) else [])]
            state = hashlib.sha256(repr((_constitution(path.with_suffix("")), names)).encode()).hexdigest()[:12]
            keys = [lineage.key_of(workload.name, path.stem, stage) for stage in first]
            requests.append(dg.RunRequest(run_key=memory.key(path.stem, state), asset_selection=keys))
        return dg.SensorResult(requests, cursor=memory.cursor())

    return edited


class Memory:
    """What a sensor saw last of each thing, and how often that changed: a state that returns is asked for again,
    although Dagster never forgets a run key."""

    def __init__(self, cursor: str | None) -> None:
        self._seen: dict[str, list[Any]] = json.loads(cursor) if cursor else {}

    def key(self, thing: str, state: str) -> str:
        """The run key of a thing in this state."""
        last, changes = self._seen.get(thing, [state, 0])
        self._seen[thing] = [state, changes + (last != state)]
        return f"{thing}-{state}-{self._seen[thing][1]}"

    def cursor(self) -> str:
        """To be handed to the next tick."""
        return json.dumps(self._seen)


def settled(folder: Path) -> list[Path]:
    """Python files that nobody is writing any more, by name."""
    now = time.time()
    return [path for path in sorted(folder.glob("*.py")) if now - path.stat().st_mtime >= SETTLED_S]


def measurable(contract: Path) -> bool:
    """Whether this machine may have the contract's device: any CPU, and a card where its device file is. Nothing is
    imported to find out: a tick has seconds."""
    return 'device = "cpu"' in contract.read_text(encoding="utf-8") or os.path.exists("/dev/nvidia0")


def _constitution(stem: Path) -> str:
    """A contract and its approval as they lie there: approving again is a change, too."""
    approval = stem.with_suffix(".approved.toml")
    return _sha12(stem.with_suffix(".toml"), *([approval] if approval.is_file() else []))


def _sha12(*paths: Path) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:12]
