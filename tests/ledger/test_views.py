from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from gfast_pipeline.bench.messages import Verdict
from gfast_pipeline.ledger import evidence, index
from gfast_pipeline.ledger.query import ask
from gfast_pipeline.ledger.sessions import append_session
from tests.evaluation.synthetic import CHALLENGER, CONTROL, INCUMBENT, session
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
        "contract_hash", "scope",
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
    first = evidence.append("decision", decision(incumbent=CONTROL))
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


def test_the_gap_beside_a_champion_is_that_of_the_holders_else_the_newest(house: Path):
    evidence.append("holders", holders())
    evidence.append("gap", gap(value=1.0, of="holders"))
    evidence.append("gap", gap(value=2.0, of="holders"))
    evidence.append("gap", gap(value=3.0, of=CHALLENGER))
    evidence.append("gap", gap(value=4.0))
    assert [row["gap"] for row in answer("champions")] == [2.0]
    assert [row["of"] for row in ask("FROM gap").records()] == ["holders", "holders", CHALLENGER, None]


def test_a_holder_withdrawn_after_the_archive_gives_way_to_the_best_that_was_measured(house: Path):
    entry = append_session(small(1))
    held = holders()["cases"][0]
    cells = [held, {**held, "case": 2}, {**held, "case": 6}]
    other = {"plan": INCUMBENT, "candidate_hash": f"h-{INCUMBENT}", "plan_hash": f"p-{INCUMBENT}"}
    evidence.append("holders", holders(cases=[*cells, {**held, **other, "case": 7}]))
    evidence.append("withdrawal", withdrawal(contract_hash="d" * 64))
    assert [row["plan"] for row in answer("champions")] == [CHALLENGER, CHALLENGER, CHALLENGER, INCUMBENT]
    evidence.append("withdrawal", withdrawal(plan_hash=f"p-{CHALLENGER}"))
    assert [(row["case"], row["plan"], row["standing"], row["sessions"]) for row in answer("champions")] == [
        (1, INCUMBENT, "measured, its holder was withdrawn", [entry.id]),
        (2, INCUMBENT, "measured, its holder was withdrawn", [entry.id]),
        (7, INCUMBENT, "held", ["a" * 12]),
    ]  # of case 6 nothing was measured


def test_who_was_never_compared_with_the_reference_and_what_is_no_candidate_make_no_champion(house: Path):
    one = session({CHALLENGER: 0.9, CONTROL: 1.2}, generations=2, blocks=2)
    one.verdicts = [
        verdict
        for verdict in one.verdicts
        if verdict.gate != "official" or (verdict.participant, verdict.case) in ((CHALLENGER, 1), (INCUMBENT, 2))
    ]
    append_session(one)
    best = [(1, CHALLENGER), (2, INCUMBENT), (7, CONTROL)]
    assert [(row["case"], row["plan"]) for row in answer("champions")] == best
    void = session(kind="judge", seed=3, generations=1, blocks=1)
    void.status = "void"
    append_session(void)
    assert [(row["case"], row["plan"]) for row in answer("champions")] == best, "a void session proves nothing"
    proof = session(kind="judge", seed=2, generations=1, blocks=1)
    proof.visits = []
    proof.participants = [record for record in proof.participants if record["name"] in (CHALLENGER, "reference")]
    append_session(proof)
    best[1:] = [(2, CHALLENGER), (7, CHALLENGER)]
    assert [(row["case"], row["plan"]) for row in answer("champions")] == best, "proved in another session"
    compiled = session({CHALLENGER: 0.1}, kind="confirm", seed=4, generations=2, blocks=2)
    (mine,) = [record for record in compiled.participants if record["name"] == CHALLENGER]
    mine |= {"role": "submission", "candidate_hash": "h-compiled", "plan_hash": "p-compiled"}
    append_session(compiled)
    assert {row["official_us"] > 10 for row in answer("champions")} == {True}


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


def test_on_the_leaderboard_a_screen_replaces_no_decision_and_a_later_one_not_the_title(house: Path):
    won = evidence.append("decision", decision(incumbent=CONTROL))
    evidence.append("decision", decision(outcome="screen_reject", confirmed=False, for_title=False))
    evidence.append("decision", decision(incumbent=CONTROL, outcome="uncertain", confirmed=False, for_title=False))
    lesser = {"challenger": "v008", "plan_hash": "p8", "candidate_hash": "h8"}
    evidence.append("decision", decision(**lesser, outcome="screen_promote", confirmed=False))
    board = answer("leaderboard")
    assert [(row["decision"], row["outcome"], row["holds_title"]) for row in board] == [(won.id, "promote", True)]
    next_won = evidence.append("decision", decision(**lesser, incumbent=CHALLENGER))
    board = {row["plan"]: row for row in answer("leaderboard")}
    assert (board["v008"]["decision"], board["v008"]["holds_title"]) == (next_won.id, True)
    assert (board[CHALLENGER]["outcome"], board[CHALLENGER]["holds_title"]) == ("uncertain", False)


def test_rows_of_two_contracts_or_scopes_of_one_name_can_be_told_apart(house: Path):
    lone = {"cases": (1,), "generations": 1, "blocks": 1}
    for seed, changes in enumerate(({}, {"contract_hash": "d" * 64}, {"scope": {**SCOPE, "protocol": 2}}), 1):
        one = session(seed=seed, **lone)
        one.ended = "2026-11-30T11:00:00Z"
        for name, value in changes.items():
            setattr(one, name, value)
        append_session(one)
        evidence.append("decision", decision(**changes))
    for name in ("champions", "leaderboard", "budget_used"):
        rows = answer(name)
        assert list(rows[0])[-2:] == ["contract_hash", "scope"]
        assert len({(row["contract_hash"], row["scope"]) for row in rows}) == len(rows) == 3, name


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
