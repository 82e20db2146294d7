"""The numbers of the gate: how much of its allowance an output uses, and whether it is the kind of tensor agreed on.

Knows tensors only: nothing of processes, contracts, cases or clocks. Runs on CPU and CUDA, in chunks, so that its own
memory stays small beside an output of 13 GB. Everything non-finite fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK = 1 << 23
"""Elements compared at a time: 64 MB a float64 temporary."""


@dataclass(frozen=True)
class Worst:
    """The element that uses most of its allowance: `share` (inf: not finite), where, what was found and expected."""

    share: float
    index: tuple[int, ...]
    found: float
    expected: float

    def __str__(self) -> str:
        place = f"at {list(self.index)}: {self.found:.8g}, expected {self.expected:.8g}"
        return f"{self.share:.4g} of the allowance {place}"


def allowance(y64: Tensor, atol: float, rtol: float) -> Tensor:
    """How far each element may lie from y64: max(atol, rtol·|y64|), either bound sufficing (they are not added)."""
    return (y64.abs() * rtol).clamp_min(atol)


def worst(y: Tensor, y64: Tensor, atol: float, rtol: float, chunk: int = CHUNK) -> Worst:
    """The element with the largest |y − y64| ÷ allowance, in float64. Raises ValueError where the shapes differ."""
    return _largest(y, y64, atol, rtol, torch.float64, chunk)


def share(y: Tensor, y64: Tensor, atol: float, rtol: float, chunk: int = CHUNK) -> float:
    """The largest |y − y64| ÷ allowance, inf where either side is not finite. Raises ValueError as `worst` does."""
    return worst(y, y64, atol, rtol, chunk).share


def official_share(y: Tensor, ref: Tensor, atol: float, rtol: float, chunk: int = CHUNK) -> float:
    """The same against the reference's own output, so that share ≤ 1 exactly where the official rule passes.

    Differences and bounds are taken in float32 as the official script does: an element on the edge falls on its side.
    """
    return _largest(y, ref, atol, rtol, torch.float32, chunk).share


def anchored_limit(u: float, k: float) -> float:
    """What a share is held against where the reference itself uses share `u`: max(1, k·u).

    For a reference that is not finite, −1, which no share reaches: it anchors nothing.
    """
    return max(1.0, k * u) if math.isfinite(u) else -1.0


def output_facts(
    y: object,
    shape: Iterable[int],
    dtype: torch.dtype,
    device: torch.device,
    *memory: Iterable[Tensor] | Mapping[str, Tensor],
) -> str:
    """What is wrong with the kind of `y`, in words, empty where it is as agreed. Reads no values.

    `memory`: groups of tensors (inputs, weights, outputs still held) that the output must not share storage with.
    """
    if type(y) is not torch.Tensor:
        return (
            f"output is a {type(y).__module__}.{type(y).__qualname__}, not exactly torch.Tensor: return a plain tensor"
        )
    wrong = []
    if y.__dict__:
        wrong.append(f"carries attributes {sorted(y.__dict__)}: return a plain tensor")
    if y.requires_grad:
        wrong.append("requires grad: the layer runs in inference mode")
    if y.dtype != dtype:
        wrong.append(f"is {y.dtype}, not {dtype}")
    if tuple(y.shape) != tuple(shape):
        wrong.append(f"has shape {tuple(y.shape)}, not {tuple(shape)}")
    if _place(y.device) != _place(device):
        wrong.append(f"lies on {y.device}, not {device}")
    if y.layout != torch.strided or y.is_neg() or y.is_conj():
        wrong.append(f"is no dense plain tensor (layout {y.layout}, lazily negated or conjugated): materialise it")
    elif y.device.type != "meta":
        wrong += _storage_facts(y, memory)
    return "output " + "; ".join(wrong) if wrong else ""


def known_bad(ref: Tensor, y64: Tensor, atol: float = 0.002, rtol: float = 0.02) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) pairs that a working gate refuses at limit 1, one at a time, from a good output and its values.

    zeros · nan (all) · one_nan · one_inf · one_wrong (a single element at three allowances) · coarse (four significant
    bits, as 8-bit floats keep) · noise (random values of the right spread) · shifted (every sequence moved by one
    token) · unwritten (a sixteenth left zero). No bf16: rounding good values to it costs a fifth of the allowance.
    """
    random = torch.Generator(device=ref.device).manual_seed(1)
    yield "zeros", torch.zeros_like(ref)
    yield "nan", torch.full_like(ref, math.nan)
    middle = ref.numel() // 2
    centre = float(y64.reshape(-1)[middle])
    off = centre + 3.0 * max(atol, rtol * abs(centre))
    for name, value in (("one_nan", math.nan), ("one_inf", math.inf), ("one_wrong", off)):
        bad = ref.clone()
        bad.view(-1)[middle] = value
        yield name, bad
    mantissa, exponent = torch.frexp(ref)
    yield "coarse", torch.ldexp((mantissa * 16).round() / 16, exponent)
    yield "noise", torch.randn(ref.shape, generator=random, device=ref.device, dtype=ref.dtype) * ref.std()
    yield "shifted", ref.roll(1, dims=-2)
    bad = ref.clone()
    bad.view(-1)[: max(1, ref.numel() // 16)] = 0  # from the front: the end may be padding
    yield "unwritten", bad


def known_bad_kinds(ref: Tensor) -> Iterator[tuple[str, object]]:
    """(name, object) pairs that `output_facts` refuses where `ref` is held as memory: right values, wrong kind."""

    class Subclass(Tensor):
        pass

    yield "none", None
    yield "subclass", ref.clone().as_subclass(Subclass)
    yield "bf16", ref.bfloat16()
    yield "wider", ref.double()
    yield "flat", ref.reshape(-1).clone()
    yield "one_row_short", ref[..., :-1].clone()
    yield "transposed", ref.transpose(-1, -2).contiguous().transpose(-1, -2)
    yield "part_of_more", torch.stack([ref, ref])[0]
    yield "alias", ref.view(ref.shape)
    marked = ref.clone()
    marked.note = "lazy"  # type: ignore[attr-defined]
    yield "attribute", marked


def _largest(y: Tensor, target: Tensor, atol: float, rtol: float, dtype: torch.dtype, chunk: int) -> Worst:
    if y.shape != target.shape:
        raise ValueError(f"shapes differ: output {tuple(y.shape)}, expected {tuple(target.shape)}")
    flat, aim = y.detach().reshape(-1), target.detach().reshape(-1)
    largest, place = -1.0, 0
    for start in range(0, flat.numel(), chunk):
        found, wanted = flat[start : start + chunk].to(dtype), aim[start : start + chunk].to(dtype)
        error = (found - wanted).abs()
        ratio = error.double() / allowance(wanted, atol, rtol).double()
        ratio = torch.where(error == 0, 0.0, ratio)  # with both tolerances 0 an exact element is 0 / 0
        ratio = torch.where(torch.isfinite(found) & torch.isfinite(wanted), ratio, math.inf)
        top, at = (float(part) for part in ratio.max(0))
        if top > largest:
            largest, place = top, start + int(at)
    if largest < 0:
        return Worst(0.0, (), math.nan, math.nan)
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), y.shape))
    return Worst(largest, index, float(flat[place]), float(aim[place]))


def _storage_facts(y: Tensor, memory: tuple[Iterable[Tensor] | Mapping[str, Tensor], ...]) -> list[str]:
    wrong = []
    if not y.is_contiguous():
        wrong.append(f"has strides {y.stride()}: make it contiguous")
    size, held = y.numel() * y.element_size(), y.untyped_storage().nbytes()
    if held != size or y.storage_offset():
        wrong.append(f"is a part of a storage of {held} bytes where it needs {size}: an output owns its storage")
    groups = [group.values() if isinstance(group, Mapping) else group for group in memory]
    if any(_overlap(y, other) for group in groups for other in group):
        wrong.append("shares memory with an input, a weight or an earlier output: return a new tensor")
    return wrong


def _place(device: torch.device) -> tuple[str, int]:
    return device.type, device.index or 0


def _overlap(y: Tensor, other: Tensor) -> bool:
    first, other_first = y.untyped_storage().data_ptr(), other.untyped_storage().data_ptr()
    end, other_end = first + y.untyped_storage().nbytes(), other_first + other.untyped_storage().nbytes()
    return _place(y.device) == _place(other.device) and first < other_end and other_first < end
