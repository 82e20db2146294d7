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
from gfast_pipeline.bench.messages import Clock, Usage, Verdict, Visit
from gfast_pipeline.bench.participant import Lost, Participant

SPIN_LIMIT_US = 200_000.0
LONG_US = 20_000.0  # a call this long warms up for itself: one untimed call is enough
CONTEXT_MODES = ("official",)  # of reference and control: they decide nothing, and cost the most
SPIN_SLACK_US = 500.0  # for the jitter of short enqueues
NULL_VISITS = 3


class Pace:
    """What calibration froze for a (participant, case): timed and untimed calls a visit by mode, and the spin."""

    def __init__(self, call_us: float, visit_ms: float, most_calls: int, most_untimed: int) -> None:
        calls = max(2, min(round(visit_ms * 1e3 / call_us), most_calls))
        self.calls = {"official": calls, "queued": calls, "cold": calls}
        self.untimed = 1 if call_us > LONG_US else max(2, min(calls, most_untimed))
        self.spin_us = 0.0


def measured_modes(role: str, modes: list[str]) -> list[str]:
    """In which of a session's modes a participant of this role is measured."""
    return [mode for mode in modes if role not in ("reference", "control") or mode in CONTEXT_MODES]


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
        share_limit: float,
        record: Callable[[Any], None],
        lost: Callable[[Participant, Lost], None],
    ) -> None:
        self.bay, self.contract, self.generation = bay, contract, generation
        self.cycles_per_us, self.paces, self.nulls = cycles_per_us, paces, nulls
        self.share_limit, self.record, self.lost = share_limit, record, lost
        self.case = bay.row["id"]
        self.limit = contract["call_limit_s"]
        gates = contract["gate"]["official"]
        self.atol, self.rtol = gates["atol"], gates["rtol"]
        self.out: set[str] = set()
        self.worst: dict[str, float] = {}  # share used by a timed output

    def run(
        self, participants: list[Participant], blocks: int, modes: list[str], order: random.Random, clock: Any
    ) -> None:
        """Warm up, calibrate, then `blocks` blocks; `clock()` reads the card's state beside each."""
        self.bay.refill()
        for participant in participants:
            self._try(participant, self._calibrate, measured_modes(participant.role, modes))
        frozen = [self.paces[(p.name, self.case)] for p in participants if (p.name, self.case) in self.paces]
        self.bay.used = max((max(pace.calls.values()) + pace.untimed for pace in frozen), default=self.bay.used)
        first = next((p for p in participants if p.role == "reference"), None)
        if first is not None:
            for mode in modes:
                if (self.case, mode) not in self.nulls:
                    self._try(first, self._null, mode)
        for block in range(blocks):
            self.record(Clock(self.case, self.generation, block, **clock()))
            permutation = [p for p in participants if p.name not in self.out]
            order.shuffle(permutation)
            for turn, sequence in enumerate((permutation, permutation[::-1])):
                for mode in modes:
                    self.bay.refill()
                    for position, participant in enumerate(sequence):
                        if participant.name not in self.out and mode in measured_modes(participant.role, modes):
                            self._try(participant, self._visit, block, turn, position, mode)
        for participant in participants:
            if participant.name not in self.out:
                self._try(participant, self._usage)
        for participant in participants:
            if participant.name not in self.out:
                self.record(self._good("timed_output", participant, self.worst.get(participant.name)))
                self.record(self._good("pool_untouched", participant, None))

    def _try(self, participant: Participant, step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(participant, *arguments)
        except Lost as lost:
            self.out.add(participant.name)
            self.lost(participant, lost)

    def _calibrate(self, participant: Participant, modes: list[str]) -> None:
        """Freeze calls a visit before block 1; later generations only warm up with the frozen pace."""
        participant.measure_handshake()
        key = (participant.name, self.case)
        if key not in self.paces:
            self.turn(participant, "official", 2, 0.0)
            first, _, _ = self.turn(participant, "official", 2, 0.0)
            call_us = max(statistics.median(first["events"]), 1.0)
            self.paces[key] = Pace(call_us, self.contract["visit_ms"], self.bay.most_calls, self.bay.most_untimed)
        pace = self.paces[key]
        answer, _, _ = self.turn(participant, "official", pace.calls["official"], 0.0, pace.untimed)
        if "queued" in modes:
            # everything a queued visit launches has run once by now; the spin kernel itself is launched here first
            pace.spin_us = max(pace.spin_us, 2 * answer["enqueue_us"] + SPIN_SLACK_US)
            while True:
                answer, _, _ = self.turn(participant, "queued", pace.calls["queued"], pace.spin_us, pace.untimed)
                if answer["pending"] or pace.calls["queued"] <= 2:
                    break
                pace.calls["queued"] = max(2, pace.calls["queued"] // 2)
        if "cold" in modes:
            pace.calls["cold"] = min(pace.calls["cold"], 10)
            self.turn(participant, "cold", pace.calls["cold"], 0.0, pace.untimed)

    def _null(self, participant: Participant, mode: str) -> None:
        """Wall µs a call of a candidate that returns a ready tensor: what the harness itself costs."""
        calls = self.bay.most_calls
        found = []
        for index in range(NULL_VISITS + 1):
            spin = 2e3 if mode == "queued" else 0.0
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
        began = time.perf_counter()
        cycles = int(spin * self.cycles_per_us)
        participant.say("call", do="visit", mode=mode, calls=calls, spin_cycles=cycles, untimed=untimed)
        answer = participant.listen("call", self.limit)
        wall = (time.perf_counter() - began) * 1e6
        participant.listen("call", self.limit)
        return answer, wall, spin

    def _visit(self, participant: Participant, block: int, turn: int, position: int, mode: str) -> None:
        pace = self.paces[(participant.name, self.case)]
        calls = pace.calls[mode]
        answer, wall, spin = self.turn(participant, mode, calls, pace.spin_us, pace.untimed)
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
                float(answer.get("host_us", 0.0)),
            )
        )
        self._check(participant, block, calls, pace.untimed, mode)

    def _check(self, participant: Participant, block: int, calls: int, untimed: int, mode: str) -> None:
        """After the clock: every kept output complete and finite, two of them right, pool and guards as written."""
        bay = self.bay
        if not bay.pool_untouched(calls + untimed):
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

    def _usage(self, participant: Participant) -> None:
        answer = participant.ask("call", 60, do="usage")
        self.record(Usage(participant.name, self.case, self.generation, int(answer["peak_bytes"])))


