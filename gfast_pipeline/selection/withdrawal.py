"""Withdrawals: an entry that takes a plan out of every ranking. Its evidence stays where it is, and stays shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gfast_pipeline.contract.errors import GfastError, WorkloadError
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.ledger import evidence, sessions
from gfast_pipeline.ledger.evidence import Entry

WITHDRAWAL = "withdrawal"
CONTROL = "v000"

Withdrawn = set[tuple[str, str | None]]
"""(candidate hash, plan hash); a plan hash of None stands for all plans of the candidate."""


class WithdrawalError(GfastError):
    """A withdrawal that cannot be recorded."""


def withdraw(
    loaded: Loaded, name: str, reason: str, by: str, *, plan_hash: str | None = None, everywhere: bool = False
) -> Entry:
    """Record that a candidate (or one plan of it) leaves every ranking, and why.

    `name` is its name or number; `everywhere` withdraws it under all contracts, not only under this one. Raises
    WithdrawalError for v000, an unknown candidate, a plan nobody measured, no reason, nobody, or what is withdrawn
    already.
    """
    if not reason.strip():
        raise WithdrawalError(f"{name}: a withdrawal needs a reason. Say in a sentence what is wrong with it.")
    if not by.strip():
        raise WithdrawalError(f"{name}: a withdrawal needs a name. Say who withdraws it.")
    if name.split("_")[0] == CONTROL:
        raise WithdrawalError(
            f"{name}: the identity is the control of every session and the safe fallback; it cannot be withdrawn. "
            "Withdraw the candidate that is wrong."
        )
    full, candidate_hash, plans = _candidate(loaded, name)
    if plan_hash is not None and plan_hash not in plans:
        measured = ", ".join(sorted(plan[:12] for plan in plans)) or "none"
        raise WithdrawalError(
            f"{full}: no plan {plan_hash[:12]} was measured. Withdraw all of it, or one of these plans: {measured}."
        )
    for entry, old in _read(evidence.entries(None, WITHDRAWAL)):
        covers = old["contract_hash"] is None or (old["contract_hash"] == loaded.hash and not everywhere)
        if covers and old["candidate_hash"] == candidate_hash and old["plan_hash"] in (None, plan_hash):
            raise WithdrawalError(
                f"{full}: withdrawn already by {old['by']} on {entry.utc[:8]} ({old['reason']}). Nothing is left to do."
            )
    return evidence.append(
        WITHDRAWAL,
        {
            "workload": loaded.workload.name,
            "contract_hash": None if everywhere else loaded.hash,
            "candidate_hash": candidate_hash,
            "name": full,
            "plan_hash": plan_hash,
            "reason": reason.strip(),
            "by": by.strip(),
        },
    )


def withdrawn(entries: Iterable[Entry], contract_hash: str) -> Withdrawn:
    """What the withdrawals among `entries` take out of rankings under this contract. Raises EvidenceError."""
    return {
        (payload["candidate_hash"], payload["plan_hash"])
        for _, payload in _read(entries)
        if payload["contract_hash"] in (None, contract_hash)
    }


def is_withdrawn(found: Withdrawn, candidate_hash: str, plan_hash: str | None) -> bool:
    """Whether a plan is among them, itself or with its candidate."""
    return (candidate_hash, None) in found or (candidate_hash, plan_hash) in found


def _read(entries: Iterable[Entry]) -> Iterable[tuple[Entry, dict[str, Any]]]:
    return ((entry, evidence.read(entry.path)) for entry in entries if entry.kind == WITHDRAWAL)


def _candidate(loaded: Loaded, name: str) -> tuple[str, str, set[str]]:
    """(full name, candidate hash, plan hashes measured). What the log holds counts: a file may be edited or gone."""
    judged: dict[tuple[str, str], set[str]] = {}
    for head in sessions.list_sessions():
        for record in head.participants if head.workload == loaded.workload.name else ():
            known = str(record["name"])
            if record["role"] in ("control", "incumbent", "challenger") and name in (known, known.split("_")[0]):
                judged.setdefault((known, str(record["candidate_hash"])), set()).add(str(record["plan_hash"]))
    try:
        source = loaded.workload.candidate(name)
    except WorkloadError as error:
        if not judged:
            raise WithdrawalError(f"{error} Nothing in the log has that name either.") from None
        source = None
    if source is not None and (not judged or (source.name, source.sha256) in judged):
        return source.name, source.sha256, judged.get((source.name, source.sha256), set())
    if len(judged) > 1:
        raise WithdrawalError(
            f"{name}: judged with several contents ({', '.join(sorted(sha[:12] for _, sha in judged))}). "
            "Restore the file that is to be withdrawn, then withdraw it."
        )
    (full, candidate_hash), plans = next(iter(judged.items()))
    return full, candidate_hash, plans
