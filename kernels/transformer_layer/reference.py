"""The transformer layer workload: the reference, its weights, its inputs, its fp64 oracles and its counted work.

The operation is a stack of pre-norm transformer blocks with causal attention and a prefix padding mask. This file needs
torch and the standard library only and is loaded by path, by the judge and by every runner. It knows nothing of
contracts, gates, clocks or candidates, and never touches global flags: precision is whatever the caller has set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE = ("batch", "length", "d_model", "heads", "layers")
DIVISORS = {"d_model": "heads"}
WEIGHT_DRAWS = ("official", "gains", "peaked", "near_zero")
STRUCTURED = ("outlier_suffix", "constant_prefix", "offset", "decisive_token")

RUNNABLE_BYTES = 64_000_000_000
SCORE_BLOCK_BYTES = 2_000_000_000  # of one score block (one head); the softmax holds two at a time
KEY_PARTS = 8


class Attention(nn.Module):
    """Causal self-attention with an explicit score matrix. (batch, length, d_model) in and out."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, valid: Tensor | None) -> Tensor:
        batch, length, d_model = x.shape
        head_dim = d_model // self.heads

        def per_head(projected: Tensor) -> Tensor:
            return projected.reshape(batch, length, self.heads, head_dim).transpose(1, 2).contiguous()

        q, k, v = per_head(self.q_proj(x)), per_head(self.k_proj(x)), per_head(self.v_proj(x))
        scores = torch.matmul(q, k.transpose(2, 3)) * head_dim**-0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
        if valid is not None:
            scores = scores.masked_fill(valid.logical_not()[:, None, None, :], -math.inf)
        weights = torch.softmax(scores, dim=-1, dtype=_softmax_dtype(x.dtype)).to(x.dtype)
        mixed = torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, d_model)
        return _zero_invalid(self.out_proj(mixed), valid)


class Block(nn.Module):
    """One pre-norm block: x + attention(norm1(x)), then x + ffn(norm2(x)); invalid tokens zeroed."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(d_model)
        self.attention = Attention(d_model, heads)
        self.norm2 = nn.LayerNorm(d_model)
        self.ffn_in = nn.Linear(d_model, d_model)
        self.ffn_out = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, valid: Tensor | None) -> Tensor:
        x = x + self.attention(self.norm1(x), valid)
        x = x + self.ffn_out(F.gelu(self.ffn_in(self.norm2(x))))
        return _zero_invalid(x, valid)


class TransformerLayer(nn.Module):
    """The reference: `layers` blocks and a final norm; the parameter names are the official ones."""

    def __init__(self, d_model: int, heads: int, layers: int) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model {d_model} is not a multiple of heads {heads}: choose a divisor")
        self.heads = heads
        self.layers = nn.ModuleList([Block(d_model, heads) for _ in range(layers)])
        self.final_norm = nn.LayerNorm(d_model)

    def forward(self, x: Tensor, valid_token_mask: Tensor | None = None) -> Tensor:
        """x (batch, length, d_model); valid_token_mask (batch, length) bool or None. Returns a new tensor like x."""
        for block in self.layers:
            x = block(x, valid_token_mask)
        return _zero_invalid(self.final_norm(x), valid_token_mask)


def make(case: Any) -> TransformerLayer:
    """A fresh model of the case's shape, on whatever default device is set (meta allowed), in eval mode."""
    return TransformerLayer(case.d_model, case.heads, case.layers).eval().requires_grad_(False)


def draw_weights(case: Any, draw: str, seed: int) -> dict[str, Tensor]:
    """A float32 state dict on the CPU; the global random state is left as found.

    `official`: the framework's default initialisation after manual_seed(seed). The others start from the same and then
    `gains`: norm weights 1 + 0.3·randn, every bias 0.5·randn; `peaked`: q and k weights × 6, so that few keys decide;
    `near_zero`: weights and biases of out_proj and ffn_out × 1e-3, so that the residual carries nearly everything.
    Raises ValueError for another name.
    """
    if draw not in WEIGHT_DRAWS:
        raise ValueError(f"unknown weight draw {draw!r}: one of {', '.join(WEIGHT_DRAWS)}")
    with torch.random.fork_rng(devices=[]), torch.device("cpu"), torch.no_grad():
        torch.manual_seed(seed)
        state = {name: value.detach().float() for name, value in make(case).state_dict().items()}
        for name, value in state.items():
            owner = name.split(".")[-2]
            if draw == "gains" and name.endswith(".bias"):
                value.copy_(torch.randn(value.shape) * 0.5)
            elif draw == "gains" and "norm" in owner:
                value.copy_(torch.randn(value.shape) * 0.3 + 1.0)
            elif draw == "peaked" and owner in ("q_proj", "k_proj") and name.endswith(".weight"):
                value.mul_(6.0)
            elif draw == "near_zero" and owner in ("out_proj", "ffn_out"):
                value.mul_(1e-3)
    return state


