from __future__ import annotations

import dataclasses
import random

import pytest

from gfast_pipeline.bench.messages import Verdict
from gfast_pipeline.selection.scope import ScopeError
from tests.evaluation.synthetic import CHALLENGER, CONTROL, INCUMBENT, contract
from tests.selection.races import V000, contest_of, elsewhere, holder_of, log, race, row_of, selected

FASTER = {CHALLENGER: 0.9}
CASES = (1, 2, 7)


def test_before_anything_is_measured_v000_holds_every_scored_case_without_a_figure():
    found = selected()
    assert [row["plan"] for row in found["cases"]] == [CONTROL] * 3 + [None]
    assert all(row["official_us"] is None and row["sessions"] == [] and row["since"] is None for row in found["cases"])
    assert found["contested"] == []


def test_one_race_takes_nothing_however_clear_and_says_that_it_is_unconfirmed():
    found = selected(race(1, FASTER))
    assert all(holder_of(found, case) == CONTROL for case in CASES)
    row = contest_of(found, 1)
    assert not row["taken"] and row["low"] > 1.08
    assert row["reason"] == f"unconfirmed: one race only; beside {CONTROL} in s1"


def test_a_second_race_confirms_and_the_cell_rests_on_both_with_its_microseconds():
    found = selected(race(1, FASTER), race(2, FASTER, kind="confirm"), peers={1: ("graph", 20.0, "sp")})
    row = row_of(found, 1)
    assert (row["plan"], row["since"], row["sessions"]) == (CHALLENGER, "s2", ["s1", "s2"])
    assert row["official_us"] == pytest.approx(27.0, rel=0.02)
    assert row["reference_us"] == pytest.approx(60.0, rel=0.02)
    assert row["ratio_to_reference"] == pytest.approx(2 / 0.9, rel=0.01)
    assert row["ratio_low"] <= row["ratio_to_reference"] <= row["ratio_high"]
    assert (row["best_peer"], row["best_peer_us"]) == ("graph", 20.0)
    assert row["ratio_to_best_peer"] == 20.0 / row["official_us"]
    assert contest_of(found, 1)["taken"] and contest_of(found, 1)["p_holm"] < 0.025


def test_a_loser_and_a_screen_take_the_cell_where_they_are_faster_and_no_other():
    only7 = {7: {CHALLENGER: 0.8}}
    slow = {CHALLENGER: 1.2}
    found = selected(race(1, slow, cases=only7), race(2, slow, cases=only7, kind="screen", without=["twin"]))
    assert [holder_of(found, case) for case in CASES] == [CONTROL, CONTROL, CHALLENGER]
    assert contest_of(found, 1)["reason"].startswith("no faster: at most 16")


def test_without_a_twin_the_margin_is_the_most_noise_that_the_contract_allows():
    for speed, holder in ((0.98, CONTROL), (0.95, CHALLENGER)):
        screens = [race(seed, {CHALLENGER: speed}, kind="screen", without=["twin"]) for seed in (1, 2)]
        assert holder_of(selected(*screens), 1) == holder
        assert holder_of(selected(race(3, {CHALLENGER: speed}), race(4, {CHALLENGER: speed})), 1) == CHALLENGER


def test_a_gain_that_no_second_race_repeats_takes_nothing_even_if_the_pool_holds():
    found = selected(race(1, {CHALLENGER: 0.6}), race(2, {CHALLENGER: 1.0}))
    assert holder_of(found, 1) == CONTROL
    assert not contest_of(found, 1)["taken"]


def test_cells_pass_on_and_former_holders_have_to_win_them_back():
    new = "v008_newer"
    first = [race(seed, FASTER) for seed in (1, 2)]
    later = [race(seed, {new: 0.8, CHALLENGER: 0.9}, challenger=new, incumbent=CHALLENGER) for seed in (3, 4)]
    found = selected(*first, *later)
    assert holder_of(found, 2) == new
    assert row_of(found, 2)["since"] == "s4"
    assert [row["challenger"] for row in found["contested"] if row["case"] == 2 and row["taken"]] == [CHALLENGER, new]
    assert contest_of(found, 2, CHALLENGER)["reason"].startswith("no faster")


def test_of_two_that_win_in_one_race_the_faster_takes_the_cell():
    found = selected(*(race(seed, {CHALLENGER: 0.8, INCUMBENT: 0.9}) for seed in (1, 2)))
    assert holder_of(found, 1) == CHALLENGER
    found = selected(*(race(seed, {CHALLENGER: 0.9, INCUMBENT: 0.8}) for seed in (1, 2)))
    assert holder_of(found, 1) == INCUMBENT


