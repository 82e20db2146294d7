"""Who holds the title: the last confirmed promotion of the scope that nobody withdrew; None where v000 does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gfast_pipeline.ledger import evidence, sessions
from gfast_pipeline.ledger.sessions import Incumbent
from gfast_pipeline.selection import scope as scopes
from gfast_pipeline.selection.withdrawal import WITHDRAWAL, Withdrawn, is_withdrawn, withdrawn

Decisions = list[tuple[str, dict[str, Any]]]
"""(id, decision as stored), in the order of the log."""


def incumbent(
    contract_hash: str, scope: Mapping[str, Any], decisions: Iterable[tuple[str, Mapping[str, Any]]], out: Withdrawn
) -> Incumbent | None:
    """The plan of the last confirmed promotion for the title, `out` left aside; None where there is none (v000).

    `decisions` in the order of the log, of any scopes. Where the holder is withdrawn, the title goes back to the
    promotion before it.
    """
    held = None
    for identity, decision in promotions(contract_hash, scope, decisions, out):
        if decision.get("for_title", True) is True:
            name, candidate, plan = (str(decision[key]) for key in ("challenger", "candidate_hash", "plan_hash"))
            held = Incumbent(name, candidate, plan, identity, dict(decision))
    return held


def promotions(
    contract_hash: str, scope: Mapping[str, Any], decisions: Iterable[tuple[str, Mapping[str, Any]]], out: Withdrawn
) -> list[tuple[str, Mapping[str, Any]]]:
    """The confirmed promotions of the scope, withdrawn plans left out, in the order given."""
    here = {"contract_hash": contract_hash, "scope": scope}
    return [
        (identity, decision)
        for identity, decision in decisions
        if decision["outcome"] == "promote"
        and decision["confirmed"] is True
        and scopes.same(here, decision)
        and not is_withdrawn(out, str(decision["candidate_hash"]), str(decision["plan_hash"]))
    ]


def stored_decisions() -> Decisions:
    """Every decision of the log. Raises EvidenceError."""
    return [(entry.id, evidence.read(entry.path)) for entry in evidence.entries(None, sessions.DECISION)]


def stored_withdrawals(contract_hash: str) -> Withdrawn:
    """What the log's withdrawals take out of rankings under this contract. Raises EvidenceError."""
    return withdrawn(evidence.entries(None, WITHDRAWAL), contract_hash)
