"""Small Triton kernels of the bench's own. Imported only where a CUDA device is."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def exponential_chain(x_pointer, size, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """x ← exp2(−x), `COUNT` times in registers: one special-function operation and one sign flip each."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_pointer + index, index < size)
    for _ in range(COUNT):
        x = tl.exp2(-x)
    tl.store(x_pointer + index, x, index < size)


@triton.jit
def scale(x_pointer, y_pointer, size, factor, BLOCK: tl.constexpr):
    """y = factor·x: a kernel to time the compiler with."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_pointer + index, tl.load(x_pointer + index, index < size) * factor, index < size)


@triton.jit
def pointer_chase(next_pointer, end_pointer, COUNT: tl.constexpr):
    """Follow `COUNT` links from place 0, each load needing the one before it and asked of L2 (.cg: not of L1)."""
    place = tl.load(next_pointer, cache_modifier=".cg")
    for _ in range(COUNT):
        place = tl.load(next_pointer + place, cache_modifier=".cg")
    tl.store(end_pointer, place)