def test_plans_that_never_met_are_not_compared():
    found = selected(*(race(seed, FASTER) for seed in (1, 2)), race(3, challenger="v009_other", incumbent="v004_x"))
    row = contest_of(found, 1, "v009_other")
    assert row["reason"] == f"never met: no race held both it and {CHALLENGER} on this case"
    assert (row["ratio"], row["low"], row["p"], row["taken"]) == (None, None, None, False)


def test_a_plan_that_ever_fails_a_case_holds_it_no_more_and_keeps_the_others():
    failing = race(3, FASTER)
    failing.verdicts.append(Verdict("anchored", "failed", CHALLENGER, case=2, reason="off"))
    found = selected(race(1, FASTER), race(2, FASTER), failing)
    assert [holder_of(found, case) for case in CASES] == [CHALLENGER, CONTROL, CHALLENGER]


def test_a_plan_that_nobody_proved_right_takes_nothing():
    races = [race(seed, FASTER) for seed in (1, 2)]
    for one in races:
        one.verdicts = [v for v in one.verdicts if (v.participant, v.gate) != (CHALLENGER, "anchored")]
    found = selected(*races)
    assert holder_of(found, 1) == CONTROL
    assert contest_of(found, 1)["reason"].startswith("unproved: gate anchored never passed on this case")


def test_answers_that_were_not_checked_after_timing_count_as_not_timed():
    races = [race(seed, FASTER) for seed in (1, 2)]
    for one in races:
        one.verdicts = [v for v in one.verdicts if (v.participant, v.gate, v.case) != (CHALLENGER, "timed_output", 1)]
    assert [holder_of(selected(*races), case) for case in CASES] == [CONTROL, CHALLENGER, CHALLENGER]


def _void(one):
    one.status = "void"


def _canaries(one):
    one.verdicts.append(Verdict("canaries", "failed", "judge", case=1))


def _control_fails(one):
    one.verdicts.append(Verdict("timed_output", "failed", CONTROL, case=1))


def _partial(one):
    one.status = "partial"


def _gates_not_run(one):
    one.not_run.append("physics: not possible here")


def _hole(one):
    one.visits.pop(next(index for index, v in enumerate(one.visits) if v.participant == CHALLENGER and v.case == 1))


def _loud(one):
    for visit in one.visits:
        if visit.participant == "twin":
            visit.event_us = [us * 1.1 for us in visit.event_us or []]


def _no_time(one):
    one.visits[0].event_us = [0.0]


@pytest.mark.parametrize("spoil", [_void, _canaries, _control_fails, _partial, _gates_not_run, _hole, _loud, _no_time])
def test_a_session_that_could_not_decide_confirms_no_cell(spoil):
    second = race(2, FASTER)
    spoil(second)
    assert holder_of(selected(race(1, FASTER), second), 1) == CONTROL
    assert holder_of(selected(race(1, FASTER), second, race(3, FASTER)), 1) == CHALLENGER


def test_on_a_cpu_a_gate_that_nobody_ran_holds_nothing_back():
    races = [race(seed, FASTER) for seed in (1, 2)]
    for one in races:
        _gates_not_run(one)
    assert holder_of(selected(*races, device="cpu"), 1) == CHALLENGER


def test_the_same_measurement_taken_in_twice_confirms_nothing():
    one = race(1, FASTER)
    assert holder_of(selected(one, dataclasses.replace(one)), 1) == CONTROL


def test_peers_and_submissions_hold_no_cell():
    races = [race(seed, {"compile_default": 0.5}) for seed in (1, 2)]
    for one in races:
        one.participants.append({**one.participants[-1], "name": "submission", "role": "submission"})
        one.visits += [dataclasses.replace(v, participant="submission") for v in one.visits if v.participant == "twin"]
    found = selected(*races)
    assert holder_of(found, 1) == CONTROL
    assert {row["challenger"] for row in found["contested"]} == {CHALLENGER, INCUMBENT}


def test_what_is_withdrawn_leaves_cells_and_contests_and_the_next_best_follows():
    races = [race(seed, {CHALLENGER: 0.8, INCUMBENT: 0.9}) for seed in (1, 2)]
    found = selected(*races, out={(f"h-{CHALLENGER}", None)})
    assert holder_of(found, 1) == INCUMBENT
    assert CHALLENGER not in {row["challenger"] for row in found["contested"]}
    found = selected(*races, out={(f"h-{CHALLENGER}", f"p-{CHALLENGER}"), (f"h-{INCUMBENT}", "another plan")})
    assert holder_of(found, 1) == INCUMBENT


