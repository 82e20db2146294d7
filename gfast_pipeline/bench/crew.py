"""The runners of a session as a group: load, attach to a case, let go; and who is out, with a verdict that says why.

Knows the job's plans and the protocol between judge and runner. Knows nothing of gates' numbers or of timing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gfast_pipeline.bench.bay import Bay
from gfast_pipeline.bench.messages import Job, Verdict, ends
from gfast_pipeline.bench.participant import Lost, Participant
from gfast_pipeline.bench.places import Places

ATTACH_LIMIT_S = 120.0


class Crew:
    """Starts and addresses the runners of `job`.

    `out` names the participants that failed or declined everything; `skips` those that sit out a case, as (name, case).
    """

    def __init__(self, job: Job, record: Callable[[Verdict], None], say: Callable[[str], None]) -> None:
        self.job, self._record, self._say = job, record, say
        self.out: set[str] = set()
        self.skips: set[tuple[str, int]] = set()
        for verdict in job.verdicts:  # what an earlier part of the session, or the policy, found
            if verdict.status == "failed":
                self.refuse(verdict)

    def refuse(self, verdict: Verdict) -> None:
        """Take who a verdict fails, or who declined, out: of the session, or of the verdict's case."""
        role = next((plan.role for plan in self.job.plans if plan.name == verdict.participant), "")
        if verdict.case is None or ends(self.job.kind, role, verdict):
            self.out.add(verdict.participant)
        else:
            self.skips.add((verdict.participant, verdict.case))

    def muster(self, places: Places, generation: int) -> list[Participant]:
        """A fresh runner for every plan that is still in, with reference and candidate loaded.

        On a CPU one after another, one thread each; on a device all at once.
        """
        target = self.job.contract["target"]
        running: list[Participant] = []
        for plan in self.job.plans:
            if plan.name not in self.out:
                running.append(Participant(plan, places, generation, int(target.get("threads") or 4)))
                if target["device"] == "cpu":
                    self.load(running[-1:])
        if target["device"] != "cpu":
            self.load(running)
        return running

    def load(self, participants: list[Participant]) -> None:
        """Let runners load reference and candidate, all at once."""
        limit = self.job.contract["build_limit_s"]
        self._all(participants, None, self._greet)
        self._all(participants, None, lambda participant: participant.listen("build", limit))

    def attach(self, participants: list[Participant], bay: Bay) -> list[Participant]:
        """Open the blocks of a case in runners, all at once; returns those that are still in."""
        case = bay.row["id"]
        self._all(participants, case, lambda p: p.say("build", do="attach", **bay.blocks()))
        self._all(participants, case, lambda p: p.listen("build", ATTACH_LIMIT_S))
        return [participant for participant in participants if participant.name not in self.out]

    def drop(self, participants: list[Participant]) -> None:
        """Let runners forget build and blocks; who is out already keeps the verdict he has."""
        for participant in participants:
            if participant.alive:
                try:
                    participant.ask("call", 60, do="drop")
                except Lost as lost:
                    if participant.name not in self.out:
                        self.lose(participant, None, lost)

    def lose(self, participant: Participant, case: int | None, lost: Lost, generation: int | None = None) -> None:
        """Put a participant out, with a verdict: a failure, or a skip where it declined."""
        status = "skipped" if lost.skip else "failed"
        verdict = Verdict(lost.gate, status, participant.name, case, generation=generation, reason=lost.reason)
        self.refuse(verdict)
        self._record(verdict)
        self._say(f"{participant.name} {status} at {lost.gate}: {lost.reason}")

    def _greet(self, participant: Participant) -> None:
        participant.ready()
        participant.say(
            "build",
            do="load",
            name=participant.name,
            source=participant.plan.source,
            reference=self.job.reference_source,
            target=self.job.contract["target"],
        )

    def _all(self, participants: list[Participant], case: int | None, step: Callable[[Participant], Any]) -> None:
        for participant in participants:
            if participant.alive and participant.name not in self.out:
                try:
                    step(participant)
                except Lost as lost:
                    self.lose(participant, case, lost)
