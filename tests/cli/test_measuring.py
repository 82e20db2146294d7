"""What the peers reach: the best right one of a case, beside every table, and in confirmations where it is best."""

from __future__ import annotations

from pathlib import Path

import pytest

from gfast_pipeline import measuring
from gfast_pipeline.bench.messages import Session, Verdict, Visit
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.ledger import sessions

SCOPE = {"protocol": 1, "accelerator": {"name": "cpu"}, "software": {}}


@pytest.fixture(autouse=True)
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFAST_WAREHOUSE", str(tmp_path / "warehouse"))


def peers(loaded: Loaded, times: dict[str, dict[int, float]], **changes) -> Session:
    """A peers session in which every call of a peer took exactly `times[name][case]` µs."""
    session = Session("peers", loaded.workload.name, loaded.name, loaded.hash, "j", 1, "2026-12-01T00:00:00Z")
    session.scope, session.cases, session.modes = SCOPE, sorted({c for t in times.values() for c in t}), ["official"]
    session.participants = [
        {"name": name, "role": "peer", "candidate_hash": name, "plan_hash": name, "schedules": {}} for name in times
    ]
    session.visits = [
        Visit(name, case, 0, 0, turn, 0, "official", 2, [us, us], 9.0, 9.0, 1.0)
        for name, cases in times.items()
        for case, us in cases.items()
        for turn in range(2)
    ]
    for name, value in changes.items():
        setattr(session, name, value)
    return session


def test_the_best_peer_of_a_case_comes_from_whichever_session_measured_it(loaded: Loaded):
    first = sessions.append_session(peers(loaded, {"compiled": {1: 90.0, 2: 50.0}, "captured": {1: 80.0, 2: 60.0}})).id
    second = sessions.append_session(peers(loaded, {"tuned": {1: 85.0, 2: 40.0}})).id
    found = measuring.peer_times(loaded.hash, SCOPE, "official")
    assert found == {1: ("captured", 80.0, first), 2: ("tuned", 40.0, second)}
    assert measuring.best_peers(loaded, SCOPE) == {"captured": [1], "tuned": [2]}
    assert measuring.peer_times(loaded.hash, {**SCOPE, "protocol": 2}, "official") == {}, "another scope"


def test_a_peer_that_failed_a_gate_or_a_void_session_is_nobodys_best(loaded: Loaded):
    wrong = peers(loaded, {"fast_and_wrong": {1: 1.0}, "right": {1: 70.0}})
    wrong.verdicts = [Verdict("anchored", "failed", "fast_and_wrong", 1, reason="off")]
    sessions.append_session(wrong)
    sessions.append_session(peers(loaded, {"void": {1: 2.0}}, status="void", reason="loud"))
    assert measuring.peer_times(loaded.hash, SCOPE, "official")[1][0] == "right"


def test_a_peer_refused_on_one_case_is_still_the_best_on_another(loaded: Loaded):
    mixed = peers(loaded, {"compiled": {1: 10.0, 2: 50.0}, "captured": {1: 80.0, 2: 60.0}})
    mixed.verdicts = [Verdict("anchored", "failed", "compiled", 1, reason="off")]
    sessions.append_session(mixed)
    assert measuring.best_peers(loaded, SCOPE) == {"captured": [1], "compiled": [2]}
    mixed.verdicts = [Verdict("policy", "failed", "compiled", reason="imports os")]
    mixed.contract_hash = "another"
    sessions.append_session(mixed)
    assert measuring.peer_times("another", SCOPE, "official")[2][0] == "captured"


def test_the_best_peer_stands_beside_a_session_without_peers_and_only_there(loaded: Loaded):
    identity = sessions.append_session(peers(loaded, {"captured": {1: 80.0, 7: 3.0}})).id
    race = peers(loaded, {"captured": {1: 80.0}}, kind="decide", cases=[1])
    assert measuring.beside(race) == []
    race.participants[0]["role"] = "challenger"
    (row,) = measuring.beside(race)
    assert (row["participant"], row["median_us"], row["case"]) == (f"captured (peer, session {identity})", 80.0, 1)


@pytest.mark.parametrize("kind", ["ceilings", "noise", "probe"])
def test_every_measurement_has_a_job_with_the_contract_in_it(loaded: Loaded, kind: str):
    job = measuring.measuring_job(loaded, kind)
    assert (job.kind, job.contract_hash) == (kind, loaded.hash)


def test_a_measurement_that_there_is_not_names_those_there_are(loaded: Loaded):
    with pytest.raises(measuring.MeasuringError, match="there are ceilings, noise, parity, peers, probe, serial"):
        measuring.measuring_job(loaded, "colours")
