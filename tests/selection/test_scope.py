from __future__ import annotations

import dataclasses

import pytest

from gfast_pipeline.selection.scope import ScopeError, differences, refuse_across, same, unranked
from tests.selection.races import elsewhere, race

H200 = {
    "accelerator": {"name": "NVIDIA H200", "sms": 132},
    "software": {"torch": "2.11.0", "triton": "3.6.0"},
    "protocol": 1,
}


def row(impl: str, us: float, contract_hash: str = "c1", **scope):
    return {"impl": impl, "us": us, "contract_hash": contract_hash, "scope": {**H200, **scope}}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (row("v009", 41.0, accelerator={"name": "NVIDIA A100", "sms": 108}),
         "accelerator.name: NVIDIA H200 and NVIDIA A100; accelerator.sms: 132 and 108"),
        (row("v009", 41.0, software={"torch": "2.12.0", "triton": "3.6.0"}), "software.torch: 2.11.0 and 2.12.0"),
        (row("v009", 41.0, software={"triton": "3.6.0"}), "software.torch: 2.11.0 and nothing stated"),
        (row("v009", 41.0, protocol=2), "protocol: 1 and 2"),
        (row("v009", 41.0, "c0"), "contract_hash: c1 and c0"),
        (row("v009", 41.0) | {"scope": {}}, "nothing stated"),
    ],
)  # fmt: skip
def test_across_scopes_nothing_is_ranked_and_the_message_names_what_differs(other, said):
    mine = row("v003", 150.0)
    assert not same(mine, other) and not same(other, mine)
    with pytest.raises(ScopeError) as refusal:
        refuse_across([mine, mine, other], "times of case 5")
    assert said in str(refusal.value)
    assert str(refusal.value).startswith("times of case 5 are of several scopes")
    assert str(refusal.value).endswith("Rank each scope alone, or show them beside each other unranked.")


def test_hashes_that_differ_only_in_their_tails_are_told_whole():
    assert differences(row("a", 1.0, "c" * 63 + "0"), row("b", 1.0, "c" * 64)) == [
        f"contract_hash: {'c' * 63}0 and {'c' * 64}"
    ]


def test_a_scope_that_nobody_stated_is_not_even_its_own():
    with pytest.raises(ScopeError, match="scope: stated by neither"):
        refuse_across([row("v003", 1.0) | {"scope": {}}])


def test_one_scope_passes_as_rows_and_as_sessions():
    refuse_across([])
    refuse_across([row("v003", 150.0), row("v000", 210.0)])
    refuse_across([race(1), race(2)])
    with pytest.raises(ScopeError, match="protocol: 1 and 2"):
        refuse_across([race(1), elsewhere(race(2), protocol=2)])
    with pytest.raises(ScopeError, match="contract_hash"):
        refuse_across([race(1), dataclasses.replace(race(2), contract_hash="d" * 64)])


def test_shown_beside_each_other_rows_keep_their_order_and_lose_their_rank():
    rows = [row("v003", 150.0) | {"rank": 1}, row("v009", 41.0, protocol=2) | {"rank": 1}]
    shown = unranked(rows)
    assert [one["impl"] for one in shown] == ["v003", "v009"]
    assert [one["rank"] for one in shown] == [None, None]
    assert [one["scope_differs"] for one in shown] == ["", "protocol: 1 and 2"]
    assert rows[0]["rank"] == 1
