"""Shared blocks: what one process writes the other reads, nothing overlaps, and a write outside is seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gfast_pipeline.bench.shared import GUARD_BYTES, Shared, pack, unpack
from tests.bench.sessions import ROOT

CPU = torch.device("cpu")
dtypes = st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bool, torch.int64, torch.uint8])
shapes = st.lists(st.integers(0, 5), max_size=3)
WRITER = """
import json, sys, torch
from gfast_pipeline.bench.shared import Shared, unpack
told = json.loads(sys.argv[1])
block = Shared.open(told["block"], torch.device("cpu"))
views = unpack(block, told["layout"])
assert views["read"].tolist() == [1.5, -2.0], views
views["write"].copy_(torch.arange(6).view(2, 3))
{more}
block.close()
"""


@pytest.fixture
def block(tmp_path):
    made = Shared.allocate(1000, CPU, str(tmp_path))
    yield made
    made.close()


def in_other_process(block: Shared, layout: list, more: str = "") -> None:
    told = json.dumps({"block": block.description, "layout": layout})
    done = subprocess.run(
        [sys.executable, "-c", WRITER.format(more=more), told], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


@given(st.lists(st.tuples(dtypes, shapes), min_size=1, max_size=6))
@settings(deadline=None, max_examples=50)
def test_packed_tensors_keep_their_values_and_never_overlap(tmp_path_factory, kinds):
    tensors = {str(i): (torch.rand(shape) * 200).to(dtype).reshape(shape) for i, (dtype, shape) in enumerate(kinds)}
    layout, size = pack(tensors)
    assert all(item["offset"] % 16 == 0 for item in layout)
    block = Shared.allocate(size, CPU, str(tmp_path_factory.getbasetemp()))
    try:
        views = unpack(block, json.loads(json.dumps(layout)))  # as it travels
        for name, view in views.items():
            view.copy_(tensors[name])
        for name, view in views.items():
            assert (view.dtype, view.shape) == (tensors[name].dtype, tensors[name].shape)
            assert torch.equal(view, tensors[name])
        assert block.guards_intact()
    finally:
        block.close()


def test_another_process_reads_and_writes_the_same_bytes(tmp_path):
    layout, size = pack({"read": torch.zeros(2), "write": torch.zeros(2, 3, dtype=torch.int64)})
    block = Shared.allocate(size, CPU, str(tmp_path))
    views = unpack(block, layout)
    views["read"].copy_(torch.tensor([1.5, -2.0]))
    in_other_process(block, layout)
    assert views["write"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert block.guards_intact()
    block.close()


@pytest.mark.parametrize("where", ["block.payload.storage_offset() - 1", "GUARD + block.nbytes", "0"])
def test_a_write_outside_by_another_process_is_seen(tmp_path, where):
    layout, size = pack({"read": torch.zeros(2), "write": torch.zeros(2, 3, dtype=torch.int64)})
    block = Shared.allocate(size, CPU, str(tmp_path))
    unpack(block, layout)["read"].copy_(torch.tensor([1.5, -2.0]))
    more = f"GUARD = {GUARD_BYTES}; block.payload.as_strided((1,), (1,), {where}).fill_(0)"
    in_other_process(block, layout, more)
    assert not block.guards_intact()
    block.mend()
    assert block.guards_intact()
    assert unpack(block, layout)["read"].tolist() == [1.5, -2.0], "mending touches the guards alone"
    block.close()


@pytest.mark.parametrize("offset", [0, GUARD_BYTES - 1])
def test_a_single_byte_of_either_guard_counts(block, offset):
    for place in (offset, GUARD_BYTES + block.nbytes + offset):
        whole = block.payload.as_strided((1,), (1,), place)
        kept = whole.clone()
        whole.add_(1)
        assert not block.guards_intact()
        whole.copy_(kept)
        assert block.guards_intact()


def test_a_view_larger_than_the_block_is_refused(block):
    block.view(torch.float32, (250,))
    with pytest.raises(ValueError, match="a shared block of 1000 bytes cannot hold 1000 at 16"):
        block.view(torch.float32, (250,), 16)


def test_a_closed_block_leaves_no_file(tmp_path):
    made = Shared.allocate(16, CPU, str(tmp_path))
    assert len(os.listdir(tmp_path)) == 1
    made.close()
    assert os.listdir(tmp_path) == []
