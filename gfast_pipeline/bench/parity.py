"""Does our `official` figure say what the official script would? Both in one session, on the same card.

The judge measures the plans as always; then each runs once more in a plain process of its own, in a loop restated
from the official protocol: 20 warm-up calls, rounds of 100, events around each call, no synchronise between, one
fixed input. Where the host decides, a figure follows the core it ran on, which changes by the moment (see quiet.py); so
each side is read where its host was fast, and how fast that was stands beside it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import torch

from gfast_pipeline.bench import workload
from gfast_pipeline.bench.judge import Judge
from gfast_pipeline.bench.messages import Job, Plan, from_plain, to_plain
from gfast_pipeline.bench.quiet import QuietCore

WARM_UP, REPEATS, ROUNDS, SEED = 20, 100, 3, 1234 + 100_000
MORE_ROUNDS = 12
"""Rounds at most: after ROUNDS the plain loop goes on while its host was fast in fewer than ROUNDS of them."""
FAST = 1.08
"""Times the best speed of the host in a session: what still counts as a fast host here."""
PLAIN_LIMIT_S = 600


class Parity(Judge):
    """A judge that also runs the plain loop; `measured` holds both medians (µs) and their ratio by case and plan."""

    def afterwards(self) -> None:
        """The plain loop of every plan on every case: `measured["CASE/PLAN"]` = ours, plain, ratio."""
        for case in self.job.cases:
            for plan in self.job.plans:
                if not self.stop and plan.name not in self.out:
                    self._compare(plan, case)

    def _compare(self, plan: Plan, case: int) -> None:
        key = (plan.name, case, "official")
        found = [
            (v.host_us, statistics.median(v.event_us))
            for v in self.session.visits
            if (v.participant, v.case, v.mode) == key and v.event_us
        ]
        if not found:
            return
        figures: dict[str, Any] = {}
        try:
            rounds = self._in_own_process(plan, case)
            best = min(self.host.best_us, *(host_us for host_us, _ in rounds))
            (ours, ours_host), (theirs, plain_host) = fast_host(found, best), fast_host(rounds, best)
            figures |= {"ours_us": round(ours, 2), "plain_us": round(theirs, 2), "ratio": round(ours / theirs, 4)}
            figures |= {"ours_host": round(ours_host / best, 3), "plain_host": round(plain_host / best, 3)}
        except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
            figures["error"] = str(error)[:200]
        self.session.measured[f"{case}/{plan.name}"] = figures
        self.say(f"case {case} {plan.name}: {figures}")

    def _in_own_process(self, plan: Plan, case: int) -> list[tuple[float, float]]:
        """Rounds of the plain loop as (host µs, median µs), in a process on the session's rung of isolation. Raises
        ValueError with its last words when it says no figure."""
        uid = self.places.uid(plan.candidate_hash)
        home = self.places.folder(f"plain-{plan.name}", uid=uid)
        path = os.path.join(home, "job.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(to_plain(self.job), file)
        os.chmod(path, 0o644)
        variables = self.places.variables(home, home, int(self.target.get("threads") or 4))
        command = [sys.executable, "-c", _CHILD, self.places.rung, str(uid), path, plan.name, str(case)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PLAIN_LIMIT_S, cwd=home, env=variables)
        if done.returncode:
            raise ValueError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
        return [(float(host_us), float(us)) for host_us, us in json.loads(done.stdout.splitlines()[-1])]


_CHILD = """
import sys
from gfast_pipeline.bench import isolation
isolation.apply(sys.argv[1], int(sys.argv[2]))
from gfast_pipeline.bench.parity import plain
plain(*sys.argv[3:])
"""


def fast_host(found: list[tuple[float, float]], best_us: float) -> tuple[float, float]:
    """(median µs, median host µs) over the (host µs, µs) whose host was FAST, or the fastest quarter if none was."""
    found = sorted(found)
    fast = [entry for entry in found if entry[0] <= FAST * best_us] or found[: max(1, len(found) // 4)]
    return statistics.median(us for _, us in fast), statistics.median(host_us for host_us, _ in fast)


def plain(path: str, name: str, case: str) -> None:
    """Print the rounds of one plan on one case in the plain loop, as JSON: a list of [host µs, median µs]."""
    with open(path, encoding="utf-8") as file:
        job = from_plain(Job, json.load(file))
    target = job.contract["target"]
    device = torch.device(target["device"])
    workload.apply_precision(target)
    plan = next(p for p in job.plans if p.name == name)
    row = next(r for r in job.contract["cases"] if r["id"] == int(case))
    record = workload.case_record(row, target, device)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        reference = workload.load_source("gfast_reference", job.reference_source, folder)
        model = reference.make(record).to(device).eval()
        model.load_state_dict(reference.draw_weights(record, "official", 1234))
        forward: Any = model
        if plan.source is not None:
            candidate = workload.load_source(name, plan.source, folder)
            forward = candidate.build(model, record, plan.schedules.get(case, {}))
        with torch.inference_mode(False):  # ordinary tensors, as the official script and our runner hand out
            inputs = reference.draw_inputs(record, SEED, 1.0, 0.0, device)
        for _ in range(WARM_UP):
            forward(*inputs)
        core, rounds = QuietCore(), []
        while len(rounds) < ROUNDS or (
            len(rounds) < MORE_ROUNDS and sum(host_us <= FAST * core.best_us for host_us, _ in rounds) < ROUNDS
        ):
            with core.hold() as held:
                samples = _round(forward, inputs, device)
            rounds.append((round(held.us, 1), statistics.median(samples)))
        print(json.dumps(rounds))


def _round(forward: Any, inputs: tuple[torch.Tensor, ...], device: torch.device) -> list[float]:
    if device.type != "cuda":
        samples = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            forward(*inputs)
            samples.append((time.perf_counter() - began) * 1e6)
        return samples
    starts = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS)]
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS)]
    torch.cuda.synchronize()
    for start, end in zip(starts, ends, strict=False):
        start.record()
        forward(*inputs)
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1e3 for start, end in zip(starts, ends, strict=False)]
