"""A quiet core for a visit. On a shared host a core runs at half speed whenever a neighbour uses its other thread.

Measured on a virtual machine with 16 cores: the same Python loop takes 0.88 ms or 1.75 ms, by core and by moment, and
mostly stays so for longer than a visit. So before each visit the runner tries cores until one runs near the best speed
seen, and looks again afterwards. Untimed, and the same for every participant.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterator

TRIES = 12
NEAR = 1.15
"""How far above the best speed seen still counts as quiet."""

_STEPS = 1500  # about 0.15 ms


class Held:
    """What the fixed loop took on the held core; once the body is over, the slower of before and after."""

    def __init__(self, us: float) -> None:
        self.us = us


class QuietCore:
    """Remembers the best speed of this machine's cores; `hold` finds a core near it and stays there."""

    def __init__(self) -> None:
        self.best_us = float("inf")
        self._allowed = sorted(os.sched_getaffinity(0))
        self._next = 0

    def settle(self) -> float:
        """Find a quiet core and stay there until a `hold` ends; gives what the fixed loop took on it, µs."""
        if self.best_us == float("inf"):
            self.survey()
        return self._settle(self._allowed)

    @contextlib.contextmanager
    def hold(self, settled_us: float | None = None) -> Iterator[Held]:
        """Run the body on one quiet core, without garbage collection; `settled_us`: what `settle` gave just before.

        Only this thread is pinned: compilers and driver threads keep all cores.
        """
        gc.disable()
        try:
            held = Held(self.settle() if settled_us is None else settled_us)
            yield held
            held.us = max(held.us, min(_loop(), _loop()))
        finally:
            os.sched_setaffinity(0, self._allowed)
            gc.enable()

    def survey(self) -> None:
        """Find the best speed of any core, so that the first visit does not settle for a slow one."""
        for _ in range(2):
            for core in self._allowed:
                os.sched_setaffinity(0, {core})
                self.best_us = min(self.best_us, _loop(), _loop())
        os.sched_setaffinity(0, self._allowed)

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
