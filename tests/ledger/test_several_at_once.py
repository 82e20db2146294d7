from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gfast_pipeline.ledger import database, index
from gfast_pipeline.ledger.database import Held
from gfast_pipeline.ledger.sessions import append_session
from gfast_pipeline.ledger.verify import verify
from tests.ledger.conftest import rows
from tests.ledger.payloads import small

REPOSITORY = Path(__file__).parents[2]
SYNC = "from gfast_pipeline.ledger import index; print(index.sync(), flush=True)"
HOLD = """
import duckdb, sys, time
connection = duckdb.connect(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def test_a_ledger_that_another_process_holds_is_refused_with_its_number(house: Path, monkeypatch: pytest.MonkeyPatch):
    append_session(small(1))
    index.sync()
    late = append_session(small(2))
    monkeypatch.setattr(database, "WAIT_S", 0.5)
    holder = start(HOLD, str(database.path()))
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(
            Held, match=rf"gfast.duckdb: held by process {holder.pid} \(.*\) for more than 0.5 s; close it"
        ):
            index.sync()
        with pytest.raises(Held, match=str(holder.pid)):
            verify()
        with pytest.raises(Held, match=str(holder.pid)):
            index.rebuild()
    finally:
        holder.kill()
        holder.communicate()
    assert index.sync() == 1
    assert rows(f"SELECT count(*) FROM session WHERE entry = '{late.id}'") == [(1,)]


def test_whoever_waits_gets_in_when_the_other_is_done(house: Path):
    append_session(small(1))
    index.sync()
    append_session(small(2))
    holder = start(HOLD, str(database.path()))
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    threading.Timer(0.3, holder.kill).start()
    assert index.sync() == 1
    holder.communicate()
    assert verify() == []


def test_two_processes_and_several_threads_take_in_everything_once(house: Path):
    for seed in range(6):
        append_session(small(seed))
    others = [start(SYNC) for _ in range(2)]
    threads = [threading.Thread(target=index.sync) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = [other.communicate() for other in others]
    assert [other.returncode for other in others] == [0, 0], told
    assert rows("SELECT count(*), count(DISTINCT entry) FROM session") == [(6, 6)]
    assert verify() == []


def test_killed_at_random_moments_nothing_is_lost_and_nothing_is_there_twice(house: Path):
    rng, total = random.Random(3), 0
    begun = time.monotonic()
    start(SYNC).communicate()
    whole = time.monotonic() - begun
    for _ in range(5):
        for _ in range(2):
            append_session(small(total))
            total += 1
        victim = start(SYNC)
        time.sleep(whole * rng.uniform(0.3, 1.1))
        os.kill(victim.pid, signal.SIGKILL)
        victim.communicate()
    index.sync()
    assert verify() == []
    assert rows("SELECT count(*), count(DISTINCT entry) FROM session") == [(total, total)]
    assert not list(house.glob("*set-aside*"))


def test_a_rebuild_that_is_killed_leaves_the_old_ledger_and_the_next_one_cleans_up(house: Path):
    rng = random.Random(5)
    for seed in range(4):
        append_session(small(seed))
    index.sync()
    for _ in range(4):
        victim = start(SYNC.replace("sync", "rebuild"))
        time.sleep(rng.uniform(0.2, 1.0))
        os.kill(victim.pid, signal.SIGKILL)
        victim.communicate()
        assert verify() == []
    assert index.rebuild() == 4
    assert sorted(path.name for path in house.iterdir()) == ["evidence", "gfast.duckdb", "read.duckdb"]


def test_what_fails_inside_a_transaction_leaves_nothing_and_closes_the_file(house: Path):
    with pytest.raises(ZeroDivisionError), database.transaction() as (connection, _):
        connection.execute("INSERT INTO measured VALUES ('a', 'b', 1, NULL)")
        raise ZeroDivisionError
    with database.transaction() as (connection, _):
        assert connection.execute("FROM measured").fetchall() == []
    assert (
        subprocess.run(
            [sys.executable, "-c", "import duckdb, sys; duckdb.connect(sys.argv[1])", str(database.path())]
        ).returncode
        == 0
    )
