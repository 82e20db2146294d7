from __future__ import annotations

import hashlib
import re

import pytest

from gfast_pipeline.contract.errors import WorkloadError
from gfast_pipeline.contract.workload import find_contract, kernels_root, read_source, workload, workloads


def test_workloads_are_the_folders_with_a_reference(kernels):
    (kernels / "notes").mkdir()
    assert [found.name for found in workloads()] == ["doubling"]
    assert workload("doubling").literals() == {
        "SHAPE": ("rows", "width", "parts"),
        "DIVISORS": {"width": "parts"},
        "WEIGHT_DRAWS": ("official", "gains"),
        "STRUCTURED": ("offset", "outlier"),
    }


def test_the_environment_variable_names_the_root_and_must_exist(kernels, monkeypatch):
    assert kernels_root() == kernels
    monkeypatch.setenv("GFAST_KERNELS", str(kernels / "none"))
    with pytest.raises(WorkloadError, match=r"no such folder\. Correct or unset it"):
        kernels_root()


def test_without_the_variable_the_folder_beside_the_package_is_taken(monkeypatch, tmp_path):
    monkeypatch.delenv("GFAST_KERNELS", raising=False)
    monkeypatch.chdir(tmp_path)
    assert [found.name for found in workloads()][-1:] == ["transformer_layer"]


def test_an_unknown_workload_names_those_there_are(kernels):
    with pytest.raises(WorkloadError, match=r"There are: doubling"):
        workload("tripling")


@pytest.mark.parametrize("old", ["SHAPE = ", "DIVISORS = ", "WEIGHT_DRAWS = ", "STRUCTURED = "])
def test_a_reference_without_its_literals_is_refused(kernels, old):
    path = kernels / "doubling" / "reference.py"
    path.write_text(path.read_text().replace(old, "OTHER = "))
    with pytest.raises(WorkloadError, match=rf"reference.py: {old.split()[0]} is missing"):
        workload("doubling").literals()


def test_a_literal_that_must_be_computed_is_refused_with_its_line(kernels):
    path = kernels / "doubling" / "reference.py"
    path.write_text("SHAPE = tuple('ab')\n")
    with pytest.raises(WorkloadError, match=r"reference.py:1: SHAPE is no literal"):
        workload("doubling").literals()


def test_contracts_are_found_by_name_and_by_workload(kernels, contract_file):
    contract_file.with_name("small.approved.toml").write_text("")
    assert workload("doubling").contracts() == [contract_file]
    assert find_contract("small") == contract_file
    assert find_contract("doubling/small") == contract_file
    with pytest.raises(WorkloadError, match=r"no contract 'big'\. There are: small"):
        find_contract("big")


def test_a_name_that_two_workloads_use_must_be_told_apart(kernels, contract_file):
    other = kernels / "tripling" / "contracts"
    other.mkdir(parents=True)
    (other.parent / "reference.py").write_text("")
    (other / "small.toml").write_text("")
    with pytest.raises(WorkloadError, match=r"Say doubling/small or tripling/small"):
        find_contract("small")
    assert find_contract("tripling/small") == other / "small.toml"


def test_a_candidate_is_read_with_its_hash_hypothesis_and_default_schedule(kernels):
    source = workload("doubling").candidate("v000")
    assert source == workload("doubling").candidate("v000_identity")
    assert source.sha256 == hashlib.sha256(source.path.read_bytes()).hexdigest()
    assert source.hypothesis == "v000: the reference itself."
    assert source.default_schedule == {"num_warps": 4, "rows": 32}


def test_a_candidate_is_not_executed_when_read(kernels, tmp_path):
    trap = tmp_path / "trap"
    path = kernels / "doubling" / "candidates" / "v001_trap.py"
    path.write_text(f"open({str(trap)!r}, 'w')\n")
    assert read_source(path).default_schedule == {}
    assert not trap.exists()


def test_a_source_becomes_a_plan_with_its_default_schedule_on_every_case(kernels):
    plan = workload("doubling").candidate("v000").plan("challenger", [1, 2], prove=True)
    assert (plan.name, plan.role, plan.prove) == ("v000_identity", "challenger", True)
    assert plan.schedules == {"1": {"num_warps": 4, "rows": 32}, "2": {"num_warps": 4, "rows": 32}}
    assert workload("doubling").peer("plain").plan("peer", [1]).schedules == {}


def test_candidates_come_in_the_order_of_their_numbers(kernels):
    folder = kernels / "doubling" / "candidates"
    for name in ("v1000_late.py", "v002_second.py", "v2_short.py", "notes.py", "vABC_x.py"):
        (folder / name).write_text("")
    found = workload("doubling")
    assert [source.name for source in found.candidates()] == ["v000_identity", "v002_second", "v1000_late"]
    assert [path.name for path in found.misnamed()] == ["notes.py", "v2_short.py", "vABC_x.py"]


def test_two_candidates_with_one_number_are_refused(kernels):
    (kernels / "doubling" / "candidates" / "v000_other.py").write_text("")
    with pytest.raises(WorkloadError, match=r"v000_other.py: v000_identity.py has the number too"):
        workload("doubling").candidates()


def test_an_unknown_candidate_or_peer_names_those_there_are(kernels):
    with pytest.raises(WorkloadError, match=r"no candidate 'v007'\. There are: v000_identity"):
        workload("doubling").candidate("v007")
    with pytest.raises(WorkloadError, match=r"there are: plain"):
        workload("doubling").peer("fancy")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\ndef broken(:\n", r"v001_bad.py:2: not Python"),
        ("\nSCHEDULES = {'w': make()}\n", r"v001_bad.py:2: SCHEDULES is no literal"),
        ("SCHEDULES = {'w': []}\n", r"v001_bad.py: SCHEDULES is not"),
        ("SCHEDULES = {'w': 4}\n", r"v001_bad.py: SCHEDULES is not"),
        ("SCHEDULES = [4]\n", r"v001_bad.py: SCHEDULES is not"),
        ("x = " + "(" * 5000 + ")" * 5000, r"v001_bad.py:1: not Python"),
        ("x = '\0'\n", r"not Python"),
    ],
)
def test_a_candidate_that_cannot_be_read_says_where_and_hides_no_other(kernels, text, words):
    path = kernels / "doubling" / "candidates" / "v001_bad.py"
    path.write_text(text)
    assert re.search(words, read_source(path).trouble)
    assert [source.name for source in workload("doubling").candidates()] == ["v000_identity", "v001_bad"]


def test_a_candidate_that_is_no_utf8_says_so(kernels):
    path = kernels / "doubling" / "candidates" / "v001_bad.py"
    path.write_bytes(b"# \xff")
    assert "not UTF-8 at byte 2" in read_source(path).trouble