def draw_inputs(
    case: Any,
    seed: int,
    scale: float,
    padding: float,
    device: torch.device | str,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """x (batch, length, d_model) and valid_token_mask (batch, length) bool, by the official recipe.

    A generator on `device` seeded with `seed` (a given one is reseeded, not replaced), x = randn · scale; with padding
    p > 0 lengths are uniform in [max(1, round(length·(1 − p))), length] and x is zero after them.
    """
    random = _generator(seed, device, generator)
    x = _randn(case, device, random).mul_(scale)
    if padding <= 0:
        return x, torch.ones(case.batch, case.length, dtype=torch.bool, device=device)
    shortest = max(1, round(case.length * (1.0 - padding)))
    lengths = torch.randint(shortest, case.length + 1, (case.batch,), generator=random, device=device)
    valid = torch.arange(case.length, device=device)[None, :] < lengths[:, None]
    return x.masked_fill_(valid.logical_not()[:, :, None], 0), valid


def structured_inputs(case: Any, name: str, seed: int, device: torch.device | str) -> tuple[Tensor, Tensor]:
    """Inputs that random draws never look like; all tokens valid. Raises ValueError for an unknown name.

    `outlier_suffix`: randn, then the last eighth of every sequence × 50. `constant_prefix`: the first quarter of every
    sequence is one constant in all channels (zero variance, so a norm's epsilon decides), then randn. `offset`: mean
    1000, spread 0.5 (a one-pass variance loses its digits). `decisive_token`: randn × 0.5, and per sequence one token
    at a random place × 400, so that any scale taken over more than a token is set by it.
    """
    random = _generator(seed, device, None)
    x = _randn(case, device, random)
    if name == "outlier_suffix":
        x[:, case.length - max(1, case.length // 8) :].mul_(50.0)
    elif name == "constant_prefix":
        level = torch.randn(case.batch, 1, 1, generator=random, device=device).to(x.dtype)
        x[:, : max(1, case.length // 4)] = level
    elif name == "offset":
        x.mul_(0.5).add_(1000.0)
    elif name == "decisive_token":
        place = torch.randint(0, case.length, (case.batch,), generator=random, device=device)
        x.mul_(0.5)
        x[torch.arange(case.batch, device=device), place] *= 400.0
    else:
        raise ValueError(f"unknown structured input {name!r}: one of {', '.join(STRUCTURED)}")
    return x, torch.ones(case.batch, case.length, dtype=torch.bool, device=device)


@torch.no_grad()
def oracle(model64: TransformerLayer, inputs: tuple[Tensor, Tensor | None], limit_bytes: int) -> Tensor:
    """The float64 answer (batch, length, d_model), on the inputs' device.

    Runs in chunks of the batch so that temporaries stay under about `limit_bytes`; where even one sequence's score
    tensor exceeds it, query-chunked as `serial_oracle` does, with score blocks of an eighth of the limit.
    """
    x, valid = inputs
    batch, length, d_model = x.shape
    # Three score-sized tensors live at once (scores, masked, weights), and about ten activations.
    one = 8 * length * (3 * model64.heads * length + 10 * d_model)
    y = torch.empty(x.shape, dtype=torch.float64, device=x.device)
    if one > limit_bytes:
        state = dict(model64.state_dict())
        for b in range(batch):
            row = None if valid is None else valid[b]
            y[b] = _one_sequence(state, model64.heads, len(model64.layers), x[b], row, max(1, limit_bytes // 8))
        return y
    step = max(1, limit_bytes // one)
    for start in range(0, batch, step):
        rows = slice(start, start + step)
        y[rows] = model64(x[rows].double(), None if valid is None else valid[rows])
    return y


@torch.no_grad()
def serial_oracle(
    state_dict: dict[str, Tensor],
    case: Any,
    inputs: tuple[Tensor, Tensor | None],
    device: torch.device | str,
    block_bytes: int = SCORE_BLOCK_BYTES,
) -> Iterator[tuple[int, Tensor]]:
    """Yields (b, float64 answer (length, d_model) of sequence b) on `device`, one sequence in memory at a time.

    Same mathematics as the reference; attention runs head by head over blocks of query rows against the causal prefix
    of the keys only, with at most `block_bytes` of scores: length² never exists. Inputs may lie on another device.
    """
    state = {name: value.to(device=device, dtype=torch.float64) for name, value in state_dict.items()}
    x, valid = inputs
    for b in range(case.batch):
        row = None if valid is None else valid[b].to(device)
        yield b, _one_sequence(state, case.heads, case.layers, x[b].to(device), row, block_bytes)


def work(case: Any) -> dict[str, int]:
    """What the operation costs at least: flop, bytes, weight_bytes, exponentials, output_bytes.

    Multiply-adds of the matrix products count two FLOP, attention its causal triangle; bytes are input, output and
    weights once each, without the mask (about 0.1 % of them); exponentials are those of the softmax.
    """
    size = torch.empty(0, dtype=getattr(torch, case.dtype)).element_size()
    tokens, d, layers = case.batch * case.length, case.d_model, case.layers
    triangle = case.batch * case.length * (case.length + 1) // 2
    weights = layers * (6 * d * d + 6 * d + 4 * d) + 2 * d
    activation = tokens * d * size
    return {
        "flop": layers * (12 * tokens * d * d + 4 * triangle * d),
        "bytes": 2 * activation + weights * size,
        "weight_bytes": weights * size,
        "exponentials": layers * case.heads * triangle,
        "output_bytes": activation,
    }


def output_shape(case: Any) -> tuple[int, ...]:
    """The shape of an output: (batch, length, d_model)."""
    return case.batch, case.length, case.d_model


def runnable(case: Any) -> bool:
    """Whether the plain reference can run at all: its float32 score tensor is under 64 GB."""
    return case.batch * case.heads * case.length**2 * 4 < RUNNABLE_BYTES


def _softmax_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _zero_invalid(x: Tensor, valid: Tensor | None) -> Tensor:
    return x if valid is None else x.masked_fill(valid.logical_not()[..., None], 0)


def _generator(seed: int, device: torch.device | str, given: torch.Generator | None) -> torch.Generator:
    return (given if given is not None else torch.Generator(device=device)).manual_seed(seed)


def _randn(case: Any, device: torch.device | str, random: torch.Generator) -> Tensor:
    dtype = getattr(torch, case.dtype)
    return torch.randn(case.batch, case.length, case.d_model, generator=random, device=device, dtype=dtype)


def _one_sequence(
    state: dict[str, Tensor], heads: int, layers: int, x: Tensor, valid: Tensor | None, block_bytes: int
) -> Tensor:
    """The whole stack in float64 for one sequence x (length, d_model); `valid` (length,) bool or None."""
    x = x.double()
    d_model = x.shape[1]

    def named(prefix: str) -> tuple[Tensor, Tensor]:
        return state[f"{prefix}.weight"], state[f"{prefix}.bias"]

    def norm(rows: Tensor, prefix: str) -> Tensor:
        return F.layer_norm(rows, (d_model,), *named(prefix))

    for i in range(layers):
        at = f"layers.{i}"
        x = x + _zero_invalid(
            _attend(norm(x, f"{at}.norm1"), f"{at}.attention", named, heads, valid, block_bytes), valid
        )
        hidden = F.gelu(F.linear(norm(x, f"{at}.norm2"), *named(f"{at}.ffn_in")))
        x = _zero_invalid(x + F.linear(hidden, *named(f"{at}.ffn_out")), valid)
    return _zero_invalid(norm(x, "final_norm"), valid)


def _attend(
    h: Tensor,
    prefix: str,
    named: Callable[[str], tuple[Tensor, Tensor]],
    heads: int,
    valid: Tensor | None,
    block_bytes: int,
) -> Tensor:
    """Causal attention of one sequence h (length, d_model), query block by query block."""
    length, d_model = h.shape
    head_dim = d_model // heads

    def per_head(name: str) -> Tensor:
        return F.linear(h, *named(f"{prefix}.{name}")).reshape(length, heads, head_dim).transpose(0, 1).contiguous()

    q, k, v = per_head("q_proj") * head_dim**-0.5, per_head("k_proj"), per_head("v_proj")
    mixed = torch.empty(length, heads, head_dim, dtype=h.dtype, device=h.device)
    start = 0
    while start < length:
        stop = min(length, start + _block_rows(start, block_bytes))
        # Only the square on the diagonal holds keys later than some query of the block.
        later = torch.ones(stop - start, stop - start, dtype=torch.bool, device=h.device).triu(1)
        for head in range(heads):
            scores = q[head, start:stop] @ k[head, :stop].T
            scores[:, start:].masked_fill_(later, -math.inf)
            if valid is not None:
                scores.masked_fill_(valid[:stop].logical_not(), -math.inf)
            mixed[start:stop, head] = _weighted_sum(torch.softmax(scores, dim=-1), v[head, :stop])
            del scores
        start = stop
    return F.linear(mixed.reshape(length, d_model), *named(f"{prefix}.out_proj"))


def _weighted_sum(weights: Tensor, v: Tensor) -> Tensor:
    """weights (rows, keys) @ v (keys, head_dim), the keys split: so narrow a product would leave most of a GPU idle."""
    keys = weights.shape[1]
    parts = min(KEY_PARTS, keys)
    even = keys - keys % parts
    split = weights[:, :even].unflatten(1, (parts, -1))
    total = torch.bmm(split.transpose(0, 1), v[:even].view(parts, even // parts, -1)).sum(0)
    return total if even == keys else total + weights[:, even:] @ v[even:]


def _block_rows(start: int, block_bytes: int) -> int:
    """The most rows r with r · (start + r) float64 scores in block_bytes, at least 1, whole 128s where it can."""
    rows = int((math.sqrt(start * start + block_bytes / 2) - start) / 2)
    return max(1, rows - rows % 128 if rows > 128 else rows)
