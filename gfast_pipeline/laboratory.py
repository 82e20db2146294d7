"""The stages as plain functions: judge, race, confirm, measure. What the command line and the pipeline both call.

Reads contract and log, has jobs run, decides on what came back, appends it. Prints nothing and starts nothing
itself: `run` has a job run. Whoever measures asks `approved` for the contract first.
"""

from __future__ import annotations

import time
from typing import Any

from gfast_pipeline import decisions
from gfast_pipeline.bench.messages import Job, Session, Verdict, digest
from gfast_pipeline.contract import approval
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import Loaded, load
from gfast_pipeline.contract.workload import Source, read_source
from gfast_pipeline.evaluation.validity import describe
from gfast_pipeline.execution import jobs, local
from gfast_pipeline.generation.verdicts import static_verdicts
from gfast_pipeline.ledger import evidence, sessions
from gfast_pipeline.measuring import Run, best_peers
from gfast_pipeline.selection import archive
from gfast_pipeline.submission import compile as compiler


class LaboratoryError(GfastError):
    """A stage that cannot begin."""


def approved(name: str) -> Loaded:
    """A contract that a human has approved. Raises ContractError, WorkloadError, NotApproved."""
    loaded = load(name)
    approval.check(loaded)
    return loaded


def judge(loaded: Loaded, name: str, run: Run, dry: bool = False) -> tuple[Session, str | None]:
    """Prove one candidate right or wrong; (session, its id), the id None when `dry`, which records nothing."""
    source = loaded.workload.candidate(name)
    if not dry:
        refuse_edit(loaded, source)
    verdicts = static_verdicts(loaded, source)
    if any(verdict.status == "failed" for verdict in verdicts):
        session = _refused(loaded, source, verdicts)
    else:
        session = run(jobs.judge(loaded, source, verdicts, quick=dry))
    return session, None if dry else sessions.append_session(session).id


def refuse_edit(loaded: Loaded, source: Source) -> None:
    """Raises LaboratoryError when this name was judged before with another content: evidence is of a file, once."""
    for head in sessions.list_sessions():
        for record in head.participants:
            if (
                head.workload == loaded.workload.name
                and record["name"] == source.name
                and record["candidate_hash"] != source.sha256
            ):
                raise LaboratoryError(
                    f"{source.path}: was judged with another content in session {head.id}; "
                    "restore it and copy your version to the next number"
                )


def incumbent(loaded: Loaded, scope: dict[str, Any] | None) -> Source:
    """Whose file holds the title in a scope, v000 where nobody was promoted. Raises when the file has changed."""
    held = decisions.title(loaded.hash, scope)
    if held is None:
        return loaded.workload.candidate("v000")
    source = loaded.workload.candidate(held.name)
    if source.sha256 != held.candidate_hash:
        raise LaboratoryError(
            f"{source.path}: the incumbent's file was edited after decision {held.decision_id}; restore it"
        )
    return source


def last_scope(loaded: Loaded) -> dict[str, Any] | None:
    """The scope of the newest session under this contract: where a sealed bundle most likely goes."""
    heads = [head for head in sessions.list_sessions(contract_hash=loaded.hash) if head.scope]  # a refusal has none
    return heads[-1].scope if heads else None


def race(loaded: Loaded, name: str, run: Run, profile: str | None = None, against: str | None = None) -> decisions.Race:
    """One deciding session of a candidate beside the incumbent (or `against`), or a screen on a profile's cases, and
    the decision on it.

    An earlier uncertain race of the same two plans is pooled with this one; a third is refused by the decision's rule.
    """
    return decisions.settle(loaded, challenge(loaded, name, run, profile, against))


def challenge(loaded: Loaded, name: str, run: Run, profile: str | None = None, against: str | None = None) -> str:
    """The session of a race, not yet decided on: its id."""
    scope = local.examine(loaded.contract.target.device)["scope"]
    kind = "screen" if profile else "decide"
    challenger, other = contestants(loaded, name, against, scope)
    verdicts = static_verdicts(loaded, challenger)
    if any(verdict.status == "failed" for verdict in verdicts):
        session = _refused(loaded, challenger, verdicts, kind, other)
    else:
        session = run(_race_job(loaded, kind, challenger, other, verdicts, profile))
    return sessions.append_session(session).id


def racing_job(loaded: Loaded, kind: str, name: str, profile: str | None, against: str | None) -> Job:
    """The job of a `decide`, `screen` or `judge` session to be carried elsewhere. Raises where the policy refuses."""
    challenger, other = contestants(loaded, name, against, last_scope(loaded))
    verdicts = static_verdicts(loaded, challenger)
    refused = next((verdict for verdict in verdicts if verdict.status == "failed"), None)
    if refused is not None:
        raise LaboratoryError(refused.reason)
    if kind == "judge":
        return jobs.judge(loaded, challenger, verdicts)
    return _race_job(loaded, kind, challenger, other, verdicts, profile or ("neutral" if kind == "screen" else None))


def _race_job(
    loaded: Loaded, kind: str, challenger: Source, other: Source, verdicts: list[Verdict], profile: str | None
) -> Job:
    return jobs.race(loaded, kind, challenger, other, loaded.workload.candidate("v000"), verdicts, profile)


def contestants(loaded: Loaded, name: str, against: str | None, scope: dict[str, Any] | None) -> tuple[Source, Source]:
    """Challenger and incumbent as files. Raises LaboratoryError when the challenger was edited after it was judged."""
    challenger = loaded.workload.candidate(name)
    refuse_edit(loaded, challenger)
    return challenger, loaded.workload.candidate(against) if against else incumbent(loaded, scope)


