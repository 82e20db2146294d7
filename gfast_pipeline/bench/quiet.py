"""A quiet core for a visit. On a shared host a core runs at half speed whenever a neighbour uses its other thread.

Measured on a virtual machine with 16 cores: the same Python loop takes 0.88 ms or 1.75 ms, by core and by moment, and
a visit stays in one state from end to end. So before each visit the runner tries cores until one runs at the best
speed seen. Untimed, and the same for every participant.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterator

TRIES = 12
NEAR = 1.15  # of the best seen counts as quiet
_STEPS = 1500  # about 0.15 ms


class QuietCore:
    """Remembers the best speed of this machine's cores; `hold` finds a core near it and stays there."""

    def __init__(self) -> None:
        self.best_us = float("inf")
        self._next = 0

    @contextlib.contextmanager
    def hold(self) -> Iterator[float]:
        """Run the body on one quiet core, without garbage collection; yields what the fixed loop took there, µs.

        Only this thread is pinned: compilers and driver threads keep all cores.
        """
        allowed = sorted(os.sched_getaffinity(0))
        gc.disable()
        try:
            yield self._settle(allowed)
        finally:
            os.sched_setaffinity(0, allowed)
            gc.enable()

    def _settle(self, allowed: list[int]) -> float:
        found: list[tuple[float, int]] = []
        for _ in range(min(TRIES, 2 * len(allowed))):
            core = allowed[self._next % len(allowed)]
            os.sched_setaffinity(0, {core})
            took = min(_loop(), _loop())
            self.best_us = min(self.best_us, took)
            if took <= NEAR * self.best_us:
                return took
            found.append((took, core))
            self._next += 1
        took, core = min(found)
        os.sched_setaffinity(0, {core})
        return took


def _loop() -> float:
    began = time.perf_counter()
    total, seen = 0, {}
    for step in range(_STEPS):
        total += step * step % 7
        seen[step % 97] = total
    return (time.perf_counter() - began) * 1e6