def clock_verdicts(visits: list[Visit], nulls: dict[tuple[int, str], float], ratio_gate: float) -> list[Verdict]:
    """The clock gate on the median of visits of each (participant, case, mode): events against the judge's wall.

    judge_wall − handshake − calls·null ≤ ratio_gate·(calls ÷ N)·Σ events + 0.25·calls·null and Σ events ≤
    1.05·judge_wall, with N timed of `calls` calls. In the queued mode the spin is taken off the wall, with a tenth of
    it as slack (its length follows the SM clock), and the untimed calls, which run before it, may last ratio_gate
    times the participant's own official figure: device time says nothing of a call that waits for its host. Visits
    shorter than 20 handshakes cannot tell and are `skipped`.
    """
    groups: dict[tuple[str, int, str], list[Visit]] = {}
    for visit in visits:
        if visit.event_us is not None:
            groups.setdefault((visit.participant, visit.case, visit.mode), []).append(visit)
    official = {
        (name, case): statistics.median(statistics.median(v.event_us or []) for v in found)
        for (name, case, mode), found in groups.items()
        if mode == "official"
    }
    verdicts = []
    for (name, case, mode), found in sorted(groups.items()):
        null = nulls.get((case, mode))
        excess, inverse = [], []
        for visit in found:
            calls, events = visit.calls + visit.untimed, sum(visit.event_us or [])
            if null is None or visit.judge_wall_us < 20 * visit.handshake_us:
                continue
            host = visit.judge_wall_us - visit.handshake_us - visit.spin_us - calls * null
            accounted = events * calls / visit.calls
            if mode == "queued" and visit.spin_us:
                accounted = events + visit.untimed * official.get((name, case), events / visit.calls)
            allowed = ratio_gate * accounted + 0.25 * calls * null + visit.spin_us / 10
            excess.append(host / allowed)
            inverse.append(events / (1.05 * visit.judge_wall_us))
        if not excess:
            why = "no null call was measured" if null is None else "visits last under 20 handshakes"
            verdicts.append(Verdict("clock", "skipped", name, case, variant=mode, reason=why))
            continue
        worst, above = statistics.median(excess), statistics.median(inverse)
        reason = ""
        if worst > 1:
            reason = f"the judge's wall holds {worst:.2f} times what the candidate's events can account for"
        elif above > 1:
            reason = f"the candidate's events exceed the judge's wall {above:.2f} times"
        status = "failed" if reason else "passed"
        verdicts.append(
            Verdict("clock", status, name, case, variant=mode, share=max(worst, above), limit=1.0, reason=reason)
        )
    return verdicts


def physics_verdicts(
    visits: list[Visit], work: dict[int, dict[str, float]], limits: dict[str, Any] | None
) -> list[Verdict]:
    """No result below the hard floor: arithmetic at the fastest datasheet rate, and memory when cold or beyond L2."""
    if not limits or not limits.get("compute_tflops"):
        return []
    verdicts = []
    groups: dict[tuple[str, int, str], list[float]] = {}
    for visit in visits:
        if visit.event_us:
            groups.setdefault((visit.participant, visit.case, visit.mode), []).append(statistics.median(visit.event_us))
    for (name, case, mode), medians in sorted(groups.items()):
        arithmetic = work[case]["flop"] / (max(limits["compute_tflops"].values()) * 1e6)
        memory = work[case]["bytes"] / (limits["memory_tb_s"] * 1e6)
        through = mode == "cold" or work[case]["bytes"] > limits["l2_mb"] * 1e6
        floor = max(arithmetic, memory if through else 0.0)
        median = statistics.median(medians)
        good = median >= floor
        reason = "" if good else f"{median:.2f} µs is below the hard floor of {floor:.2f} µs"
        verdicts.append(
            Verdict(
                "physics",
                "passed" if good else "failed",
                name,
                case,
                variant=mode,
                share=floor / median,
                limit=1.0,
                reason=reason,
            )
        )
    return verdicts


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
