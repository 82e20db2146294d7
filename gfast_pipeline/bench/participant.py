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
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CC", "LANG", "NVIDIA_VISIBLE_DEVICES")


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
        home = places.folder(f"g{generation}-{plan.name}", uid=self.uid)
        cache = places.folder(f"cache-{plan.candidate_hash[:16]}", uid=self.uid)
        ours, theirs = socket.socketpair()
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= {
            "HOME": home,
            "TMPDIR": home,
            "TRITON_CACHE_DIR": os.path.join(cache, "triton"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "inductor"),
            "TORCH_EXTENSIONS_DIR": os.path.join(cache, "extensions"),
            "PYTHONPATH": places.python_path,
            "PYTHONSAFEPATH": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": str(threads),
            # on a CPU: glibc gives large blocks back at every free, and the page faults of the next call are noise
            "MALLOC_MMAP_THRESHOLD_": "4000000000",
            "MALLOC_TRIM_THRESHOLD_": "8000000000",
            "USER": "gfast",  # torch asks for a user name, and an unnamed uid has none
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gfast_pipeline.bench.runner", str(theirs.fileno()), places.rung, str(self.uid)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
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

    def ask(self, gate: str, timeout_s: float, **message: Any) -> dict[str, Any]:
        """One question, one answer. Raises Lost with `gate` when there is none, or when the answer is a refusal."""
        self.say(gate, **message)
        return self.listen(gate, timeout_s)

    def say(self, gate: str, **message: Any) -> None:
        """Ask without waiting."""
        try:
            self._channel.send(message)
        except ChannelError as error:
            raise self._lost(gate, str(error)) from None

    def listen(self, gate: str, timeout_s: float) -> dict[str, Any]:
        """Wait for an answer that `say` asked for."""
        try:
            answer = self._channel.receive(timeout_s)
        except Deadline:
            raise self._lost(
                gate, f"no answer within {timeout_s:g} s: it hangs, or is slower than the contract allows"
            ) from None
        except ChannelError as error:
            raise self._lost(gate, f"{error}{self._ending()}") from None
        if not answer.get("ok"):
            raise Lost(
                answer.get("gate", gate), answer.get("error", "refused without a word"), bool(answer.get("skip"))
            )
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
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
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
        """End the runner and everything it started."""
        self.alive = False
        for end in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        self._channel.close()
