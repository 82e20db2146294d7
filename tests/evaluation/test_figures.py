from __future__ import annotations

import math
import random

import pytest

from gfast_pipeline.bench.messages import Visit
from gfast_pipeline.evaluation.figures import figures, geometric_us, missing_visits, summaries, visit_figure
from tests.evaluation.synthetic import CHALLENGER, INCUMBENT, session


def visit(us: list[float] | None, turn: int = 0, block: int = 0, status: str = "ok") -> Visit:
    return Visit("v001_x", 1, 0, block, turn, 0, "official", 3, us, 1.0, 1.0, 1.0, status=status)


def holding(*visits: Visit):
    one = session(cases=(1,), generations=2, blocks=2)
    one.visits = list(visits)
    return one


def test_a_visit_is_the_median_of_its_calls_so_that_one_hiccup_does_not_move_it():
    assert visit_figure(visit([10.0, 5000.0, 12.0])) == 12.0
    assert visit_figure(visit([10.0, 12.0])) == 11.0


def test_a_host_bound_visit_has_no_figure():
    assert visit_figure(visit(None, status="host_bound")) is None


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, True, "12"])
def test_what_is_no_time_is_refused_with_its_place(bad):
    with pytest.raises(ValueError, match=r"v001_x on case 1 \(official, generation 0, block 0, turn 0\)"):
        visit_figure(visit([10.0, bad]))


def test_a_visit_without_calls_is_refused_and_not_counted_as_host_bound():
    with pytest.raises(ValueError, match="no timed call"):
        visit_figure(visit([]))


def test_a_block_is_the_mean_of_the_logs_of_its_two_turns():
    found = figures([holding(visit([10.0]), visit([40.0], turn=1))])
    assert found[(1, "v001_x", "official")][(0, 0)][0] == pytest.approx(math.log(20.0))


def test_a_block_with_one_turn_host_bound_yields_nothing():
    one = holding(visit([10.0]), visit(None, turn=1, status="host_bound"), visit([7.0], block=1), visit([7.0], 1, 1))
    assert figures([one])[(1, "v001_x", "official")][(0, 0)] == {1: pytest.approx(math.log(7.0))}


def test_a_visit_recorded_twice_is_refused():
    with pytest.raises(ValueError, match="recorded twice"):
        figures([holding(visit([10.0]), visit([9.0]))])


def test_the_order_of_visits_does_not_matter():
    one, other = session(seed=3), session(seed=3)
    random.Random(0).shuffle(other.visits)
    assert figures([one]) == figures([other])


def test_the_second_sessions_generations_are_further_generations():
    found = figures([session(seed=1, generations=2), session(seed=2, generations=3)])
    assert sorted(found[(1, INCUMBENT, "official")]) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]


def test_summaries_say_median_and_what_stands_behind_it():
    one = session(generations=2, blocks=2, cases=(1,), calls=3)
    one.visits[0].event_us, one.visits[0].status = None, "host_bound"
    name, mode = one.visits[0].participant, one.visits[0].mode
    summary = next(s for s in summaries([one]) if (s.participant, s.mode) == (name, mode))
    assert (summary.visits, summary.calls, summary.host_bound) == (7, 21, 1)
    assert next(s for s in summaries([one]) if s.participant == CHALLENGER).median_us == pytest.approx(30.0, rel=0.01)


def test_the_geometric_mean_weighs_generations_alike_whatever_their_number_of_blocks():
    found = {(1, "a", "official"): {(0, 0): {0: math.log(1.0)}, (0, 1): {0: math.log(4.0), 1: math.log(4.0)}}}
    assert geometric_us(found, 1, "a", "official") == pytest.approx(2.0)
    assert geometric_us(found, 1, "b", "official") is None


@pytest.mark.parametrize("start", [0, 1])
def test_missing_visits_are_named_whether_counting_starts_at_nought_or_one(start):
    one = session(cases=(1,), generations=2, blocks=2)
    for entry in one.visits:
        entry.generation, entry.block = entry.generation + start, entry.block + start
    assert missing_visits(one, 1, CHALLENGER, "official") == []
    gone = next(v for v in one.visits if v.participant == CHALLENGER and v.mode == "official" and v.turn == 1)
    one.visits.remove(gone)
    assert missing_visits(one, 1, CHALLENGER, "official") == [f"generation {start} block {start} turn 1"]
