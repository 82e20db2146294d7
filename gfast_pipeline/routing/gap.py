"""The gap per case: what the best plan takes ÷ what the device could do. Records in, one `gap` payload out.

Who holds a case is the caller's to say; nothing is read from the log or written to it here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gfast_pipeline.bench.messages import Session
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.contract.schema import Case
from gfast_pipeline.routing.floors import dependent_step, floors
from gfast_pipeline.routing.work import work_of

STANDING = ("plan", "candidate_hash", "plan_hash", "official_us", "queued_us", "session")


def gaps(
    loaded: Loaded, standing: Iterable[Mapping[str, Any]], ceilings_session: Session, ceilings_id: str
) -> dict[str, Any]:
    """The payload of an entry of kind `gap`; all times in µs.

    `standing` has a row a measured case: case, plan (name), candidate_hash, plan_hash, official_us, queued_us (None:
    host bound) and session. Every case of the contract has a row in the answer, unmeasured ones with None for what is
    not known; where `gap` is None, `reason` says why. `basis` says what the floors rest on. Raises GfastError where the
    session holds no ceilings of this contract's device, WorkloadError where the work cannot be counted.
    """
    contract = loaded.contract
    _fits(loaded, ceilings_session, ceilings_id)
    rows = {row["case"]: row for row in standing}
    if unknown := sorted(set(rows) - {case.id for case in contract.cases}):
        raise GfastError(f"{loaded.path}: no case {unknown[0]}, of which a plan was given. Give this contract's cases.")
    work = work_of(loaded)
    return {
        "workload": loaded.workload.name,
        "contract_name": loaded.name,
        "contract_hash": loaded.hash,
        "scope": dict(ceilings_session.scope),
        "ceilings": ceilings_id,
        "basis": _basis(ceilings_session.measured, contract.target.device == "cuda"),
        "cases": [_row(loaded, case, work[case.id], rows.get(case.id), ceilings_session) for case in contract.cases],
    }


def _row(
    loaded: Loaded, case: Case, work: Mapping[str, int], stands: Mapping[str, Any] | None, ceilings: Session
) -> dict[str, Any]:
    mode = loaded.contract.mode.gap
    found = floors(work, loaded.contract, ceilings.measured, work["phases"], mode)
    known = {name: stands[name] if stands else None for name in STANDING}
    figure = known["official_us"] if mode == "official" else known["queued_us"] if mode == "queued" else None
    reason = ""
    if case.status == "feasibility":
        reason = "a feasibility case: its plan has to run, not to win"
    elif stands is None or known["official_us"] is None:
        reason = "no plan has been measured on it"
    elif figure is None:
        reason = f"no figure in the {mode} mode: the call waits for its host" if mode == "queued" else f"no {mode} mode"
    return {
        "case": case.id,
        "status": case.status,
        **known,
        "mode": mode,
        "floors": found.terms,
        "floor_us": found.floor_us,
        "binding_term": found.binding_term,
        "precision": found.precision,
        "hard_floor_us": found.hard_us,
        "gap": None if reason or figure is None else figure / found.floor_us,
        "reason": reason,
    }


def _fits(loaded: Loaded, session: Session, identity: str) -> None:
    remedy = f"Measure them: gfast measure ceilings -c {loaded.name}"
    if session.kind != "ceilings" or session.status != "complete":
        raise GfastError(f"session {identity} is {session.kind}, {session.status}: no complete ceilings. {remedy}")
    target, card = loaded.contract.target, session.scope.get("accelerator", {}).get("name")
    if target.device == "cuda" and card != target.accelerator:
        raise GfastError(f"ceilings {identity} are of {card}; {loaded.name} is for {target.accelerator}. {remedy}")
    if target.device == "cpu" and "null_queued_us" in session.measured:
        raise GfastError(f"ceilings {identity} are of {card}; {loaded.name} is for a CPU. {remedy}")


def _basis(measured: Mapping[str, Any], parallel: bool) -> list[str]:
    """What the floors rest on that the terms do not show."""
    said = []
    step = dependent_step(measured)
    if parallel and step:
        said.append(f"A dependent phase costs {step[0]:.3f} µs: {step[1]}.")
    elif parallel:
        said.append("The chain of dependent phases is not counted: nothing tells what a phase costs.")
    l2, memory = measured.get("l2_tb_s"), measured.get("memory_tb_s")
    if l2 and memory and l2 < memory:
        said.append(
            f"L2 was measured at {l2:.3g} TB/s, below memory's {memory:.3g}, which stands for it: measure anew."
        )
    return said
