"""Plots: well-formed SVG that names its cases and its µs, drawn without a network."""

from __future__ import annotations

import base64
import re
import socket
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gfast_pipeline.report import plots

TERMS = ("memory", "arithmetic", "exponentials", "launch", "chain")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object):
        raise AssertionError("a plot asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def words(svg: str) -> list[str]:
    """The texts of a well-formed SVG, which links to nothing outside itself."""
    tree = ElementTree.fromstring(svg)
    assert tree.tag.endswith("svg")
    assert not re.findall(r'(?:href|src)="http', svg) and "@import" not in svg
    return [element.text or "" for element in tree.iter() if element.tag.endswith("text")]


def gap_row(case: int, **fields):
    row = {
        "case": case, "plan": "v007_fused", "official_us": 55.0, "queued_us": 50.0, "mode": "queued", "floor_us": 12.5,
        "gap": 4.0, "floors": dict(zip(TERMS, (1.0, 11.0, 2.0, 1.5, 0.0), strict=True)),
    }  # fmt: skip
    return {**row, **fields}


def decision(**fields):
    cases = [
        {"case": n, "ratio": 1.1, "low": 1.05, "high": 1.15, "incumbent_us": 110.0 * n, "challenger_us": 100.0 * n}
        for n in (2, 7)
    ]
    made = {
        "challenger": "v007_fused", "incumbent": "v003_graph", "outcome": "promote", "confirmed": True,
        "mode": "official", "ratio": 1.1, "low": 1.06, "high": 1.14, "margin": 0.02,
        "incumbent_us": 154.0, "challenger_us": 140.0,
        "cases": cases, "sessions": [{"started": "2026-12-01T10:00:00Z"}],
    }  # fmt: skip
    return {**made, **fields}


def test_the_gap_plot_names_cases_terms_and_the_gap_with_its_microseconds():
    unmeasured = gap_row(14, plan=None, official_us=None, queued_us=None, gap=None)
    payload = {"contract_name": "h200_fp32", "cases": [gap_row(2), gap_row(7, official_us=900.0), unmeasured]}
    found = words(plots.gap_plot(payload))
    assert {"case 2, v007", "case 7, v007", "case 14"} <= set(found)
    assert "50.0 µs = 4 × 12.5 µs" in found and "µs" in found
    assert {"memory", "arithmetic", "exponentials", "launch", "queued", "official"} <= set(found)
    assert "chain" not in found  # a term that binds nowhere is no entry of the legend


def test_the_times_plot_gives_all_three_times_of_a_case():
    rows = [
        {"case": 2, "plan": "v007_fused", "official_us": 51.5, "best_peer_us": 140.25, "reference_us": 1800.0},
        {"case": 7, "plan": None, "official_us": None, "best_peer_us": None, "reference_us": 1700.0},
    ]
    found = words(plots.times_plot(rows))
    assert "51.5 · 140.2 · 1,800 µs" in found and "– · – · 1,700 µs" in found
    assert {"case 2, v007", "case 7", "plan", "best peer", "reference"} <= set(found)


@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_the_ratio_plot_stands_with_microseconds_and_the_margin(scale):
    cases = [{**row, "ratio": row["ratio"] * scale, "high": row["high"] * scale} for row in decision()["cases"]]
    found = words(plots.ratio_plot(decision(cases=cases)))
    assert {"all cases", "case 2", "case 7"} <= set(found)
    assert "1.100 = 154.0 µs ÷ 140.0 µs" in found
    assert any("1 + m = 1.020" in text for text in found)
    assert any("v007_fused against v003_graph: promote" in text for text in found)


def test_the_history_plot_names_every_challenger_and_draws_the_best_confirmed():
    later = decision(challenger="v008_slow", challenger_us=200.0, outcome="reject", utc="2026-12-02T10:00:00Z")
    best = decision(challenger="v009_best", challenger_us=90.0, utc="2026-12-03T10:00:00Z")
    screen = decision(challenger="v010_screened", outcome="screen_promote")
    found = words(plots.history_plot([best, decision(), later, screen]))
    assert {"v007_fused 140.0 µs", "v008_slow 200.0 µs", "v009_best 90.0 µs"} <= set(found)
    assert {"confirmed", "rejected"} <= set(found) and not any("v010" in text for text in found)


def test_of_many_challengers_only_those_on_the_line_are_named():
    crowd = [
        decision(challenger=f"v{n:03}_x", challenger_us=150.0 + n, outcome="reject", utc=f"2026-12-01T10:{n:02}:00Z")
        for n in range(20)
    ]
    found = words(plots.history_plot([*crowd, decision(utc="2026-12-01T09:00:00Z")]))
    assert "v007_fused 140.0 µs" in found and not any("v003_x" in text for text in found)


def test_nothing_to_draw_is_said_in_words():
    blank = gap_row(2, floors={}, official_us=None, queued_us=None, gap=None)
    assert words(plots.gap_plot({"contract_name": "c", "cases": [blank]})) == ["No case has a floor or a time yet"]
    assert words(plots.times_plot([])) == ["No case has a time yet"]
    assert words(plots.history_plot([])) == ["No decision yet"]
    assert words(plots.ratio_plot({"outcome": "invalid"})) == ["No ratio to show: invalid"]


def test_markdown_holds_the_whole_plot():
    svg = plots.history_plot([decision()])
    found = re.fullmatch(r"!\[\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", plots.as_markdown(svg))
    assert found and base64.b64decode(found[1]).decode() == svg


def test_the_module_is_imported_without_what_draws():
    code = "import sys, gfast_pipeline.report.plots; sys.exit(len({'altair', 'vl_convert'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0
