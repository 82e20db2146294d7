"""From a contract and some plans to a bench job: who takes part in which kind of session, on which cases and modes.

Knows the contract and the wire format; starts nothing, and does not choose who is the incumbent.
"""

from __future__ import annotations

from collections.abc import Sequence

from gfast_pipeline.bench.messages import Job, Plan, Session, Verdict, ends
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.contract.workload import Source

REFERENCE = Plan("reference", "reference", None, "reference")


PROVED = {
    ("decide", "challenger"),
    ("screen", "challenger"),
    ("confirm", "submission"),
    ("peers", "peer"),
    ("judge", "challenger"),
}
"""(kind, role) that go through the correctness phase, which comes before the first cell."""


class JobError(GfastError):
    """A session that cannot be put together."""


def judge(loaded: Loaded, source: Source, verdicts: Sequence[Verdict], quick: bool = False) -> Job:
    """Correctness of one candidate on all cases that are not serial; `quick`: one trial of the cheapest."""
    cases = [case.id for case in loaded.contract.cases if case.id not in loaded.contract.serial_cases]
    job = _job(loaded, "judge", [source.plan("challenger", cases, prove=True)], cases, verdicts)
    job.quick = quick
    return job


def race(
    loaded: Loaded,
    kind: str,
    challenger: Source,
    incumbent: Source,
    control: Source,
    verdicts: Sequence[Verdict],
    profile: str | None = None,
    peers: dict[str, list[int]] | None = None,
) -> Job:
    """A deciding session (`decide`, `screen`, `confirm`): reference, v000, incumbent, its twin and the challenger.

    `profile` names the cases of a screen; `peers` maps a peer to the cases where it is the best one (confirmations).
    Raises JobError when challenger and incumbent are the same file.
    """
    if challenger.sha256 == incumbent.sha256:
        raise JobError(f"{challenger.name} is the incumbent itself; race another candidate (`gfast noise` races A/A)")
    contract = loaded.contract
    cases = [case.id for case in contract.scored]
    if profile is not None:
        if profile not in contract.profiles:
            raise JobError(f"{loaded.path}: no profile {profile!r}; there are {', '.join(contract.profiles)}")
        cases = list(contract.profiles[profile])
    plans = [REFERENCE, incumbent.plan("incumbent", cases)]
    if kind != "screen":  # a screen only sorts: it needs no control of its noise
        if incumbent.sha256 != control.sha256:
            plans.append(control.plan("control", cases))
        twin = incumbent.plan("twin", cases)
        twin.name = "twin"
        plans.append(twin)
    plans.append(challenger.plan("challenger", cases, prove=kind != "confirm"))
    for name, where in (peers or {}).items():
        plan = loaded.workload.peer(name).plan("peer", where)
        plan.cases = where
        plans.append(plan)
    job = _job(loaded, kind, plans, cases, verdicts)
    if kind == "screen":
        job.generations, job.blocks = contract.screen.generations, contract.screen.blocks
        job.modes = [contract.mode.headline]
    elif kind == "confirm" and contract.target.device != "cpu":
        job.modes.append("cold")
    return job


def peers(
    loaded: Loaded,
    control: Source,
    verdicts: Sequence[Verdict],
    names: Sequence[str] | None = None,
    only: Sequence[int] | None = None,
) -> Job:
    """All peers of the contract (or `names`) beside reference and v000, proved and measured, never promoted."""
    cases = list(only or [case.id for case in loaded.contract.scored])
    chosen = [loaded.workload.peer(name) for name in names or loaded.contract.peers]
    plans = [REFERENCE, control.plan("control", cases), *(source.plan("peer", cases, prove=True) for source in chosen)]
    job = _job(loaded, "peers", plans, cases, verdicts)
    job.generations = min(2, job.generations)  # compiled anew in each: enough for a baseline that decides nothing
    return job


def noise(loaded: Loaded, subject: Source, cases: Sequence[int] | None = None) -> Job:
    """A/A: a candidate against a second process of itself, with the reference beside both."""
    chosen = list(cases or [case.id for case in loaded.contract.scored])
    twin = subject.plan("twin", chosen)
    twin.name = "twin"
    return _job(loaded, "noise", [REFERENCE, subject.plan("incumbent", chosen), twin], chosen, [])


