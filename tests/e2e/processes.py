"""The processes that a command of ours started, found and killed as a person with `kill -9` would."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

ROOM = re.compile(r"/dev/shm/gfast-[^/\0:]+")


def ours(mark: str) -> set[tuple[int, str]]:
    """(number, start) of every process that has `mark` in its environment or command line, and all that they started.

    Runners have a cleared environment: they are found by who started them.
    """
    parents, marked = {}, set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent, *fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if state in "ZX" or folder.name == str(os.getpid()):
                continue
            one = int(folder.name), fields[17]
            parents[one] = int(parent)
            said = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
            if mark.encode() in said:
                marked.add(one)
    while more := {one for one, parent in parents.items() if parent in {pid for pid, _ in marked}} - marked:
        marked |= more
    return marked


def alive(processes: set[tuple[int, str]]) -> set[tuple[int, str]]:
    """Those of `processes` that still run."""
    found = set()
    for pid, start in processes:
        with contextlib.suppress(OSError):
            state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if state not in "ZX" and fields[18] == start:
                found.add((pid, start))
    return found


def kill(process: subprocess.Popen, mark: str, everybody: bool, patience_s: float = 60.0) -> float:
    """SIGKILL the command, and `everybody` it started or nobody else; seconds until all of them were gone.

    Raises AssertionError where some outlive it by `patience_s`.
    """
    seen, began = ours(mark), time.monotonic()
    rooms = {room for pid, _ in seen for room in _rooms(pid)}
    process.kill()
    process.wait()
    while left := alive(seen | ours(mark)):
        seen |= left
        rooms |= {room for pid, _ in left for room in _rooms(pid)}
        for pid, _ in left if everybody else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert time.monotonic() - began < patience_s, [(pid, words(pid)) for pid, _ in left]
        time.sleep(0.05)
    for room in rooms:  # a killed bench cannot tidy up after itself
        subprocess.run(["rm", "-rf", room], check=True)
    return time.monotonic() - began


def _rooms(pid: int) -> set[str]:
    """Folders in memory that a runner works in."""
    try:
        return set(ROOM.findall(Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")))
    except OSError:
        return set()


def words(pid: int) -> str:
    """The command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "gone"
