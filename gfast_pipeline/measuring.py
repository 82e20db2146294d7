"""Sessions that decide nothing: ceilings, peers, noise, serial cases, parity, the probe; and what the peers reach.

Has jobs run and appends what came back. `run` has a job run; whoever measures asks `laboratory.approved` first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gfast_pipeline.bench.messages import Job, Session
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.contract.workload import Source
from gfast_pipeline.execution import jobs
from gfast_pipeline.generation.verdicts import static_verdicts
from gfast_pipeline.ledger import sessions

Run = Callable[[Job], Session]
"""Has a job run somewhere and gives its session; how progress is shown is its business."""


class MeasuringError(GfastError):
    """A measurement that there is not."""


def measure(
    loaded: Loaded, kind: str, run: Run, names: Sequence[str] | None = None, cases: Sequence[int] | None = None
) -> tuple[Session, str]:
    """A session that decides nothing: ceilings, peers, noise, serial, parity, probe. Returns it with its id."""
    session = run(measuring_job(loaded, kind, names, cases))
    return session, sessions.append_session(session).id


def measuring_job(
    loaded: Loaded, kind: str, names: Sequence[str] | None = None, cases: Sequence[int] | None = None
) -> Job:
    """The job of such a session. `names` are candidates (peers: peers); each kind has a default."""
    shop = loaded.workload
    control = shop.candidate("v000")
    scored = [case.id for case in loaded.contract.scored]
    if kind == "ceilings":
        return jobs.ceilings(loaded)
    if kind == "peers":
        chosen = [shop.peer(name) for name in names or loaded.contract.peers]
        verdicts = [verdict for source in chosen for verdict in static_verdicts(loaded, source, peer=True)]
        return jobs.peers(loaded, control, verdicts, names, cases)
    found = [_any_source(loaded, name) for name in names or []]
    if kind == "noise":
        return jobs.noise(loaded, found[0] if found else control, cases)
    if kind == "serial":
        chosen = found or shop.candidates()
        verdicts = [verdict for source in chosen for verdict in static_verdicts(loaded, source)]
        return jobs.serial(loaded, chosen, verdicts)
    if kind == "parity":
        return jobs.parity(loaded, found, cases or scored)
    if kind == "probe":
        # captured candidates show best what processes differ in, and need a device
        subject, *others = found or [shop.candidate("v001")]
        return jobs.probe(loaded, subject, others[0] if others else None, control, cases or scored)
    raise MeasuringError(f"no measurement {kind!r}; there are ceilings, noise, parity, peers, probe, serial")


def _any_source(loaded: Loaded, name: str) -> Source:
    peers = loaded.workload.folder / "peers" / f"{name}.py"
    return loaded.workload.peer(name) if peers.is_file() else loaded.workload.candidate(name)


def best_peers(loaded: Loaded, scope: dict[str, Any]) -> dict[str, list[int]]:
    """peer → the scored cases where it is the fastest right one, of all peers sessions of the scope."""
    best: dict[str, list[int]] = {}
    for case, (name, _, _) in sorted(peer_times(loaded.hash, scope, loaded.contract.mode.headline).items()):
        best.setdefault(name, []).append(case)
    return best


def peer_times(contract_hash: str, scope: dict[str, Any], mode: str) -> dict[int, tuple[str, float, str]]:
    """case → (name, median µs, session) of the fastest right peer measured under this contract in this scope."""
    found: dict[int, tuple[str, float, str]] = {}
    for head in sessions.list_sessions(contract_hash=contract_hash, scope=scope, kind="peers"):
        session = None if head.rest_of is not None else sessions.load_whole(head.id)
        if session is None or session.status == "void":
            continue
        failed = {(verdict.participant, verdict.case) for verdict in session.verdicts if verdict.status == "failed"}
        for record in session.participants:
            for case in session.cases if record["role"] == "peer" else ():
                if {(record["name"], case), (record["name"], None)} & failed:
                    continue
                us = median_us(session, record["name"], case, mode)
                if us is not None and (case not in found or us < found[case][1]):
                    found[case] = (record["name"], us, head.id)
    return found


def beside(session: Session) -> list[dict[str, Any]]:
    """The best peer of every case, as rows for the table of times of a session that has no peers itself."""
    if any(record["role"] == "peer" for record in session.participants):
        return []
    rows = []
    for mode in session.modes:
        for case, (name, us, identity) in peer_times(session.contract_hash, session.scope, mode).items():
            if case in session.cases:
                row = {"case": case, "participant": f"{name} (peer, session {identity})", "mode": mode}
                rows.append({**row, "median_us": us, "visits": 0, "calls": 0, "host_bound": 0, "interval": None})
    return rows


def median_us(session: Session, name: str, case: int, mode: str) -> float | None:
    """Median of all timed calls of a participant on a case, µs; None where there are none."""
    visits = [v for v in session.visits if (v.participant, v.case, v.mode) == (name, case, mode)]
    calls = sorted(call for visit in visits for call in visit.event_us or [])
    return calls[len(calls) // 2] if calls else None
