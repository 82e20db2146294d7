"""The timing of one cell (one case in one generation): calibration, null calls, blocks of two passes, checks.

Every pass gets a fresh secret pool; every visit is judged on two calls drawn in secret, after the clock has stopped.
Knows nothing of ratios or decisions.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from gfast_pipeline.bench import gate
from gfast_pipeline.bench.bay import Bay
from gfast_pipeline.bench.messages import Clock, Usage, Verdict, Visit, measured_modes
from gfast_pipeline.bench.participant import Lost, Participant
from gfast_pipeline.bench.quiet import QuietCore

SPIN_LIMIT_US = 200_000.0
DISTURBED = 1.3  # times the best speed of the host: a neighbour was at work during the visit
RETAKES = 2
LONG_US = 20_000.0  # a call this long warms up for itself: one untimed call is enough
SPIN_SLACK_US = 500.0  # for the jitter of short enqueues
NULL_VISITS = 3


class Pace:
    """What calibration froze for a (participant, case): timed and untimed calls a visit by mode, and the spin."""

    def __init__(self, call_us: float, visit_ms: float, most_calls: int, most_untimed: int) -> None:
        calls = max(2, min(round(visit_ms * 1e3 / call_us), most_calls))
        self.calls = {"official": calls, "queued": calls, "cold": calls}
        self.untimed = 1 if call_us > LONG_US else max(2, min(calls, most_untimed))
        self.spin_us = 0.0


class Host:
    """The best speed of the host in this session, µs of the fixed loop: what the judge saw of all cores at the start.

    A runner shares its process with a candidate, so what it says of the host can lower the judge's figure by a little
    at most; it can never make every visit look disturbed.
    """

    def __init__(self) -> None:
        core = QuietCore()
        core.survey()
        self.best_us = self._least_us = core.best_us

    def disturbed(self, host_us: float) -> bool:
        """Whether a neighbour was at work during a visit; takes note of a better speed than was known."""
        self.best_us = min(self.best_us, max(host_us, 0.9 * self._least_us))
        return host_us > DISTURBED * self.best_us


class Cell:
    """Timing of one case in one generation. `paces` and `nulls` outlive the cell: they are frozen in the first."""

    def __init__(
        self,
        bay: Bay,
        contract: dict[str, Any],
        generation: int,
        cycles_per_us: float,
        paces: dict[tuple[str, int], Pace],
        nulls: dict[tuple[int, str], float],
        host: Host,
        share_limit: float,
        record: Callable[[Any], None],
        lost: Callable[[Participant, Lost], None],
    ) -> None:
        self.bay, self.contract, self.generation = bay, contract, generation
        self.cycles_per_us, self.paces, self.nulls, self.host = cycles_per_us, paces, nulls, host
        self.share_limit, self.record, self.lost = share_limit, record, lost
        self.case = bay.row["id"]
        self.limit = contract["call_limit_s"]
        gates = contract["gate"]["official"]
        self.atol, self.rtol = gates["atol"], gates["rtol"]
        self.out: set[str] = set()
        self.retakes = 0
        self.worst: dict[str, float] = {}  # share used by a timed output

    def run(
        self, participants: list[Participant], blocks: int, modes: list[str], order: random.Random, clock: Any
    ) -> None:
        """Warm up, calibrate, then `blocks` blocks; `clock()` reads the card's state beside each."""
        self.bay.refill()
        for participant in participants:
            self.attempt(participant, self._calibrate, measured_modes(participant.role, modes))
        frozen = [self.paces[(p.name, self.case)] for p in participants if (p.name, self.case) in self.paces]
        self.bay.used = max((max(pace.calls.values()) + pace.untimed for pace in frozen), default=self.bay.used)
        first = next((p for p in participants if p.role == "reference"), None)
        if first is not None:
            for mode in modes:
                if (self.case, mode) not in self.nulls:
                    self.attempt(first, self._null, mode)
        for block in range(blocks):
            self.record(Clock(self.case, self.generation, block, **clock()))
            permutation = [p for p in participants if p.name not in self.out]
            order.shuffle(permutation)
            for turn, sequence in enumerate((permutation, permutation[::-1])):
                for mode in modes:
                    self.bay.refill()
                    for position, participant in enumerate(sequence):
                        if participant.name not in self.out and mode in measured_modes(participant.role, modes):
                            self.attempt(participant, self._visit, block, turn, position, mode)
        for participant in participants:
            if participant.name not in self.out:
                self.attempt(participant, self._untouched)
        for participant in participants:
            if participant.name not in self.out:
                self.attempt(participant, self._usage)
        for participant in participants:
            if participant.name not in self.out:
                self.record(self._good("timed_output", participant, self.worst.get(participant.name)))
                self.record(self._good("pool_untouched", participant, None))

    def attempt(self, participant: Participant, step: Callable[..., None], *arguments: Any) -> None:
        """`step(participant, …)`; a participant lost in it is out, with a verdict."""
        try:
            step(participant, *arguments)
        except Lost as lost:
            self.out.add(participant.name)
            self.lost(participant, lost)

    def _calibrate(self, participant: Participant, modes: list[str]) -> None:
        """Freeze calls a visit before block 1; later generations only warm up with the frozen pace."""
        participant.measure_handshake()
        key = (participant.name, self.case)
        fresh = key not in self.paces
        if fresh:
            self.turn(participant, "official", 2, 0.0)
            first, _, _ = self.turn(participant, "official", 2, 0.0)
            call_us = max(statistics.median(first["events"]), 1.0)
            self.paces[key] = Pace(call_us, self.contract["visit_ms"], self.bay.most_calls, self.bay.most_untimed)
        pace = self.paces[key]
        answer, _, _ = self.turn(participant, "official", pace.calls["official"], 0.0, pace.untimed)
        if "queued" in modes:
            # everything a queued visit launches has run once by now; the spin kernel itself is launched here first
            if fresh:
                pace.spin_us = 2 * answer["enqueue_us"] + SPIN_SLACK_US
            while True:
                answer, _, _ = self.turn(participant, "queued", pace.calls["queued"], pace.spin_us, pace.untimed)
                if not fresh or answer["pending"] or pace.calls["queued"] <= 2:
                    break
                pace.calls["queued"] = max(2, pace.calls["queued"] // 2)
        if "cold" in modes:
            if fresh:
                pace.calls["cold"] = min(pace.calls["cold"], 10)
            self.turn(participant, "cold", pace.calls["cold"], 0.0, pace.untimed)

    def _null(self, participant: Participant, mode: str) -> None:
        """Wall µs a call of a candidate that returns a ready tensor: what the harness itself costs."""
        calls = self.bay.most_calls
        found = []
        for index in range(NULL_VISITS + 1):
            spin = 2e3 if mode == "queued" and self.bay.device.type == "cuda" else 0.0
            participant.ask("call", self.limit, do="settle")
            began = time.perf_counter()
            participant.say(
                "call", do="visit", mode=mode, calls=calls, spin_cycles=int(spin * self.cycles_per_us), null=True
            )
            participant.listen("call", self.limit)
            wall = (time.perf_counter() - began) * 1e6
            participant.listen("call", self.limit)
            if index:
                found.append(max(wall - participant.handshake_us - spin, 0.0) / (calls + 2))
        self.nulls[(self.case, mode)] = statistics.median(found)

    def turn(
        self, participant: Participant, mode: str, calls: int, spin_us: float, untimed: int = 2
    ) -> tuple[dict[str, Any], float, float]:
        """One exchange with a runner: (its answer, judge's wall µs, spin µs). Outputs lie in the slots afterwards."""
        spin = min(spin_us, SPIN_LIMIT_US) if mode == "queued" and self.bay.device.type == "cuda" else 0.0
        self.bay.poison(calls)
        participant.ask("call", self.limit, do="settle")
        began = time.perf_counter()
        cycles = int(spin * self.cycles_per_us)
        participant.say("call", do="visit", mode=mode, calls=calls, spin_cycles=cycles, untimed=untimed)
        answer = participant.listen("call", self.limit, "events wall_us enqueue_us host_us pending")
        wall = (time.perf_counter() - began) * 1e6
        participant.listen("call", self.limit)
        return answer, wall, spin

    def _visit(self, participant: Participant, block: int, turn: int, position: int, mode: str) -> None:
        pace = self.paces[(participant.name, self.case)]
        calls = pace.calls[mode]
        answer, wall, spin = self._undisturbed(participant, block, mode, pace)
        events = answer["events"]
        sound = len(events) == calls and all(isinstance(e, (int, float)) and 0 < e < 1e12 for e in events)
        if not sound:
            raise Lost("clock", f"events of block {block} are not {calls} positive times: {events[:3]}")
        bound = mode == "queued" and not answer["pending"]
        self.record(
            Visit(
                participant.name,
                self.case,
                self.generation,
                block,
                turn,
                position,
                mode,
                calls,
                None if bound else events,
                round(wall, 1),
                round(float(answer["wall_us"]), 1),
                round(participant.handshake_us, 1),
                round(spin, 1),
                "host_bound" if bound else "ok",
                pace.untimed,
                float(answer["host_us"]),
            )
        )
        self._check(participant, block, calls, pace.untimed, mode)

    def _undisturbed(
        self, participant: Participant, block: int, mode: str, pace: Pace
    ) -> tuple[dict[str, Any], float, float]:
        """A turn during which the host ran at full speed, or the last of a few tries; the host's speed alone decides,
        never the participant's figure. Each retake has new inputs."""
        left = RETAKES
        while True:
            taken = self.turn(participant, mode, pace.calls[mode], pace.spin_us, pace.untimed)
            if not left or not self.host.disturbed(float(taken[0]["host_us"])):
                return taken
            self._check(participant, block, pace.calls[mode], pace.untimed, mode)  # a discarded take is judged too
            left -= 1
            self.retakes += 1
            self.bay.refill()

    def _check(self, participant: Participant, block: int, calls: int, untimed: int, mode: str) -> None:
        """After the clock: every kept output complete and finite, two of them right, pool and guards as written."""
        bay = self.bay
        if not bay.pool_untouched(calls + untimed):
            bay.mend()  # the next one is not to be blamed
            raise Lost("pool_untouched", f"inputs or guards were changed during block {block} ({mode})")
        slots = bay.slots.view(bay.dtype, (calls, *bay.shape))
        if not bool(torch.isfinite(slots.amax()) & torch.isfinite(slots.amin())):
            raise Lost("timed_output", f"an output of block {block} ({mode}) was unfinished, not finite or not its own")
        drawn, rows, inputs = bay.secret_rows(calls, untimed)
        answers = torch.cat([bay.slot(call)[rows] for call in drawn])
        found = gate.worst(answers, bay.expected(inputs), self.atol, self.rtol)
        self.worst[participant.name] = max(self.worst.get(participant.name, 0.0), found.share)
        if not found.share <= self.share_limit:
            raise Lost(
                "timed_output", f"of calls {drawn} of block {block} ({mode}): {found}; {self.share_limit:.3g} allowed"
            )

    def _good(self, gate_name: str, participant: Participant, share: float | None) -> Verdict:
        limit = self.share_limit if share is not None else None
        return Verdict(
            gate_name, "passed", participant.name, self.case, generation=self.generation, share=share, limit=limit
        )

    def _untouched(self, participant: Participant) -> None:
        """Weights and global flags as they were handed out, also once all is timed."""
        answer = participant.ask("call", 60, "weights flags", do="untouched")
        if answer["weights"]:
            raise Lost("inputs_untouched", f"weight {answer['weights'][0]} was changed while timing")
        if answer["flags"]:
            raise Lost("globals_untouched", "while timing: " + "; ".join(answer["flags"]))

    def _usage(self, participant: Participant) -> None:
        answer = participant.ask("call", 60, "peak_bytes", do="usage")
        self.record(Usage(participant.name, self.case, self.generation, int(answer["peak_bytes"])))


def spin_rate(device: torch.device) -> float:
    """Cycles a µs of the spin kernel, measured; 0 on a CPU."""
    if device.type != "cuda":
        return 0.0
    rates = []
    for _ in range(4):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        torch.cuda._sleep(20_000_000)
        end.record()
        torch.cuda.synchronize()
        rates.append(20_000_000 / (start.elapsed_time(end) * 1e3))
    return statistics.median(rates[1:])
