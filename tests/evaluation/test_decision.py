from __future__ import annotations

import json
import math

import pytest

from gfast_pipeline.bench.messages import Session, Verdict, canonical
from gfast_pipeline.evaluation.decision import Decision, confirm, decide
from gfast_pipeline.evaluation.validity import PROVED
from tests.evaluation.synthetic import CHALLENGER, CONTROL, INCUMBENT, REFERENCE, TWIN, contract, session

FAST = {CHALLENGER: 0.9}


def run(*sessions: Session, resamples: int = 400, **changes) -> Decision:
    return decide(sessions, contract(**changes), resamples=resamples)


def assert_no_number(decision: Decision) -> None:
    assert decision.outcome == "invalid"
    numbers = (
        decision.ratio,
        decision.low,
        decision.high,
        decision.queued,
        decision.shown,
        decision.ratio_to_reference,
    )
    assert numbers == (None,) * 6
    assert decision.cases == []
    assert decision.reason


# --- the rule and its sentence ---------------------------------------------------------------------------------------


def test_a_clear_gain_is_promoted_and_the_sentence_has_microseconds_percent_and_margin():
    decision = run(session(FAST))
    assert decision.outcome == "promote"
    assert decision.ratio == pytest.approx(1 / 0.9, rel=0.01)
    assert decision.low is not None and decision.low > 1.01
    mine, theirs = decision.challenger_us, decision.incumbent_us
    assert theirs == pytest.approx((30.0 * 24.0 * 41.0) ** (1 / 3), rel=0.01)
    assert decision.reason.startswith(f"{CHALLENGER} is promoted: {mine:.1f} µs against {theirs:.1f} µs of {INCUMBENT}")
    assert "geometric mean of 3 cases, official" in decision.reason
    assert "% faster" in decision.reason and "margin of 1.0 %" in decision.reason
    assert decision.reason.count(". ") == 0 and decision.reason.endswith(".")


def test_the_ratio_is_exactly_that_of_the_microseconds_shown():
    decision = run(session(FAST))
    assert decision.incumbent_us and decision.challenger_us
    assert decision.ratio == pytest.approx(decision.incumbent_us / decision.challenger_us)
    for row in decision.cases:
        assert row.incumbent_us and row.challenger_us
        assert row.ratio == pytest.approx(row.incumbent_us / row.challenger_us)


def test_the_same_speed_is_rejected_with_the_interval_below_the_margin():
    decision = run(session())
    assert decision.outcome == "reject"
    assert f"{CHALLENGER} is rejected" in decision.reason and "below the margin of 1.0 %" in decision.reason


def test_a_slower_plan_is_rejected_and_called_slower():
    decision = run(session({CHALLENGER: 1.2}))
    assert decision.outcome == "reject"
    assert "16.7 % slower" in decision.reason or "16.6 % slower" in decision.reason


def test_an_interval_around_the_margin_settles_nothing():
    decision = run(session({CHALLENGER: 1 / 1.01}, process=0.004))
    assert decision.outcome == "uncertain"
    assert decision.low and decision.high and decision.margin
    assert decision.low <= 1 + decision.margin <= decision.high
    assert "stays undecided" in decision.reason and "settles nothing" in decision.reason


def test_a_gain_on_the_device_alone_promotes_when_the_official_mode_loses_nothing():
    one = session(queued_factors={CHALLENGER: 0.8})
    decision = run(one)
    assert decision.outcome == "promote"
    assert decision.high is not None and decision.high < 1.02
    assert decision.queued is not None and decision.queued.low > 1.2
    assert "no loss beyond the margin" in decision.reason and "queued it is" in decision.reason


def test_a_gain_on_the_device_does_not_count_where_the_contract_does_not_list_the_mode():
    assert run(session(queued_factors={CHALLENGER: 0.8}), promotion=("official",)).outcome == "reject"


def test_a_gain_on_the_device_does_not_make_up_for_an_official_loss():
    one = session({CHALLENGER: 1.05}, queued_factors={CHALLENGER: 0.8})
    assert run(one).outcome == "reject"


def test_on_a_cpu_the_headline_serves_for_both_modes():
    decision = run(session(FAST, modes=("official",)), device="cpu")
    assert decision.outcome == "promote" and decision.queued is None


def test_host_bound_visits_take_the_queued_mode_out_but_not_the_race():
    one = session(FAST)
    for visit in one.visits:
        if visit.mode == "queued" and visit.participant == CHALLENGER and visit.case == 7:
            visit.event_us, visit.status = None, "host_bound"
    decision = run(one)
    assert decision.outcome == "promote" and decision.queued is None
    assert decision.notes and "case 7" in decision.notes[0] and "queued" in decision.notes[0]


