"""Run a bench job here: one subprocess, its progress line by line, its sealed session. A silent worker is a failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gfast_pipeline.bench.messages import Job, Session, canonical, to_plain, unseal
from gfast_pipeline.contract.errors import GfastError


class RunError(GfastError):
    """The bench did not start, or ended without a session."""


def run(job: Job, say: Callable[[float, str], None], minutes: float | None = None) -> Session:
    """Run `job` in a bench process of its own; `say(seconds, line)` hears its progress.

    Ctrl-C is passed on once and ends the session at the next case boundary. Raises RunError with the bench's own words.
    """
    with tempfile.TemporaryDirectory(prefix="gfast-job-") as folder:
        path, out, spoken = (Path(folder, name) for name in ("job.json", "session.json", "stderr"))
        path.write_bytes(canonical(to_plain(job)))
        command = [sys.executable, "-m", "gfast_pipeline.bench", str(path), str(out), "--events"]
        if minutes is not None:
            command += ["--minutes", str(minutes)]
        environment = with_package()
        with open(spoken, "wb") as errors:  # a pipe that nobody reads until the end would stop a talkative bench
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, start_new_session=True
            )
        assert process.stdout is not None
        interrupted = False
        while True:
            try:
                for line in process.stdout:
                    _pass_on(line, say)
                break
            except KeyboardInterrupt:
                if interrupted:
                    os.killpg(process.pid, signal.SIGKILL)
                    raise
                interrupted = True
                process.send_signal(signal.SIGINT)
            except BaseException:  # whoever listens gave up, or was interrupted in its own way: no bench is left behind
                os.killpg(process.pid, signal.SIGKILL)
                raise
        code = process.wait()
        words = spoken.read_text(encoding="utf-8", errors="replace").strip()
        if not out.is_file():
            told = words.splitlines()[-1] if words else f"exit code {code} and not a word"
            raise RunError(f"the bench ended without a session: {told}")
        return unseal(out.read_bytes())


def examine(device: str) -> dict[str, Any]:
    """What the bench says of this machine's `device` (cpu or cuda). Raises RunError when it says nothing."""
    command = [sys.executable, "-m", "gfast_pipeline.bench.doctor", device]
    done = subprocess.run(command, capture_output=True, text=True, env=with_package(), timeout=300)
    if done.returncode:
        told = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RunError(
            f"this machine cannot be examined: {told}; install the extra: pip install 'gfast-pipeline[bench]'"
        )
    return json.loads(done.stdout)


def with_package() -> dict[str, str]:
    """This process's variables for a bench process: this very package first on its path, and a heap that keeps what it
    has (float64 oracles on a CPU spend half their time on page faults otherwise)."""
    root = str(Path(__file__).resolve().parents[2])
    heap = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000"}
    return {**os.environ, **heap, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}


def _pass_on(line: str, say: Callable[[float, str], None]) -> None:
    try:
        event = json.loads(line)
        say(float(event["seconds"]), str(event["text"]))
    except (ValueError, KeyError, TypeError):
        say(0.0, line.rstrip())
