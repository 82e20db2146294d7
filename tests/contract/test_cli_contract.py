from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time

import pytest
import typer
from typer.testing import CliRunner

from gfast_pipeline.cli_contract import approve, contract_app, reference_app
from gfast_pipeline.contract.load import load

app = typer.Typer()
app.add_typer(contract_app, name="contract")
app.add_typer(reference_app, name="reference")
app.command()(approve)

MOUNTED = """
import typer
from gfast_pipeline.cli_contract import approve, contract_app
app = typer.Typer()
app.add_typer(contract_app, name="contract")
app.command()(approve)
app()
"""


def gfast(*words: str):
    return CliRunner().invoke(app, words)


def at_a_terminal(words: list[str], *answers: str) -> tuple[int, str]:
    """Runs the command with a pseudo-terminal as its stdin and stdout; types each answer when a question stands."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", MOUNTED, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "COLUMNS": "200"},
    )
    os.close(theirs)
    said, waiting, end = "", list(answers), time.monotonic() + 60
    while time.monotonic() < end:
        if not select.select([ours], [], [], 0.1)[0]:
            continue
        try:
            said += os.read(ours, 4096).decode()
        except OSError:  # the other end is closed
            break
        if waiting and said.rstrip().endswith("approve it:"):
            os.write(ours, waiting.pop(0).encode() + b"\n")
    os.close(ours)
    return process.wait(10), said


def refused(*words: str) -> str:
    """The message of a refused command: exit code 1, nothing on stdout, no traceback."""
    done = gfast(*words)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def test_show_tells_hash_standing_target_and_every_case(contract_file):
    done = gfast("contract", "show", "small")
    assert done.exit_code == 0
    for part in (load("small").hash, "not approved", "Doubling, small.", "2 generations × 2 blocks", "4000"):
        assert part in done.stdout


def test_show_as_json_is_the_contract_with_its_hash(contract_file):
    told = json.loads(gfast("contract", "show", "small", "--json").stdout)
    assert told["contract"] == load("small").plain
    assert told["hash"] == load("small").hash
    assert told["approval"] == "not approved"


def test_list_shows_good_and_broken_contracts_side_by_side(contract_file):
    contract_file.with_name("bad.toml").write_text("nonsense")
    rows = {row["name"]: row for row in json.loads(gfast("contract", "list", "--json").stdout)}
    assert (rows["small"]["cases"], rows["small"]["error"]) == (3, "")
    assert "bad.toml:1: not TOML" in rows["bad"]["error"]
    done = gfast("contract", "list")
    assert done.exit_code == 0
    assert load("small").hash[:12] in done.stdout


def test_check_passes_a_contract_in_order_and_names_each_fault_of_another(contract_file):
    done = gfast("contract", "check", str(contract_file))
    assert done.exit_code == 0
    assert "in order" in done.stdout
    contract_file.write_text(contract_file.read_text().replace("margin = 0.01", "margni = 0.01"))
    said = refused("contract", "check", str(contract_file))
    assert "margin: is missing. Add it." in said
    assert "margni: unknown key. Did you mean 'margin'?" in said


def test_check_looks_for_the_peers(contract_file, kernels):
    (kernels / "doubling" / "peers" / "plain.py").unlink()
    assert "plain.py: no such peer" in refused("contract", "check", str(contract_file))


@pytest.mark.parametrize(
    "words", [("contract", "show", "none"), ("approve", "none"), ("contract", "check", "none.toml")]
)
def test_a_contract_that_is_not_there_is_one_message(kernels, words):
    assert refused(*words).strip().count("\n") == 0


def test_new_writes_a_contract_for_a_named_card(contract_file):
    done = gfast("contract", "new", "a100", "--like", "small", "--accelerator", "NVIDIA A100-SXM4-80GB", "--json")
    told = json.loads(done.stdout)
    assert told["path"] == str(contract_file.with_name("a100.toml"))
    assert told["limits"]["memory_tb_s"] == 2.039
    assert load("a100").contract.target.accelerator == "NVIDIA A100-SXM4-80GB"


def test_new_for_an_unknown_card_takes_its_limits_from_options(contract_file):
    words = ["contract", "new", "x9", "--like", "small", "--accelerator", "X9"]
    assert "limits are never guessed" in refused(*words)
    names = ("float32", "tf32", "float16", "bfloat16", "memory-tb-s", "l2-mb", "exponentials-t-s")
    done = gfast(*words, *(word for name in names for word in (f"--{name}", "7.5")))
    assert done.exit_code == 0
    assert load("x9").contract.limits.exponentials_t_s == 7.5


def test_without_a_terminal_approving_is_refused_and_tells_the_command(contract_file):
    said = refused("approve", "small")
    assert "needs a person at a terminal" in said
    assert "gfast approve small --hash FULL_HASH --as YOUR_NAME" in said
    for half in (("--as", "Ada"), ("--hash", load("small").hash)):
        assert "both --hash and --as" in refused("approve", "small", *half)
    assert not contract_file.with_name("small.approved.toml").exists()


def test_without_a_terminal_the_full_hash_and_a_name_approve(contract_file):
    short = load("small").hash[:8]
    assert "its hash is" in refused("approve", "small", "--hash", short, "--as", "Ada")
    done = gfast("approve", "small", "--hash", load("small").hash, "--as", "Ada", "--json")
    assert json.loads(done.stdout)["by"] == "Ada"
    assert json.loads(gfast("contract", "show", "small", "--json").stdout)["approval"].startswith("approved by Ada")


def test_at_a_terminal_the_first_eight_characters_approve(contract_file):
    code, said = at_a_terminal(["approve", "small", "--as", "Ada"], load("small").hash[:8])
    assert code == 0
    assert "never approved before" in said
    assert load("small").hash in said
    assert "small is approved by Ada" in said


def test_at_a_terminal_anything_else_approves_nothing(contract_file):
    code, said = at_a_terminal(["approve", "small", "--as", "Ada"], "00000000")
    assert code == 1
    assert "nothing was approved" in said
    assert not contract_file.with_name("small.approved.toml").exists()


def test_at_a_terminal_the_difference_to_the_last_approval_is_shown(contract_file):
    assert gfast("approve", "small", "--hash", load("small").hash, "--as", "Ada").exit_code == 0
    contract_file.write_text(contract_file.read_text().replace("margin = 0.01", "margin = 0.02"))
    assert json.loads(gfast("contract", "show", "small", "--json").stdout)["approval"] == "void: changed since"
    code, said = at_a_terminal(["approve", "small", "--as", "Grace"], load("small").hash[:8])
    assert code == 0
    assert "Last approved by Ada on " in said
    assert "margin: 0.01 → 0.02" in said
