"""The bench's own Triton kernels: right under the interpreter, and what they should be once compiled for Hopper."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
ROOT = Path(__file__).parents[2]

INTERPRETED = """
import torch
from gfast_pipeline.bench.spin import exponential_chain, pointer_chase, scale
x = torch.randn(1500); y = torch.empty_like(x)
scale[(2,)](x, y, 1500, 2.5, BLOCK=1024)
assert torch.equal(y, x * 2.5)
z = torch.rand(1500); expected = z.clone()
for _ in range(3):
    expected = torch.exp2(-expected)
exponential_chain[(2,)](z, 1500, COUNT=3, BLOCK=1024)
assert torch.allclose(z, expected, rtol=1e-6), (z - expected).abs().max()
following = torch.tensor([2, 0, 3, 1], dtype=torch.int32); end = torch.zeros(1, dtype=torch.int32)
pointer_chase[(1,)](following, end, COUNT=2)
assert end.item() == 1, end  # 0 → 2 → 3 → 1
print("right")
"""


def test_under_the_interpreter_the_kernels_compute_what_they_say(tmp_path: Path):
    variables = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", INTERPRETED], capture_output=True, text=True, env=variables)
    assert done.stdout.strip() == "right", done.stderr


def test_compiled_for_hopper_one_step_of_the_chain_is_one_special_function_call(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from gfast_pipeline.bench.spin import exponential_chain

    source = ASTSource(
        exponential_chain,
        signature={"x_pointer": "*fp32", "size": "i32", "COUNT": "constexpr", "BLOCK": "constexpr"},
        constexprs={(2,): 4, (3,): 1024},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    ptx = compiled.asm["ptx"]
    assert ".target sm_90" in ptx
    # 1024 elements over 128 threads are 8 a thread, 4 steps each, unrolled; a range reduction would show as more
    assert ptx.count("ex2.approx") == 8 * 4
    assert "cubin" in compiled.asm


def test_compiled_for_hopper_every_link_of_the_chase_is_one_load_past_the_l1_that_needs_the_one_before(
    tmp_path: Path, monkeypatch
):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from gfast_pipeline.bench.spin import pointer_chase

    source = ASTSource(
        pointer_chase,
        signature={"next_pointer": "*i32", "end_pointer": "*i32", "COUNT": "constexpr"},
        constexprs={(2,): 1024},
    )
    ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1}).asm["ptx"]
    assert ptx.count("ld.global.cg.b32") == ptx.count("ld.global") >= 2  # the first, and those in the loop
