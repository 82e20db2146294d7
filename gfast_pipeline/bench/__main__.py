"""`python -m gfast_pipeline.bench JOB.json OUT [--minutes M] [--events]`: run one job, write one session file.

OUT is a file (gzip when it ends in .gz) or an existing folder. Progress goes to standard output, one line a step; with
--events each is a JSON object. Exit code: 0 the session is whole, 3 it is partial, 4 void, 2 it could not start.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import sys
import time
from typing import Any

from gfast_pipeline.bench.messages import PROTOCOL, Job, Session, from_plain, seal

CODES = {"complete": 0, "partial": 3, "void": 4, "failed": 4}


def main(arguments: list[str] | None = None) -> int:
    """Entry; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gfast_pipeline.bench", description=__doc__)
    parser.add_argument("job", help="a job as JSON, as gfast writes it")
    parser.add_argument("out", help="where the session goes: a file, or an existing folder")
    parser.add_argument(
        "--minutes", type=float, help="stop cleanly at a case boundary before this many minutes are over"
    )
    parser.add_argument("--events", action="store_true", help="progress as JSON lines")
    options = parser.parse_args(arguments)
    try:
        with open(options.job, encoding="utf-8") as file:
            job = read_job(json.load(file))
    except (OSError, ValueError) as error:
        print(f"{options.job}: {error}; write the job anew with this version of gfast", file=sys.stderr)
        return 2
    return run_job(job, options.out, options.minutes, options.events)


def read_job(values: dict[str, Any]) -> Job:
    """A job from plain values. Raises ValueError for another protocol or unknown fields."""
    protocol = values.get("protocol") if isinstance(values, dict) else None
    if protocol != PROTOCOL:
        raise ValueError(f"protocol {protocol} where this bench speaks {PROTOCOL}")
    return from_plain(Job, values)


def run_job(job: Job, out: str, minutes: float | None = None, events: bool = False) -> int:
    """Run `job`, write the session to `out`, say what happens; returns the exit code."""
    began = time.monotonic()

    def say(line: str) -> None:
        seconds = time.monotonic() - began
        print(
            json.dumps({"seconds": round(seconds, 1), "text": line}) if events else f"[{seconds:6.1f} s] {line}",
            flush=True,
        )

    from gfast_pipeline.bench import ceilings, environment, isolation, judge, parity, probe

    kinds = {"ceilings": ceilings.Ceilings, "probe": probe.Probe, "parity": parity.Parity}
    work = kinds.get(job.kind, judge.Judge)(job, say, minutes)

    def stop(_signal: int, _frame: Any) -> None:
        work.stop = True  # and nothing else: the signal may come in the middle of a print

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        session = work.run()
    except (environment.Busy, isolation.IsolationError) as error:
        print(f"not started: {error}", file=sys.stderr)
        return 2
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    path = write_session(session, out)
    say(f"session {session.status}{': ' + session.reason if session.reason else ''} → {path}")
    return CODES[session.status]


def write_session(session: Session, out: str) -> str:
    """Write a sealed session, whole or not at all; returns the path."""
    path = os.path.join(out, f"{session.kind}-{session.job_hash[:12]}.json.gz") if os.path.isdir(out) else out
    content = seal(session)
    with open(path + ".part", "wb") as file:
        file.write(gzip.compress(content, mtime=0) if path.endswith(".gz") else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)
    return path


if __name__ == "__main__":
    raise SystemExit(main())
