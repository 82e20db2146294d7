"""The route of a case at and around the thresholds, the overall stop, and arguments that name their figures."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfast_pipeline.bench.messages import canonical
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import load
from gfast_pipeline.routing.gap import gaps
from gfast_pipeline.routing.route import route, route_of
from tests.routing.measured import ceilings, standing

H200 = load("h200_fp32")
GAPS = gaps(H200, standing(H200, 100.0), ceilings(H200), "abc")


def with_gaps(**given):
    """The payload with these gaps: c1=1.2 for case 1, others= for the rest of the scored ones."""
    rows = []
    for row in GAPS["cases"]:
        gap = given.get(f"c{row['case']}", given.get("others")) if row["status"] == "scored" else None
        figure = None if gap is None else gap * row["floor_us"]
        why = row["reason"] if row["status"] == "feasibility" else "no plan has been measured on it"
        rows.append({**row, "gap": gap, "official_us": figure, "queued_us": figure, "reason": "" if gap else why})
    return {**GAPS, "cases": rows}


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        (0.5, "done"),
        (math.nextafter(1.5, 0), "done"),
        (1.5, "tune"),
        (4.0, "tune"),
        (math.nextafter(4.0, 5), "structural"),
        (None, "unmeasured"),
    ],
)
def test_the_thresholds_stand_where_the_contract_puts_them(gap, expected):
    assert route_of(gap, 1.5, 4.0) == expected
    assert route(H200, with_gaps(others=gap))["cases"][0]["route"] == expected


@given(st.lists(st.one_of(st.none(), st.floats(0.5, 100)), min_size=13, max_size=13))
def test_it_stops_only_where_every_scored_case_is_done(found):
    plan = route(H200, with_gaps(**{f"c{n + 1}": gap for n, gap in enumerate(found)}))
    all_done = all(gap is not None and gap < 1.5 for gap in found)
    assert (plan["overall"] == "stop") == all_done
    assert plan["argument"].startswith("Stop" if all_done else "Continue")
    assert [row["case"] for row in plan["cases"]] == list(range(1, 15))
    assert canonical(plan)


def test_a_feasibility_case_keeps_nothing_going():
    plan = route(H200, with_gaps(others=1.2))
    assert plan["overall"] == "stop" and plan["cases"][13]["route"] == "unmeasured"
    assert "feasibility" in plan["cases"][13]["argument"]


def test_every_ratio_stands_beside_its_microseconds():
    for row in route(H200, with_gaps(c1=1.2, c2=30.0, others=2.0))["cases"][:13]:
        figure = row["gap"] * GAPS["cases"][row["case"] - 1]["floor_us"]
        assert f"{figure:,.0f} µs" in row["argument"] if figure >= 1000 else "µs" in row["argument"]
        assert "times the reachable floor of" in row["argument"]


def test_an_argument_says_what_binds_and_why_not_the_other_way():
    plan = route(H200, with_gaps(c1=1.2, c2=30.0, others=2.0))
    done, structural, tune = (row["argument"] for row in plan["cases"][:3])
    assert "arithmetic binds" in done and "could gain together" in done
    assert "chain of dependent phases binds" in structural and "no launch parameter removes" in structural
    assert "Launch parameters cost no new code" in tune and "needs tuning as well" in tune
    assert "Continue with a new structure: of 13 scored cases 1 structural, 11 tune, 1 done" in plan["argument"]
    assert "Farthest: case 2 with" in plan["argument"]
    assert "Continue with launch parameters" in route(H200, with_gaps(others=2.0))["argument"]
    assert "Continue with what is not measured yet" in route(H200, with_gaps(c4=None, others=1.2))["argument"]
    assert "Race a candidate first" in route(H200, with_gaps())["argument"]


def test_below_the_floor_the_ceilings_are_asked_for_again():
    argument = route(H200, with_gaps(others=0.8))["cases"][0]["argument"]
    assert "Below its floor: case 1, case 2" in route(H200, with_gaps(c1=0.8, c2=0.9, others=1.2))["argument"]
    assert "below the floor" in argument and "gfast measure ceilings -c h200_fp32" in argument


def test_where_the_host_decides_the_argument_says_so():
    found = with_gaps(others=2.0)
    found["cases"][1]["official_us"] = 24.5
    assert "Officially it takes 24.5 µs" in route(H200, found)["cases"][1]["argument"]
    assert "Officially" not in route(H200, found)["cases"][2]["argument"]


def test_gaps_of_another_contract_or_with_cases_missing_are_refused():
    with pytest.raises(GfastError, match="these gaps are of contract 000000000000"):
        route(H200, {**GAPS, "contract_hash": "0" * 64})
    with pytest.raises(GfastError, match="lack scored cases"):
        route(H200, {**GAPS, "cases": GAPS["cases"][1:]})