def test_a_plan_is_its_source_and_schedule_on_the_case_however_many_cases_a_session_had():
    wide, narrow = race(1, FASTER), race(2, FASTER, cases={}, kind="screen")
    wide.participants = [
        {**r, "schedules": {str(c): {"rows": 32} for c in CASES} if r["name"] == CHALLENGER else {}}
        for r in wide.participants
    ]
    narrow.participants = [
        {**r, "plan_hash": "of fewer cases", "schedules": {"1": {"rows": 32}, "2": {"rows": 64}}}
        if r["name"] == CHALLENGER else r for r in narrow.participants
    ]  # fmt: skip
    found = selected(wide, narrow)
    assert [holder_of(found, case) for case in CASES] == [CHALLENGER, CONTROL, CONTROL]


def test_scopes_are_never_mixed():
    other = elsewhere(race(2, FASTER), accelerator={"name": "NVIDIA A100"})
    with pytest.raises(ScopeError, match=r"accelerator.name: NVIDIA H200 and NVIDIA A100"):
        selected(race(1, FASTER), other)
    with pytest.raises(ScopeError, match="contract_hash"):
        selected(race(1, FASTER), dataclasses.replace(race(2, FASTER), contract_hash="d" * 64))


def test_the_same_log_gives_the_same_payload():
    races = [race(seed, {CHALLENGER: 0.9, INCUMBENT: 0.95}) for seed in (1, 2, 3)]
    again = [dataclasses.replace(one, visits=random.Random(5).sample(one.visits, len(one.visits))) for one in races]
    assert selected(*races) == selected(*again)


def test_cells_change_hands_on_equal_code_no_more_often_than_the_error_allows():
    """20 candidates that are v000 once more, raced twice each; no margin but what the twin shows."""
    races = []
    for number in range(20):
        for turn in (1, 2):
            name = f"v{100 + number}_same"
            races.append(race(2 * number + turn, challenger=name, process=0.004, block=0.004, blocks=2))
    found = selected(*races, margin=1e-6)
    assert sum(row["taken"] for row in found["contested"]) <= 0.025 * 20
    assert all(row["plan"] == CONTROL for row in found["cases"] if row["status"] == "scored")


def _serial(seed: int, us: dict[str, float], passed: tuple[str, ...]):
    one = race(seed, kind="serial", generations=1, blocks=1)
    one.cases, one.generations, one.blocks = [14], 1, 3
    visit = one.visits[0]
    one.participants = [
        {"name": n, "role": "challenger", "candidate_hash": f"h-{n}", "plan_hash": f"p-{n}", "schedules": {}}
        for n in us
    ]
    one.verdicts = [Verdict("serial", "passed" if name in passed else "failed", name, case=14) for name in us]
    one.visits = [
        dataclasses.replace(visit, participant=name, case=14, generation=0, block=block, turn=0, event_us=[value])
        for name, value in us.items()
        for block in range(3)
    ]
    return one


def test_a_feasibility_case_is_held_by_the_fastest_that_its_oracle_passed_and_has_no_ratio():
    us = {"v001_a": 9e6, "v002_b": 4e6, "v003_c": 1e6}
    found = selected(_serial(1, us, passed=("v001_a", "v002_b")))
    row = row_of(found, 14)
    assert (row["plan"], row["status"], row["official_us"], row["sessions"]) == ("v002_b", "feasibility", 4e6, ["s1"])
    assert row["ratio_to_reference"] is None and row["ratio_to_best_peer"] is None
    assert holder_of(selected(_serial(1, us, passed=("v001_a", "v002_b")), out={("h-v002_b", None)}), 14) == "v001_a"
    later = _serial(2, {"v002_b": 4e6}, passed=())
    assert holder_of(selected(_serial(1, us, passed=("v001_a", "v002_b")), later), 14) == "v001_a"


def test_before_any_race_v000_has_the_times_of_the_sessions_that_ranked_nobody():
    found = selected(race(1, kind="peers", without=[CHALLENGER, INCUMBENT, "twin"]))
    row = row_of(found, 1)
    assert (row["plan"], row["since"], row["sessions"]) == (CONTROL, None, ["s1"])
    assert row["ratio_to_reference"] == pytest.approx(2.0, rel=0.02)


def test_the_helpers_speak_of_the_contract_and_control_that_the_archive_gets():
    assert V000.identity == (f"h-{CONTROL}", "{}") and contract()["name"] == "test"
    assert [identity for identity, _ in log(race(1), race(2))] == ["s1", "s2"]
