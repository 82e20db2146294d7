"""Cases too large for several participants: each alone in a fresh process, 3 calls, one input, then the chunked oracle.

Outputs wait in host memory until the last runner has gone; only then does the oracle run, one sequence at a time, and
every participant's rows are compared in place. No blocks and no ABBA: these figures show feasibility and rank nothing.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

import torch

from gfast_pipeline.bench import gate
from gfast_pipeline.bench.bay import Bay
from gfast_pipeline.bench.correctness import Proof, finite
from gfast_pipeline.bench.messages import Plan, Usage, Verdict, Visit
from gfast_pipeline.bench.participant import Lost, Participant

if TYPE_CHECKING:
    from gfast_pipeline.bench.judge import Judge

CALLS = 3


def run(judge: Judge) -> None:
    """All serial cases of the job, generation 0."""
    for case in judge.job.cases:
        if judge.stop or judge._over():
            break
        outputs = _answers(judge, case)
        if outputs:
            _compare(judge, case, outputs)
        judge.session.cells_done.append([0, case])


def _answers(judge: Judge, case: int) -> dict[str, torch.Tensor]:
    """Each participant's last output, on the host."""
    bay = Bay(judge.module, judge.rows[case], judge.contract, judge.device, judge.places.root, 0, False)
    bay.draw_official_weights(judge.contract)
    judge.serial_seed = secrets.randbits(62)
    outputs = {}
    for plan in judge.job.plans:
        if plan.name in judge.out:
            continue
        judge.say(f"case {case}: {plan.name}, {CALLS} calls")
        y = _one(judge, bay, case, plan)
        if y is not None:
            outputs[plan.name] = y
    bay.close()
    return outputs


def _one(judge: Judge, bay: Bay, case: int, plan: Plan) -> torch.Tensor | None:
    _lay(judge, bay)
    participant = Participant(plan, judge.places, 0, int(judge.target.get("threads") or 4))
    try:
        began = time.perf_counter()
        judge.crew.load([participant])
        if plan.name in judge.out or not judge.crew.attach([participant], bay):
            return None
        judge.phase("startup", began, case=case, generation=0)
        began = time.perf_counter()
        building = Proof(bay, judge.contract, judge.record_verdict)
        building.build([participant], "official")
        judge.phase("build", began, case=case, generation=0)
        if building.failed or building.skipped:
            return None
        began = time.perf_counter()
        bay.poison(1)
        for call in range(CALLS):
            sent = time.perf_counter()
            limit = judge.contract["call_limit_s"]
            answer = participant.ask("call", limit, "event_us wall_us", do="timed_call", slot=0)
            wall = (time.perf_counter() - sent) * 1e6
            judge.session.visits.append(
                Visit(plan.name, case, 0, call, 0, 0, "official", 1, [answer["event_us"]], wall, answer["wall_us"], 0.0)
            )
        usage = participant.ask("call", 60, "peak_bytes", do="usage")
        judge.session.usage.append(Usage(plan.name, case, 0, int(usage["peak_bytes"])))
        judge.phase("timing", began, case=case, generation=0)
    except Lost as lost:
        judge.crew.lose(participant, case, lost, 0)
        return None
    finally:
        participant.end()
    if not bay.intact(judge.module.draw_inputs(bay.case, judge.serial_seed, 1.0, 0.0, judge.device)):
        judge.crew.lose(participant, case, Lost("inputs_untouched", "inputs or guards changed during a call"), 0)
        return None
    judge.record_verdict(Verdict("inputs_untouched", "passed", plan.name, case, generation=0))
    return bay.slot(0).to("cpu", copy=True)  # on a CPU the next participant writes into the same slot


def _lay(judge: Judge, bay: Bay) -> None:
    """The one input of the case as every participant finds it, whatever the one before did to it or to the guards.

    The judge keeps no copy: what its allocator holds, 13 GB, a participant lacks. The oracle draws it from its seed.
    """
    bay.mend()
    bay.random(judge.serial_seed, 1.0, 0.0)
    if judge.device.type == "cuda":
        torch.cuda.empty_cache()


def _compare(judge: Judge, case: int, outputs: dict[str, torch.Tensor]) -> None:
    began = time.perf_counter()
    record = judge.record(case)
    official = next(d for d in judge.contract["weight_draws"] if d["name"] == "official")
    state = judge.module.draw_weights(record, "official", official["seed"])
    inputs = judge.module.draw_inputs(record, judge.serial_seed, 1.0, 0.0, judge.device)
    rule = judge.contract["gate"]["official"]
    worst: dict[str, gate.Worst] = {}
    told = time.monotonic()
    for b, y64 in judge.module.serial_oracle(state, record, inputs, judge.device):
        for name, y in outputs.items():
            found = gate.worst(y[b].to(judge.device), y64, rule["atol"], rule["rtol"])
            if name not in worst or not found.share <= worst[name].share:
                worst[name] = found
        if time.monotonic() - told > 10:
            told = time.monotonic()
            judge.say(f"case {case}: oracle at sequence {b + 1} of {record.batch}")
    for name, found in worst.items():
        good = found.share <= 1.0
        verdict: dict[str, Any] = {
            "draw": "official",
            "variant": "official",
            "share": finite(found.share),
            "limit": 1.0,
        }
        reason = "" if good else f"{found}; 1 allowed"
        judge.record_verdict(Verdict("serial", "passed" if good else "failed", name, case, reason=reason, **verdict))
    judge.phase("oracle", began, case=case, generation=0)
