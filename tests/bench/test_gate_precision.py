"""The gate lets honest precisions through and refuses the wrong ones, on the contract's own draws, variants and inputs.

On a CPU by emulation: the reference is the layer with every product's operands rounded to TF32 (nearest), as the
official protocol runs it. `pytest -s` prints the table.
"""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from gfast_pipeline.bench import gate, oracles

ROOT = Path(__file__).parents[2]
KERNEL = ROOT / "kernels" / "transformer_layer"
CPU = torch.device("cpu")

_spec = importlib.util.spec_from_file_location("gate_emulation", Path(__file__).with_name("emulation.py"))
assert _spec is not None and _spec.loader is not None
emulation = importlib.util.module_from_spec(_spec)
sys.modules["gate_emulation"] = emulation
_spec.loader.exec_module(emulation)


@pytest.fixture(scope="module")
def rows():
    contract = tomllib.loads((KERNEL / "contracts" / "h200_fp32.toml").read_text())
    workload = emulation.load("precision_reference", KERNEL / "reference.py")
    found = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        for number, most in ((1, 3), (11, 2), (12, 4)):
            case = emulation.case_of(contract, number, CPU, most)

            def make(state, case=case):
                def emulated(name):
                    return lambda x, valid: emulation.forward(state, case, x, valid, emulation.EMULATED[name])

                return emulated("tf32"), {name: emulated(name) for name in emulation.EMULATED}

            def make_oracle(state, case=case):
                return oracles.Oracle(workload, case, state, CPU).y64

            found += emulation.assess(contract, case, CPU, workload, gate, make_oracle, make)
    torch.set_num_threads(threads)
    print("\n" + emulation.table(found))
    return found


@pytest.mark.parametrize("name", emulation.HONEST)
def test_an_honest_precision_passes_every_draw_variant_and_structured_input(rows, name):
    refused = [row for row in rows if row.name == name and not row.passed]
    assert len([row for row in rows if row.name == name]) == 3 * (5 + 5 + 4 + 2 + 1 + 1)
    assert refused == []


@pytest.mark.parametrize("name", emulation.WRONG)
@pytest.mark.parametrize("case", [1, 11, 12])
def test_a_wrong_implementation_is_refused_somewhere_on_every_case(rows, name, case):
    assert [row for row in rows if row.name == name and row.case == case and not row.passed]


def test_truncating_to_tf32_costs_about_two_and_a_half_times_as_much_as_rounding(rows):
    def typical(name: str) -> float:
        shares = sorted(row.share for row in rows if row.name == name and row.variant == "trial")
        return shares[len(shares) // 2]

    assert 1.8 < typical("tf32_trunc") / typical("tf32") < 5


def test_the_official_rule_alone_would_refuse_exact_float32_on_small_inputs(rows):
    """Why the anchored gate exists: on x0.05 the TF32 reference itself leaves the tolerance that float32 stays in."""
    small = [row for row in rows if row.draw == "official" and row.variant == "x0.05"]
    assert max(row.reference_share for row in small) > 0.9
    assert all(row.share < 0.01 for row in small if row.name == "fp32")


def test_a_missing_branch_is_seen_even_where_branches_are_near_zero(rows):
    near = [row for row in rows if row.draw == "near_zero" and row.name == "no_last_ffn"]
    assert near and not any(row.passed for row in near)