# --- the margin ------------------------------------------------------------------------------------------------------


def test_the_margin_grows_to_the_far_end_of_the_aa_control():
    decision = run(session(FAST, process=0.008, seed=5))
    assert decision.noise is not None and decision.margin is not None
    far = max(abs(math.log(decision.noise.low)), abs(math.log(decision.noise.high)))
    assert decision.margin == pytest.approx(max(0.01, math.exp(far) - 1))
    assert decision.margin > 0.01


def test_an_aa_control_beyond_max_noise_voids_the_session():
    decision = run(session({**FAST, TWIN: 1.05}))
    assert_no_number(decision)
    assert "the session is void: its A/A control" in decision.reason and "3.0 %" in decision.reason


def test_a_loud_session_is_not_hidden_by_pooling_it_with_a_calm_one():
    loud, calm = session({**FAST, TWIN: 1.034}, seed=1), session({**FAST, TWIN: 0.99}, seed=2)
    assert run(calm).outcome == "promote"
    assert_no_number(run(loud, calm))


def test_equal_plans_are_almost_never_promoted():
    """The whole rule on A/A sessions with process effects as large as the gain that counts."""
    promoted = 0
    for seed in range(100):
        one = session(seed=seed, cases=(1, 2), blocks=3, modes=("official",), process=0.006, block=0.005, calls=1)
        decision = run(one, cases={1: 1.0, 2: 1.0}, resamples=200)
        assert decision.outcome in ("promote", "reject", "uncertain", "invalid")
        promoted += decision.outcome == "promote"
    assert promoted <= 2


# --- what fails closed -----------------------------------------------------------------------------------------------


def test_a_failed_verdict_of_the_challenger_is_named_with_gate_case_and_reason():
    one = session(FAST)
    one.verdicts.append(Verdict("official", "failed", CHALLENGER, 7, "official", "randn", 2, reason="|err| 0.004"))
    one.verdicts.append(Verdict("clock", "failed", CHALLENGER, 1, reason="later"))
    decision = run(one)
    assert_no_number(decision)
    assert decision.reason == (
        f"{CHALLENGER} is invalid: gate official failed on case 7 (official/randn, trial 2): |err| 0.004"
    )


def test_a_candidate_that_was_skipped_is_invalid_and_says_why():
    one = session(FAST)
    one.verdicts.append(Verdict("build", "skipped", CHALLENGER, reason="no nvcc"))
    one.visits = [visit for visit in one.visits if visit.participant != CHALLENGER]
    assert "skipped, no nvcc" in run(one).reason


@pytest.mark.parametrize("name", [REFERENCE, CONTROL, INCUMBENT, TWIN, "somebody unknown"])
def test_a_failed_verdict_of_anybody_else_voids_the_session(name):
    one = session(FAST)
    one.verdicts.append(Verdict("timed_output", "failed", name, 2, reason="differs"))
    one.verdicts.insert(0, Verdict("official", "failed", CHALLENGER, 1, reason="too"))
    decision = run(one)
    assert_no_number(decision)
    assert decision.reason.startswith(f"the session is void: {name}, gate timed_output failed on case 2")


def test_a_failed_canary_voids_the_session_whoever_it_was_tried_on():
    one = session(FAST)
    one.verdicts.append(Verdict("canaries", "failed", CHALLENGER, 1, reason="zeros passed"))
    assert run(one).reason.startswith("the session is void")


def test_a_failed_peer_is_no_concern_of_the_race():
    one = session(FAST)
    one.verdicts.append(Verdict("official", "failed", "compile_default", 1, reason="off"))
    one.visits = [visit for visit in one.visits if visit.participant != "compile_default"]
    assert run(one).outcome == "promote"


@pytest.mark.parametrize("status", ["partial", "void", "failed", "anything"])
def test_a_session_that_is_not_complete_decides_nothing(status):
    one = session(FAST)
    one.status, one.reason = status, "the device fell off the bus"
    decision = run(one)
    assert_no_number(decision)
    assert "the device fell off the bus" in decision.reason


def test_missing_cells_decide_nothing():
    one = session(FAST)
    one.cells_missing = [[2, 7]]
    assert "first case 7 of generation 2" in run(one).reason
    assert_no_number(run(one))


@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, "official") for name in (CHALLENGER, INCUMBENT, TWIN, REFERENCE, CONTROL)]
    + [(name, "queued") for name in (CHALLENGER, INCUMBENT, TWIN)],
)
def test_one_missing_visit_decides_nothing_even_when_the_session_calls_itself_complete(name, mode):
    one = session(FAST)
    one.visits.remove(next(v for v in one.visits if (v.participant, v.mode, v.case) == (name, mode, 2)))
    decision = run(one)
    assert_no_number(decision)
    assert f"{name} on case 2 ({mode}) lacks 1 visits" in decision.reason


