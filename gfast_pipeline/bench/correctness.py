"""The correctness phase: every draw, variant and structured input through every gate that needs no clock.

For each input all provers answer first, each into its own slots; only then does the judge compute what the answers
should have been. A prover that fails is not asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from gfast_pipeline.bench import gate
from gfast_pipeline.bench.bay import Bay
from gfast_pipeline.bench.messages import Verdict
from gfast_pipeline.bench.participant import Lost, Participant

SAME_SHARE = 0.1
"""Two answers to one input may differ by this share of the allowance: room for atomics, none for a wrong answer."""


class Proof:
    """The verdicts of one case for some participants. `failed` names those who are out."""

    def __init__(self, bay: Bay, contract: dict[str, Any], record: Callable[[Verdict], None]) -> None:
        self.bay, self.contract, self.record = bay, contract, record
        self.failed: set[str] = set()
        self.skipped: set[str] = set()
        self.reference_share: float | None = None
        gates = contract["gate"]
        self.atol, self.rtol = gates["official"]["atol"], gates["official"]["rtol"]

    def run(self, provers: list[Participant], quick: bool) -> None:
        """All draws (quick: the first official trial only). Canaries are part of the official draw."""
        for draw in self.contract["weight_draws"]:
            self.bay.draw_weights(draw["name"], draw["seed"])
            alive = [p for p in provers if self._wanted(p)]
            self.build(alive, draw["name"])
            official = draw["name"] == "official"
            for number, (variant, trial, lay) in enumerate(self._inputs(draw, official)):
                if number and (quick or not any(self._wanted(p) for p in provers)):
                    return
                self._evaluate(
                    [p for p in alive if self._wanted(p)], draw["name"], variant, trial, lay, first=number == 0
                )
            for participant in alive:
                if self._wanted(participant):
                    self._untouched(participant, draw["name"])
            if quick or not any(self._wanted(p) for p in provers):
                return

    def build(self, participants: list[Participant], draw: str, together: bool = False) -> None:
        """Build participants on the weights that lie in the bay, one after another or `together` (where no build times
        anything, as an autotuner does). A skip or a failure is a verdict."""
        bay = self.bay
        assert bay.weights is not None
        order = [[participant] for participant in participants] if not together else [participants]
        for group in order:
            for step in (self._tell_build, self._hear_build):
                for participant in group:
                    if self._wanted(participant):
                        self._guarded(participant, {"draw": draw}, lambda step=step, p=participant: step(p))
            for participant in group:
                if self._wanted(participant):
                    self._pass(participant, "build", {"draw": draw})

    def _tell_build(self, participant: Participant) -> None:
        bay = self.bay
        assert bay.weights is not None
        participant.say(
            "build",
            do="build",
            case={"id": bay.row["id"], "shape": bay.row["shape"]},
            weights=bay.weights.description,
            layout=bay.weight_layout,
            schedule=participant.plan.schedules.get(str(bay.row["id"]), {}),
        )

    def _hear_build(self, participant: Participant) -> None:
        participant.listen("build", self.contract["build_limit_s"])

    def _inputs(self, draw: dict[str, Any], official: bool) -> Iterator[tuple[str, int | None, Callable[[], Any]]]:
        bay, rule = self.bay, self.contract["gate"]["official"]
        if official:
            for trial in range(rule["trials"]):
                seed = rule["seed"] + trial
                yield "official", trial, lambda seed=seed: bay.random(seed, 1.0, 0.0)
        variants = {variant["name"]: variant for variant in self.contract["variants"]}
        for name in draw["variants"]:
            v = variants[name]
            yield name, None, lambda v=v: bay.random(v["seed"], v["scale"], v["padding"])
        if official:
            for index, name in enumerate(self.contract["structured"]):
                seed = rule["seed"] + 1000 + index
                yield name, None, lambda name=name, seed=seed: bay.structured(name, seed)

    def _evaluate(
        self,
        provers: list[Participant],
        draw: str,
        variant: str,
        trial: int | None,
        lay: Callable[[], Any],
        first: bool,
    ) -> None:
        bay, limit = self.bay, self.contract["call_limit_s"]
        private = lay()
        bay.poison(3 * max(len(provers), 1))
        place = {"draw": draw, "variant": variant, "trial": trial}
        for index, participant in enumerate(provers):
            # slot 0: the answer; slot 1: the same input again; slot 2, later: that answer as another input left it
            self._ask(participant, place, "call", limit, do="call", slot=3 * index, keep=first)
            if first and self._wanted(participant):
                self._ask(participant, place, "call", limit, do="call", slot=3 * index + 1, keep=True)
            if not bay.intact(private):
                if self._wanted(participant):
                    self._fail(participant, "inputs_untouched", place, "inputs or guards changed during a call")
                bay.lay(private)
                bay.mend()  # the next one is not to be blamed
        y64, ref = bay.expected(private), bay.reference(private)
        u = gate.share(ref, y64, self.atol, self.rtol)
        if draw == "official" and variant == "official":
            self.reference_share = max(self.reference_share or 0.0, u)
        for index, participant in enumerate(provers):
            if self._wanted(participant):
                self._compare(participant, place, bay.slot(3 * index), y64, ref, u)
            if first and self._wanted(participant):
                self._stable(participant, place, 3 * index)
        if first and variant == "official":
            self._canaries(ref, y64, u)
        if first:
            self._sensitive(provers, place, private)

    def _compare(
        self,
        participant: Participant,
        place: dict[str, Any],
        y: torch.Tensor,
        y64: torch.Tensor,
        ref: torch.Tensor,
        u: float,
    ) -> None:
        found = gate.worst(y, y64, self.atol, self.rtol)
        share, where = found.share, str(found)
        if place["variant"] == "official":
            against = gate.official_share(y, ref, self.atol, self.rtol)
            self._judge(participant, "official", place, against, 1.0, u, "against the reference; against fp64 " + where)
            if not self._wanted(participant):
                return  # the budget is a part of what it has overrun already
            self._judge(participant, "budget", place, share, self.contract["gate"]["budget"]["share"], u, where)
        else:
            limit = gate.anchored_limit(u, self.contract["gate"]["anchored"]["factor"])
            self._judge(participant, "anchored", place, share, limit, u, where)

    def _stable(self, participant: Participant, place: dict[str, Any], slot: int) -> None:
        first, again = self.bay.slot(slot), self.bay.slot(slot + 1)
        moved = gate.share(again, first, self.atol, self.rtol)
        self._judge(participant, "determinism", place, moved, SAME_SHARE, None, "between two calls on one input")

    def _sensitive(self, provers: list[Participant], place: dict[str, Any], private: tuple[torch.Tensor, ...]) -> None:
        """A different first input, refilled in place, must give a different answer and leave the one before alone."""
        changed = (private[0].flip(0).neg(), *private[1:])
        self.bay.lay(changed)
        for index, participant in enumerate(provers):
            if not self._wanted(participant):
                continue
            before, limit = self.bay.slot(3 * index).clone(), self.contract["call_limit_s"]
            self._ask(participant, place, "call", limit, do="call", slot=3 * index, again=3 * index + 2)
            if not self._wanted(participant):
                continue
            if not torch.equal(self.bay.slot(3 * index + 1), self.bay.slot(3 * index + 2)):
                reason = "an output changed when the next call ran; return a tensor of its own (clone a static output)"
                self._fail(participant, "output", place, reason)
                continue
            moved = gate.share(self.bay.slot(3 * index), before, self.atol, self.rtol)
            if moved <= 1.0:
                self._fail(participant, "sensitivity", place, "the output did not change when the input did")
            else:
                self._pass(participant, "sensitivity", place)

    def _canaries(self, ref: torch.Tensor, y64: torch.Tensor, u: float) -> None:
        """Known-bad outputs must fail the very comparison that candidates go through, and the reference pass it."""
        holes = []
        for name, bad in gate.known_bad(ref, y64):
            if (
                gate.share(bad, y64, self.atol, self.rtol) <= 1.0
                or gate.official_share(bad, ref, self.atol, self.rtol) <= 1.0
            ):
                holes.append(f"{name} passed")
        for name, other in gate.known_bad_kinds(ref):
            if not gate.output_facts(other, self.bay.shape, self.bay.dtype, self.bay.device, [ref]):
                holes.append(f"{name} passed")
        if gate.official_share(ref, ref, self.atol, self.rtol) != 0.0:
            holes.append("the reference failed against itself")
        status, reason = ("failed", "; ".join(holes)) if holes else ("passed", "")
        case = self.bay.row["id"]
        self.record(Verdict("canaries", status, "judge", case, share=finite(u), reason=reason))

    def _untouched(self, participant: Participant, draw: str) -> None:
        place = {"draw": draw}
        answer = self._ask(participant, place, "call", 60, needs="weights flags", do="untouched")
        if answer is None:
            return
        changed = answer["weights"]
        if changed:
            self._fail(participant, "inputs_untouched", place, f"weight {changed[0]} was changed")
        else:
            self._pass(participant, "inputs_untouched", place)
        if answer["flags"]:
            self._fail(participant, "globals_untouched", place, "; ".join(answer["flags"]))
        else:
            self._pass(participant, "globals_untouched", place)

    def _ask(
        self, participant: Participant, place: dict[str, Any], gate_name: str, limit: float, **message: Any
    ) -> dict[str, Any] | None:
        return self._guarded(participant, place, lambda: participant.ask(gate_name, limit, **message))

    def _guarded(self, participant: Participant, place: dict[str, Any], step: Callable[[], Any]) -> Any:
        """What `step` gives; None, and a verdict, when it loses the participant."""
        try:
            return step()
        except Lost as lost:
            if lost.skip:
                self.skipped.add(participant.name)
                self._verdict(participant, lost.gate, "skipped", place, reason=lost.reason)
            else:
                self._fail(participant, lost.gate, place, lost.reason)
            return None

    def _judge(
        self,
        participant: Participant,
        gate_name: str,
        place: dict[str, Any],
        share: float,
        limit: float,
        u: float | None,
        where: str,
    ) -> None:
        good = share <= limit  # false for NaN too
        reason = "" if good else f"{share:.4g} of the allowance used where {limit:.4g} is allowed ({where})"
        if not good:
            self.failed.add(participant.name)
        status = "passed" if good else "failed"
        self._verdict(
            participant,
            gate_name,
            status,
            place,
            reason,
            share=finite(share),
            limit=limit,
            reference_share=None if u is None else finite(u),
        )

    def _fail(self, participant: Participant, gate_name: str, place: dict[str, Any], reason: str) -> None:
        self.failed.add(participant.name)
        self._verdict(participant, gate_name, "failed", place, reason)

    def _pass(self, participant: Participant, gate_name: str, place: dict[str, Any]) -> None:
        self._verdict(participant, gate_name, "passed", place)

    def _verdict(
        self,
        participant: Participant,
        gate_name: str,
        status: str,
        place: dict[str, Any],
        reason: str = "",
        **shares: Any,
    ) -> None:
        case = self.bay.row["id"]
        self.record(Verdict(gate_name, status, participant.name, case, reason=reason, **place, **shares))

    def _wanted(self, participant: Participant) -> bool:
        return participant.name not in self.failed and participant.name not in self.skipped


def finite(share: float) -> float:
    """JSON has no infinity: an unbounded share is written as 1e300."""
    return share if share < 1e300 else 1e300
