"""`make run` on a clean clone: the command of the README, from nothing to a compiled submission, and once more."""

from __future__ import annotations

import json
import re

import pytest

from tests.e2e.conftest import Made

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3000)]
CHAMPION = "v001_fused_qkv_sdpa"


def test_it_promotes_and_confirms_a_faster_candidate_and_prints_who_holds_what(made: Made):
    first = made.first
    assert first.code == 0, first.text[-5000:]
    promoted = rf"{CHAMPION} is promoted: [\d,.]+ µs against [\d,.]+ µs of v000_identity"
    assert re.search(f"decision: done {promoted}", first.words), first.text
    assert re.search(f"confirmation: done confirmed: {promoted}", first.words)
    assert re.search(
        r"95 % interval from [\d.]+ % faster to [\d.]+ % faster, all of it above the margin of", first.words
    )
    assert " failed" not in first.words
    champions, _, leaderboard = first.text.partition("Champions")[2].partition("Leaderboard")
    assert champions.count("v001") >= 2, "both cases"
    assert "v001" in leaderboard and "promote" in leaderboard and "confirmed" in leaderboard
    warehouse = made.clone.folder / "warehouse"
    for what, path in (
        ("submission", "submissions/cpu_fp32.py"),
        ("report", "reports/transformer_layer_cpu_fp32.html"),
    ):
        assert f"{what} {warehouse / path}" in first.words and (warehouse / path).is_file()
    assert "UI make ui" in first.words
    kinds = {name.split("-")[1] for name in set(made.clone.evidence()) - made.shipped}
    assert kinds >= {"session", "decision", "gap", "holders", "route", "submission"}


def test_once_more_it_measures_nothing_and_says_what_it_reused(made: Made):
    before = made.clone.evidence()
    second = made.clone.make("run")
    print(f"\nmake run: {made.first.seconds:.0f} s, and again: {second.seconds:.0f} s")
    assert second.code == 0, second.text[-5000:]
    assert made.clone.evidence() == before, "something was measured or concluded anew"
    reused = re.search(r"(\d+) stages reused what the log has", second.words)
    assert reused and int(reused[1]) >= 5, second.text
    for stage in ("correctness", "timings", "decision", "confirmation"):
        assert re.search(rf"{CHAMPION} {stage}: reused", second.words), stage
    assert second.text.partition("Champions")[2].partition("Leaderboard")[0].count("v001") >= 2


def test_the_compiled_submission_passes_when_driven_as_the_official_script_drives_it(made: Made):
    options = ("--official", "--cases", "2", "--warmup", "1", "--repeats", "3", "--json")
    said = made.clone.run("python", "warehouse/submissions/cpu_fp32.py", *options, path=".venv/bin")
    assert said.code == 0, said.text[-3000:]
    (row,) = json.loads(said.text.splitlines()[-1])["cases"]
    assert row["case"] == 2 and row["accuracy"] == "pass" and row["plan"] == CHAMPION, row
    assert row["submission_us"] > 0 and row["reference_us"] > 0
    print(f"\ncase 2: {row['reference_us']:,.0f} µs, submission {row['submission_us']:,.0f} µs")
