"""Honest and wrong implementations of the layer, emulated, and the contract's whole pairing of draws and inputs.

Torch and the standard library only: the GPU machine runs it too. An emulation rounds the operands of every matrix
product as some hardware path would and accumulates in float32 (the caller keeps matmul precision at "highest"), so that
the rounding is its only difference from exact float32.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Rounding = Callable[[Tensor], Tensor]


def exact(t: Tensor) -> Tensor:
    return t


def tf32(t: Tensor) -> Tensor:
    """float32 rounded to TF32's 10 mantissa bits, nearest even."""
    bits = t.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def tf32_truncated(t: Tensor) -> Tensor:
    """float32 with the bits that TF32 lacks cut off: what feeding unrounded values to the tensor cores does."""
    return (t.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def fp16(t: Tensor) -> Tensor:
    return t.half().float()


def bf16(t: Tensor) -> Tensor:
    return t.bfloat16().float()


@dataclass(frozen=True)
class Flaw:
    """What an emulated candidate gets wrong or does differently."""

    operand: Rounding = exact
    round_bias: bool = False
    uniform: bool = False  # every earlier key weighs the same
    last_ffn: bool = True  # False: the last block's FFN is left out


EMULATED: dict[str, Flaw] = {
    "tf32": Flaw(tf32),
    "fp32": Flaw(),
    "fp16": Flaw(fp16, round_bias=True),
    "tf32_trunc": Flaw(tf32_truncated),
    "bf16": Flaw(bf16, round_bias=True),
    "uniform": Flaw(uniform=True),
    "no_last_ffn": Flaw(last_ffn=False),
}
HONEST = ("fp32", "tf32", "fp16")
WRONG = ("tf32_trunc", "bf16", "uniform", "no_last_ffn")


def forward(state: dict[str, Tensor], case: Any, x: Tensor, valid: Tensor, flaw: Flaw) -> Tensor:
    """x (batch, length, d_model) float32 → the same, by the reference's mathematics with `flaw`."""
    batch, length, d_model = x.shape
    rounded = flaw.operand
    later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
    unseen = later | valid.logical_not()[:, None, None, :]
    invalid = valid.logical_not()[..., None]

    def linear(rows: Tensor, name: str) -> Tensor:
        bias = state[f"{name}.bias"]
        return F.linear(rounded(rows), rounded(state[f"{name}.weight"])) + (rounded(bias) if flaw.round_bias else bias)

    def norm(rows: Tensor, name: str) -> Tensor:
        return F.layer_norm(rows, (d_model,), state[f"{name}.weight"], state[f"{name}.bias"])

    def per_head(rows: Tensor) -> Tensor:
        return rows.view(batch, length, case.heads, -1).transpose(1, 2)

    for i in range(case.layers):
        at = f"layers.{i}"
        h = norm(x, f"{at}.norm1")
        q, k, v = (per_head(linear(h, f"{at}.attention.{p}_proj")) for p in "qkv")
        scores = rounded(q) @ rounded(k).transpose(2, 3) * (d_model // case.heads) ** -0.5
        scores = (scores * 0 if flaw.uniform else scores).masked_fill(unseen, -math.inf)
        mixed = rounded(torch.softmax(scores, -1)) @ rounded(v)
        mixed = linear(mixed.transpose(1, 2).reshape(batch, length, d_model), f"{at}.attention.out_proj")
        x = x + mixed.masked_fill(invalid, 0)
        if flaw.last_ffn or i + 1 < case.layers:
            x = x + linear(F.gelu(linear(norm(x, f"{at}.norm2"), f"{at}.ffn_in")), f"{at}.ffn_out")
        x = x.masked_fill(invalid, 0)
    return norm(x, "final_norm").masked_fill(invalid, 0)


Forward = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Row:
    """What one implementation used of its allowance on one input, and whether the gate lets it through."""

    case: int
    draw: str
    variant: str
    name: str
    share: float
    reference_share: float
    limit: float
    official: float | None  # against the reference, on the official draw only
    passed: bool


def load(name: str, path: Path) -> ModuleType:
    """The module at `path`, loaded under `name`."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def case_of(contract: dict[str, Any], number: int, device: torch.device, most: int) -> SimpleNamespace:
    """Case `number` of the contract as candidates see it, with at most `most` sequences."""
    shape = next(row["shape"] for row in contract["cases"] if row["id"] == number)
    target = {name: contract["target"][name] for name in ("dtype", "matmul_precision")}
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    record = SimpleNamespace(type=device.type, name=device.type, capability=capability)
    return SimpleNamespace(id=number, device=record, **target, **(shape | {"batch": min(shape["batch"], most)}))


def inputs_of(
    workload: Any, contract: dict[str, Any], draw: dict[str, Any], case: Any, device: torch.device
) -> Iterator:
    """(variant, inputs) that the contract pairs with a weight draw; `official` has trials and structured inputs too."""
    rule = contract["gate"]["official"]
    if draw["name"] == "official":
        for trial in range(rule["trials"]):
            yield "trial", workload.draw_inputs(case, rule["seed"] + trial, 1.0, 0.0, device)
    for v in contract["variants"]:
        if v["name"] in draw["variants"]:
            yield v["name"], workload.draw_inputs(case, v["seed"], v["scale"], v["padding"], device)
    if draw["name"] == "official":
        for index, name in enumerate(contract["structured"]):
            yield name, workload.structured_inputs(case, name, rule["seed"] + 1000 + index, device)


def assess(
    contract: dict[str, Any],
    case: Any,
    device: torch.device,
    workload: Any,
    gate: Any,
    make_oracle: Callable[[dict[str, Tensor]], Callable[[tuple[Tensor, Tensor]], Tensor]],
    make: Callable[[dict[str, Tensor]], tuple[Forward, dict[str, Forward]]],
) -> Iterator[Row]:
    """Every implementation through the contract's gates on all its inputs: official and budget, or anchored.

    `make_oracle(state)` → inputs → float64 answer; `make(state)` → (the reference, implementations by name).
    """
    gates = contract["gate"]
    tolerances = gates["official"]["atol"], gates["official"]["rtol"]
    for draw in contract["weight_draws"]:
        state = {k: v.to(device) for k, v in workload.draw_weights(case, draw["name"], draw["seed"]).items()}
        oracle, (reference, candidates) = make_oracle(state), make(state)
        for variant, inputs in inputs_of(workload, contract, draw, case, device):
            y64, ref = oracle(inputs), reference(*inputs)
            u = gate.share(ref, y64, *tolerances)
            for name, forward_of in candidates.items():
                y = forward_of(*inputs)
                share, official = gate.share(y, y64, *tolerances), None
                if variant == "trial":
                    official, limit = gate.official_share(y, ref, *tolerances), gates["budget"]["share"]
                else:
                    limit = gate.anchored_limit(u, gates["anchored"]["factor"])
                passed = share <= limit and (official is None or official <= 1.0)
                yield Row(case.id, draw["name"], variant, name, share, u, limit, official, passed)


def table(rows: list[Row]) -> str:
    """Smallest to largest share over the cases, per draw and variant; `!` marks where some case was refused."""
    names = list(dict.fromkeys(row.name for row in rows))
    groups = list(dict.fromkeys((row.draw, row.variant) for row in rows))

    def span(values: list[float]) -> str:
        return f"{min(values):.3g}-{max(values):.3g}"

    lines = ["  ".join(["weights    variant         ", "u (reference)".ljust(16), *(n.ljust(16) for n in names)])]
    for draw, variant in groups:
        here = [row for row in rows if (row.draw, row.variant) == (draw, variant)]
        cells = [span([row.reference_share for row in here]).ljust(16)]
        for name in names:
            own = [row for row in here if row.name == name]
            cells.append((span([row.share for row in own]) + ("" if all(r.passed for r in own) else " !")).ljust(16))
        lines.append("  ".join([f"{draw:10} {variant:16}", *cells]))
    return "\n".join(lines)
