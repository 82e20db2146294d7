from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from gfast_pipeline.bench.messages import Session
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.ledger import evidence, sessions
from gfast_pipeline.selection.archive import holders
from gfast_pipeline.selection.withdrawal import WithdrawalError, is_withdrawn, withdraw, withdrawn
from tests.selection.races import holder_of, race

FAST = "v001_fused_qkv_sdpa"


@pytest.fixture(autouse=True)
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GFAST_WAREHOUSE", str(tmp_path / "warehouse"))
    return tmp_path / "warehouse"


def raced(loaded: Loaded, seed: int) -> Session:
    """A race under this contract in which v001 beats v000 by a fifth."""
    one = race(seed, {FAST: 0.8}, challenger=FAST)
    for record in one.participants:
        for source in loaded.workload.candidates():
            if record["name"] == source.name:
                plan = source.plan(str(record["role"]), [])
                record |= {"candidate_hash": source.sha256, "plan_hash": plan.plan_hash}
    one.cases = [1]
    one.visits = [visit for visit in one.visits if visit.case == 1]
    return dataclasses.replace(one, contract_hash=loaded.hash, contract_name=loaded.name)


def test_a_withdrawal_is_an_entry_with_its_reason_that_covers_all_plans_of_the_candidate(loaded: Loaded):
    entry = withdraw(loaded, "v001", "  reads past the mask ", "Ada")
    sha = loaded.workload.candidate("v001").sha256
    assert evidence.read(entry.path) == {
        "workload": "transformer_layer", "contract_hash": loaded.hash, "candidate_hash": sha, "name": FAST,
        "plan_hash": None, "reason": "reads past the mask", "by": "Ada",
    }  # fmt: skip
    out = withdrawn(evidence.entries(), loaded.hash)
    assert is_withdrawn(out, sha, "any plan") and not is_withdrawn(out, "other", "any plan")
    assert withdrawn(evidence.entries(), "another contract") == set()


def test_everywhere_means_under_every_contract(loaded: Loaded):
    withdraw(loaded, "v001", "cheats", "Ada", everywhere=True)
    assert withdrawn(evidence.entries(), "another contract") != set()
    with pytest.raises(WithdrawalError, match="withdrawn already by Ada"):
        withdraw(loaded, "v001", "again", "Bob")


@pytest.mark.parametrize(
    ("name", "reason", "by", "said"),
    [
        ("v000", "slow", "Ada", "cannot be withdrawn. Withdraw the candidate that is wrong."),
        ("v000_identity", "slow", "Ada", "cannot be withdrawn"),
        ("v001", " ", "Ada", "needs a reason"),
        ("v001", "wrong", "", "needs a name"),
        ("v999", "wrong", "Ada", "no candidate 'v999'. There are: v000_identity, v001"),
    ],
)
def test_a_withdrawal_of_v000_of_nobody_or_without_a_reason_is_refused_and_records_nothing(
    loaded: Loaded, name: str, reason: str, by: str, said: str
):
    with pytest.raises(WithdrawalError) as refusal:
        withdraw(loaded, name, reason, by)
    assert said in str(refusal.value)
    assert evidence.entries() == []


def test_withdrawing_once_more_says_who_did_and_that_nothing_is_left_to_do(loaded: Loaded):
    withdraw(loaded, "v001", "cheats", "Ada")
    with pytest.raises(WithdrawalError, match=r"withdrawn already by Ada on \d{8} \(cheats\). Nothing is left to do."):
        withdraw(loaded, FAST, "cheats", "Bob")
    assert withdraw(loaded, "v001", "cheats", "Bob", everywhere=True).kind == "withdrawal"


def test_one_plan_of_several_can_be_withdrawn_but_only_one_that_was_measured(loaded: Loaded):
    sessions.append_session(raced(loaded, 1))
    sha = loaded.workload.candidate("v001").sha256
    plan = loaded.workload.candidate("v001").plan("challenger", []).plan_hash
    with pytest.raises(WithdrawalError, match=f"no plan {'0' * 12} was measured.*{plan[:12]}"):
        withdraw(loaded, "v001", "wrong", "Ada", plan_hash="0" * 64)
    withdraw(loaded, "v001", "wrong", "Ada", plan_hash=plan)
    out = withdrawn(evidence.entries(), loaded.hash)
    assert is_withdrawn(out, sha, plan) and not is_withdrawn(out, sha, "another")


def test_a_candidate_whose_file_was_edited_or_deleted_is_withdrawn_as_it_was_judged(loaded: Loaded):
    sessions.append_session(raced(loaded, 1))
    source = loaded.workload.candidate("v001")
    source.path.write_text(source.source + "\n# another\n")
    assert evidence.read(withdraw(loaded, "v001", "wrong", "Ada").path)["candidate_hash"] == source.sha256
    source.path.unlink()
    entry = withdraw(loaded, "v001", "wrong", "Ada", everywhere=True)
    assert evidence.read(entry.path)["candidate_hash"] == source.sha256


def test_its_cells_go_back_and_its_evidence_stays_and_restoring_from_files_changes_nothing(
    loaded: Loaded, warehouse: Path
):
    ids = [sessions.append_session(raced(loaded, seed)).id for seed in (1, 2)]
    scope = sessions.load_session(ids[0]).scope
    before = holders(loaded, scope)
    assert (before["contract_hash"], before["scope"]) == (loaded.hash, scope)
    assert holder_of(before, 1) == FAST
    evidence.keep(ids[0])  # in both folders: still one measurement
    assert holders(loaded, scope) == before
    shutil.move(evidence.kept_root(), warehouse / "elsewhere")
    assert holders(loaded, scope) == before

    withdraw(loaded, "v001", "cheats", "Ada")
    after = holders(loaded, scope)
    assert holder_of(after, 1) == "v000_identity"
    assert {row["challenger"] for row in after["contested"]} == {"v003_fused"}
    assert [head.id for head in sessions.list_sessions()] == ids
    assert holder_of(holders(loaded, {**scope, "protocol": 2}), 1) == "v000_identity"