def test_the_reference_and_v000_need_only_the_headline_mode():
    one = session(FAST)
    one.visits = [v for v in one.visits if v.mode == "official" or v.participant not in (REFERENCE, CONTROL)]
    assert run(one).outcome == "promote"


@pytest.mark.parametrize("bad", [math.nan, 0.0, -3.0, math.inf])
def test_a_sample_that_is_no_time_decides_nothing(bad):
    one = session(FAST)
    one.visits[5].event_us = [bad, 1.0, 1.0]
    decision = run(one)
    assert_no_number(decision)
    assert "is no time" in decision.reason


@pytest.mark.parametrize("gate", PROVED)
def test_a_challenger_that_was_never_proved_decides_nothing_however_fast(gate):
    one = session(FAST)
    one.verdicts = [v for v in one.verdicts if (v.gate, v.participant, v.case) != (gate, CHALLENGER, 7)]
    decision = run(one)
    assert_no_number(decision)
    assert f"was never proved on case 7: gate {gate} has no passed verdict" in decision.reason


def test_times_whose_answers_nobody_checked_decide_nothing():
    one = session(FAST)
    one.verdicts = [v for v in one.verdicts if (v.gate, v.participant, v.case) != ("timed_output", CHALLENGER, 2)]
    decision = run(one)
    assert_no_number(decision)
    assert "case 2 were never checked (timed_output)" in decision.reason


@pytest.mark.parametrize(("generations", "blocks"), [(1, 5), (4, 1)])
def test_one_generation_or_one_block_decides_nothing(generations, blocks):
    assert_no_number(run(session(FAST, generations=generations, blocks=blocks)))


def test_without_a_twin_nothing_is_decided_but_a_screen_may_do_without():
    one = session(FAST)
    one.participants = [p for p in one.participants if p["role"] != "twin"]
    assert "no twin" in run(one).reason
    one.kind = "screen"
    assert run(one).outcome == "screen_promote"


def test_a_session_of_another_contract_or_kind_decides_nothing():
    one = session(FAST)
    one.contract_name = "other"
    assert "transformer_layer/other" in run(one).reason
    assert "kind peers is no race" in run(session(FAST, kind="peers")).reason


def test_sessions_of_different_scopes_contracts_plans_or_cases_are_never_pooled():
    first = session(FAST, seed=1)
    for change, word in [
        (lambda s: s.scope.update(driver="2"), "different scopes"),
        (lambda s: setattr(s, "contract_hash", "d" * 64), "different contract hashes"),
        (lambda s: next(p for p in s.participants if p["name"] == CHALLENGER).update(plan_hash="p2"), "another source"),
        (lambda s: next(p for p in s.participants if p["name"] == INCUMBENT).update(name="v009"), "role incumbent"),
    ]:
        other = session(FAST, seed=2)
        change(other)
        assert_no_number(run(first, other))
        assert word in run(first, other).reason
    assert "different cases" in run(first, session(FAST, seed=2, cases=(1, 2))).reason


def test_there_has_to_be_one_challenger_and_one_incumbent():
    with pytest.raises(ValueError, match="no session"):
        decide([], contract())
    one = session(FAST)
    with pytest.raises(ValueError, match="is no challenger"):
        decide([one], contract(), challenger="v099")
    one.participants[3]["role"] = "challenger"
    with pytest.raises(ValueError, match="2 challengers"):
        decide([one], contract())


# --- screens, gates not run, re-races, confirmation ------------------------------------------------------------------


def test_some_of_the_cases_can_only_screen_and_feasibility_cases_do_not_count():
    assert run(session(FAST, cases=(1, 2))).outcome == "screen_promote"
    assert run(session(cases=(1, 2))).outcome == "screen_reject"
    full = run(session(FAST, cases=(1, 2, 7, 14)))
    assert full.outcome == "promote" and {row.case for row in full.cases} == {1, 2, 7}


def test_a_screen_only_screens_and_says_whether_a_full_race_is_worth_it():
    assert run(session(FAST, kind="screen")).outcome == "screen_promote"
    equal, slow = run(session(kind="screen")), run(session({CHALLENGER: 1.1}, kind="screen"))
    assert (equal.outcome, equal.advances) == ("screen_reject", True)
    assert (slow.outcome, slow.advances) == ("screen_reject", False)
    assert run(session(FAST)).advances is None


