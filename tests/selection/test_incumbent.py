"""The title as a chain: what counts of merged branches and after withdrawals, in Python and in the ledger's view."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from gfast_pipeline.ledger import evidence, index
from gfast_pipeline.ledger.query import ask
from gfast_pipeline.selection.incumbent import incumbent, reigns, stored_decisions, stored_withdrawals
from gfast_pipeline.selection.withdrawal import Withdrawn
from tests.ledger.payloads import SCOPE, decision, withdrawal

CONTRACT = "c" * 64


def over(challenger: str, holder: str, **more: Any) -> dict[str, Any]:
    return decision(
        challenger=challenger, candidate_hash=f"h-{challenger}", plan_hash=f"p-{challenger}", incumbent=holder, **more
    )


def holders(*log: dict[str, Any], gone: str = "") -> list[str]:
    out: Withdrawn = {(f"h-{name}", None) for name in gone.split()}
    return [one.name for one in reigns(CONTRACT, SCOPE, [(str(n), plain) for n, plain in enumerate(log)], out)]


def test_of_two_merged_branches_the_later_does_not_win_over_a_plan_that_it_never_met():
    assert holders(over("v001", "v000_identity"), over("v002", "v000_identity")) == ["v001"]
    merged = [over("v001", "v000_identity"), over("v002", "v000_identity"), over("v003", "v002")]
    assert holders(*merged) == ["v001"], "what v002 led to never met v001 either"
    assert holders(*merged, over("v003", "v001")) == ["v001", "v003"]


def test_the_first_is_over_v000_and_the_promotions_of_lesser_plans_take_nothing():
    assert holders(over("v002", "v001"), over("v003", "v000_identity")) == ["v003"]
    assert holders(over("v001", "v000_identity"), over("v002", "v001", for_title=False)) == ["v001"]
    assert holders({**over("v001", "v000_identity"), "incumbent": None}) == []


def test_a_withdrawn_plan_takes_no_title_and_who_beat_it_counts():
    line = [over("v001", "v000_identity"), over("v002", "v001"), over("v003", "v002")]
    assert holders(*line) == ["v001", "v002", "v003"]
    assert holders(*line, gone="v003") == ["v001", "v002"]
    assert holders(*line, gone="v002") == ["v001", "v003"]
    assert holders(*line, gone="v001 v002") == ["v003"]
    assert holders(*line[:2], over("v004", "v001"), gone="v002") == ["v001", "v004"]
    assert holders(*line, over("v004", "v002"), gone="v002") == ["v001", "v003"], "it never met v003"


def test_who_beat_a_withdrawn_plan_of_another_branch_does_not_count():
    merged = [over("v001", "v000_identity"), over("v002", "v000_identity"), over("v003", "v002")]
    assert holders(*merged, gone="v002") == ["v001"]
    assert holders(*merged, gone="v001") == ["v002", "v003"]


@pytest.mark.parametrize("seed", [1, 2])
def test_the_view_of_the_ledger_says_the_same_of_any_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int):
    monkeypatch.setenv("GFAST_WAREHOUSE", str(tmp_path))
    rng = random.Random(seed)
    names = ["v001", "v002", "v003", "v004"]
    contracts = [f"{number:064d}" for number in range(60)]
    for contract in contracts:
        holder = "v000_identity"
        for _ in range(rng.randint(0, 7)):
            challenger = rng.choice(names)
            against = holder if rng.random() < 0.6 else rng.choice([*names, "v000_identity", None])
            plain = over(challenger, "", contract_hash=contract) | {"incumbent": against}
            plain |= {
                "outcome": "promote" if rng.random() < 0.9 else "reject",
                "confirmed": rng.random() < 0.9,
                "for_title": rng.random() < 0.9,
                "scope": SCOPE if rng.random() < 0.9 else {},
            }
            evidence.append("decision", plain)
            holder = challenger
        for name in names:
            if rng.random() < 0.25:
                plan = rng.choice([None, f"p-{name}", "another plan"])
                evidence.append(
                    "withdrawal", withdrawal(candidate_hash=f"h-{name}", plan_hash=plan, contract_hash=contract)
                )
    index.sync()
    viewed = {row["contract_hash"]: (row["plan"], row["decision"]) for row in ask("FROM incumbent").records()}
    log, replayed = stored_decisions(), {}
    for contract in contracts:
        held = incumbent(contract, SCOPE, log, stored_withdrawals(contract))
        if held is not None:
            replayed[contract] = (held.name, held.decision_id)
    assert viewed == replayed
    assert 20 < len(replayed) < 60
