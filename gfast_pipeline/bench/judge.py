"""The judge: one session from a job, phase by phase, with a verdict for everything that goes wrong on the way.

It holds reference, inputs, secrets, tolerance and its own clock, and never imports candidate code.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from gfast_pipeline.bench import environment, gate, isolation, serial, workload
from gfast_pipeline.bench.bay import Bay
from gfast_pipeline.bench.conclude import conclude
from gfast_pipeline.bench.correctness import Proof
from gfast_pipeline.bench.crew import Crew
from gfast_pipeline.bench.messages import (
    TRUSTED,
    Clock,
    Job,
    Phase,
    Session,
    Usage,
    Verdict,
    Visit,
    digest,
    to_plain,
)
from gfast_pipeline.bench.participant import Participant
from gfast_pipeline.bench.places import Places, bench_zip
from gfast_pipeline.bench.timing import Cell, Host, Pace, spin_rate

IDLE_WAIT_S = 30.0


class Judge:
    """Runs `job`; `say` gets one line of progress at a time; measuring stops at a case boundary after `minutes`."""

    def __init__(self, job: Job, say: Callable[[str], None], minutes: float | None = None) -> None:
        self.job, self.say, self.contract = job, say, job.contract
        self.deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self.stop = False
        self.session = Session(
            job.kind,
            job.workload,
            job.contract_name,
            job.contract_hash,
            digest(to_plain(job)),
            secrets.randbits(48) if job.seed is None else job.seed,
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            rest_of=job.rest_of,
            cases=list(job.cases),
            generations=job.generations,
            blocks=job.blocks,
            modes=list(job.modes),
            verdicts=list(job.verdicts),
        )
        self.session.participants = [plan.record() for plan in job.plans]
        self.target = self.contract["target"]
        self.rows = {row["id"]: row for row in self.contract["cases"]}
        self.crew = Crew(job, self.record_verdict, say)
        self.out, self.skips = self.crew.out, self.crew.skips
        self.paces: dict[tuple[str, int], Pace] = {}
        self.nulls: dict[tuple[int, str], float] = {}
        self.host = Host()
        self.retakes = 0
        self.shares: dict[int, float] = {}
        self.slowest_cell = 0.0
        self.proved = False
        self.serial_seed = 0
        self.failure = ""  # of the judge itself

    def run(self) -> Session:
        """The whole session. Raises environment.Busy or isolation.IsolationError before anything has started."""
        began = time.perf_counter()
        workload.apply_precision(self.target)
        if self.target["device"] == "cpu":
            torch.set_num_threads(os.cpu_count() or 1)  # the oracle computes while every runner waits
        torch.set_grad_enabled(False)
        self.device = torch.device(self.target["device"])
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise environment.Busy("the contract is for a CUDA device and torch sees none here")
        lease = environment.lease(self.device)
        root = tempfile.mkdtemp(
            prefix="gfast-", dir="/dev/shm" if self.device.type == "cpu" and os.path.isdir("/dev/shm") else None
        )
        try:
            os.chmod(root, 0o711)
            self._open(root)
            self.phase("startup", began)
            self._work()
        finally:
            shutil.rmtree(root, ignore_errors=True)
            lease.close()
        return self.session

    def _open(self, root: str) -> None:
        session = self.session
        session.scope = environment.scope(self.device)
        wanted = self.target["accelerator"]
        if wanted != "cpu" and wanted not in session.scope["accelerator"]["name"]:
            raise environment.Busy(
                f"the contract is for {wanted!r}, this card is {session.scope['accelerator']['name']!r}"
            )
        busy = environment.foreign_work(self.device)
        patience = time.monotonic() + IDLE_WAIT_S
        if busy:
            self.say(f"the device is busy: {busy}")
        while busy and self.device.type == "cuda":
            if time.monotonic() > patience:
                raise environment.Busy(f"the device stayed busy for {IDLE_WAIT_S:.0f} s: {busy}; end that work first")
            time.sleep(2)
            busy = environment.foreign_work(self.device)
        session.environment["before"] = {**environment.snapshot(self.device), "busy": busy}
        package = bench_zip(root)
        rung = isolation.best_rung(self.job.unsafe, package)
        session.isolation = rung
        self.places = Places(root, package, rung)
        self.module = workload.load_source("gfast_reference", self.job.reference_source, root)
        self.card = environment.card(self.device)
        self.cycles_per_us = spin_rate(self.device)
        self.say(f"{session.kind} on {session.scope['accelerator']['name']}, isolation {rung}")

    def _work(self) -> None:
        session = self.session
        once = self.job.kind in ("judge", "serial")  # one process proves a plan, or runs it on a case of its own
        generations = 1 if once else self.job.generations
        cells = self.job.cells or [[g, c] for g in range(generations) for c in self.job.cases]
        try:
            if self.job.kind == "serial":
                serial.run(self)
            else:
                self._all_cells(cells)
            self.afterwards()
        except Exception as error:  # ours, or the device's under the judge: what was measured whole is kept
            self._salvage(error)
        if not self.job.quick:
            done = {tuple(cell) for cell in session.cells_done}
            session.cells_missing = [cell for cell in cells if tuple(cell) not in done]
        self._close()

    def _all_cells(self, cells: list[list[int]]) -> None:
        by_generation: dict[int, list[int]] = {}
        for generation, case in cells:
            by_generation.setdefault(generation, []).append(case)
        for generation, cases in sorted(by_generation.items()):
            if not self._over() and not self._settled():
                self._generation(generation, cases)

    def _salvage(self, error: Exception) -> None:
        """After a failure of the judge itself: drop what belongs to no finished cell, and say what happened."""
        lines = str(error).strip().splitlines()
        self.failure = f"the judge itself failed: {type(error).__name__}: {lines[0] if lines else 'no message'}"
        self.say(self.failure)
        session, done = self.session, {tuple(cell) for cell in self.session.cells_done}
        session.visits = [v for v in session.visits if (v.generation, v.case) in done]
        session.usage = [u for u in session.usage if (u.generation, u.case) in done]
        session.clocks = [c for c in session.clocks if (c.generation, c.case) in done]

    def _generation(self, generation: int, cases: list[int]) -> None:
        began = time.perf_counter()
        running: list[Participant] = []
        try:
            running = self.crew.muster(self.places, generation)
            self.phase("startup", began, generation=generation)
            # a challenger is proved whole before anything is timed; peers case by case, for they compile for minutes
            by_case = self.job.kind == "peers"
            if not self.proved and not by_case and any(p.prove for p in self.job.plans):
                self._prove(running, cases)
            self.proved = True
            if self.job.kind != "judge":
                for case in cases:
                    if self._over() or self._settled():
                        return
                    began = time.perf_counter()
                    if by_case and generation == 0:
                        self._prove(running, [case])
                    if not by_case or any(p.role == "peer" and self._takes_part(p, case) for p in running):
                        self._cell(running, generation, case)
                    else:
                        self.session.cells_done.append([generation, case])
                    self.slowest_cell = max(self.slowest_cell, time.perf_counter() - began)
        finally:
            for participant in running:
                participant.end()

    def _prove(self, running: list[Participant], cases: list[int]) -> None:
        """Correctness of every plan that asks for it, cheapest case first."""
        by_cost = sorted(cases, key=lambda c: self.module.work(self.record(c))["flop"])
        for case in by_cost:
            provers = [p for p in running if p.plan.prove and self._takes_part(p, case)]
            if self._settled() or self._over():
                return
            if not provers:
                continue
            began = time.perf_counter()
            self.say(f"case {case}: correctness of {', '.join(p.name for p in provers)}")
            bay = Bay(self.module, self.rows[case], self.contract, self.device, self.places.root, len(provers), False)
            proof = Proof(bay, self.contract, self.record_verdict)
            provers = self.crew.attach(provers, bay)
            proof.run(provers, self.job.quick)
            self.shares[case] = proof.reference_share or 0.0
            for participant in provers:
                if participant.name in proof.failed:
                    failed = [
                        v for v in self.session.verdicts if (v.participant, v.status) == (participant.name, "failed")
                    ]
                    self.crew.refuse(failed[-1])
                    self.say(f"case {case}: {participant.name} is refused at {failed[-1].gate}: {failed[-1].reason}")
                if participant.name in proof.skipped:
                    self.skips.add((participant.name, case))
            self.crew.drop(provers)
            bay.close()
            self._spent("correctness", time.perf_counter() - began - bay.oracle_seconds, case, 0)
            self._spent("oracle", bay.oracle_seconds, case, 0)
            if self.job.kind == "judge":
                self.session.cells_done.append([0, case])
            self._recover(running)
            if self.job.kind == "judge":
                self.slowest_cell = max(self.slowest_cell, time.perf_counter() - began)
            if self.job.quick:
                return

    def _cell(self, running: list[Participant], generation: int, case: int) -> None:
        began = time.perf_counter()
        bay = Bay(self.module, self.rows[case], self.contract, self.device, self.places.root, 0, True)
        bay.draw_official_weights(self.contract)
        attached = self.crew.attach([p for p in running if self._takes_part(p, case)], bay)
        building = Proof(bay, self.contract, lambda v: self._record_build(v, generation))
        building.build([p for p in attached if p.role != "peer"], "official", self.device.type == "cuda")
        building.build([p for p in attached if p.role == "peer"], "official")  # an autotuner times what it builds
        for name in building.skipped:
            self.skips.add((name, case))
        for participant in attached:
            if participant.name in building.failed:
                self.out.add(participant.name)
        present = [p for p in attached if p.name not in self.out and p.name not in building.skipped]
        self.phase("build", began, case=case, generation=generation)
        began, spent = time.perf_counter(), bay.oracle_seconds
        factor = self.contract["gate"]["anchored"]["factor"]
        if case not in self.shares:
            private = bay.random(secrets.randbits(62), 1.0, 0.0)
            rule = self.contract["gate"]["official"]
            self.shares[case] = gate.share(bay.reference(private), bay.expected(private), rule["atol"], rule["rtol"])
        cell = Cell(
            bay,
            self.contract,
            generation,
            self.cycles_per_us,
            self.paces,
            self.nulls,
            self.host,
            gate.anchored_limit(self.shares[case], factor),
            self._record_any,
            lambda participant, lost: self.crew.lose(participant, case, lost, generation),
        )
        order = random.Random(f"{self.session.seed}/{generation}/{case}")
        cell.run(present, self.job.blocks, self.job.modes, order, self._clock)
        self.retakes += cell.retakes
        self.after_cell(cell, [p for p in present if p.alive and p.name not in self.out])
        self.crew.drop(attached)  # who declined or failed holds the blocks too
        bay.close()
        checking = bay.oracle_seconds - spent
        self._spent("timing", time.perf_counter() - began - checking, case, generation)
        self._spent("oracle", bay.oracle_seconds, case, generation)
        self.session.cells_done.append([generation, case])
        self.say(f"generation {generation + 1}/{self.job.generations} case {case}: {time.perf_counter() - began:.1f} s")
        self._recover(running)

    def afterwards(self) -> None:
        """What else to measure once all cells are done, the device still leased; nothing in an ordinary session."""

    def after_cell(self, cell: Cell, present: list[Participant]) -> None:
        """What else to do while the participants of a cell are still built; nothing in an ordinary session."""

    def _recover(self, running: list[Participant]) -> None:
        """Before anything else is timed: lost runners are gone, the device is idle and healthy."""
        dead = [p for p in running if not p.alive]
        for participant in dead:
            running.remove(participant)
        if not dead:
            return
        began = time.perf_counter()
        self.say("waiting for an idle, healthy device")
        patience = time.monotonic() + IDLE_WAIT_S
        while self.card is not None and (self.card.utilization() or 0) > 5 and time.monotonic() < patience:
            time.sleep(0.5)
        wrong = environment.healthy(self.device)
        if wrong:
            self.session.status, self.session.reason = "void", f"after a lost participant {wrong}"
            self.stop = True
        self.phase("health", began)

    def _takes_part(self, participant: Participant, case: int) -> bool:
        wanted = participant.plan.cases is None or case in participant.plan.cases
        return wanted and participant.name not in self.out and (participant.name, case) not in self.skips

    def _settled(self) -> bool:
        """Asked to stop, or nothing left worth measuring."""
        return self.stop or self._pointless()

    def _pointless(self) -> bool:
        """The challenger is out, a trusted participant is lost, or nobody is left."""
        names = {p.name: p.role for p in self.job.plans}
        if any(names[name] in TRUSTED for name in self.out):
            return True
        subjects = [p.name for p in self.job.plans if p.role not in TRUSTED]
        return bool(subjects) and all(name in self.out for name in subjects)

    def _over(self) -> bool:
        return self.deadline is not None and time.monotonic() + self.slowest_cell > self.deadline

    def _close(self) -> None:
        session = self.session
        if self.stop:
            self.say("stopped as asked, at a case boundary")
        session.measured["null_us"] = {f"{case}/{mode}": round(value, 2) for (case, mode), value in self.nulls.items()}
        session.measured["host_best_us"] = round(self.host.best_us, 1)
        session.measured["retaken_visits"] = self.retakes
        session.measured["cycles_per_us"] = round(self.cycles_per_us, 1)
        try:
            session.environment["after"] = environment.snapshot(self.device)
        except RuntimeError as error:  # a device that has failed answers nothing any more
            session.environment["after"] = {"error": str(error).splitlines()[0]}
        session.ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        work = {case: self.module.work(self.record(case)) for case in self.job.cases}
        conclude(session, self.contract, work, self.nulls, pointless=self._pointless())
        if self.failure and session.status in ("complete", "partial"):
            # without a hole in the cells it is whole all the same: only what comes after them is lacking
            session.status, session.reason = "partial" if session.cells_missing else "complete", self.failure

    def _clock(self) -> dict[str, Any]:
        return {} if self.card is None else self.card.state()

    def record(self, case: int) -> workload.Case:
        return workload.case_record(self.rows[case], self.target, self.device)

    def record_verdict(self, verdict: Verdict) -> None:
        self.session.verdicts.append(verdict)

    def _record_build(self, verdict: Verdict, generation: int) -> None:
        if verdict.status != "passed":
            verdict.generation = generation
            self.session.verdicts.append(verdict)
            self.say(f"{verdict.participant} {verdict.status} at {verdict.gate}, case {verdict.case}: {verdict.reason}")

    def _record_any(self, record: Visit | Clock | Usage | Verdict) -> None:
        session = self.session
        lists = {Visit: session.visits, Clock: session.clocks, Usage: session.usage, Verdict: session.verdicts}
        lists[type(record)].append(record)  # type: ignore[arg-type]

    def phase(self, phase: str, began: float, case: int | None = None, generation: int | None = None) -> None:
        """Record that a phase lasted from `began` until now."""
        self._spent(phase, time.perf_counter() - began, case, generation)

    def _spent(self, phase: str, seconds: float, case: int | None, generation: int | None) -> None:
        self.session.phases.append(Phase(phase, round(seconds, 3), case=case, generation=generation))