def rest_job(loaded: Loaded, identity: str) -> Job:
    """The job of what a partial session left. Raises JobError where nothing is left or a file has changed since."""
    first = sessions.root(identity)
    return jobs.rest(loaded, sessions.load_whole(first), first, sources(loaded))


def resume(loaded: Loaded, identity: str, run: Run) -> tuple[str, decisions.Race | None]:
    """Measure here what a partial session left; (the session's id, its decision where it is one that decides)."""
    job = rest_job(loaded, identity)
    assert job.rest_of is not None
    sessions.append_session(run(job))
    return job.rest_of, decisions.conclude(loaded, job.rest_of)


def confirmation(loaded: Loaded, raced: decisions.Race, run: Run) -> decisions.Race:
    """The second session of a promotion, with the best peers beside it, pooled with the first."""
    job = confirm_job(loaded, raced)
    identity = sessions.append_session(run(job)).id
    if (session := sessions.load_whole(identity)).status == "partial":
        raise LaboratoryError(f"confirmation {identity} is partial: {session.reason}; gfast resume {identity}")
    return decisions.settle_confirmation(loaded, raced, identity)


def confirm_job(loaded: Loaded, raced: decisions.Race) -> Job:
    """The job of a confirmation: with the best peer of each case, and the submission that would ship if it confirms.
    Raises LaboratoryError when there is no promotion to confirm."""
    if raced.decision.outcome != "promote":
        raise LaboratoryError(f"decision {raced.decision_id} is no promotion: {raced.decision.reason}")
    if raced.decision.contract_hash != loaded.hash:
        raise LaboratoryError(
            f"decision {raced.decision_id} was made under {raced.decision.contract_name} "
            f"{raced.decision.contract_hash[:12]}, this is {loaded.name} {loaded.hash[:12]}; name that one or race anew"
        )
    challenger = loaded.workload.candidate(raced.decision.challenger)
    other = loaded.workload.candidate(raced.decision.incumbent or "v000")
    for source in (challenger, other):
        refuse_edit(loaded, source)
    control = loaded.workload.candidate("v000")
    best = best_peers(loaded, raced.decision.scope)
    verdicts = static_verdicts(loaded, challenger)
    job = jobs.race(loaded, "confirm", challenger, other, control, verdicts, peers=best)
    made = compiler.portfolio(loaded, archive.holders(loaded, raced.decision.scope), challenger)
    job.plans.append(compiler.plan(*compiler.compile_to(loaded, made, compiler.unshipped(loaded, made))))
    return job


def take_in(session: Session) -> str:
    """Append a session that was measured elsewhere, and keep it. Raises LaboratoryError when the log has it already."""
    for head in sessions.list_sessions(contract_hash=session.contract_hash, kind=session.kind):
        there = sessions.load_session(head.id)
        if (there.job_hash, there.started, there.seed) == (session.job_hash, session.started, session.seed):
            raise LaboratoryError(f"this result is in the log already, as session {head.id}; gfast show {head.id}")
    return evidence.keep(sessions.append_session(session).id).id


def judgement(session: Session) -> str:
    """The outcome of a correctness session in one sentence."""
    name = next(record["name"] for record in session.participants if record["role"] == "challenger")
    own = [verdict for verdict in session.verdicts if verdict.participant == name]
    failed = next((verdict for verdict in own if verdict.status == "failed"), None)
    if failed is not None:
        return f"{name} is refused: {describe(failed)}"
    if session.status in ("void", "failed"):
        return f"{name} was not judged: the session is {session.status}: {session.reason}"
    skipped = next((verdict for verdict in own if verdict.status == "skipped" and verdict.gate == "build"), None)
    proved = sorted({verdict.case for verdict in own if verdict.gate == "official" and verdict.case is not None})
    if not proved:
        why = skipped.reason if skipped is not None else session.reason or "nothing was run"
        return f"{name} was not judged: {why}"
    shares = [v.share / v.limit for v in own if v.share is not None and v.limit and v.gate != "determinism"]
    where = f"case{'s' if len(proved) > 1 else ''} {', '.join(map(str, proved))}"
    return f"{name} is right on {where}: at most {max(shares, default=0.0):.1%} of any allowance used."


def _refused(
    loaded: Loaded, source: Source, verdicts: list[Verdict], kind: str = "judge", other: Source | None = None
) -> Session:
    """The session of a candidate that the static policy keeps from running at all."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    plans = [source.plan("challenger", [])] + ([other.plan("incumbent", [])] if other else [])
    return Session(
        kind,
        loaded.workload.name,
        loaded.name,
        loaded.hash,
        digest({"refused": source.sha256}),
        0,
        now,
        now,
        "complete",
        "refused by the static policy before anything ran",
        participants=[plan.record() for plan in plans],
        cases=[case.id for case in loaded.contract.scored],
        verdicts=verdicts,
    )


def sources(loaded: Loaded) -> dict[str, Source]:
    """Every candidate and peer file of the workload by its hash, and the compiled submissions."""
    shop = loaded.workload
    peers = [shop.peer(path.stem) for path in sorted((shop.folder / "peers").glob("*.py"))]
    shipped = [read_source(path) for path in compiler.compiled(loaded)]
    return {source.sha256: source for source in [*shop.candidates(), *peers, *shipped]}
