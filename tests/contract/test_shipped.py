"""The contracts in the repository say what the official task says, and hold together."""

from __future__ import annotations

import pytest

from gfast_pipeline.contract.load import load

# case: batch, length, width, heads, layers, as the task's statement has them
OFFICIAL = {
    1: (64, 128, 128, 4, 4),
    2: (1, 128, 128, 4, 4),
    3: (4, 128, 128, 4, 4),
    4: (16, 128, 128, 4, 4),
    5: (128, 128, 128, 4, 4),
    6: (10000, 128, 128, 4, 4),
    7: (64, 128, 32, 4, 4),
    8: (64, 128, 1024, 4, 4),
    9: (64, 128, 128, 1, 4),
    10: (64, 128, 128, 2, 4),
    11: (64, 128, 128, 16, 4),
    12: (64, 32, 128, 4, 4),
    13: (64, 1024, 128, 4, 4),
    14: (32, 100000, 1024, 16, 2),
}


@pytest.fixture(autouse=True)
def shipped(monkeypatch):
    monkeypatch.delenv("GFAST_KERNELS", raising=False)


@pytest.mark.parametrize(("name", "cases"), [("h200_fp32", list(range(1, 15))), ("cpu_fp32", [2, 7])])
def test_cases_have_the_official_shapes(name, cases):
    contract = load(name).contract
    assert {case.id: tuple(case.shape.values()) for case in contract.cases} == {i: OFFICIAL[i] for i in cases}
    assert {case.weight for case in contract.cases} == {1.0}
    assert [case.id for case in contract.scored] == [i for i in cases if i != 14]


@pytest.mark.parametrize("name", ["h200_fp32", "cpu_fp32"])
def test_variants_draws_and_gate_are_the_settled_ones(name):
    contract = load(name).contract
    assert [(v.name, v.seed, v.scale, v.padding) for v in contract.variants] == [
        ("randn", 11, 1.0, 0.0),
        ("x8", 22, 8.0, 0.0),
        ("x0.05", 33, 0.05, 0.0),
        ("pad.3", 44, 1.0, 0.3),
        ("pad.7x2", 55, 2.0, 0.7),
    ]
    assert {draw.name: (draw.seed, draw.variants) for draw in contract.weight_draws} == {
        "official": (1234, ("randn", "x8", "x0.05", "pad.3", "pad.7x2")),
        "gains": (2, ("randn", "x0.05")),
        "peaked": (3, ("randn",)),
        "near_zero": (4, ("x0.05",)),
    }
    gate = contract.gate
    assert (gate.official.atol, gate.official.rtol, gate.official.trials, gate.official.seed) == (0.002, 0.02, 5, 1234)
    assert (gate.anchored.factor, gate.budget.share) == (3.0, 0.9)


def test_the_screening_profiles_of_the_h200_are_the_settled_ones():
    assert load("h200_fp32").contract.profiles == {
        "launch": (1, 2, 12),
        "attention": (9, 11, 13),
        "throughput": (5, 6, 8),
        "heads": (9, 10, 11),
        "long": (12, 13),
        "neutral": (2, 6, 8, 11, 13),
    }


@pytest.mark.parametrize("name", ["h200_fp32", "cpu_fp32"])
def test_every_peer_has_its_file(name):
    loaded = load(name)
    assert [loaded.workload.peer(peer).name for peer in loaded.contract.peers] == list(loaded.contract.peers)


def test_both_contracts_prohibit_the_same():
    assert load("h200_fp32").contract.prohibited == load("cpu_fp32").contract.prohibited


@pytest.mark.parametrize("module", ["torch", "triton", "math", "functools", "typing", "dataclasses", "collections"])
def test_what_a_kernel_needs_is_not_prohibited(module):
    assert module not in load("h200_fp32").contract.prohibited.imports
