from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from gfast_pipeline.bench.messages import Verdict
from gfast_pipeline.ledger import evidence, index
from gfast_pipeline.ledger.query import ask
from gfast_pipeline.ledger.sessions import append_session
from tests.evaluation.synthetic import CHALLENGER, INCUMBENT
from tests.ledger.payloads import SCOPE, decision, gap, holders, small, withdrawal

KEPT = Path(__file__).parents[2] / "warehouse" / "evidence" / "kept"


def answer(name: str, **parameters: Any) -> list[dict[str, Any]]:
    return ask(name, parameters).records()


def test_the_evidence_that_comes_with_gfast_shows_all_14_cases_of_the_h200(house: Path):
    shutil.copytree(KEPT, house / "evidence" / "kept")
    assert index.rebuild() == len(list(KEPT.glob("*.json.gz")))
    found = [row for row in answer("champions") if row["accelerator"] == "NVIDIA H200"]
    assert {row["case"] for row in found} == set(range(1, 15))
    assert all(row["official_us"] > 0 and row["plan"] and row["sessions"] for row in found)
    assert list(found[0]) == [
        "workload", "contract", "accelerator", "case", "plan", "official_us", "queued_us", "ratio_to_reference",
        "ratio_low", "ratio_high", "ratio_to_best_peer", "gap", "binding_term", "sessions", "standing",
    ]  # fmt: skip
    for name in ("leaderboard", "history", "budget_used", "refusals", "noise"):
        assert answer(name), name


def test_without_an_archive_the_fastest_right_plan_of_the_sessions_stands_and_says_so(house: Path):
    entry = append_session(small(1))
    rows = answer("champions")
    assert [(row["case"], row["plan"], row["standing"], row["sessions"]) for row in rows] == [
        (case, CHALLENGER, "measured, no archive yet", [entry.id]) for case in (1, 2, 7)
    ]
    assert rows[0]["ratio_to_reference"] == pytest.approx(2.0 / 0.9, rel=0.02)
    assert rows[0]["queued_us"] == pytest.approx(rows[0]["official_us"], rel=0.02)
    assert rows[0]["ratio_to_best_peer"] is None  # no session of peers was measured


def test_who_failed_a_case_stands_on_no_other_machine_scope_or_case_for_it(house: Path):
    one = small(1)
    one.verdicts.append(Verdict("anchored", "failed", CHALLENGER, 2, reason="off by far"))
    append_session(one)
    assert [(row["case"], row["plan"]) for row in answer("champions")] == [
        (1, CHALLENGER), (2, INCUMBENT), (7, CHALLENGER),
    ]  # fmt: skip
    other = small(2)
    other.scope = {**SCOPE, "accelerator": {"name": "NVIDIA B200"}}
    append_session(other)
    rows = answer("champions")
    assert {(row["accelerator"], row["plan"]) for row in rows if row["case"] == 2} == {
        ("NVIDIA H200", INCUMBENT),
        ("NVIDIA B200", CHALLENGER),
    }
    (refused,) = answer("refusals")
    assert (refused["plan"], refused["case"], refused["gate"]) == (CHALLENGER, 2, "anchored")
    assert refused["reason"] == "off by far"


def test_void_sessions_and_sessions_of_no_scope_make_no_champion(house: Path):
    append_session(small(1, kind="decide"))
    for seed, change in ((2, {"status": "void"}), (3, {"scope": {}})):
        one = small(seed)
        for name, value in change.items():
            setattr(one, name, value)
        append_session(one)
    assert len(answer("champions")) == 3
    assert {row["sessions"][0] for row in answer("champions")} == {evidence.entries()[0].id}


def test_the_last_archive_stands_with_the_gap_of_its_own_plan(house: Path):
    append_session(small(1))
    evidence.append("gap", gap(INCUMBENT, value=9.0))
    evidence.append("holders", holders("v001"))
    evidence.append("holders", holders(CHALLENGER))
    (row,) = answer("champions")
    assert (row["plan"], row["standing"], row["gap"]) == (CHALLENGER, "held", None)
    assert (row["official_us"], row["ratio_low"], row["ratio_to_best_peer"]) == (27.0, 2.1, 1.67)
    evidence.append("gap", gap(CHALLENGER, value=3.5))
    evidence.append("gap", gap(INCUMBENT, value=8.0))
    assert [(row["gap"], row["binding_term"]) for row in answer("champions")] == [(3.5, "memory")]


def test_the_title_is_that_of_the_last_confirmed_promotion_until_it_is_withdrawn(house: Path):
    first = evidence.append("decision", decision())
    evidence.append("decision", decision(challenger="v008", plan_hash="p8", candidate_hash="h8", confirmed=False))
    evidence.append("decision", decision(challenger="v009", plan_hash="p9", candidate_hash="h9", for_title=False))
    assert [row["decision"] for row in ask("FROM incumbent").records()] == [first.id]
    board = {row["plan"]: row for row in answer("leaderboard")}
    assert (board[CHALLENGER]["holds_title"], board["v008"]["holds_title"]) == (True, False)
    evidence.append("withdrawal", withdrawal(contract_hash="d" * 64))
    assert ask("FROM incumbent").rows != []
    evidence.append("withdrawal", withdrawal())
    assert ask("FROM incumbent").rows == []
    assert {row["plan"]: row["withdrawn"] for row in answer("leaderboard")} == {
        CHALLENGER: True, "v008": False, "v009": False,
    }  # fmt: skip


def test_a_withdrawn_plan_is_no_champion_and_its_evidence_stays(house: Path):
    append_session(small(1))
    evidence.append("withdrawal", withdrawal())
    assert {row["plan"] for row in answer("champions")} == {INCUMBENT}
    assert ask("samples_of", {"plan": CHALLENGER}).rows != []
    assert answer("history")[-1]["what"] == f"Ada withdrew {CHALLENGER}: it reads past its input"


def test_the_leaderboard_has_one_row_a_plan_and_scope_with_its_last_decision(house: Path):
    evidence.append("decision", decision(outcome="uncertain", confirmed=False))
    evidence.append("decision", decision(outcome="reject", confirmed=False, ratio=0.98))
    evidence.append("decision", decision(scope={**SCOPE, "protocol": 2}))
    assert sorted((row["outcome"], row["ratio"]) for row in answer("leaderboard")) == [
        ("promote", 1.11),
        ("reject", 0.98),
    ]


def test_noise_of_decisions_has_intervals_and_of_noise_sessions_cases(house: Path):
    entry = append_session(small(1, kind="noise"))
    made = evidence.append("decision", decision())
    rows = answer("noise")
    assert {(row["case"], row["mode"]) for row in rows if row["id"] == entry.id} == {
        (case, mode) for case in (1, 2, 7) for mode in ("official", "queued")
    }
    assert all(row["ratio"] == pytest.approx(1, abs=0.02) for row in rows)
    (told,) = [row for row in rows if row["id"] == made.id]
    assert (told["low"], told["high"], told["incumbent_us"], told["twin_us"]) == (0.99, 1.004, 30.0, 30.1)


def test_the_minutes_of_a_contract_are_those_between_start_and_end(house: Path):
    for seed, kind in ((1, "decide"), (2, "decide"), (3, "noise")):
        one = small(seed, kind=kind, started=f"2026-11-30T10:0{seed}:00Z")
        one.ended = f"2026-11-30T10:0{seed + 2}:30Z"
        append_session(one)
    assert {(row["kind"], row["sessions"], row["device_minutes"]) for row in answer("budget_used")} == {
        ("decide", 2, 5.0), ("noise", 1, 2.5),
    }  # fmt: skip
