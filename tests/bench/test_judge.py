"""Whole sessions, each in a bench process of its own: what an honest one holds, and how every other end is told."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from gfast_pipeline.bench.messages import Session, Verdict, canonical, digest, measured_modes, to_plain
from tests.bench.sessions import (
    HONEST,
    IDENTITY,
    REFERENCE,
    ROOT,
    SMALL,
    TINY,
    Bench,
    Outcome,
    contract,
    job,
    once,
    plan,
    run,
)

WRONG = IDENTITY.replace("return reference(x, valid_token_mask)", "return reference(x, valid_token_mask) * 1.1")
# Calibration shows it one pool again and again, at most about a hundred calls; a reused pool would show it far more.
REMEMBERS = IDENTITY.replace(
    "    def forward(x, valid_token_mask):\n",
    """    seen, again = set(), []

    def forward(x, valid_token_mask):
        key = x.double().sum().item()
        if key in seen:
            again.append(key)
        seen.add(key)
        if len(again) > 130:
            raise RuntimeError("I have seen these values before")
""",
)
WHOLE = job(
    "decide",
    [
        REFERENCE,
        plan("v001", HONEST, "incumbent", prove=False),
        plan("twin", HONEST, "twin", prove=False),
        plan("v002", REMEMBERS, "challenger"),
        plan("specialist", HONEST + "\n", "peer", prove=False, cases=[2]),
    ],
    contract(TINY, SMALL, visit_ms=12.0, ratio_gate=5.0),  # a test machine may be busy
    modes=["official", "queued"],
    seed=7,
)
QUICK = job("judge", [plan("v001", HONEST)], contract(TINY, SMALL), quick=True)
VANDAL = IDENTITY.replace("return reference(x, valid_token_mask)", "return reference(x.mul_(2), valid_token_mask)")
CREW = {"refused": HONEST, "vandal": VANDAL, "v001": HONEST, "wrong": WRONG}
SERIAL = job("serial", [plan(name, source, prove=False) for name, source in CREW.items()], contract(serial_cases=[1]))
SERIAL.verdicts = [Verdict("policy", "failed", "refused", reason="refused.py:1: imports os")]
PAIR = [REFERENCE, plan("v001", HONEST, prove=False)]
LONG = job("decide", PAIR, contract(TINY, SMALL, generations=50, ratio_gate=20.0))
REST = job(
    "decide", PAIR, contract(TINY, SMALL, ratio_gate=20.0), cells=[[1, 2]], rest_of="an earlier session", seed=11
)
VOID = job("judge", [plan("v000", WRONG, "control"), plan("v001", HONEST)])
MINUTES = 0.09


def stopped(folder: Path) -> Outcome:
    """A long session; while it holds the device another one is refused; then it is asked to stop."""
    bench = Bench(LONG, folder / "first")
    bench.until("isolation")
    other = Bench(QUICK, folder / "second", lease_of=folder / "first")
    _, err = other.process.communicate(timeout=60)
    bench.until("generation 1/50 case 1")
    bench.process.send_signal(signal.SIGINT)
    outcome = bench.end()
    (folder / "session.json").write_bytes(bench.out.read_bytes())
    refused = {"code": other.process.returncode, "err": err, "holder": bench.process.pid, "out": other.out.exists()}
    return dataclasses.replace(outcome, err=json.dumps(refused))


SESSIONS = {
    "whole": lambda folder: run(WHOLE, folder, "--events"),
    "stopped": stopped,
    "minutes": lambda folder: run(LONG, folder, "--minutes", str(MINUTES)),
    "serial": lambda folder: run(SERIAL, folder),
    "rest": lambda folder: run(REST, folder),
    "quick": lambda folder: run(QUICK, folder),
    "void": lambda folder: run(VOID, folder),
}


@pytest.fixture
def outcome(request, tmp_path_factory) -> Outcome:
    """The outcome of the session that the test is marked with."""
    return once(tmp_path_factory, SESSIONS, request.param)


def of(name: str):
    return pytest.mark.parametrize("outcome", [name], indirect=True, ids=[""])


# --- an honest session from end to end ---


@of("whole")
def test_an_honest_session_is_complete(outcome):
    session = outcome.session
    assert (outcome.code, session.status, session.reason) == (0, "complete", "")
    assert [v for v in session.verdicts if v.status == "failed"] == []
    assert session.cells_done == [[g, c] for g in range(2) for c in (1, 2)]
    assert session.cells_missing == []
    assert outcome.left == []


@of("whole")
def test_it_says_what_it_was_asked(outcome):
    session = outcome.session
    assert [(p["name"], p["role"]) for p in session.participants] == [(p.name, p.role) for p in WHOLE.plans]
    assert [p["plan_hash"] for p in session.participants] == [p.plan_hash for p in WHOLE.plans]
    assert session.job_hash == digest(to_plain(WHOLE))
    assert (session.kind, session.cases, session.generations, session.blocks) == ("decide", [1, 2], 2, 2)
    assert (session.contract_name, session.contract_hash, session.seed) == ("cpu_fp32", "hash", 7)
    assert session.started <= session.ended


@of("whole")
def test_every_participant_has_a_visit_in_every_pass_it_belongs_to(outcome):
    found = Counter((v.participant, v.case, v.mode, v.generation, v.block, v.turn) for v in outcome.session.visits)
    wanted = {
        (p.name, case, mode, g, b, t)
        for p in WHOLE.plans
        for case in p.cases or (1, 2)
        for mode in measured_modes(p.role, WHOLE.modes)
        for g in range(2)
        for b in range(2)
        for t in range(2)
    }
    assert set(found) == wanted
    assert set(found.values()) == {1}


@of("whole")
def test_a_visit_holds_one_positive_time_for_each_call(outcome):
    for visit in outcome.session.visits:
        assert visit.event_us is not None and len(visit.event_us) == visit.calls >= 2
        assert min(visit.event_us) > 0
        assert sum(visit.event_us) <= visit.runner_wall_us <= visit.judge_wall_us
        assert visit.handshake_us > 0 and visit.untimed >= 1
    paces = {(v.participant, v.case, v.mode): v.calls for v in outcome.session.visits}
    assert all(paces[v.participant, v.case, v.mode] == v.calls for v in outcome.session.visits), "frozen in the first"


@of("whole")
def test_the_order_is_a_permutation_then_its_reverse_and_follows_from_the_seed(outcome):
    session = outcome.session
    for generation in range(2):
        for case in (1, 2):
            order = random.Random(f"{session.seed}/{generation}/{case}")
            present = [p.name for p in WHOLE.plans if p.cases is None or case in p.cases]
            for block in range(2):
                permutation = list(present)
                order.shuffle(permutation)
                for turn, expected in enumerate((permutation, permutation[::-1])):
                    seen = {
                        v.position: v.participant
                        for v in session.visits
                        if (v.generation, v.case, v.block, v.turn, v.mode)
                        == (generation, case, block, turn, "official")
                    }
                    assert [seen[place] for place in range(len(expected))] == expected


@of("whole")
def test_a_specialist_takes_part_in_its_cases_only(outcome):
    assert {v.case for v in outcome.session.visits if v.participant == "specialist"} == {2}
    assert {v.case for v in outcome.session.verdicts if v.participant == "specialist"} == {2}


@of("whole")
def test_nobody_is_shown_a_value_twice(outcome):
    """v002 counts the inputs that it has met before, and would fail."""
    told = [v for v in outcome.session.verdicts if v.participant == "v002"]
    assert {v.status for v in told} <= {"passed", "skipped"}
    assert sum(v.gate == "timed_output" and v.status == "passed" for v in told) == 4, "two cases, two generations"


@of("whole")
def test_every_gate_has_spoken_on_the_challenger_and_the_canaries_have_been_sent(outcome):
    verdicts = outcome.session.verdicts
    for case in (1, 2):
        mine = [v for v in verdicts if (v.participant, v.case, v.status) == ("v002", case, "passed")]
        proof = {"build", "official", "budget", "anchored", "determinism", "sensitivity", "inputs_untouched"}
        assert {v.gate for v in mine} >= proof | {"globals_untouched", "timed_output", "pool_untouched"}
        assert [v.trial for v in mine if v.gate == "official"] == list(range(5))
        draws = {(v.draw, v.variant) for v in mine if v.gate == "anchored"}
        rules = WHOLE.contract
        pairs = {(d["name"], v) for d in rules["weight_draws"] for v in d["variants"]}
        assert draws == pairs | {("official", name) for name in rules["structured"]}
        assert [(v.participant, v.status) for v in verdicts if (v.gate, v.case) == ("canaries", case)] == [
            ("judge", "passed")
        ]
    assert all(v.share is not None and v.limit is not None for v in verdicts if v.gate in ("official", "anchored"))


@of("whole")
def test_the_clock_gate_has_spoken_on_everybody_in_every_mode(outcome):
    told = {(v.participant, v.case, v.variant) for v in outcome.session.verdicts if v.gate == "clock"}
    assert told == {(v.participant, v.case, v.mode) for v in outcome.session.visits}
    assert [v for v in outcome.session.verdicts if (v.gate, v.case, v.status) == ("clock", 2, "passed")], "long visits"


@of("whole")
def test_environment_isolation_phases_and_what_was_not_run_stand_in_the_session(outcome):
    session = outcome.session
    assert {"utc", "python", "flags", "load", "variables"} <= set(session.environment["before"])
    assert {"utc", "python", "flags", "load", "variables"} <= set(session.environment["after"])
    assert session.isolation in ("namespace", "seccomp")
    assert session.scope["accelerator"]["name"] == "cpu"
    assert session.scope["software"]["torch"] == torch.__version__
    assert [note for note in session.not_run if note.startswith("physics: the contract names no limits")]
    assert not [v for v in session.verdicts if v.gate == "physics"]
    phases = {(p.phase, p.case, p.generation) for p in session.phases}
    for case in (1, 2):
        assert ("correctness", case, 0) in phases
        for generation in range(2):
            assert {("build", case, generation), ("timing", case, generation)} <= phases
    assert {("startup", None, 0), ("startup", None, 1)} <= phases
    assert all(p.seconds >= 0 for p in session.phases)
    clocks = [(c.case, c.generation, c.block) for c in session.clocks]
    assert sorted(clocks) == [(c, g, b) for c in (1, 2) for g in range(2) for b in range(2)]
    assert len(session.usage) == 2 * (4 + 5)


@of("whole")
def test_progress_as_events_is_one_object_a_line(outcome):
    events = [json.loads(line) for line in outcome.out.splitlines()]
    assert all(set(event) == {"seconds", "text"} for event in events)
    assert events[-1]["text"].startswith("session complete")
    assert [e["seconds"] for e in events] == sorted(e["seconds"] for e in events)


# --- ends of other kinds ---


@of("stopped")
def test_a_request_to_stop_ends_at_a_case_boundary_and_leaves_a_sealed_session(outcome):
    session = outcome.session
    assert (outcome.code, session.status) == (3, "partial")
    assert "stopped at a case boundary" in session.reason
    whole_cells_only(session)
    assert 1 <= len(session.cells_done) <= 3, "soon after it was asked"
    assert session.environment["after"] and session.ended
    assert outcome.left == []


@of("minutes")
def test_minutes_are_kept_and_end_at_a_case_boundary_too(outcome):
    session = outcome.session
    assert (outcome.code, session.status) == (3, "partial")
    assert len(session.cells_done) >= 1
    whole_cells_only(session)


def whole_cells_only(session: Session) -> None:
    done = [tuple(cell) for cell in session.cells_done]
    everything = [(g, c) for g in range(50) for c in (1, 2)]
    assert done == everything[: len(done)]
    assert [tuple(cell) for cell in session.cells_missing] == everything[len(done) :]
    visits = Counter((v.generation, v.case) for v in session.visits)
    assert visits == {cell: 2 * 2 * len(PAIR) for cell in done}


@of("rest")
def test_a_remainder_measures_the_missing_cells_and_says_whose_they_are(outcome):
    session = outcome.session
    assert (outcome.code, session.status) == (0, "complete")
    assert session.cells_done == [[1, 2]]
    assert {(v.generation, v.case) for v in session.visits} == {(1, 2)}
    assert (session.rest_of, session.seed) == ("an earlier session", 11)


@of("stopped")
def test_a_second_judge_on_the_same_device_is_told_who_holds_it(outcome):
    refused = json.loads(outcome.err)
    assert (refused["code"], refused["out"]) == (2, False)
    assert "not started: cpu is leased by pid" in refused["err"]
    assert f"pid {refused['holder']} since" in refused["err"]
    assert "Traceback" not in refused["err"]


@of("void")
def test_a_trusted_participant_that_fails_voids_the_session(outcome):
    session = outcome.session
    assert (outcome.code, session.status) == (4, "void")
    assert session.reason.startswith("v000 (control) failed official on case 1: ")


@of("quick")
def test_a_quick_judge_looks_once_at_the_cheapest_case(outcome):
    session = outcome.session
    assert (outcome.code, session.status) == (0, "complete")
    mine = [v for v in session.verdicts if v.participant == "v001"]
    assert Counter(v.gate for v in mine) == Counter(["build", "official", "budget", "determinism", "sensitivity"])
    assert {v.case for v in mine} == {1}, "the tiny one"
    assert session.visits == []


# --- cases too large for several participants ---


@of("serial")
def test_a_serial_session_judges_each_row_against_the_chunked_oracle(outcome):
    session = outcome.session
    found = {v.participant: v for v in session.verdicts if v.gate == "serial"}
    assert found["v001"].status == "passed"
    assert found["v001"].share is not None and found["v001"].share < 0.1
    assert found["wrong"].status == "failed"
    assert "of the allowance at [" in found["wrong"].reason
    assert (outcome.code, session.status) == (0, "complete")
    assert session.cells_done == [[0, 1]] and session.cells_missing == []


@of("serial")
def test_a_serial_case_is_called_three_times_one_participant_after_another(outcome):
    visits = outcome.session.visits
    assert [(v.participant, v.block) for v in visits] == [(n, b) for n in ("vandal", "v001", "wrong") for b in range(3)]
    assert all(v.event_us and 0 < v.event_us[0] <= v.judge_wall_us for v in visits)
    assert {u.participant for u in outcome.session.usage} == {"vandal", "v001", "wrong"}


@of("serial")
def test_in_a_serial_session_everybody_finds_the_same_input_and_the_refused_never_run(outcome):
    untouched = {v.participant: v.status for v in outcome.session.verdicts if v.gate == "inputs_untouched"}
    assert untouched == {"vandal": "failed", "v001": "passed", "wrong": "passed"}
    assert [v.gate for v in outcome.session.verdicts if v.participant == "refused"] == ["policy"]


# --- what cannot start ---


def attempt(content: bytes, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "job.json").write_bytes(content)
    return subprocess.run(
        [sys.executable, "-m", "gfast_pipeline.bench", str(folder / "job.json"), str(folder / "out.json")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
    )


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"protocol": 99}', b'{"protocol": 1, "colour": 2}'])
def test_a_job_that_is_none_is_refused_with_the_remedy(tmp_path, content):
    done = attempt(content, tmp_path)
    assert done.returncode == 2
    assert "job.json: " in done.stderr and "write the job anew" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out.json").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_contract_for_a_device_that_is_not_here_does_not_start(tmp_path):
    rules = contract()
    rules["target"] |= {"device": "cuda", "accelerator": "NVIDIA H200"}
    done = attempt(canonical(to_plain(job("judge", [plan("v001", HONEST)], rules))), tmp_path)
    assert done.returncode == 2
    assert "not started: the contract is for a CUDA device" in done.stderr
