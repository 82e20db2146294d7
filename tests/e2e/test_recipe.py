"""The CI recipe of the README, run as it stands there: every stage through Dagster's commands, and all is reused."""

from __future__ import annotations

import re

import pytest

from gfast_pipeline.defs.stage import STAGES
from tests.e2e.conftest import ROOT, Made

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3000)]
HEADING = "## In CI"
MEASURED = ("ceilings", "correctness", "timings", "decision", "confirmation")


def recipe(text: str) -> str:
    """The shell block under the heading. Raises AssertionError where there is none."""
    section = re.search(rf"(?ms)^{re.escape(HEADING)}$(.*?)(?=^## |\Z)", text)
    assert section is not None, f"README.md has no section {HEADING!r}"
    block = re.search(r"(?ms)^```sh\n(.*?)^```$", section[1])
    assert block is not None, f"README.md, {HEADING!r}: holds no block that begins with ```sh"
    return block[1]


def test_the_recipe_names_every_stage_and_both_commands():
    block = recipe((ROOT / "README.md").read_text(encoding="utf-8"))
    assert "export DAGSTER_HOME=$PWD/warehouse" in block
    assert "dagster asset materialize -m gfast_pipeline.definitions" in block and "dg launch --assets" in block
    missing = [stage.name for stage in STAGES if not re.search(rf"\b{stage.name}\b", block)]
    assert not missing, "stages that the recipe leaves out"


def test_the_recipe_runs_twice_after_make_run_and_measures_nothing(made: Made):
    assert made.first.code == 0, made.first.text[-3000:]
    block = recipe((made.clone.folder / "README.md").read_text(encoding="utf-8"))
    before = made.clone.evidence()
    for _ in range(2):
        said = made.clone.run("bash", "-euo", "pipefail", "-c", block, path=".venv/bin")
        print(f"\nthe recipe: {said.seconds:.0f} s")
        assert said.code == 0, said.text[-5000:]
        assert made.clone.evidence() == before, "something was measured or concluded anew"
        for stage in MEASURED:
            assert re.search(rf"__{stage} - reused: ", said.text), f"{stage}: {said.text[-5000:]}"
        assert "STEP_FAILURE" not in said.text and "RUN_FAILURE" not in said.text
