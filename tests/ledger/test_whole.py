"""A session joined with its remainders, on synthetic sessions cut at cell boundaries."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfast_pipeline.bench.messages import Clock, Phase, Session, Usage, Verdict
from gfast_pipeline.evaluation.decision import decide
from gfast_pipeline.ledger.evidence import EvidenceError
from gfast_pipeline.ledger.sessions import append_session, load_session, load_whole, root, settled
from tests.evaluation.synthetic import CHALLENGER, INCUMBENT, contract, session

Cells = list[list[int]]


def measured() -> Session:
    """A complete race of 2 generations × 3 cases with a clock, a usage and a phase for every cell."""
    one = session({CHALLENGER: 0.9}, generations=2, blocks=2)
    one.environment, one.isolation = {"before": {"load": 0}, "after": {"load": 1}}, "seccomp"
    for visit in one.visits:
        visit.event_us = [round(us, 3) for us in visit.event_us or []]
        visit.judge_wall_us, visit.runner_wall_us = round(visit.judge_wall_us, 3), round(visit.runner_wall_us, 3)
    for generation, case in one.cells_done:
        one.clocks.append(Clock(case, generation, 0))
        one.usage.append(Usage(CHALLENGER, case, generation, 1 << 20))
        one.phases.append(Phase("timing", 1.0, None, case, generation))
    one.measured = {"null_us": {"1/official": 2.0}, "cycles_per_us": 0.0}
    return one


def part(one: Session, done: Cells, asked: Cells, rest_of: str | None = None, **changes: Any) -> Session:
    """What a judge asked for the cells `asked` hands back after `done`; the first part holds the verdicts."""
    missing = [cell for cell in asked if cell not in done]
    kept = {
        name: [r for r in getattr(one, name) if [r.generation, r.case] in done]
        for name in ("visits", "clocks", "usage", "phases")
    }
    cut = dataclasses.replace(
        one, cells_done=done, cells_missing=missing, rest_of=rest_of, verdicts=[] if rest_of else one.verdicts, **kept
    )
    if missing:
        cut.status, cut.reason = "partial", "stopped at a case boundary"
    return dataclasses.replace(cut, **changes)


def test_a_session_without_remainders_is_itself(tmp_path: Path):
    one = measured()
    whole, cut = append_session(one, tmp_path).id, append_session(part(one, [[0, 1]], one.cells_done), tmp_path).id
    assert load_whole(whole, [tmp_path]) == load_session(whole, [tmp_path]) == one
    joined = load_whole(cut[:8], [tmp_path])
    assert (joined.status, joined.cells_missing) == ("partial", one.cells_done[1:])
    assert joined == load_session(cut, [tmp_path])


@settings(max_examples=25, deadline=None)
@given(st.permutations([[g, c] for g in range(2) for c in (1, 2, 7)]), st.integers(1, 5), st.integers(0, 5))
def test_however_it_was_cut_the_parts_make_the_decision_of_the_whole(
    tmp_path_factory, order: Cells, one: int, two: int
):
    log = tmp_path_factory.mktemp("log")
    full = measured()
    cuts = sorted({one, min(6, one + two), 6})
    asked, parent = full.cells_done, None
    done_before = 0
    first = ""
    for cut in cuts:
        done = order[done_before:cut]
        parent = append_session(part(full, done, asked, parent), log).id
        first = first or parent
        asked, done_before = [cell for cell in asked if cell not in done], cut
    whole = load_whole(first, [log])
    assert (whole.status, whole.reason, whole.cells_missing, whole.rest_of) == ("complete", "", [], None)
    for name in ("visits", "clocks", "usage", "phases", "cells_done"):
        assert sorted(map(str, getattr(whole, name))) == sorted(map(str, getattr(full, name)))
    assert (whole.verdicts, whole.measured, whole.isolation) == (full.verdicts, full.measured, "seccomp")
    again = decide([whole], contract(), resamples=100)
    assert again == decide([full], contract(), resamples=100)
    assert again.outcome == "promote"


def test_remainders_of_remainders_belong_to_it_and_other_sessions_do_not(tmp_path: Path):
    one = measured()
    every = one.cells_done
    first = append_session(part(one, every[:2], every), tmp_path).id
    stranger = append_session(part(one, every[:1], every), tmp_path).id
    second = append_session(part(one, every[2:3], every[2:], first), tmp_path).id
    assert load_whole(first, [tmp_path]).cells_missing == every[3:]
    third = append_session(part(one, every[3:], every[3:], second), tmp_path).id
    append_session(part(one, every[1:3], every[1:], stranger), tmp_path)
    assert {root(identity, [tmp_path]) for identity in (first, second, third)} == {first}
    assert load_whole(first, [tmp_path]).status == "complete"
    assert load_whole(second, [tmp_path]).cells_done == every[2:]
    assert load_whole(stranger, [tmp_path]).cells_missing == every[3:]


def test_what_is_still_missing_keeps_it_partial_and_says_so(tmp_path: Path):
    one = measured()
    every = one.cells_done
    first = append_session(part(one, every[:2], every), tmp_path).id
    append_session(part(one, every[2:4], every[2:], first, ended="2026-12-01T00:00:00Z"), tmp_path)
    whole = load_whole(first, [tmp_path])
    assert (whole.status, whole.reason) == ("partial", "2 cells are missing, first generation 1 case 2")
    assert (whole.cells_done, whole.cells_missing) == (every[:4], every[4:])
    assert (whole.started, whole.ended) == (one.started, "2026-12-01T00:00:00Z")
    assert "partial" in decide([whole], contract(), resamples=100).reason


def test_of_a_cell_measured_twice_the_first_counts_and_the_reason_says_so(tmp_path: Path):
    one = measured()
    every = one.cells_done
    first = append_session(part(one, every[:3], every), tmp_path).id
    early = append_session(part(one, every[3:5], every[3:], first), tmp_path).id
    slow = part(one, every[4:], every[3:], first, status="complete", reason="")
    slow.visits = [dataclasses.replace(v, event_us=[us * 9 for us in v.event_us or []]) for v in slow.visits]
    late = append_session(slow, tmp_path).id
    whole = load_whole(first, [tmp_path])
    assert whole.status == "complete"
    assert whole.reason == f"generation 1 case 2 counts as {early} measured it, not {late}"
    assert len(whole.visits) == len(one.visits)
    assert len(whole.clocks) == len(whole.usage) == len(every)
    twice = [v for v in whole.visits if [v.generation, v.case] == every[4]]
    assert sorted(map(str, twice)) == sorted(str(v) for v in one.visits if [v.generation, v.case] == every[4])


@pytest.mark.parametrize("status", ["void", "failed"])
@pytest.mark.parametrize("position", [0, 1])
def test_a_void_or_failed_part_spoils_the_whole(tmp_path: Path, status: str, position: int):
    one = measured()
    every = one.cells_done
    spoiled: dict[str, Any] = {"status": status, "reason": "the card fell over"}
    first = append_session(part(one, every[:3], every, **(spoiled if position == 0 else {})), tmp_path).id
    second = append_session(part(one, every[3:], every[3:], first, **(spoiled if position else {})), tmp_path).id
    whole = load_whole(first, [tmp_path])
    assert whole.status == status
    assert whole.reason == f"{(first, second)[position]} is {status}: the card fell over"
    assert whole.cells_missing == []


def other_plan(one: Session) -> None:
    one.participants[2] = {**one.participants[2], "plan_hash": "another"}


def other_role(one: Session) -> None:
    one.participants[2] = {**one.participants[2], "role": "peer"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: setattr(s, "contract_hash", "d" * 64), "contract_hash"),
        (lambda s: setattr(s, "scope", {**s.scope, "driver": "2"}), "scope"),
        (lambda s: setattr(s, "kind", "confirm"), "kind"),
        (lambda s: setattr(s, "blocks", 5), "blocks"),
        (lambda s: setattr(s, "modes", ["official"]), "modes"),
        (lambda s: s.participants.pop(), "participants"),
        (other_plan, f"participants .{INCUMBENT}. differ"),
        (other_role, f"participants .{INCUMBENT}. differ"),
        (lambda s: setattr(s, "cells_done", [[7, 1]]), "cells differ"),
    ],
)
def test_a_remainder_that_does_not_fit_is_refused_with_both_ids(
    tmp_path: Path, change: Callable[[Session], Any], told: str
):
    one = measured()
    every = one.cells_done
    first = append_session(part(one, every[:3], every), tmp_path).id
    odd = part(one, every[3:], every[3:], first, participants=list(one.participants))
    change(odd)
    second = append_session(odd, tmp_path).id
    with pytest.raises(EvidenceError, match=rf"session {second} is no remainder of session {first}.*{told}"):
        load_whole(first, [tmp_path])


def test_a_scope_that_nobody_stated_joins_with_nothing(tmp_path: Path):
    one = dataclasses.replace(measured(), scope={})
    first = append_session(part(one, one.cells_done[:3], one.cells_done), tmp_path).id
    append_session(part(one, one.cells_done[3:], one.cells_done[3:], first), tmp_path)
    with pytest.raises(EvidenceError, match="scope"):
        load_whole(first, [tmp_path])


def test_a_first_part_that_ended_before_its_proof_is_not_made_complete_by_mere_timings(tmp_path: Path):
    one = measured()
    every = one.cells_done
    bare = part(one, [], every, verdicts=[])
    first = append_session(bare, tmp_path).id
    timed = [verdict for verdict in one.verdicts if verdict.gate == "timed_output"]
    append_session(part(one, every, every, first, verdicts=timed), tmp_path)
    whole = load_whole(first, [tmp_path])
    assert (whole.status, whole.cells_missing) == ("partial", [])
    assert whole.reason == f"no part proved {CHALLENGER} on case 1; race it anew"

    first = append_session(dataclasses.replace(bare, seed=2), tmp_path).id
    append_session(part(one, every, every, first, verdicts=one.verdicts), tmp_path)
    assert load_whole(first, [tmp_path]).status == "complete"


def test_cells_left_because_the_challenger_fell_need_no_remainder(tmp_path: Path):
    one = measured()
    fell = Verdict("official", "failed", CHALLENGER, 1)
    peer = Verdict("build", "skipped", "compile_default")
    left = part(one, one.cells_done[:1], one.cells_done, status="complete", reason="")
    left.verdicts = [*one.verdicts, fell]
    assert not settled(left), "the peer is still in"
    left.verdicts.append(peer)
    assert settled(left)
    assert load_whole(append_session(left, tmp_path).id, [tmp_path]).status == "complete"
    left.verdicts = one.verdicts  # interrupted, whatever its status says
    assert load_whole(append_session(left, tmp_path).id, [tmp_path]).status == "partial"
