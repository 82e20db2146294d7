"""The stages over a real log and a real bench: what is recorded, what is refused, who holds the title."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gfast_pipeline import decisions, laboratory
from gfast_pipeline.bench.messages import Job, Session
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.execution import local
from gfast_pipeline.ledger import evidence, sessions

WRONG = '''"""v008: a wrong answer."""
import torch


def build(reference, case, schedule):
    return lambda x, valid_token_mask: reference(x, valid_token_mask) * 1.1
'''
FORBIDDEN = '''"""v009: reads a file."""


def build(reference, case, schedule):
    open("/etc/hostname")
    return reference
'''


@pytest.fixture(autouse=True)
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GFAST_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # its own lease: other tests measure on this CPU too
    return tmp_path / "warehouse"


def here(job: Job) -> Session:

    return local.run(job, lambda _seconds, _line: None)


def nowhere(job: Job) -> Session:
    raise AssertionError(f"nothing may run, and a {job.kind} job was to")


def write(loaded: Loaded, name: str, text: str) -> None:
    (loaded.workload.folder / "candidates" / f"{name}.py").write_text(text)


def test_a_wrong_candidate_is_a_recorded_verdict_in_one_sentence(loaded: Loaded):
    write(loaded, "v008_wrong", WRONG)
    session, identity = laboratory.judge(loaded, "v008", here)
    assert identity is not None
    stored = sessions.load_session(identity)
    assert [v.gate for v in stored.verdicts if v.status == "failed"][:1] == ["official"]
    sentence = laboratory.judgement(session)
    assert sentence.startswith("v008_wrong is refused: gate official failed on case 1 (official/official, trial 0)")


def test_a_dry_judgement_records_nothing(loaded: Loaded):
    session, identity = laboratory.judge(loaded, "v001", here, dry=True)
    assert identity is None and evidence.entries() == []
    assert laboratory.judgement(session).startswith("v001_fused_qkv_sdpa is right on case 1:")


def test_what_the_policy_refuses_never_runs_and_is_recorded_as_invalid(loaded: Loaded):
    write(loaded, "v009_reads", FORBIDDEN)
    session, identity = laboratory.judge(loaded, "v009", nowhere)
    assert identity is not None
    assert "v009_reads.py:5" in session.verdicts[0].reason
    raced = laboratory.race(loaded, "v009", nowhere)
    assert raced.decision.outcome == "invalid"
    assert "gate policy failed" in raced.decision.reason
    assert decisions.decision_on(raced.session_ids[0]) is not None


def test_a_file_edited_after_it_was_judged_is_refused_and_nothing_is_lost(loaded: Loaded):
    write(loaded, "v009_reads", FORBIDDEN)
    laboratory.judge(loaded, "v009", nowhere)
    before = evidence.chain()
    write(loaded, "v009_reads", FORBIDDEN.replace("hostname", "passwd"))
    with pytest.raises(laboratory.LaboratoryError, match=r"v009_reads\.py: was judged with another content in session"):
        laboratory.judge(loaded, "v009", nowhere)
    assert evidence.chain() == before


def test_a_race_stores_session_and_decision_and_a_lesser_opponent_gives_no_title(loaded: Loaded):
    raced = laboratory.race(loaded, "v001", here)
    stored = decisions.decision_on(raced.session_ids[0])
    assert stored is not None and stored["for_title"] is True
    assert stored["challenger"] == "v001_fused_qkv_sdpa" and stored["incumbent"] == "v000_identity"
    session = sessions.load_session(raced.session_ids[0])
    assert [record["role"] for record in session.participants] == ["reference", "incumbent", "twin", "challenger"]
    assert decisions.load_race(raced.decision_id).session_ids == raced.session_ids

    # the same figures, as if they had come from a race against somebody who holds nothing
    lesser = {**stored, "outcome": "promote", "confirmed": True, "for_title": False}
    sessions.append_decision(lesser)
    assert laboratory.incumbent(loaded, session.scope).name == "v000_identity"
    sessions.append_decision({**lesser, "for_title": True})
    assert laboratory.incumbent(loaded, session.scope).name == "v001_fused_qkv_sdpa"
    other = {**session.scope, "protocol": 99}
    assert laboratory.incumbent(loaded, other).name == "v000_identity", "another scope knows nothing of it"


def test_an_uncertain_race_is_pooled_with_the_next_one_of_the_same_plans(loaded: Loaded):
    first = laboratory.race(loaded, "v001", here)
    stored = decisions.decision_on(first.session_ids[0])
    assert stored is not None
    sessions.append_decision({**stored, "outcome": "uncertain"})
    second = decisions.settle(loaded, again(first))
    assert second.session_ids == [*first.session_ids, second.session_ids[-1]]
    assert len(second.session_ids) == 2
    sessions.append_decision({**stored, "outcome": "uncertain", "session_ids": second.session_ids})
    third = decisions.settle(loaded, again(first, seed=5))
    assert len(third.session_ids) == 1, "a race may be repeated once"


def again(raced: decisions.Race, seed: int = 4) -> str:
    """A further session like that of a race, with a seed of its own."""
    session = sessions.load_session(raced.session_ids[0])
    session.seed = seed
    return sessions.append_session(session).id


def test_a_confirmation_finds_the_promotion_that_it_confirms(loaded: Loaded):
    first = laboratory.race(loaded, "v001", here)
    stored = decisions.decision_on(first.session_ids[0])
    assert stored is not None
    session = sessions.load_session(first.session_ids[0])
    session.kind, session.seed = "confirm", 9
    identity = sessions.append_session(session).id
    assert decisions.conclude(loaded, sessions.append_session(other_plan(session)).id) is None, "nothing it confirms"
    if stored["outcome"] != "promote":  # a loud machine decides nothing: then this stands for the promotion
        assert decisions.conclude(loaded, identity) is None
        return
    confirmed = decisions.conclude(loaded, identity)
    assert confirmed is not None
    assert confirmed.session_ids == [*first.session_ids, identity]
    assert confirmed.decision.confirmed == (confirmed.decision.outcome == "promote")


def other_plan(session: Session) -> Session:
    """The same confirmation, of a plan that no decision knows."""
    records = [{**r, "plan_hash": "p" * 64} if r["role"] == "challenger" else r for r in session.participants]
    return dataclasses.replace(session, participants=records, seed=10)


def test_a_result_from_elsewhere_is_taken_in_and_kept_once(loaded: Loaded):
    session = local.run(laboratory.racing_job(loaded, "decide", "v001", None, None), lambda _s, _l: None)
    identity = laboratory.take_in(session)
    assert evidence.find(identity).path.exists()
    assert (evidence.kept_root() / evidence.find(identity).name).exists()
    with pytest.raises(laboratory.LaboratoryError, match=f"in the log already, as session {identity}"):
        laboratory.take_in(session)


def test_a_race_cut_short_is_resumed_and_decided_on_as_a_whole(loaded: Loaded):
    job = laboratory.racing_job(loaded, "decide", "v001", None, None)
    cut = local.run(job, lambda _seconds, _line: None, minutes=0.0)
    assert (cut.status, cut.cells_missing) == ("partial", [[0, 1], [1, 1]])
    root = sessions.append_session(cut).id
    identity, raced = laboratory.resume(loaded, root, here)
    assert identity == root and raced is not None
    assert raced.session_ids == [root]
    assert sessions.load_whole(root).status == "complete"
    with pytest.raises(GfastError, match="nothing left to measure"):
        laboratory.resume(loaded, root, nowhere)
