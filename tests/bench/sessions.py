"""Real bench sessions for tests: a tiny CPU contract, jobs, candidates as text, and the bench as a process of its own.

Every session gets its own temporary folder, so its own lease: sessions of two test workers run side by side.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
import tomllib
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gfast_pipeline.bench.messages import Job, Plan, Session, canonical, digest, to_plain, unseal

ROOT = Path(__file__).parents[2]
KERNEL = ROOT / "kernels" / "transformer_layer"
TINY = {"batch": 2, "length": 16, "d_model": 32, "heads": 4, "layers": 1}
SMALL = {"batch": 4, "length": 64, "d_model": 64, "heads": 4, "layers": 2}  # a visit of several ms
HONEST = (KERNEL / "candidates" / "v001_fused_qkv_sdpa.py").read_text()
IDENTITY = (KERNEL / "candidates" / "v000_identity.py").read_text()


def contract(*shapes: dict[str, int], **changed: Any) -> dict[str, Any]:
    """The CPU contract with cases 1, 2, … of `shapes` (the tiny one where none is given)."""
    plain = tomllib.loads((KERNEL / "contracts" / "cpu_fp32.toml").read_text())
    plain["cases"] = [
        {"id": number, "status": "scored", "regime": "test", "weight": 1.0, "shape": dict(shape)}
        for number, shape in enumerate(shapes or (TINY,), 1)
    ]
    plain |= {"generations": 2, "blocks": 2, "visit_ms": 2.0, "call_limit_s": 5, "build_limit_s": 30}
    return {**plain, **changed}


def plan(name: str, source: str | None, role: str = "challenger", prove: bool = True, **more: Any) -> Plan:
    """A participant; its hash follows its source."""
    return Plan(name, role, source, digest(source), prove=prove, **more)


REFERENCE = plan("reference", None, "reference", prove=False)


def job(kind: str, plans: Iterable[Plan], rules: dict[str, Any] | None = None, **changed: Any) -> Job:
    """A job over all cases of `rules`."""
    rules = rules or contract()
    values: dict[str, Any] = {
        "cases": [case["id"] for case in rules["cases"]],
        "generations": rules["generations"],
        "blocks": rules["blocks"],
        "modes": ["official"],
    }
    reference = (KERNEL / "reference.py").read_text()
    return Job(kind, "transformer_layer", rules["name"], "hash", rules, reference, list(plans), **{**values, **changed})


@dataclass
class Outcome:
    """What a bench process left: exit code, both streams, its session if any, and processes it did not end."""

    code: int
    out: str
    err: str
    seconds: float
    session: Session
    left: list[str]


FIELDS = ("code", "out", "err", "seconds", "left")  # those that JSON holds


class Bench:
    """One `python -m gfast_pipeline.bench` process on `job`, in `folder`."""

    def __init__(self, work: Job, folder: Path, *arguments: str, lease_of: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.out = folder / "session.json"
        (folder / "job.json").write_bytes(canonical(to_plain(work)))
        self.mark = f"/nowhere/{uuid.uuid4().hex}"  # on PATH, which every runner inherits
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gfast_pipeline.bench", str(folder / "job.json"), str(self.out), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={
                **os.environ,
                "TMPDIR": str(lease_of or folder),
                "PYTHONPATH": str(ROOT),
                "PATH": os.environ["PATH"] + os.pathsep + self.mark,
            },
        )

    def until(self, words: str) -> list[str]:
        """Lines of progress up to the one that holds `words`."""
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if words in line:
                return lines
        raise AssertionError(f"never said {words!r}: {''.join(lines)}{self.process.communicate()[1]}")

    def end(self, timeout: float = 120) -> Outcome:
        """Wait for it. Fails the test when it hangs or leaves no session."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            pytest.fail(f"the bench hangs; it said\n{out}{err}")
        seconds = time.monotonic() - self.began
        assert self.out.exists(), f"no session; exit code {self.process.returncode}:\n{out}{err}"
        session = unseal(self.out.read_bytes())
        return Outcome(self.process.returncode, out, err, seconds, session, living(self.mark))


def run(work: Job, folder: Path, *arguments: str) -> Outcome:
    """The whole life of a bench process."""
    return Bench(work, folder, *arguments).end()


def living(mark: str) -> list[str]:
    """Command lines of the processes that inherited `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue  # it has just gone, or is not ours
    return found


def once(factory: pytest.TempPathFactory, sessions: dict[str, Callable[[Path], Outcome]], name: str) -> Outcome:
    """The outcome of `sessions[name]`, made by whichever test worker comes first and read by the others.

    A worker that would have to wait for another makes one of the other sessions meanwhile.
    """
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    for other in (name, *sessions):
        _make(shared / other, sessions[other], wait=False)
        if (shared / name / "outcome.json").exists():
            break
    _make(shared / name, sessions[name], wait=True)
    values = json.loads((shared / name / "outcome.json").read_text())
    return Outcome(session=unseal((shared / name / "session.json").read_bytes()), **values)


def _make(folder: Path, make: Callable[[Path], Outcome], wait: bool) -> None:
    folder.mkdir(exist_ok=True)
    kept = folder / "outcome.json"
    with open(folder / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return
        if not kept.exists():
            made = make(folder)
            kept.write_text(json.dumps({field: getattr(made, field) for field in FIELDS}))
