from __future__ import annotations

import dataclasses
import io
import json
import re

from rich.console import Console, RenderableType

from gfast_pipeline.bench.messages import Clock, Phase, Session, Verdict, canonical
from gfast_pipeline.evaluation.decision import decide
from gfast_pipeline.evaluation.noise import noise_report
from gfast_pipeline.evaluation.timings import timing_rows
from gfast_pipeline.report.plain import ceilings_plain, noise_plain, session_plain
from gfast_pipeline.report.tables import ceilings_view, noise_view, session_view
from tests.evaluation.synthetic import CHALLENGER, INCUMBENT, contract, session


def drawn(view: RenderableType, width: int = 160) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(view)
    return out.getvalue()


def plain_of(one: Session, **given) -> dict:
    timings = [dataclasses.asdict(row) for row in timing_rows(one, resamples=200)]
    return session_plain(one, timings=timings, decision=decide([one], contract(), resamples=200).plain(), **given)


def rich_session() -> Session:
    one = session({CHALLENGER: 0.5}, generations=2, blocks=2)
    one.isolation, one.not_run = "network namespace, own uid", ["cold: no flush on this card"]
    one.phases = [
        Phase("build", 3.0, case=1),
        Phase("build", 5.0, case=2),
        Phase("oracle", 1.25),
        Phase("timing", 60.0),
    ]
    one.clocks = [Clock(1, 0, 0, 1980, 3201, 41, 310.5, 0), Clock(1, 0, 1, 1725, 3201, 55, 690.0, 4)]
    return one


def test_a_session_shows_what_it_is_and_where_it_was_measured():
    text = drawn(session_view(plain_of(rich_session(), identity="abc123def456")))
    for word in ("abc123def456", "decide", "transformer_layer/test", "cccccccccccc", "NVIDIA H200",
                 "network namespace, own uid", "complete", "2 generations × 2 blocks", "cases 1, 2, 7"):  # fmt: skip
        assert word in text, word


def test_the_decision_comes_with_its_sentence_microseconds_and_controls():
    one = rich_session()
    one.not_run = []
    text = re.sub(r"\s+", " ", drawn(session_view(plain_of(one))))
    assert re.search(r"promote v007_faster is promoted: 15\.\d µs against 3[01]\.\d µs of v003_fused", text)
    for what, us in (
        ("incumbent ÷ challenger", "3[01].[0-9]. µs ÷ 15.[0-9]. µs = [12].[09]"),
        ("reference ÷ challenger", "6[12].[0-9]. µs ÷ 15.[0-9]. µs = 4.0"),
        ("A/A control, incumbent ÷ twin", "3[01].[0-9]. µs ÷ 3[01].[0-9]. µs = [01].[09]"),
        ("health, reference ÷ v000", "6[12].[0-9]. µs ÷ 6[12].[0-9]. µs = [01].[09]"),
    ):
        assert re.search(f"{what}: {us}", text), what


def test_an_invalid_session_shows_its_reason_and_every_failure_in_full():
    one = rich_session()
    one.status, one.reason = "void", "the card was reset"
    one.verdicts.append(
        Verdict("anchored", "failed", CHALLENGER, 7, "gains", "x0.05", 3, 1, 5.43, 0.71, 2.13, "row 9 [x] is off")
    )
    text = drawn(session_view(plain_of(one)), width=200)
    assert "void: the card was reset" in text
    assert "invalid" in text and "promote" not in text
    line = next(line for line in text.splitlines() if "row 9 [x] is off" in line)
    for word in (CHALLENGER, "anchored", "7", "gains/x0.05/3", "5.43", "0.71", "2.13"):
        assert word in line, word


def test_gates_are_counted_and_each_case_shows_its_worst_share():
    one = rich_session()
    one.verdicts.append(
        Verdict("anchored", "passed", CHALLENGER, 7, "peaked", "randn", share=3.0, reference_share=2.0, limit=6.0)
    )
    one.verdicts.append(
        Verdict("clock", "skipped", CHALLENGER, 7, variant="official", reason="visits last under 20 handshakes")
    )
    one.verdicts.append(
        Verdict("clock", "skipped", CHALLENGER, 1, variant="official", reason="visits last under 20 handshakes")
    )
    one.verdicts.append(Verdict("physics", "passed", CHALLENGER, 7, share=0.99, limit=1.0))
    shown = plain_of(one)
    assert {"gate": "official", "passed": 18} in shown["gates"] and {"gate": "clock", "skipped": 2} in shown["gates"]
    mine = next(row for row in shown["shares"] if (row["case"], row["participant"]) == (7, CHALLENGER))
    assert (mine["gate"], mine["used"], mine["u"], mine["limit"]) == ("anchored", 0.5, 2.0, 6.0)
    lines = drawn(session_view(shown)).splitlines()
    assert any("peaked/randn" in line and "50%" in line for line in lines)
    assert sum("under 20 handshakes" in line for line in lines) == 1
    assert any("1, 7" in line and "under 20 handshakes" in line for line in lines)


