"""Where a stage works: one contract, a way to have jobs run, and what the log holds for it in the scope at hand."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from gfast_pipeline import decisions, laboratory
from gfast_pipeline.bench.messages import Session, canonical
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.contract.workload import Source
from gfast_pipeline.execution import local
from gfast_pipeline.generation.verdicts import static_verdicts
from gfast_pipeline.ledger import evidence, sessions
from gfast_pipeline.ledger.evidence import Entry
from gfast_pipeline.measuring import Run
from gfast_pipeline.stages.outcome import Missing


class Lab:
    """One contract on one machine. `run` has a bench job run; evidence is looked up in `scope` only.

    `reading`: nothing is measured, concluded or written; what the log does not say already is Missing.
    """

    def __init__(self, loaded: Loaded, run: Run, reading: bool = False) -> None:
        self.loaded, self._run, self.reading = loaded, run, reading
        self.holders: tuple[tuple[str, ...], dict[str, Any]] | None = None

    @functools.cached_property
    def here(self) -> dict[str, Any] | None:
        """The scope of this machine, None where it lacks the contract's accelerator."""
        target = self.loaded.contract.target
        scope = examined(target.device)
        if scope is None:
            return None
        fits = target.accelerator == "cpu" or target.accelerator in scope["accelerator"]["name"]
        return scope if fits else None

    @functools.cached_property
    def scope(self) -> dict[str, Any] | None:
        """This machine's scope, or where it cannot measure, that of the newest evidence under the contract."""
        return self.here or laboratory.last_scope(self.loaded)

    def ready(self, what: str, kind: str, options: str = "") -> None:
        """Before anything is measured: raises Missing where the lab only reads, and, naming the bundle to make, where
        the accelerator is not here."""
        if self.reading:
            raise Missing(f"{what}: not in the log")
        if self.here is None:
            contract, target = self.loaded.contract, self.loaded.contract.target
            raise Missing(
                f"{what} needs {target.accelerator}, which is not here; "
                f"gfast bundle create FILE -c {contract.name} --kind {kind}{options}, run it there, then "
                "gfast bundle ingest its result"
            )

    def run(self, job: Any) -> Session:
        """Have a job run here."""
        return self._run(job)

    def settled(self, session_id: str) -> decisions.Race:
        """The decision on a deciding session; one that was never made is made now, unless the lab only reads."""
        if self.reading and decisions.decision_id_on(session_id, confirmed=False) is None:
            raise Missing(f"session {session_id}: not decided on yet")
        return decisions.settled_on(self.loaded, session_id)

    def record(self, kind: str, payload: dict[str, Any], alike: Callable[[dict[str, Any]], Any]) -> tuple[str, bool]:
        """Append a conclusion unless the newest one of the same subject says the same: (its id, whether it was there).

        `alike` gives the subject of a payload: plain values, equal for conclusions of which the newer replaces the
        older.
        """
        subject, said = canonical([alike(payload)]), canonical(payload)
        for entry, there in reversed(records(kind)):
            if canonical([alike(there)]) == subject:
                if canonical(there) == said:
                    return entry.id, True
                break
        if self.reading:
            raise Missing(f"{kind}: what follows from the log was not recorded yet")
        return evidence.append(kind, payload).id, False

    def candidate(self, name: str) -> Source:
        """A candidate's file. Raises WorkloadError for a name that is no file."""
        return self.loaded.workload.candidate(name)

    def plan_hash(self, source: Source) -> str:
        """What a default plan of this candidate is known by."""
        cases = [case.id for case in self.loaded.contract.scored]
        return source.plan("challenger", cases).plan_hash

    def heads(self, *kinds: str) -> list[sessions.SessionHead]:
        """Stored first parts of sessions of these kinds under the contract in scope, oldest first."""
        found = sessions.list_sessions(contract_hash=self.loaded.hash)
        return [
            head
            for head in found
            if head.kind in kinds
            and head.rest_of is None
            and (not head.scope or (self.scope is not None and sessions.same_scope(head.scope, self.scope)))
        ]

    def challenged(self, source: Source, *kinds: str) -> sessions.SessionHead | None:
        """The newest whole session of these kinds in which this very plan was the challenger."""
        return next(self.races(source, *kinds), None)

    def races(self, source: Source, *kinds: str) -> Iterator[sessions.SessionHead]:
        """All such sessions, newest first. A refusal by the policy counts while the policy still refuses."""
        mine = self.plan_hash(source)
        for head in reversed(self.heads(*kinds)):
            record = next((r for r in head.participants if r["role"] == "challenger"), None)
            if record is None or record["candidate_hash"] != source.sha256:
                continue
            refused = head.reason.startswith("refused by the static policy")
            if refused and not any(v.status == "failed" for v in static_verdicts(self.loaded, source)):
                continue
            if (record["plan_hash"] == mine or refused) and sessions.load_whole(head.id).status == "complete":
                yield head


def records(kind: str) -> list[tuple[Entry, dict[str, Any]]]:
    """Every entry of a kind with its payload, oldest first."""
    return [(entry, sessions.payload(entry)) for entry in evidence.entries(None, kind)]


def under(payload: dict[str, Any]) -> Any:
    """The subject of a conclusion on a whole contract: its hash and the scope."""
    return [payload["contract_hash"], payload.get("scope")]


@functools.cache
def examined(device: str) -> dict[str, Any] | None:
    """The scope that the bench sees on this machine for cpu or cuda; None where it sees no such device."""
    return local.examine(device)["scope"]
