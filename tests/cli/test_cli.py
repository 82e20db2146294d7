"""The command line from outside: help, JSON, exit codes, and one message for whatever is wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gfast_pipeline.contract.load import Loaded

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gfast(tmp_path: Path, loaded: Loaded):
    """Runs `gfast …` in a process of its own, with the tiny contract and an empty log."""
    variables = {
        **os.environ,
        "GFAST_WAREHOUSE": str(tmp_path / "warehouse"),
        "TMPDIR": str(tmp_path),
        "COLUMNS": "160",
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gfast_pipeline.cli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=variables, cwd=ROOT, timeout=200)

    return run


BAD = [
    (["judge", "v001", "-c", "nowhere"], "nowhere"),
    (["judge", "v777", "-c", "tiny"], "no candidate 'v777'. There are: v000_identity"),
    (["race", "v001", "-c", "tiny", "--screen", "heads"], "no profile 'heads'"),
    (["race", "v000", "-c", "tiny"], "v000_identity is the incumbent itself"),
    (["noise", "-c", "tiny", "--cases", "1;2"], "write numbers with commas"),
    (["measure", "colours", "-c", "tiny"], "there are ceilings, noise, parity, peers, probe, serial"),
    (["measure", "serial", "-c", "tiny"], "serial_cases is empty"),
    (["show", "abc"], "no session begins with 'abc'"),
    (["confirm", "abc", "-c", "tiny"], "no decision begins with 'abc'"),
    (["resume", "abc", "-c", "tiny"], "no session begins with 'abc'"),
    (["bundle", "ingest", "/nonexistent.json.gz"], "/nonexistent.json.gz"),
    (["bundle", "create", "x.py", "-c", "tiny"], "name it with --candidate"),
    (["bundle", "create", "x.py", "-c", "tiny", "--kind", "confirm"], "say which with --decision"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_what_is_wrong_gives_one_message_and_exit_code_one(gfast, arguments: list[str], said: str):
    done = gfast(*arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_an_unapproved_contract_refuses_to_measure_and_names_the_command(gfast, loaded: Loaded):
    loaded.path.write_text(loaded.path.read_text().replace("visit_ms = 2.0", "visit_ms = 3.0"))
    done = gfast("race", "v001", "-c", "tiny")
    assert (done.returncode, "gfast approve tiny" in done.stderr) == (1, True)


def test_a_refused_candidate_exits_with_three_and_says_why(gfast, loaded: Loaded):
    (loaded.workload.folder / "candidates" / "v008_broken.py").write_text('"""v008: broken."""\ndef build(:\n')
    done = gfast("judge", "v008", "-c", "tiny")
    assert done.returncode == 3
    assert "v008_broken.py:2" in done.stdout and "does not parse" in done.stdout


def test_race_show_and_list_as_json_are_whole(gfast):
    done = gfast("race", "v001", "-c", "tiny", "--screen", "neutral", "--json")
    assert done.returncode in (0, 3), done.stderr
    shown = json.loads(done.stdout)
    assert shown["header"]["kind"] == "screen"
    assert shown["decision"]["outcome"].startswith("screen_") or shown["decision"]["outcome"] == "invalid"
    listed = json.loads(gfast("show", "--json").stdout)
    assert [head["id"] for head in listed] == [shown["header"]["id"]]
    again = json.loads(gfast("show", shown["header"]["id"][:6], "--json").stdout)
    assert again == shown
    drawn = gfast("show", shown["header"]["id"]).stdout
    assert "v001_fused_qkv_sdpa" in drawn and "Gates" in drawn and "µs" in drawn


def test_doctor_tells_scope_and_isolation_of_this_machine(gfast):
    found = json.loads(gfast("doctor", "-c", "tiny", "--json").stdout)
    assert found["scope"]["accelerator"]["name"] == "cpu"
    assert found["isolation"] in ("namespace", "seccomp", "none")


def test_noise_gives_an_a_a_table_with_spreads(gfast):
    shown = json.loads(gfast("noise", "-c", "tiny", "--json").stdout)
    (row,) = shown["noise"]["rows"]
    assert row["us"] > 0 and row["ratio_between"] >= 0 and row["ratio_within"] >= 0
    assert shown["noise"]["modes"][0]["smallest"] > 0


def commands(gfast, *path: str) -> list[str]:
    text = gfast(*path, "--help").stdout
    box = text[text.index("Commands") :]
    return re.findall(r"^│ ([a-z]+) ", box, re.MULTILINE)


def test_every_command_has_help_and_stands_in_the_readme(gfast):
    readme = (ROOT / "README.md").read_text()
    for command in commands(gfast):
        text = gfast(command, "--help").stdout
        assert "Usage:" in text
        assert f"`gfast {command}" in readme, f"README.md does not name gfast {command}"
    for command in commands(gfast, "bundle"):
        assert re.search(rf"bundle {command}|· `{command}", readme), command
