from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gfast_pipeline.contract.errors import ContractError, WorkloadError
from gfast_pipeline.contract.load import load, load_file, load_text
from gfast_pipeline.contract.places import places

shared_files = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)


SAID_ELSEWHERE = ("target.accelerator", "mode.promotion", "weight_draws")  # where the other half of a pair stands


def line(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def refused(path: Path, old: str, new: str) -> tuple[str, str]:
    """What loading says of the contract with `old` replaced, and the edited text."""
    text = path.read_text()
    assert old in text
    text = text.replace(old, new, 1)
    path.write_text(text)
    with pytest.raises(ContractError) as caught:
        load_file(path)
    return str(caught.value), text


def test_a_contract_in_order_loads_with_its_values(contract_file):
    loaded = load("small")
    assert loaded.path == contract_file
    assert [case.id for case in loaded.contract.scored] == [1, 2]
    assert loaded.contract.case(3).shape == {"rows": 4000, "width": 8, "parts": 1}
    assert loaded.contract.limits.memory_tb_s is None
    assert loaded.plain["cases"][1] == {
        "id": 2,
        "status": "scored",
        "regime": "base",
        "weight": 2.0,
        "shape": {"rows": 1, "width": 8, "parts": 4},
    }


def test_a_loaded_contract_cannot_be_changed(contract_file):
    contract = load_file(contract_file).contract
    with pytest.raises(ValueError, match="frozen"):
        contract.margin = 0.4


def test_an_unknown_key_is_named_with_file_line_and_nearest_known_key(contract_file):
    said, text = refused(contract_file, "visit_ms = 4.0", "visit_ms = 4.0\nmargni = 0.02")
    assert said == f"{contract_file}:{line(text, 'margni')}: margni: unknown key. Did you mean 'margin'?"


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("threads = 1", "threads = 1\nzzz = 2", "target.zzz"),
        ("weight = 2.0", "weight = 2.0\nzzz = 2", "cases[1].zzz"),
        ("rows = 1,", "rows = 1, zzz = 2,", "cases[1].shape.zzz"),
        ("factor = 3.0", "factor = 3.0\nzzz = 2", "gate.anchored.zzz"),
        ("seed = 44", "seed = 44\nzzz = 2", "variants[1].zzz"),
        ("[limits]", "[limits]\nzzz = 2", "limits.zzz"),
        ("[limits]", "[limits]\ncompute_tflops = { zzz = 2 }", "limits.compute_tflops.zzz"),
    ],
)
def test_an_unknown_key_is_found_at_every_depth(contract_file, old, new, key):
    said, text = refused(contract_file, old, new)
    assert said.startswith(f"{contract_file}:{line(text, 'zzz')}: {key}: ")


@pytest.mark.parametrize(
    ("old", "key", "at"),
    [
        ("margin = 0.01\n", "margin", "# a comment"),
        ("threads = 1\n", "target.threads", "[target]"),
        ("weight = 2.0\n", "cases[1].weight", "[[cases]]\nid = 2"),
        ("atol = 0.002\n", "gate.official.atol", "[gate.official]"),
        ("[limits]\n", "limits", "# a comment"),
        ("neutral = [1, 2]\n", "profiles", "[profiles]"),
        (", parts = 4", "cases[1].shape", "shape = { rows = 1,"),
    ],
)
def test_what_is_missing_is_named_on_the_line_of_its_table(contract_file, old, key, at):
    said, text = refused(contract_file, old, "")
    assert f"{contract_file}:{line(text, at)}: {key}: " in said
    assert "missing" in said or "there is no profile 'neutral'" in said


