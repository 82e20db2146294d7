"""Killed at thirty random moments of a CPU run: nothing recorded is lost or stands twice, and the next run goes on."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gfast_pipeline.cli import app
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.defs import home, killed
from gfast_pipeline.ledger import query
from tests.e2e import processes

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(2400)]
KILLS, SEED = int(os.environ.get("GFAST_KILLS", "10")), 6  # GFAST_KILLS=30 for the full thirty, a quarter of an hour
TWICE = {
    "entries": "SELECT id FROM entry GROUP BY ALL HAVING count(*) > 1",
    "sessions": "SELECT entry FROM session GROUP BY ALL HAVING count(*) > 1",
    "visits": 'SELECT entry, participant, "case", generation, block, turn, mode FROM visit '
    "GROUP BY ALL HAVING count(*) > 1",
    "decisions": "SELECT entry FROM decision GROUP BY ALL HAVING count(*) > 1",
    "measurements of one plan": "SELECT s.kind, p.plan_hash FROM session s LEFT JOIN participant p "
    "ON p.entry = s.entry AND p.role = 'challenger' WHERE s.status = 'complete' AND s.entry NOT IN "
    "(SELECT \"session\" FROM decision_session JOIN decision USING (entry) WHERE outcome = 'invalid') "  # raced anew
    "GROUP BY ALL HAVING count(*) > 1",
    "decisions on one race": 'SELECT list("session" ORDER BY n) AS rests_on FROM decision_session GROUP BY entry '
    "QUALIFY count(*) OVER (PARTITION BY rests_on) > 1",
    "candidates": "SELECT candidate_hash FROM candidate GROUP BY ALL HAVING count(*) > 1",
    "approvals": "SELECT contract_hash FROM approval GROUP BY ALL HAVING count(*) > 1",
}


class Warehouse:
    """One warehouse, the runs in it, and all evidence that was ever seen there."""

    def __init__(self, folder: Path, temporary: Path) -> None:
        self.folder, self.temporary = folder, temporary
        self.seen: dict[str, str] = {}
        self.kills = 0

    def start(self) -> subprocess.Popen:
        variables = {**os.environ, "GFAST_WAREHOUSE": str(self.folder), "TMPDIR": str(self.temporary)}
        command = [str(Path(sys.executable).parent / "gfast"), "run", "-c", "tiny"]
        with open(self.temporary / "said.txt", "wb") as said:
            return subprocess.Popen(command, env=variables, stdout=said, stderr=said, start_new_session=True)

    def finish(self, process: subprocess.Popen) -> None:
        said = (self.temporary / "said.txt").read_text()
        assert process.returncode == 0 and "failed" not in said, f"after {self.kills} kills:\n{said}"

    def remember(self) -> None:
        """All that was there is there, unchanged; what is new is remembered."""
        files = self.folder.glob("evidence/*/*.json.gz")
        there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
        assert self.seen.items() <= there.items(), "evidence was lost or changed"
        self.seen = there


@pytest.fixture
def place(loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The contract `tiny` with v000 and v001, and room for warehouses."""
    for name in ("v002", "v003"):
        next((loaded.workload.folder / "candidates").glob(f"{name}_*.py")).unlink()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))  # restored when the test is over
    return tmp_path


def verify(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setenv("GFAST_WAREHOUSE", str(warehouse.folder))
    done = CliRunner().invoke(app, ["ledger", "verify", *options])
    assert done.exit_code == 0, done.output
    warehouse.remember()


def complete(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds of a warehouse whose lineage a run went through to the end."""
    verify(warehouse, monkeypatch, "--recompute")
    for what, sql in TWICE.items():
        assert query.ask(sql).rows == [], f"{what} stand twice after {warehouse.kills} kills"
    kinds = {kind for (kind,) in query.ask("SELECT DISTINCT kind FROM entry").rows}
    assert kinds >= {"approval", "candidate", "session", "decision", "gap", "holders", "route", "submission"}
    with home.instance() as instance:
        assert not instance.get_runs(killed.unended()), "a killed run still looks like a running one"
    assert (warehouse.folder / "submissions" / "tiny.py").is_file()


def test_a_run_killed_at_any_moment_loses_nothing_and_the_next_one_goes_on(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    began, chance = time.monotonic(), random.Random(SEED)
    whole = Warehouse(place / "undisturbed", place / "tmp")
    process = whole.start()
    process.wait()
    whole.finish(process)
    length = time.monotonic() - began
    # one moment in each thirtieth of the run, early ones closer together: what follows a kill must start, too
    moments = [length * ((k + chance.random()) / KILLS) ** 2 for k in range(KILLS)]
    chance.shuffle(moments)
    print(f"\nundisturbed: {length:.1f} s")

    number, warehouse = 0, Warehouse(place / "0", place / "tmp")
    for count, moment in enumerate(moments):
        everybody = chance.random() < 0.5
        while True:
            process = warehouse.start()
            try:
                process.wait(timeout=moment)
            except subprocess.TimeoutExpired:
                break
            warehouse.finish(process)
            complete(warehouse, monkeypatch)
            print(f"  the run after {warehouse.kills} kills completed")
            moment = moment if warehouse.kills else moment * 0.8  # a fresh run is faster than the first one was
            number, warehouse = number + 1, Warehouse(place / str(number + 1), place / "tmp")
        warehouse.remember()
        gone = processes.kill(process, str(place), everybody)
        warehouse.kills += 1
        verify(warehouse, monkeypatch)
        said = (place / "tmp" / "said.txt").read_text().strip().splitlines() or ["(nothing yet)"]
        who = "everybody" if everybody else "gfast alone"
        print(f"  {count}: {who} at {moment:.1f} s, gone after {gone:.1f} s: {' '.join(said[-1].split())[:70]}")
    process = warehouse.start()
    process.wait()
    warehouse.finish(process)
    complete(warehouse, monkeypatch)
    print(f"{KILLS} kills in {number + 1} warehouses: {time.monotonic() - began:.0f} s")


def test_ctrl_c_ends_the_run_and_its_bench_and_leaves_the_rest_to_the_next_one(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    warehouse = Warehouse(place / "interrupted", place / "tmp")
    process = warehouse.start()
    while not any("gfast_pipeline.bench " in processes.words(pid) for pid, _ in processes.ours(str(place))):
        assert process.poll() is None, "it ended before it measured"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    said = (place / "tmp" / "said.txt").read_text()
    assert "interrupted; what was recorded is reused by the next run" in said and "Champions" not in said
    processes.kill(process, str(place), everybody=False)
    verify(warehouse, monkeypatch)
    process = warehouse.start()
    process.wait()
    warehouse.finish(process)
    complete(warehouse, monkeypatch)
