"""The bay of a case: nobody sees a value twice, and what was written where it should not be is seen and mended."""

from __future__ import annotations

import random

import pytest
import torch

from gfast_pipeline.bench import workload
from gfast_pipeline.bench.bay import Bay
from tests.bench.sessions import KERNEL, contract


@pytest.fixture
def bay(tmp_path):
    module = workload.load_source("pool_reference", (KERNEL / "reference.py").read_text(), str(tmp_path))
    rules = contract()
    made = Bay(module, rules["cases"][0], rules, torch.device("cpu"), str(tmp_path), 0, True)
    yield made
    made.close()


def entries(bay: Bay) -> list[bytes]:
    assert bay.pool is not None
    return [part.numpy().tobytes() for part in bay.pool.payload.view(bay.entries, bay.x.nbytes)]


def test_a_refill_leaves_no_value_of_any_earlier_pool(bay):
    seen: set[bytes] = set()
    for _ in range(3):
        bay.refill()
        now = entries(bay)
        assert len(set(now)) == len(now) == bay.entries
        assert seen.isdisjoint(now)
        seen |= set(now)


def test_two_bays_of_one_seed_share_no_values(bay, tmp_path):
    """Not even global seeds decide what is drawn: nobody can draw it in advance."""
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        random.seed(0)
        bay.refill()
        found.append(set(entries(bay)))
    assert found[0].isdisjoint(found[1])


def test_the_secret_rows_come_from_the_private_copy(bay):
    bay.refill()
    bay.draw_weights("official", 1234)
    kept = entries(bay)
    assert bay.pool is not None
    bay.pool.payload.zero_()  # whatever becomes of the shared pool
    for _ in range(10):
        drawn, rows, inputs = bay.secret_rows(5, 3)
        assert len(drawn) == 2 and set(drawn) <= set(range(5))
        x = torch.cat(
            [torch.frombuffer(bytearray(kept[call + 3]), dtype=torch.float32)[: 2 * 16 * 32] for call in drawn]
        )
        assert torch.equal(inputs[0], x.view(len(drawn), 2, 16, 32)[:, rows].reshape(-1, 16, 32))


def test_a_change_to_pool_guard_or_fixed_input_is_seen_and_mended(bay):
    bay.refill()
    assert bay.pool is not None
    fixed, pool, slots = bay.x.payload, bay.pool.payload, bay.slots.payload
    last = pool.view(bay.entries, -1)[4]
    fixed.copy_(last)
    assert bay.pool_untouched(5)
    for spoil in (
        lambda: pool[7].bitwise_xor_(1),
        lambda: pool.as_strided((1,), (1,), 0).bitwise_xor_(1),
        lambda: slots.as_strided((1,), (1,), slots.storage_offset() + slots.numel()).bitwise_xor_(1),
    ):
        spoil()
        assert not bay.pool_untouched(5)
        bay.mend()
        assert bay.pool_untouched(5)
    fixed[0].bitwise_xor_(1)
    assert not bay.pool_untouched(5)


def test_what_was_not_written_shows_as_not_finite(bay):
    bay.slot(0).fill_(1.0)
    bay.poison(2)
    assert torch.isnan(bay.slot(0)).all() and torch.isnan(bay.slot(1)).all()