@pytest.mark.parametrize(
    ("old", "new", "key", "words"),
    [
        ("rows = 4,", "rows = 0,", "cases[0].shape.rows", "greater than 0 (is 0)"),
        ("rows = 4,", "rows = 4.5,", "cases[0].shape.rows", "valid integer"),
        ("rows = 4,", "rows = true,", "cases[0].shape.rows", "valid integer"),
        ("rows = 4,", "rows = '4',", "cases[0].shape.rows", "valid integer"),
        ("width = 8, parts = 4", "width = 8, parts = 3", "cases[1].shape.width", "not a multiple of parts 3"),
        ("id = 2", "id = 1", "cases[1].id", "1 stands here a second time"),
        ("id = 2", "id = 0", "cases[1].id", "greater than or equal to 1"),
        ('"feasibility"', '"maybe"', "cases[2].status", "'scored' or 'feasibility'"),
        ("weight = 2.0", "weight = 0", "cases[1].weight", "greater than 0"),
        ("weight = 2.0", "weight = -1.0", "cases[1].weight", "greater than 0"),
        ("weight = 2.0", "weight = nan", "cases[1].weight", "finite"),
        ("weight = 2.0", "weight = inf", "cases[1].weight", "finite"),
        ("serial_cases = [3]", "serial_cases = [9]", "serial_cases[0]", "there is no case 9"),
        ("serial_cases = [3]", "serial_cases = [1]", "serial_cases[0]", "case 1 is scored"),
        ("serial_cases = [3]", "serial_cases = [3, 3]", "serial_cases[1]", "a second time"),
        ("launch = [2]", "launch = [2, 7]", "profiles.launch[1]", "there is no case 7. There are 1, 2, 3"),
        ("launch = [2]", "launch = [3]", "profiles.launch[0]", "case 3 is not scored"),
        ("launch = [2]", "launch = []", "profiles.launch", "at least 1 item"),
        ("launch = [2]", "launch = [2, 2]", "profiles.launch[1]", "a second time"),
        ("margin = 0.01", "margin = 0.0", "margin", "greater than 0"),
        ("margin = 0.01", "margin = 0.5", "margin", "less than 0.5"),
        ("margin = 0.01", "margin = 0.04", "margin", "every session would be void"),
        ("max_noise = 0.03", "max_noise = 0.5", "max_noise", "less than 0.5"),
        ("generations = 2", "generations = 1", "generations", "greater than or equal to 2"),
        ("blocks = 2", "blocks = 1", "blocks", "greater than or equal to 2"),
        ("visit_ms = 4.0", "visit_ms = 0", "visit_ms", "greater than 0"),
        ("visit_ms = 4.0", "visit_ms = 2026-01-01", "visit_ms", "valid number"),
        ("ratio_gate = 1.6", "ratio_gate = 1.0", "ratio_gate", "greater than 1"),
        ("publish_sessions = 2", "publish_sessions = 0", "publish_sessions", "greater than or equal to 1"),
        ("threads = 1", "threads = 0", "target.threads", "greater than or equal to 1"),
        ('"highest"', '"exact"', "target.matmul_precision", "'highest', 'high' or 'medium'"),
        ('device = "cpu"', 'device = "cuda"', "target.accelerator", "does not go with device 'cuda'"),
        ('name = "pad.3"', 'name = "randn"', "variants[1].name", "a second time"),
        ("padding = 0.3", "padding = 1.0", "variants[1].padding", "less than 1"),
        ("scale = 1.0", "scale = -1.0", "variants[0].scale", "greater than 0"),
        ("seed = 11", "seed = -1", "variants[0].seed", "greater than or equal to 0"),
        ('name = "gains"', 'name = "odd"', "weight_draws[1].name", "no weights 'odd'. There are official, gains"),
        ('name = "official"\nseed', 'name = "gains"\nseed', "weight_draws", "the draw 'official' is missing"),
        ('["randn", "pad.3"]', '["pad.3"]', "weight_draws", "no plain variant"),
        ('variants = ["randn"]', 'variants = ["rand"]', "weight_draws[1].variants[0]", "there is no variant 'rand'"),
        ('structured = ["offset"]', 'structured = ["on"]', "structured[0]", "There are offset, outlier"),
        ("trials = 5", "trials = 0", "gate.official.trials", "greater than or equal to 1"),
        ("factor = 3.0", "factor = 0.5", "gate.anchored.factor", "greater than or equal to 1"),
        ("share = 0.9", "share = 1.1", "gate.budget.share", "less than or equal to 1"),
        ('headline = "official"', 'headline = "cold"', "mode.promotion", "'cold' is not among"),
        ("structural = 4.0", "structural = 1.5", "thresholds.structural", "not above done"),
        ("usd = 1.5", "usd = -1", "budget.usd", "greater than or equal to 0"),
        ("[limits]", "[limits]\nmemory_tb_s = 0", "limits.memory_tb_s", "greater than 0"),
        ('"output_owned"', '"shared"', "ownership", "'output_owned'"),
        ('"torch.hub"', '"torch hub"', "prohibited.imports[1]", "pattern"),
        ('name = "small"', 'name = "large"', "name", 'Write name = "small"'),
        ('workload = "doubling"', 'workload = "other"', "workload", 'Write workload = "doubling"'),
        ('"Doubling, small."', '"two\\nlines"', "purpose", "pattern"),
    ],
)
def test_nonsense_is_refused_on_its_line_with_a_remedy(contract_file, old, new, key, words):
    changed = line(contract_file.read_text(), old) + new.count("\n")
    said, _ = refused(contract_file, old, new)
    first = next(part for part in said.split("\n") if f": {key}: " in part)
    assert words in first
    number = int(first.removeprefix(f"{contract_file}:").split(":")[0])
    if key not in SAID_ELSEWHERE:
        assert number == changed
    assert first.rstrip().endswith((".", "?"))


def test_a_card_needs_all_its_limits(contract_file):
    text = contract_file.read_text().replace('"cpu"', '"cuda"', 2).replace('accelerator = "cuda"', 'accelerator = "X"')
    with pytest.raises(ContractError) as caught:
        load_text(text, contract_file)
    said = str(caught.value)
    for name in ("float32", "tf32", "float16", "bfloat16", "memory_tb_s", "l2_mb", "exponentials_t_s"):
        assert f"'{name}' is missing" in said