def test_gates_that_nobody_ran_keep_an_accelerator_session_from_promoting():
    one = session(FAST)
    one.not_run = ["physics: not built yet"]
    decision = run(one)
    assert decision.outcome == "uncertain"
    assert "would be promoted" in decision.reason and "physics: not built yet" in decision.reason
    assert decision.ratio is not None and decision.not_run == ["physics: not built yet"]
    assert run(one, device="cpu").outcome == "promote"
    slow = session({CHALLENGER: 1.2})
    slow.not_run = ["physics: not built yet"]
    assert run(slow).outcome == "reject"


def test_a_gate_not_run_for_the_challenger_alone_counts_as_well():
    one = session(FAST)
    one.verdicts.append(Verdict("clock", "not_run", CHALLENGER, 1, reason="no null candidate"))
    assert run(one).outcome == "uncertain" and "clock: no null candidate" in run(one).reason


def test_a_race_may_be_repeated_once_and_both_count():
    first, second = session({CHALLENGER: 1 / 1.012}, process=0.003, seed=11), session({CHALLENGER: 1 / 1.012}, seed=12)
    pooled = run(first, second)
    assert len(pooled.session_ratios) == 2 and len(pooled.sessions) == 2
    third = run(first, second, session(FAST, seed=13))
    assert_no_number(third)
    assert "repeated once" in third.reason


def test_a_confirmation_pools_and_shows_the_wider_interval():
    first, second = session({CHALLENGER: 0.90}, seed=1), session({CHALLENGER: 0.93}, kind="confirm", seed=2)
    decision = confirm([first], second, contract(), resamples=400)
    assert decision.outcome == "promote" and decision.confirmed and decision.publishable
    assert decision.shown and decision.low and decision.high
    assert decision.shown.low <= min(decision.low, *decision.session_ratios)
    assert decision.shown.high >= max(decision.high, *decision.session_ratios)
    assert decision.ratio == pytest.approx(1 / (0.9 * 0.93) ** 0.5, rel=0.005)


def test_a_confirmation_that_contradicts_confirms_nothing():
    first, second = session(FAST, seed=1), session({CHALLENGER: 1.1}, kind="confirm", seed=2)
    decision = confirm([first], second, contract(), resamples=400)
    assert decision.outcome != "promote" and not decision.confirmed and not decision.publishable


def test_only_a_promotion_can_be_confirmed_and_only_by_a_confirmation():
    with pytest.raises(ValueError, match="nothing to confirm"):
        confirm([session(seed=1)], session(FAST, kind="confirm", seed=2), contract(), resamples=400)
    with pytest.raises(ValueError, match="kind decide confirms nothing"):
        confirm([session(FAST, seed=1)], session(FAST, seed=2), contract(), resamples=400)


def test_publication_needs_as_many_sessions_as_the_contract_says():
    terms = {**contract(), "publish_sessions": 3}
    decision = confirm([session(FAST, seed=1)], session(FAST, kind="confirm", seed=2), terms, resamples=400)
    assert decision.confirmed and not decision.publishable


# --- what goes into the ledger ---------------------------------------------------------------------------------------


def test_a_decision_names_reference_health_and_the_best_of_each_case():
    decision = run(session({**FAST, "compile_default": 0.5}))
    assert decision.ratio_to_reference and decision.ratio_to_reference.ratio == pytest.approx(2 / 0.9, rel=0.01)
    assert decision.health and decision.health.ratio == pytest.approx(1.0, abs=0.01)
    row = next(row for row in decision.cases if (row.case, row.mode) == (2, "official"))
    assert (row.best, row.best_peer) == ("compile_default", "compile_default")
    assert row.reference_us == pytest.approx(48.0, rel=0.01) and row.best_us == pytest.approx(12.0, rel=0.01)


def test_deciding_again_gives_the_same_decision_whatever_the_order_and_it_is_plain_json():
    first, second = session(FAST, seed=1), session(FAST, seed=2)
    one, two = run(first, second), run(second, first)
    assert one == two
    assert json.loads(canonical(one.plain()))["outcome"] == "promote"


def test_the_incumbent_that_is_v000_itself_is_the_control():
    one = session(FAST)
    one.participants = [p for p in one.participants if p["role"] not in ("control", "incumbent")]
    one.participants.append({"name": CONTROL, "role": "incumbent", "candidate_hash": "h", "plan_hash": "p"})
    for visit in one.visits:
        if visit.participant == TWIN:
            visit.event_us = [us * 2 for us in visit.event_us or []]
    decision = run(one)
    assert decision.outcome == "promote" and decision.health is not None and decision.incumbent == CONTROL
