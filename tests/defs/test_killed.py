"""A run whose process was killed neither looks like a running one nor keeps its place in a pool."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from gfast_pipeline.defs import home, killed

MEASURING = """
import sys, time
import dagster as dg

@dg.asset(pool="device")
def measured():
    print("measuring", flush=True)
    sys.stdin.read()

dg.materialize([measured], instance=dg.DagsterInstance.get())
"""


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dg.DagsterInstance:
    monkeypatch.setenv("GFAST_WAREHOUSE", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    return home.instance()


def measuring() -> subprocess.Popen:
    process = subprocess.Popen([sys.executable, "-c", MEASURING], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"measuring\n"
    return process


def test_a_killed_run_is_reported_as_failed_and_its_place_is_free_again(instance: dg.DagsterInstance):
    process = measuring()
    held = killed.holder(instance, "device")
    assert held is not None and killed.bury(instance) == [], "its process is alive"
    process.kill()
    process.wait()
    assert killed.bury(instance) == [held.run_id]
    run = instance.get_run_by_id(held.run_id)
    assert run is not None and run.status is dg.DagsterRunStatus.FAILURE
    assert killed.holder(instance, "device") is None and killed.bury(instance) == []
    after = measuring()  # begins at once
    after.communicate()
    assert after.returncode == 0
    assert not instance.get_runs(killed.unended())


def test_a_place_that_an_ended_run_left_taken_is_freed(instance: dg.DagsterInstance):
    process = measuring()
    held = killed.holder(instance, "device")
    assert held is not None
    process.kill()
    process.wait()
    instance.report_run_canceled(held)
    assert killed.bury(instance) == [] and killed.holder(instance, "device") is None


def test_a_later_process_with_the_same_number_is_another(instance: dg.DagsterInstance):
    del instance
    assert killed._alive(os.getpid(), killed._started(os.getpid()) or 0.0)
    assert not killed._alive(os.getpid(), (killed._started(os.getpid()) or 0.0) - 60)