def test_limits_are_all_or_none_even_on_a_cpu(contract_file):
    said, _ = refused(contract_file, "[limits]", "[limits]\nl2_mb = 30")
    assert "limits.compute_tflops: 'tf32' is missing" in said
    assert "limits: 'memory_tb_s' is missing" in said


def test_several_faults_are_told_at_once_in_the_order_of_their_lines(contract_file):
    text = contract_file.read_text().replace("blocks = 2", "blocks = 0", 1).replace("usd = 1.5", "usd = -1")
    contract_file.write_text(text)
    with pytest.raises(ContractError) as caught:
        load_file(contract_file)
    assert [problem.key for problem in caught.value.problems] == ["blocks", "budget.usd"]
    assert [problem.line for problem in caught.value.problems] == [line(text, "blocks = 0"), line(text, "usd = -1")]


def test_no_scored_case_is_refused(contract_file):
    text = contract_file.read_text().replace('"scored"', '"feasibility"')
    with pytest.raises(ContractError, match=r"cases: no case is scored"):
        load_text(text, contract_file)


@pytest.mark.parametrize(
    ("text", "number"),
    [("name = 'x'\nmargin = = 2\n", 2), ("a = 1\nb = 2\na = 3\n", 3), ("a = [1,\n2", 2), ("x = '''\n\n", 3)],
)
def test_broken_toml_is_refused_with_its_line(contract_file, text, number):
    with pytest.raises(ContractError) as caught:
        load_text(text, contract_file)
    (problem,) = caught.value.problems
    assert problem.line == number
    assert problem.message.startswith("not TOML: ")


def test_bytes_that_are_no_utf8_are_refused_with_their_line(contract_file):
    contract_file.write_bytes(b"# fine\n# \xff\n")
    with pytest.raises(ContractError, match=r"small.toml:2: not UTF-8. Save the file as UTF-8."):
        load_file(contract_file)


def test_a_file_that_is_not_there_is_refused(kernels):
    path = kernels / "doubling" / "contracts" / "none.toml"
    with pytest.raises(ContractError, match=r"none.toml:1: cannot be read: No such file"):
        load_file(path)


def test_a_file_outside_a_workload_is_refused(tmp_path, contract_file):
    stray = tmp_path / "small.toml"
    stray.write_text(contract_file.read_text())
    with pytest.raises(ContractError, match=r"Put it into kernels/<workload>/contracts/"):
        load_file(stray)


def test_a_reference_that_is_no_python_is_refused_with_its_line(kernels, contract_file):
    (kernels / "doubling" / "reference.py").write_text("SHAPE = 1\ndef (:\n")
    with pytest.raises(WorkloadError, match=r"reference.py:2: not Python"):
        load_file(contract_file)


NUMBERS = {
    "weight = 2.0": ("cases[1].weight", lambda v: v > 0),
    "visit_ms = 4.0": ("visit_ms", lambda v: 0 < v <= 60_000),
    "max_noise = 0.03": ("max_noise", lambda v: 0 < v < 0.5),
    "atol = 0.002": ("gate.official.atol", lambda v: v > 0),
    "rtol = 0.02": ("gate.official.rtol", lambda v: 0 < v < 1),
    "factor = 3.0": ("gate.anchored.factor", lambda v: v >= 1),
    "share = 0.9": ("gate.budget.share", lambda v: 0 < v <= 1),
    "padding = 0.3": ("variants[1].padding", lambda v: 0 <= v < 1),
    "device_minutes = 30": ("budget.device_minutes", lambda v: v > 0),
}


@shared_files
@given(st.sampled_from(sorted(NUMBERS)), st.floats() | st.integers(-10, 10))
def test_a_number_passes_exactly_where_it_makes_sense(contract_file, old, number):
    key, sensible = NUMBERS[old]
    wanted = math.isfinite(number) and sensible(number)
    text = contract_file.read_text().replace("margin = 0.01", "margin = 1e-300")
    text = text.replace(old, f"{old.split(' = ')[0]} = {number!r}")
    try:
        load_text(text, contract_file)
    except ContractError as error:
        assert not wanted or (key == "max_noise" and number < 1e-300)
        if not wanted:
            assert [problem.key for problem in error.problems] == [key]
    else:
        assert wanted


@shared_files
@given(st.data())
def test_no_text_of_a_value_gives_anything_but_a_contract_or_one_clear_refusal(contract_file, data):
    text = contract_file.read_text()
    place = data.draw(st.sampled_from(sorted(places(text).values(), key=lambda p: p.start)))
    junk = data.draw(
        st.sampled_from(
            ["1", "-1", "nan", "''", "[]", "{}", "true", "1979-05-27", "[[]]", "{a = {}}", "[{}]", "=", "é"]
        )
    )
    try:
        load_text(text[: place.start] + junk + text[place.end :], contract_file)
    except ContractError as error:
        for problem in error.problems:
            assert 1 <= problem.line <= text.count("\n") + 1
            assert problem.message
            assert problem.remedy
