from __future__ import annotations

import os
import sys

import pytest

from gfast_pipeline.contract.cards import DATASHEETS, Card, Rates, card_at_hand, datasheet
from gfast_pipeline.contract.errors import ContractError, GfastError
from gfast_pipeline.contract.load import load, load_file
from gfast_pipeline.contract.new import new_contract

A100 = Card("NVIDIA A100-SXM4-80GB", 108, 80 * 2**30)


def test_a_contract_for_a_known_card_differs_from_its_model_only_where_the_card_does(contract_file):
    path = new_contract("a100", load("small"), A100)
    made, model = load_file(path).plain, load("small").plain
    changed = {key for key in model if made[key] != model[key]}
    assert changed == {"name", "purpose", "target", "limits"}
    assert made["purpose"] == "The cases of small on one NVIDIA A100-SXM4-80GB (108 multiprocessors, 80 GiB)."
    assert made["target"] == {**model["target"], "accelerator": "NVIDIA A100-SXM4-80GB", "device": "cuda"}
    assert made["limits"] == {
        "compute_tflops": {"float32": 19.5, "tf32": 156, "float16": 312, "bfloat16": 312},
        "memory_tb_s": 2.039,
        "l2_mb": 40,
        "exponentials_t_s": 2.44,
    }


def test_comments_and_structure_of_the_model_stay(contract_file):
    text = new_contract("a100", load("small"), A100).read_text()
    old = contract_file.read_text().split("\n")
    new = text.split("\n")
    kept = [line for line in new if line in old]
    assert len(old) - len(kept) <= 4
    assert 'accelerator = "NVIDIA A100-SXM4-80GB" # what it runs on' in new
    assert new[0] == "# a comment"


def test_a_model_that_has_limits_gets_them_replaced(contract_file):
    first = new_contract("h200", load("small"), Card("NVIDIA H200", 132, 0))
    second = new_contract("a100", load_file(first), A100)
    assert load_file(second).plain["limits"]["compute_tflops"]["tf32"] == 156
    assert second.read_text().count("compute_tflops") == 1


def test_the_shipped_model_can_be_carried_to_every_card_with_a_datasheet(tmp_path, monkeypatch):
    import shutil

    from gfast_pipeline.contract.workload import kernels_root

    shutil.copytree(kernels_root(), tmp_path / "kernels")
    monkeypatch.setenv("GFAST_KERNELS", str(tmp_path / "kernels"))
    for i, card in enumerate(DATASHEETS):
        made = load_file(new_contract(f"card{i}", load("h200_fp32"), Card(card, None, 0))).contract
        assert made.target.accelerator == card
        assert made.limits.memory_tb_s == DATASHEETS[card].memory_tb_s
        assert len(made.cases) == 14


def test_an_unknown_card_is_refused_with_the_options_to_give(contract_file):
    with pytest.raises(GfastError) as caught:
        new_contract("x", load("small"), Card("NVIDIA X9", None, 0), Rates(float32=10.0))
    said = str(caught.value)
    assert "limits are never guessed" in said
    assert "--tf32 X --float16 X --bfloat16 X --memory-tb-s X --l2-mb X --exponentials-t-s X" in said
    assert "--float32" not in said
    assert not contract_file.with_name("x.toml").exists()


def test_given_rates_complete_or_override_the_datasheet(contract_file):
    rates = Rates(10.0, 20.0, 30.0, 40.0, 0.5, 6.0, 1.0)
    assert load_file(new_contract("x", load("small"), Card("NVIDIA X9", None, 0), rates)).contract.limits.l2_mb == 6
    limits = load_file(new_contract("y", load("small"), A100, Rates(memory_tb_s=1.9))).contract.limits
    assert (limits.memory_tb_s, limits.l2_mb) == (1.9, 40)


def test_nonsensical_rates_are_refused_and_nothing_is_written(contract_file):
    with pytest.raises(ContractError, match=r"limits\.memory_tb_s: .*greater than 0"):
        new_contract("x", load("small"), A100, Rates(memory_tb_s=-1.0))
    assert not contract_file.with_name("x.toml").exists()


def test_a_taken_or_odd_name_is_refused(contract_file):
    with pytest.raises(GfastError, match="such a contract already"):
        new_contract("small", load("small"), A100)
    for name in ("", "A100", "../x", "a b", "x.approved"):
        with pytest.raises(GfastError, match="is no name for a contract"):
            new_contract(name, load("small"), A100)


@pytest.mark.parametrize("name", ["NVIDIA H200", "H200", "nvidia h200"])
def test_a_datasheet_is_found_with_or_without_the_makers_name(name):
    assert datasheet(name) == DATASHEETS["H200"]


@pytest.mark.parametrize("name", ["NVIDIA H2000", "NVIDIA H200 NVL", "", "NVIDIA A100"])
def test_a_similar_name_is_no_known_card(name):
    assert datasheet(name) is None


def test_exponential_limits_follow_from_multiprocessors_and_clock():
    """16 exponentials a clock and multiprocessor: the figure over 16 SMs is the boost clock the fp32 rate implies."""
    for name, rates in DATASHEETS.items():
        lanes = 64 if "A100" in name else 128
        assert rates.float32 and rates.exponentials_t_s
        assert rates.exponentials_t_s / 16 == pytest.approx(rates.float32 / (2 * lanes), rel=0.01), name


def program(path, text):
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)


def test_the_card_at_hand_is_what_nvidia_smi_says(tmp_path, monkeypatch):
    program(tmp_path / "nvidia-smi", "print('NVIDIA A100-SXM4-80GB, 81920'); print('NVIDIA T4, 15360')")
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    card = card_at_hand()
    assert (card.name, card.memory_bytes) == ("NVIDIA A100-SXM4-80GB", 80 * 2**30)


@pytest.mark.parametrize("text", ["print('No devices were found')", "raise SystemExit(9)", "pass"])
def test_no_card_at_hand_is_a_refusal_with_a_remedy(tmp_path, monkeypatch, text):
    program(tmp_path / "nvidia-smi", text)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(GfastError, match="or name it: --accelerator"):
        card_at_hand()
