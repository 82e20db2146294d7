"""The title and the beam, as pure functions of decisions and withdrawals."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfast_pipeline.ledger import evidence, sessions
from gfast_pipeline.selection.beam import beam, width
from gfast_pipeline.selection.incumbent import Decisions, incumbent, stored_decisions, stored_withdrawals

CONTRACT = "c" * 64
SCOPE = {"accelerator": {"name": "NVIDIA H200"}, "protocol": 1}


def decision(number: int, **more: Any) -> tuple[str, dict[str, Any]]:
    """A confirmed promotion of v00N over the one before it."""
    name = more.pop("name", f"v{number:03d}_x")
    plain = {
        "outcome": "promote", "confirmed": True, "for_title": True, "contract_hash": CONTRACT, "scope": SCOPE,
        "challenger": name, "incumbent": f"v{number - 1:03d}_x", "candidate_hash": f"h-{name}",
        "plan_hash": f"p-{name}", "ratio": 1.1, "low": 1.05, "high": 1.2, "challenger_us": 100.0,
        "ratio_to_reference": {"ratio": 2.0, "low": 1.9, "high": 2.1},
    }  # fmt: skip
    return f"d{number}", {**plain, **more}


def holder(log: Decisions, out: Collection[tuple[str, str | None]] = ()) -> str | None:
    held = incumbent(CONTRACT, SCOPE, log, set(out))
    return None if held is None else held.name


def names(log: Decisions, out: Collection[tuple[str, str | None]] = ()) -> list[str]:
    return [row["name"] for row in beam(CONTRACT, SCOPE, log, set(out))]


def test_the_title_is_the_last_confirmed_promotion_of_the_scope_else_v000s():
    log = [
        decision(1),
        decision(2),
        decision(3, confirmed=False),
        decision(4, outcome="reject"),
        decision(5, for_title=False),
        decision(6, scope={**SCOPE, "protocol": 2}),
        decision(7, contract_hash="d" * 64),
        decision(8, outcome="screen_promote"),
    ]
    assert holder(log) == "v002_x"
    assert holder([]) is None and holder(log[2:]) is None
    assert incumbent(CONTRACT, {}, log, set()) is None


def test_where_the_holder_is_withdrawn_the_title_goes_back_step_by_step_to_v000():
    log = [decision(1), decision(2), decision(3)]
    assert holder(log, {("h-v003_x", None)}) == "v002_x"
    assert holder(log, {("h-v003_x", "p-v003_x"), ("h-v002_x", "another plan")}) == "v002_x"
    assert holder(log, {("h-v003_x", None), ("h-v002_x", None)}) == "v001_x"
    assert holder(log, {(f"h-v00{number}_x", None) for number in (1, 2, 3)}) is None


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(6)), st.sets(st.integers(1, 6)))
def test_what_is_withdrawn_is_neither_holder_nor_in_the_beam(order, gone):
    log = [decision(number + 1) for number in order]
    out = {(f"h-v{number:03d}_x", None) for number in gone}
    withdrawn = {f"v{number:03d}_x" for number in gone}
    assert holder(log, out) not in withdrawn
    assert not withdrawn & set(names(log, out))


@pytest.mark.parametrize(("decided", "wide"), [(0, 1), (1, 1), (2, 1), (3, 2), (5, 2), (6, 3), (40, 3)])
def test_the_beam_widens_with_the_candidates_decided_on(decided, wide):
    log = [decision(number, outcome="reject") for number in range(decided)]
    noise = [
        decision(90, outcome="invalid"),
        decision(91, outcome="screen_reject"),
        decision(92, scope={"protocol": 9}),
    ]
    assert width(CONTRACT, SCOPE, [*log, *log, *noise]) == wide


def test_titles_come_first_the_newest_foremost_then_other_promotions_by_their_ratio_to_the_reference():
    lesser = {"for_title": False}
    log = [
        decision(1),
        decision(2, ratio_to_reference={"low": 1.5}, **lesser),
        decision(3, ratio_to_reference={"low": 1.7}, **lesser),
        decision(4, incumbent="v001_x"),
        decision(5, ratio_to_reference=None, **lesser),
        decision(6, outcome="reject"),
    ]
    assert names(log) == ["v004_x", "v001_x", "v003_x"]
    assert names(log, {("h-v004_x", None)}) == ["v001_x", "v003_x", "v002_x"]
    assert names(log[:2]) == ["v001_x"]
    rows = beam(CONTRACT, SCOPE, log, set())
    assert rows[0] == {
        "rank": 1, "name": "v004_x", "candidate_hash": "h-v004_x", "plan_hash": "p-v004_x", "decision": "d4",
        "ratio": 1.1, "low": 1.05, "high": 1.2, "challenger_us": 100.0,
    }  # fmt: skip


def test_a_title_of_another_branch_that_never_met_the_holder_is_no_title_in_the_beam():
    other = decision(7, incumbent="v000_identity", ratio_to_reference={"low": 1.1})
    assert names([decision(1), decision(2), other])[0] == "v002_x"


def test_a_plan_stands_in_the_beam_once():
    again = [decision(1), decision(2), decision(3), ("d9", decision(1, for_title=False)[1])]
    assert names(again) == ["v003_x", "v002_x"]


@pytest.mark.parametrize("figure", [None, math.nan, 0.0, math.inf])
def test_a_promotion_without_its_figures_is_never_first(figure):
    log = [decision(1), decision(2, ratio=figure)]
    assert names(log) == ["v001_x"]


def test_what_the_log_holds_is_read_in_its_order(tmp_path, monkeypatch):
    monkeypatch.setenv("GFAST_WAREHOUSE", str(tmp_path))
    for number in (1, 2):
        sessions.append_decision(decision(number)[1])
    evidence.append("withdrawal", {"contract_hash": None, "candidate_hash": "h-v002_x", "plan_hash": None})
    assert [plain["challenger"] for _, plain in stored_decisions()] == ["v001_x", "v002_x"]
    assert stored_withdrawals(CONTRACT) == {("h-v002_x", None)}
    assert holder(stored_decisions(), stored_withdrawals(CONTRACT)) == "v001_x"