def test_no_ratio_is_drawn_without_its_microseconds():
    lines = drawn(session_view(plain_of(rich_session())), width=200).splitlines()
    rows = [line for line in lines if f"│ {CHALLENGER} " in line and " to " in line]
    assert len(rows) == 3
    for line in rows:
        for cell in line.split("│")[3:5]:
            assert re.fullmatch(r"\s*\d+\.\d+  [12]\.\d{3} \(\d\.\d{3} to \d\.\d{3}\)\s*", cell), cell
    assert any(f"{INCUMBENT} ÷ participant" in line for line in lines)


def test_host_bound_visits_are_said_and_a_mode_without_figures_shows_none():
    one = rich_session()
    for visit in one.visits:
        if visit.mode == "queued" and visit.participant == CHALLENGER and (visit.case == 7 or visit.block == 0):
            visit.event_us, visit.status = None, "host_bound"
    text = drawn(session_view(plain_of(one)), width=200)
    assert "[4 host bound]" in text
    row = next(line for line in text.splitlines() if f"│ 7    │ {CHALLENGER}" in line and "to" in line)
    assert [cell.strip() for cell in row.split("│")].count("–") == 1


def test_phases_clocks_and_gates_not_run_are_shown():
    text = drawn(session_view(plain_of(rich_session())))
    assert re.search(r"build\s*│\s*8\.0\s*│\s*5\.0\s*│\s*2", text)
    assert "SM clock MHz: 1725 to 1980" in text and "°C: 41 to 55" in text
    assert "0x4 (1 ×)" in text
    assert "Gates not run" in text and "cold: no flush on this card" in text


def test_a_machine_that_says_nothing_of_its_clocks_shows_no_such_table():
    one = rich_session()
    one.clocks = [Clock(1, 0, 0)]
    assert "Clocks" not in drawn(session_view(plain_of(one)))


def test_a_session_without_visits_or_verdicts_can_still_be_shown():
    one = session(generations=2, blocks=2)
    one.visits, one.verdicts, one.status, one.reason = [], [], "failed", "the judge was killed"
    text = drawn(session_view(session_plain(one)))
    assert "failed: the judge was killed" in text and "No verdicts." in text and "not stored" in text


def test_markup_in_what_a_candidate_says_is_shown_as_it_is():
    one = rich_session()
    one.verdicts.append(Verdict("call", "failed", CHALLENGER, 1, reason="[bold]IndexError[/bold] x[/red]"))
    assert "[bold]IndexError[/bold] x[/red]" in drawn(session_view(plain_of(one)), width=220)


def test_the_plain_form_is_json_and_has_what_the_tables_have():
    shown = json.loads(canonical(plain_of(rich_session(), identity="abc")))
    assert shown["header"]["id"] == "abc" and shown["decision"]["outcome"] == "uncertain"
    assert shown["clocks"]["sm_mhz"] == [1725, 1980]
    assert {row["phase"] for row in shown["phases"]} == {"build", "oracle", "timing"}
    assert all(row["median_us"] > 0 for row in shown["timings"])


def test_the_noise_table_shows_spreads_microseconds_and_the_smallest_decidable_difference():
    one = session(kind="noise", process=0.01)
    report = dataclasses.asdict(noise_report(one, contract(), resamples=200))
    shown = noise_plain(report, one, "abc123")
    text = drawn(noise_view(shown), width=200)
    assert "abc123" in text and "twin against v003_fused, 4 generations × 5 blocks" in text
    row = report["rows"][0]
    assert any(f"{row['us']:.2f}" in line and f"{row['ratio_between']:.2f} %" in line for line in text.splitlines())
    told = " ".join(text.split())
    assert f"the smallest gain that can be promoted is {report['modes'][0]['smallest']:.2%}" in told
    assert "quiet enough to decide 2%" in told
    json.loads(canonical(shown))


def test_ceilings_show_every_figure_also_nested_ones():
    one = session(kind="ceilings", generations=2, blocks=2)
    one.measured = {"copy_tb_s": 4.1234, "null_us": {"1/official": 9.4}, "rung": "uid", "startup_s": [1.6, 1.8]}
    text = drawn(ceilings_view(ceilings_plain(one, "abc")))
    for word in ("copy_tb_s", "4.123", "null_us.1/official", "9.4", "rung", "1.6, 1.8"):
        assert word in text, word


def test_parity_shows_both_figures_and_the_speed_of_the_host_beside_their_ratio():
    one = session(kind="parity", generations=2, blocks=2)
    figures = {"ours_us": 754.43, "plain_us": 690.91, "ratio": 1.0919, "ours_host": 1.073, "plain_host": 1.008}
    one.measured = {"13/sdpa": {"error": "RuntimeError: no"}, "1/sdpa": figures, "null_us": {"1/official": 9.4}}
    text = drawn(session_view(session_plain(one, identity="abc")))
    for word in ("ours ÷ plain", "754.4", "690.9", "1.092", "1.073", "1.008", "RuntimeError: no"):
        assert word in text, word
    assert text.index("754.4") < text.index("RuntimeError: no"), "in the order of the cases"
