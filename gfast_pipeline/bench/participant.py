"""The judge's hold on one runner: start it, talk to it with deadlines, know when it is lost, end it for good.

A runner that hangs, dies or answers nonsense becomes a Lost with a reason in words: a verdict for the caller, never an
exception that ends the session. Knows nothing of gates or statistics.
"""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from gfast_pipeline.bench.channel import Channel, ChannelError, Deadline
from gfast_pipeline.bench.messages import Plan
from gfast_pipeline.bench.places import Places

START_LIMIT_S = 180.0
_KEEP_LINES = 12
# what the fields of an answer must be: a candidate shares the runner's process and might speak in its place
_FIELDS = {
    "events": "figures",
    "wall_us": "figure",
    "enqueue_us": "figure",
    "host_us": "figure",
    "event_us": "figure",
    "peak_bytes": "figure",
    "pending": "flag",
    "weights": "words",
    "flags": "words",
}


class Lost(RuntimeError):
    """The participant cannot go on. `gate` names the verdict, `skip` that it declined rather than failed."""

    def __init__(self, gate: str, reason: str, skip: bool = False) -> None:
        super().__init__(reason)
        self.gate, self.reason, self.skip = gate, reason, skip


class Participant:
    """One runner process serving `plan` in one generation."""

    def __init__(self, plan: Plan, places: Places, generation: int, threads: int) -> None:
        self.plan, self.name, self.role = plan, plan.name, plan.role
        self.uid = places.uid(plan.candidate_hash)
        self.alive = True
        self.output: collections.deque[str] = collections.deque(maxlen=_KEEP_LINES)
        self.handshake_us = 0.0
        self._ended = False
        home = places.folder(f"g{generation}-{plan.name}", uid=self.uid)
        self.home = home
        cache = places.folder(f"cache-{plan.candidate_hash[:16]}", uid=self.uid)
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gfast_pipeline.bench.runner", str(theirs.fileno()), places.rung, str(self.uid)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=places.variables(home, cache, threads),
            cwd=home,
        )
        theirs.close()
        self._channel = Channel(ours)
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        """Read what the process prints, keep the last lines, throw the rest away: megabytes must not block or fill."""
        stream = self._process.stdout
        assert stream is not None
        while True:
            chunk = os.read(stream.fileno(), 1 << 16)
            if not chunk:
                return
            self.output.extend(
                line[:200] for line in chunk[-4000:].decode(errors="replace").splitlines() if line.strip()
            )

    def ready(self) -> None:
        """Wait for the runner's first word. Raises Lost."""
        self.listen("build", START_LIMIT_S)

    def ask(self, gate: str, timeout_s: float, needs: str = "", **message: Any) -> dict[str, Any]:
        """One question, one answer. Raises Lost with `gate` when there is none, or when the answer is a refusal."""
        self.say(gate, **message)
        return self.listen(gate, timeout_s, needs)

    def say(self, gate: str, **message: Any) -> None:
        """Ask without waiting."""
        try:
            self._channel.send(message)
        except ChannelError as error:
            raise self._lost(gate, str(error)) from None

    def listen(self, gate: str, timeout_s: float, needs: str = "") -> dict[str, Any]:
        """Wait for an answer that `say` asked for; it must hold the fields that `needs` names, each of its own type."""
        try:
            answer = self._channel.receive(timeout_s)
        except Deadline:
            raise self._lost(
                gate, f"no answer within {timeout_s:g} s: it hangs, or is slower than the contract allows"
            ) from None
        except ChannelError as error:
            raise self._lost(gate, f"{error}{self._ending()}") from None
        if not answer.get("ok"):
            where = "output" if answer.get("gate") == "output" else gate
            raise Lost(where, _words(answer.get("error", "refused without a word")), answer.get("skip") is True)
        for name in needs.split():
            if not _sound(answer.get(name), _FIELDS[name]):
                raise self._lost(gate, f"the answer holds no sound {name!r}: something speaks in the runner's place")
        return answer

    def measure_handshake(self) -> float:
        """Median µs of five pings, kept in `handshake_us`."""
        times = []
        for _ in range(5):
            began = time.perf_counter()
            self.ask("call", 60, do="ping")
            times.append((time.perf_counter() - began) * 1e6)
        self.handshake_us = sorted(times)[2]
        return self.handshake_us

    def _lost(self, gate: str, reason: str) -> Lost:
        self.kill()
        return Lost(gate, reason)

    def _ending(self) -> str:
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return ""
        how = f"signal {_signal(-code)}" if code < 0 else f"exit code {code}"
        last = f"; last words: {self.output[-1]}" if self.output else ""
        return f" ({how}{last})"

    def end(self) -> None:
        """Let the runner go, and make sure that it is gone."""
        if self.alive:
            try:
                self._channel.send({"do": "exit"})
                self._process.wait(10)
            except (ChannelError, subprocess.TimeoutExpired):
                pass
        self.kill()

    def kill(self) -> None:
        """End the runner and everything it started, also what left its process group."""
        self.alive = False
        if self._ended:
            return
        self._ended = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait(30)
        for pid in _inheritors(f"HOME={self.home}"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._channel.close()


def _inheritors(entry: str) -> list[int]:
    """Processes with this entry in their environment. Empty where there is no /proc."""
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        try:
            if name.isdigit():
                with open(f"/proc/{name}/environ", "rb") as file:
                    if os.fsencode(entry) in file.read().split(b"\0"):
                        found.append(int(name))
        except OSError:
            continue  # gone, or not ours
    return found


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return str(number)


def _words(said: object) -> str:
    """What a runner says, fit to be printed and sealed whatever it is."""
    return str(said)[:600].encode("utf-8", "replace").decode()


def _sound(value: object, kind: str) -> bool:
    if kind == "figure":
        return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15
    if kind == "figures":
        return isinstance(value, list) and bool(value) and all(_sound(item, "figure") for item in value)
    if kind == "words":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, bool)
