"""The beam: the best promoted plans of a scope, parents of the next hypotheses. Widens as evidence grows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from gfast_pipeline.selection import scope as scopes
from gfast_pipeline.selection.incumbent import promotions, reigns
from gfast_pipeline.selection.withdrawal import Withdrawn

WIDTHS = ((2, 1), (5, 2))
"""(up to so many decided candidates, width); beyond them `WIDEST`."""
WIDEST = 3
DECIDED = ("promote", "reject", "uncertain")  # a screen decides nothing, an invalid race says nothing of its challenger


def width(contract_hash: str, scope: Mapping[str, Any], decisions: Iterable[tuple[str, Mapping[str, Any]]]) -> int:
    """1, 2 or 3 by how many candidates were decided on in this scope; withdrawn ones count, they were evidence too."""
    here = {"contract_hash": contract_hash, "scope": scope}
    decided = {
        decision["candidate_hash"]
        for _, decision in decisions
        if decision["outcome"] in DECIDED and scopes.same(here, decision)
    }
    return next((wide for most, wide in WIDTHS if len(decided) <= most), WIDEST)


def beam(
    contract_hash: str, scope: Mapping[str, Any], decisions: Iterable[tuple[str, Mapping[str, Any]]], out: Withdrawn
) -> list[dict[str, Any]]:
    """Rows {rank, name, candidate_hash, plan_hash, decision, ratio, low, high, challenger_us}, best first; at most
    `width` of them, none where nothing is promoted (the parent then is v000).

    Holders of the title come first, the newest foremost, since each beat the one before it. After them those that
    were promoted over a lesser plan, by the low end of their ratio to the reference: it is the one figure that all
    have. `ratio`, `low`, `high` are incumbent ÷ challenger of the plan's last confirmed promotion, times in µs.
    """
    log = list(decisions)
    titled = {reign.decision_id for reign in reigns(contract_hash, scope, log, out)}
    last: dict[tuple[str, str], tuple[int, str, Mapping[str, Any]]] = {}
    for index, (identity, decision) in enumerate(promotions(contract_hash, scope, log, out)):
        if not all(_positive(decision.get(key)) for key in ("ratio", "low", "high", "challenger_us")):
            continue  # no figure, no rank
        plan = (str(decision["candidate_hash"]), str(decision["plan_hash"]))
        if plan in last and last[plan][1] in titled and identity not in titled:
            continue
        last[plan] = (index, identity, decision)
    ordered = sorted(last.values(), key=lambda entry: _standing(entry, titled))
    return [
        {
            "rank": rank,
            "name": decision["challenger"],
            "candidate_hash": decision["candidate_hash"],
            "plan_hash": decision["plan_hash"],
            "decision": identity,
            **{key: decision[key] for key in ("ratio", "low", "high", "challenger_us")},
        }
        for rank, (_, identity, decision) in enumerate(ordered[: width(contract_hash, scope, log)], 1)
    ]


def _standing(entry: tuple[int, str, Mapping[str, Any]], titled: set[str]) -> tuple[bool, float, int]:
    index, identity, decision = entry
    if identity in titled:
        return False, 0.0, -index
    low = (decision.get("ratio_to_reference") or {}).get("low")
    return True, -float(low) if low is not None and _positive(low) else math.inf, -index


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0
