"""The stages on a real contract, a real bench and a real log: what is measured, what is reused, what is refused."""

from __future__ import annotations

import pytest

from gfast_pipeline import decisions, laboratory
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.execution import local
from gfast_pipeline.ledger import evidence, sessions
from gfast_pipeline.stages import landing, racing
from gfast_pipeline.stages.lab import Lab
from gfast_pipeline.stages.outcome import Missing

V000, V001, V002 = "v000_identity", "v001_fused_qkv_sdpa", "v002_sdpa_graph"


class Counting:
    """Has jobs run here, and counts them by kind."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def __call__(self, job):
        self.kinds.append(job.kind)
        return local.run(job, lambda seconds, line: None)


@pytest.fixture
def lab(loaded: Loaded, tmp_path, monkeypatch) -> Lab:
    monkeypatch.setenv("GFAST_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return Lab(loaded, Counting())


def test_a_candidate_goes_from_file_to_confirmation_and_a_second_time_nothing_is_measured(lab: Lab):
    first = [stage(lab, V001) for stage in (racing.correctness, racing.screening, racing.timings, racing.decision)]
    assert lab._run.kinds == ["judge", "decide"], "the only profile holds every case: no screen"
    assert [outcome.status for outcome in first] == ["done", "not_needed", "done", "done"]
    assert first[0].facts["standing"] == racing.RIGHT
    assert {check.name for check in first[2].checks if check.passed} == {"clocks_agree", "outputs_were_checked"}
    assert {row["participant"] for row in first[2].rows} == {"reference", V000, V001, "twin"}
    assert first[3].facts["outcome"] in ("promote", "uncertain", "reject", "invalid")
    before = len(evidence.entries())
    again = [stage(lab, V001) for stage in (racing.correctness, racing.timings, racing.decision)]
    assert [outcome.status for outcome in again] == ["reused"] * 3
    assert [outcome.version for outcome in again] == [first[0].version, first[2].version, first[3].version]
    assert lab._run.kinds == ["judge", "decide"] and len(evidence.entries()) == before


def test_a_session_whose_decision_was_lost_is_decided_on_and_not_measured_again(lab: Lab):
    identity = laboratory.challenge(lab.loaded, V001, lab._run)
    outcome = racing.decision(lab, V001)
    assert (outcome.status, outcome.sessions, lab._run.kinds) == ("done", [identity], ["decide"])
    assert racing.correctness(lab, V001).sessions == [identity], "a race proves its challenger"


def test_a_confirmation_whose_decision_was_lost_is_decided_on_and_not_measured_again(lab: Lab):
    raced = laboratory.race(lab.loaded, V001, lab._run)
    if raced.decision.outcome != "promote":
        pytest.skip("this machine is too loud to promote anything")
    lost = laboratory.confirm_job(lab.loaded, raced)
    identity = sessions.append_session(lab._run(lost)).id
    outcome = racing.confirmation(lab, V001)
    assert outcome.sessions == [*raced.session_ids, identity]
    assert lab._run.kinds == ["decide", "confirm"]
    names = {record["name"]: record["role"] for record in sessions.load_session(identity).participants}
    assert names["submission"] == "submission", "what would ship takes part"
    proved = {v.gate for v in sessions.load_session(identity).verdicts if v.participant == "submission"}
    assert {"official", "anchored", "timed_output"} <= proved


def test_a_race_that_was_void_through_no_fault_of_the_candidate_is_raced_anew(lab: Lab):
    raced = laboratory.race(lab.loaded, V001, lab._run)
    stored = decisions.decision_on(raced.session_ids[0])
    assert stored is not None
    sessions.append_decision({**stored, "outcome": "invalid", "reason": "the session is void: its A/A control"})
    again = racing.timings(lab, V001)
    assert again.status == "done" and again.sessions != raced.session_ids
    assert lab._run.kinds == ["decide", "decide"]


def test_asked_to_measure_again_a_further_session_joins_the_log(lab: Lab):
    first, second = racing.correctness(lab, V001), racing.correctness(lab, V001, again=True)
    assert first.sessions != second.sessions and lab._run.kinds == ["judge", "judge"]
    assert racing.correctness(lab, V001).sessions == second.sessions


def test_what_does_not_build_here_is_declined_and_raced_no_further(lab: Lab):
    outcome = racing.correctness(lab, V002)
    agrees = outcome.checks[0]
    assert (outcome.facts["standing"], agrees.passed, agrees.warning) == (racing.DECLINED, False, True)
    later = [stage(lab, V002) for stage in (racing.screening, racing.timings, racing.decision, racing.confirmation)]
    assert [one.status for one in later] == ["not_needed"] * 4
    assert "does not build here" in later[1].summary and lab._run.kinds == ["judge"]


def test_a_wrong_candidate_fails_its_check_and_is_raced_no_further(lab: Lab):
    path = lab.loaded.workload.folder / "candidates" / "v900_wrong.py"
    text = (path.parent / "v001_fused_qkv_sdpa.py").read_text()
    path.write_text(text.replace("v001:", "v900:").replace("return final_norm(x)", "return 1.5 * final_norm(x)"))
    outcome = racing.correctness(lab, "v900_wrong")
    assert (outcome.checks[0].passed, outcome.checks[0].warning) == (False, False)
    assert "gate official failed on case 1" in outcome.checks[0].description
    assert racing.timings(lab, "v900_wrong").status == "not_needed"


def test_a_file_edited_after_it_was_judged_fails_its_check_and_is_not_measured(lab: Lab):
    racing.correctness(lab, V001)
    path = lab.candidate(V001).path
    path.write_text(path.read_text() + "\n# a second thought\n")
    check = landing.candidate(lab, V001).checks[0]
    assert not check.passed and "copy your version to the next number" in check.description
    with pytest.raises(laboratory.LaboratoryError, match="copy your version to the next number"):
        racing.correctness(lab, V001)
    assert lab._run.kinds == ["judge"]


def test_v000_races_nobody_and_shows_its_times_of_the_newest_session(lab: Lab):
    assert racing.timings(lab, V000).status == "not_needed"
    laboratory.challenge(lab.loaded, V001, lab._run)
    outcome = racing.timings(lab, V000)
    assert outcome.status == "reused" and {row["participant"] for row in outcome.rows} == {"reference", V000}


def test_without_the_accelerator_a_measurement_names_the_bundle_to_make(loaded: Loaded, tmp_path, monkeypatch):
    monkeypatch.setenv("GFAST_WAREHOUSE", str(tmp_path / "warehouse"))
    lab = Lab(loaded, Counting())
    lab.__dict__["here"] = None
    with pytest.raises(Missing, match=r"gfast bundle create FILE -c tiny --kind judge --candidate v001"):
        racing.correctness(lab, V001)


def test_contract_and_catalogue_say_what_there_is_and_record_the_approval_once(lab: Lab):
    first, second = landing.contract(lab), landing.contract(lab)
    assert first == second and first.checks[0].passed and "approved by Ada" in first.summary
    assert [entry.kind for entry in evidence.entries()] == ["approval"]
    assert {row["candidate"] for row in landing.catalogue(lab).rows} >= {V000, V001, V002}
    for _ in range(2):
        landing.candidate(lab, V001)
    assert [entry.kind for entry in evidence.entries()] == ["approval", "candidate"]