def serial(loaded: Loaded, sources: Sequence[Source], verdicts: Sequence[Verdict]) -> Job:
    """The contract's serial cases, one participant at a time, against the chunked oracle. Raises JobError for none."""
    cases = list(loaded.contract.serial_cases)
    if not cases:
        raise JobError(f"{loaded.path}: serial_cases is empty; there is no case too large for an ordinary session")
    job = _job(loaded, "serial", [source.plan("challenger", cases) for source in sources], cases, verdicts)
    job.generations, job.blocks, job.modes = 1, 3, ["official"]
    return job


def ceilings(loaded: Loaded) -> Job:
    """What the device can do at best."""
    job = _job(loaded, "ceilings", [], [], [])
    job.generations = job.blocks = 0
    return job


def probe(loaded: Loaded, subject: Source, other: Source | None, control: Source, cases: Sequence[int]) -> Job:
    """`gfast doctor --device`: up to five contexts alive (reference, v000, subject, its twin, other) on some cases."""
    chosen = list(cases)
    twin = subject.plan("twin", chosen)
    twin.name = "twin"
    plans = [REFERENCE, control.plan("control", chosen), subject.plan("incumbent", chosen), twin]
    plans += [other.plan("challenger", chosen)] if other is not None else []
    return _job(loaded, "probe", plans, chosen, [])


def parity(loaded: Loaded, sources: Sequence[Source], cases: Sequence[int]) -> Job:
    """Our official figure beside a plain loop, for the reference and some plans."""
    chosen = list(cases)
    job = _job(loaded, "parity", [REFERENCE, *(source.plan("peer", chosen) for source in sources)], chosen, [])
    job.generations, job.blocks, job.modes = 2, 4, ["official"]
    return job


def rest(loaded: Loaded, session: Session, identity: str, sources: dict[str, Source]) -> Job:
    """The cells that a partial session left, for the very same plans. Raises JobError where a file has changed."""
    if not session.cells_missing:
        raise JobError(f"session {identity} has nothing left to measure")
    plans = []
    failed = [verdict for verdict in session.verdicts if verdict.status == "failed"]
    fallen = {verdict.participant for verdict in failed if ends(session.kind, "peer", verdict)}
    for record in session.participants:
        if record["role"] == "reference":
            plans.append(REFERENCE)
            continue
        source = sources.get(record["candidate_hash"])
        if source is None:
            raise JobError(
                f"{record['name']} of session {identity} is no file here any more; a changed one needs a new race"
            )
        # a judge session's cells are its proof, and peers are proved case by case
        unproved = session.kind in ("judge", "peers") or not session.cells_done
        prove = unproved and (session.kind, record["role"]) in PROVED
        plan = Plan(record["name"], record["role"], source.source, source.sha256, record["schedules"], prove)
        if record["role"] == "peer":
            plan.cases = [] if record["name"] in fallen else _left(session, record["name"])
        plans.append(plan)
    job = _job(loaded, session.kind, plans, list(session.cases), [])
    job.generations, job.blocks, job.modes = session.generations, session.blocks, list(session.modes)
    job.cells, job.rest_of, job.seed = [list(cell) for cell in session.cells_missing], identity, session.seed
    return job


def _left(session: Session, name: str) -> list[int]:
    """The cases of a peer in a remainder: a session does not say where a peer takes part, so those that were measured
    without it stay without it."""
    timed = {visit.case for visit in session.visits if visit.participant == name}
    measured = {case for _, case in session.cells_done}
    return [case for case in session.cases if case in timed or case not in measured]


def _job(loaded: Loaded, kind: str, plans: list[Plan], cases: list[int], verdicts: Sequence[Verdict]) -> Job:
    contract = loaded.contract
    modes = ["official", "queued"] if contract.target.device != "cpu" else ["official"]
    return Job(
        kind,
        contract.workload,
        contract.name,
        loaded.hash,
        loaded.plain,
        loaded.workload.reference_source,
        plans,
        cases,
        contract.generations,
        contract.blocks,
        modes,
        list(verdicts),
    )
