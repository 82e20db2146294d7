"""Who holds the title: the end of the chain of confirmed promotions, each over the holder before it; None: v000 does.

The ledger's view `incumbent` says the same in SQL; change both together, a test holds them equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gfast_pipeline.ledger import evidence, sessions
from gfast_pipeline.ledger.sessions import Incumbent
from gfast_pipeline.selection import scope as scopes
from gfast_pipeline.selection.withdrawal import WITHDRAWAL, Withdrawn, is_withdrawn, withdrawn

FIRST = "v000_"
"""How the name begins of who holds the title before anybody was promoted."""

Decisions = list[tuple[str, dict[str, Any]]]
"""(id, decision as stored), in the order of the log."""


def incumbent(
    contract_hash: str, scope: Mapping[str, Any], decisions: Iterable[tuple[str, Mapping[str, Any]]], out: Withdrawn
) -> Incumbent | None:
    """The last of `reigns`; None where there is none (v000)."""
    return next(reversed(reigns(contract_hash, scope, decisions, out)), None)


def reigns(
    contract_hash: str, scope: Mapping[str, Any], decisions: Iterable[tuple[str, Mapping[str, Any]]], out: Withdrawn
) -> list[Incumbent]:
    """All who took the title, in order; `decisions` in the order of the log, of any scopes.

    A confirmed promotion for the title counts only over the holder at that point: where two branches were merged, the
    later clock does not win over a plan that it never met. A withdrawn promotion takes nothing, as if it had never
    been, so the title goes back to the promotion before it; but who beat a withdrawn plan that was right above the
    holder beat what was faster still, and counts.
    """
    held: list[Incumbent] = []
    above: set[str] = set()  # withdrawn plans that would hold the title in place of the holder
    for identity, decision in _confirmed(contract_hash, scope, decisions):
        if decision.get("for_title", True) is not True:
            continue
        name, candidate, plan = (str(decision[key]) for key in ("challenger", "candidate_hash", "plan_hash"))
        over = str(decision.get("incumbent"))
        if not (over in above or (over == held[-1].name if held else over.startswith(FIRST))):
            continue
        if is_withdrawn(out, candidate, plan):
            above.add(name)
        else:
            held.append(Incumbent(name, candidate, plan, identity, dict(decision)))
            above.clear()
    return held


def promotions(
    contract_hash: str, scope: Mapping[str, Any], decisions: Iterable[tuple[str, Mapping[str, Any]]], out: Withdrawn
) -> list[tuple[str, Mapping[str, Any]]]:
    """The confirmed promotions of the scope, for the title or not, withdrawn plans left out, in the order given."""
    return [
        (identity, decision)
        for identity, decision in _confirmed(contract_hash, scope, decisions)
        if not is_withdrawn(out, str(decision["candidate_hash"]), str(decision["plan_hash"]))
    ]


def _confirmed(
    contract_hash: str, scope: Mapping[str, Any], decisions: Iterable[tuple[str, Mapping[str, Any]]]
) -> Iterable[tuple[str, Mapping[str, Any]]]:
    here = {"contract_hash": contract_hash, "scope": scope}
    return (
        (identity, decision)
        for identity, decision in decisions
        if decision["outcome"] == "promote" and decision["confirmed"] is True and scopes.same(here, decision)
    )


def stored_decisions() -> Decisions:
    """Every decision of the log. Raises EvidenceError."""
    return [(entry.id, evidence.read(entry.path)) for entry in evidence.entries(None, sessions.DECISION)]


def stored_withdrawals(contract_hash: str) -> Withdrawn:
    """What the log's withdrawals take out of rankings under this contract. Raises EvidenceError."""
    return withdrawn(evidence.entries(None, WITHDRAWAL), contract_hash)
