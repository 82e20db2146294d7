"""submission: transformer_layer for contract h200_fp32, compiled from evidence. Never edit it.

Contract h200_fp32, hash d9e096a5023ed057c5438de645dd605d9bf03bf1a5bfba59867cd5f3b2ea6153.
Scope: memory_mb 143155, name NVIDIA H200, power_limit_w 700.0, sms 132, cuda 13.0, driver 580.159.04, torch 2.11.0+cu130, triton 3.6.0, protocol 1.
Generalist, for every other shape: v000_identity, checked against the reference at its first call.

Needs torch and triton only. `Submission(config)` and `build_model(config)` take the official configuration;
its state_dict is the reference's. `python FILE --official` repeats the official flow on a device.

case  batch  length  d_model  heads  layers  plan                      µs         queued µs  reference µs  ÷ reference (95 %)        best peer µs            sessions
1     64     128     128      4      4       v003_fp16_operands_graph  404.6      404.7      1,980         5.010 (4.760 – 5.296)     323.0 sdpa_fp16_graph   ce9096f5e779 b1e71559a8ce
2     1      128     128      4      4       v003_fp16_operands_graph  159.7      159.8      1,740         11.455 (10.608 – 12.496)  139.9 sdpa_fp16_graph   ce9096f5e779 b1e71559a8ce
3     4      128     128      4      4       v003_fp16_operands_graph  169.6      169.6      1,769         10.485 (9.986 – 11.027)   150.3 sdpa_fp16_graph   ce9096f5e779 b1e71559a8ce
4     16     128     128      4      4       v003_fp16_operands_graph  208.3      208.5      1,754         8.442 (8.096 – 8.780)     180.1 sdpa_fp16_graph   ce9096f5e779 b1e71559a8ce
5     128    128     128      4      4       v003_fp16_operands_graph  665.9      665.8      1,736         2.625 (2.533 – 2.739)     492.3 sdpa_fp16_graph   ce9096f5e779 b1e71559a8ce
6     10000  128     128      4      4       v003_fp16_operands_graph  46,743     46,745     89,520        1.915 (1.913 – 1.917)     33,037 sdpa_fp16_graph  ce9096f5e779 b1e71559a8ce
7     64     128     32       4      4       v003_fp16_operands_graph  293.2      293.2      1,732         6.015 (5.835 – 6.221)     266.4 sdpa_fp16_graph   ce9096f5e779 b1e71559a8ce
8     64     128     1024     4      4       v003_fp16_operands_graph  2,132      2,132      3,189         1.515 (1.494 – 1.574)     1,440 sdpa_fp16_graph   ce9096f5e779 b1e71559a8ce
9     64     128     128      1      4       v003_fp16_operands_graph  399.9      399.8      1,764         4.504 (4.311 – 4.763)     316.5 sdpa_fp16_graph   ce9096f5e779 b1e71559a8ce
10    64     128     128      2      4       v003_fp16_operands_graph  396.2      396.2      1,956         5.095 (4.794 – 5.580)     314.7 sdpa_fp16_graph   ce9096f5e779 b1e71559a8ce
11    64     128     128      16     4       v003_fp16_operands_graph  457.0      457.1      1,986         4.524 (4.285 – 4.849)     375.8 sdpa_fp16_graph   ce9096f5e779 b1e71559a8ce
12    64     32      128      4      4       v003_fp16_operands_graph  220.4      220.5      1,806         8.296 (7.968 – 8.651)     192.7 sdpa_fp16_graph   ce9096f5e779 b1e71559a8ce
13    64     1024    128      4      4       v003_fp16_operands_graph  2,679      2,679      19,695        7.353 (7.346 – 7.360)     2,080 sdpa_fp16_graph   ce9096f5e779 b1e71559a8ce
14    32     100000  1024     16     2       v003_fp16_operands_graph  3,322,228  –          –             –                         –                       2c1e402cd7cc

µs: median of a call with events around it; queued: device time alone; interval: of the paired ratio.
"""


import copy
import math
import threading
import torch
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field
from torch import Tensor
from torch import nn
from torch.nn import functional as F
from typing import Any
from typing import TYPE_CHECKING


# --- Records, builds and weights

MAX_BUILDS = 16  # captured graphs hold memory
MEMORY_SHARE = 0.25  # of the device, by estimate, for all builds together
CPU_BYTES = 4_000_000_000
COPIES = 12  # activations that one build may hold: its inputs, outputs and a graph's pool

POINTER = torch.Tensor.data_ptr
VERSION: Callable[..., int] = torch.Tensor._version.__get__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Device:
    """What a plan may know of the device; `capability` is None on a CPU."""

    type: str
    name: str
    capability: tuple[int, int] | None


@dataclass(frozen=True)
class Plan:
    """One candidate in this file: `build(reference, case, schedule)`, `supports(case)` or None, its source's sha256."""

    name: str
    sha256: str
    build: Callable[..., Any]
    supports: Callable[..., Any] | None


@dataclass
class Entry:
    """What serves one key: `forward` None is the reference's own path. `why` and `tried` say how it came to that."""

    forward: Callable[..., Any] | None
    plan: str
    why: str
    tried: dict[str, str] = field(default_factory=dict)
    bytes: int = 0


class Weights:
    """The parameters of a module as they were when builds were made from them.

    The addresses cannot come back with other content: the storages are held. Writes through `.data` escape notice.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.tables = [m._parameters for m in module.modules() if m._parameters]
        now = self._parameters()
        self.held = [p.detach() for p in now]
        self.pointers, self.versions = list(map(POINTER, now)), self._versions(now)
        self.copy: Any = None  # what builds get instead of the module itself

    def current(self) -> bool:
        """Whether nothing changed since. About 0.1 µs a parameter."""
        try:
            now = self._parameters()
            return list(map(POINTER, now)) == self.pointers and self._versions(now) == self.versions
        except (TypeError, RuntimeError):  # a parameter was taken away
            return False

    def _parameters(self) -> list[Any]:
        return [p for table in self.tables for p in table.values()]

    @staticmethod
    def _versions(parameters: list[Any]) -> list[int] | None:
        try:
            return list(map(VERSION, parameters))
        except RuntimeError:  # made in inference mode: torch keeps no versions of those
            return None


class Builds:
    """The builds of one module, least recently used first. A copy or a pickle of it is empty."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # captured plans own their input buffers: one call at a time
        self.entries: OrderedDict[Any, Entry] = OrderedDict()
        self.weights: Weights | None = None
        self.masks: OrderedDict[Any, torch.Tensor] = OrderedDict()  # all valid, for calls without a mask
        self.seen: torch.Tensor | None = None  # the mask that was last found to be prefixes

    def __deepcopy__(self, memo: dict[int, Any]) -> "Builds":
        return Builds()

    def __reduce__(self) -> tuple[Any, ...]:
        return Builds, ()

    def clear(self) -> None:
        """Forget everything that was built."""
        self.entries.clear()
        self.masks.clear()
        self.weights = self.seen = None

    def keep(self, key: Any, entry: Entry, device: torch.device) -> None:
        """Hold `entry`; the least recently used go where there are too many, or where they hold too much."""
        self.entries[key] = entry
        self.entries.move_to_end(key)
        most = CPU_BYTES
        if device.type == "cuda":
            most = int(torch.cuda.get_device_properties(device).total_memory * MEMORY_SHARE)
        while len(self.entries) > 1 and (
            len(self.entries) > MAX_BUILDS or sum(e.bytes for e in self.entries.values()) > most
        ):
            self.entries.popitem(last=False)

    def spare(self, device: torch.device) -> bool:
        """After running out of memory: let the builds go. False where there were none."""
        had = bool(self.entries)
        self.entries.clear()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        return had

    def all_valid(self, x: torch.Tensor) -> torch.Tensor:
        """A mask for a call without one: every token valid."""
        key = (x.shape[0], x.shape[1], x.device)
        if key not in self.masks:
            with torch.inference_mode(False):
                self.masks[key] = torch.ones(x.shape[0], x.shape[1], dtype=torch.bool, device=x.device)
            if len(self.masks) > MAX_BUILDS:
                self.masks.popitem(last=False)
        return self.masks[key]


def device_record(device: torch.device) -> Device:
    if device.type == "cuda":
        return Device("cuda", torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device))
    return Device(device.type, device.type, None)


def precision() -> str:
    """The matmul precision in force: a captured graph keeps the one it was captured with."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # set through the newer flags, in a way that the older reader refuses
        return "unreadable"


def stream(device: torch.device) -> int:
    """The current stream: a graph's buffers serve one stream only."""
    return torch.cuda.current_stream(device).stream_id if device.type == "cuda" else 0


def short(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return (f"{type(error).__name__}: {text[0]}" if text else type(error).__name__)[:300]


# --- The reference: what is run wherever no plan is, and what a plan gets a copy of


class ref_Attention(nn.Module):
    """Causal self-attention with an explicit score matrix. (batch, length, d_model) in and out."""

    def __init__(self, d_model: 'int', heads: 'int') -> 'None':
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x: 'Tensor', valid: 'Tensor | None') -> 'Tensor':
        batch, length, d_model = x.shape
        head_dim = d_model // self.heads

        def per_head(projected: 'Tensor') -> 'Tensor':
            return projected.reshape(batch, length, self.heads, head_dim).transpose(1, 2).contiguous()

        q, k, v = per_head(self.q_proj(x)), per_head(self.k_proj(x)), per_head(self.v_proj(x))
        scores = torch.matmul(q, k.transpose(2, 3)) * head_dim**-0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
        if valid is not None:
            scores = scores.masked_fill(valid.logical_not()[:, None, None, :], -math.inf)
        weights = torch.softmax(scores, dim=-1, dtype=ref__softmax_dtype(x.dtype)).to(x.dtype)
        mixed = torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, d_model)
        return ref__zero_invalid(self.out_proj(mixed), valid)


class ref_Block(nn.Module):
    """One pre-norm block: x + attention(norm1(x)), then x + ffn(norm2(x)); invalid tokens zeroed."""

    def __init__(self, d_model: 'int', heads: 'int') -> 'None':
        super().__init__()
        self.norm1 = nn.LayerNorm(d_model)
        self.attention = ref_Attention(d_model, heads)
        self.norm2 = nn.LayerNorm(d_model)
        self.ffn_in = nn.Linear(d_model, d_model)
        self.ffn_out = nn.Linear(d_model, d_model)

    def forward(self, x: 'Tensor', valid: 'Tensor | None') -> 'Tensor':
        x = x + self.attention(self.norm1(x), valid)
        x = x + self.ffn_out(F.gelu(self.ffn_in(self.norm2(x))))
        return ref__zero_invalid(x, valid)


class ref_TransformerLayer(nn.Module):
    """The reference: `layers` blocks and a final norm; the parameter names are the official ones."""

    def __init__(self, d_model: 'int', heads: 'int', layers: 'int') -> 'None':
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model {d_model} is not a multiple of heads {heads}: choose a divisor")
        self.heads = heads
        self.layers = nn.ModuleList([ref_Block(d_model, heads) for _ in range(layers)])
        self.final_norm = nn.LayerNorm(d_model)

    def forward(self, x: 'Tensor', valid_token_mask: 'Tensor | None' = None) -> 'Tensor':
        """x (batch, length, d_model); valid_token_mask (batch, length) bool or None. Returns a new tensor like x."""
        for block in self.layers:
            x = block(x, valid_token_mask)
        return ref__zero_invalid(self.final_norm(x), valid_token_mask)


def ref__softmax_dtype(dtype: 'torch.dtype') -> 'torch.dtype':
    return torch.float64 if dtype == torch.float64 else torch.float32


def ref__zero_invalid(x: 'Tensor', valid: 'Tensor | None') -> 'Tensor':
    return x if valid is None else x.masked_fill(valid.logical_not()[..., None], 0)


# --- v000_identity, sha256 d4ba442399c7
#
# v000: the reference itself, unchanged, is neither faster nor slower than the reference.
#
# Mechanism: none; every call is the reference's own forward. Parent: none. Target cases: all that the reference can run.
# It stays as the live noise control: anything but a ratio of one is the measurement's error. Refuted by: any other ratio.


def v000_supports(case):
    """Where the plain reference fits: its float32 score tensor stays under 64 GB."""
    return case.batch * case.heads * case.length**2 * 4 < 64_000_000_000


def v000_build(reference, case, schedule):
    def forward(x, valid_token_mask):
        return reference(x, valid_token_mask)

    return forward


# --- v003_fp16_operands_graph, sha256 487ad4fcaf8d
#
# v003: fp16 operands with fp32 accumulation halve the product time of TF32 and stay inside the tolerance.
#
# Mechanism: every matrix product and the attention take fp16 operands (11 significant bits, as TF32 has) and accumulate
# in fp32; residual stream, norms, biases and GELU stay in fp32. fp16 reaches twice TF32's rate and has flash attention.
# Captured in a CUDA graph as v002; a batch beyond the workspace runs a few sequences at a time without a graph.
# Parent: v002. Target cases: 6, 8, 13, 14. Refuted by: over 90 % of the error budget anywhere, or no gain on 8 and 13.


v003_ELEMENTS = 1 << 28  # of one captured activation
v003_WORKSPACE_BYTES = 24_000_000_000


class v003_Unavailable(RuntimeError):
    """Not possible on this machine: a recorded skip, no failure."""


def v003_build(reference, case, schedule):
    if case.device.type != "cuda":
        raise v003_Unavailable("fp16 products with an fp32 result need an NVIDIA device")
    heads, d_model, batch, length = case.heads, case.d_model, case.batch, case.length

    def packed(*linears):
        """Weights as an fp16 right-hand side, biases in fp32."""
        weight = torch.cat([linear.weight for linear in linears]).half()
        return weight.t(), torch.cat([linear.bias for linear in linears])

    blocks = []
    for block in reference.layers:
        a = block.attention
        qkv = packed(a.q_proj, a.k_proj, a.v_proj)
        blocks.append((block, qkv, packed(a.out_proj), packed(block.ffn_in), packed(block.ffn_out)))
    final_norm = reference.final_norm

    def product(rows, packed_weight):
        weight, bias = packed_weight
        return torch.mm(rows, weight, out_dtype=torch.float32), bias

    def layers(x, valid):
        count = x.shape[0]
        x = x.reshape(count * length, d_model)
        for block, qkv_weight, out_weight, in_weight, ffn_weight in blocks:
            acc, bias = product(block.norm1(x).half(), qkv_weight)
            qkv = torch.empty(acc.shape, dtype=torch.float16, device=x.device)
            torch.add(acc, bias, out=qkv)  # rounded once, after the bias
            del acc
            q, k, v = qkv.view(count, length, 3, heads, d_model // heads).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            acc, bias = product(mixed.transpose(1, 2).reshape(count * length, d_model), out_weight)
            x = acc.add_(bias).add_(x)
            acc, bias = product(block.norm2(x).half(), in_weight)
            acc, bias = product(F.gelu(acc.add_(bias)).half(), ffn_weight)
            x = acc.add_(bias).add_(x)
        return final_norm(x).view(count, length, d_model).masked_fill_(valid.logical_not()[..., None], 0)

    # Widest: x, the fp32 accumulator of q, k, v and its fp16 copy, or the attention's: about 40 bytes an element.
    step = max(1, min(batch, v003_WORKSPACE_BYTES // (40 * length * d_model)))

    def in_steps(x, valid_token_mask):
        y = torch.empty_like(x)
        for start in range(0, batch, step):
            rows = slice(start, start + step)
            y[rows] = layers(x[rows], valid_token_mask[rows])
        return y

    if step < batch or batch * length * d_model > v003_ELEMENTS:
        return in_steps

    device = final_norm.weight.device
    static_x = torch.zeros(batch, length, d_model, device=device)
    static_valid = torch.ones(batch, length, dtype=torch.bool, device=device)
    for _ in range(2):  # what a library sets up at its first call cannot be captured
        layers(static_x, static_valid)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_y = layers(static_x, static_valid)

    def forward(x, valid_token_mask):
        if x.shape != static_x.shape:  # copy_ would broadcast a smaller batch in silence
            raise ValueError(f"built for {tuple(static_x.shape)}, called with {tuple(x.shape)}")
        static_x.copy_(x)
        static_valid.copy_(valid_token_mask)
        graph.replay()
        return static_y.clone()

    forward.weights = blocks  # the graph reads them by address: they must live as long as it does
    return forward


# --- What was compiled: the contract, its cases, the plans and who holds which cell

CONTRACT = {'name': 'h200_fp32',
 'workload': 'transformer_layer',
 'hash': 'd9e096a5023ed057c5438de645dd605d9bf03bf1a5bfba59867cd5f3b2ea6153',
 'accelerator': 'NVIDIA H200',
 'matmul_precision': 'high',
 'threads': 1,
 'atol': 0.002,
 'rtol': 0.02,
 'trials': 5,
 'seed': 1234}

CASES = {1: {'status': 'scored', 'batch': 64, 'length': 128, 'd_model': 128, 'heads': 4, 'layers': 4},
 2: {'status': 'scored', 'batch': 1, 'length': 128, 'd_model': 128, 'heads': 4, 'layers': 4},
 3: {'status': 'scored', 'batch': 4, 'length': 128, 'd_model': 128, 'heads': 4, 'layers': 4},
 4: {'status': 'scored', 'batch': 16, 'length': 128, 'd_model': 128, 'heads': 4, 'layers': 4},
 5: {'status': 'scored', 'batch': 128, 'length': 128, 'd_model': 128, 'heads': 4, 'layers': 4},
 6: {'status': 'scored', 'batch': 10000, 'length': 128, 'd_model': 128, 'heads': 4, 'layers': 4},
 7: {'status': 'scored', 'batch': 64, 'length': 128, 'd_model': 32, 'heads': 4, 'layers': 4},
 8: {'status': 'scored', 'batch': 64, 'length': 128, 'd_model': 1024, 'heads': 4, 'layers': 4},
 9: {'status': 'scored', 'batch': 64, 'length': 128, 'd_model': 128, 'heads': 1, 'layers': 4},
 10: {'status': 'scored', 'batch': 64, 'length': 128, 'd_model': 128, 'heads': 2, 'layers': 4},
 11: {'status': 'scored', 'batch': 64, 'length': 128, 'd_model': 128, 'heads': 16, 'layers': 4},
 12: {'status': 'scored', 'batch': 64, 'length': 32, 'd_model': 128, 'heads': 4, 'layers': 4},
 13: {'status': 'scored', 'batch': 64, 'length': 1024, 'd_model': 128, 'heads': 4, 'layers': 4},
 14: {'status': 'feasibility', 'batch': 32, 'length': 100000, 'd_model': 1024, 'heads': 16, 'layers': 2}}

PLANS = {
    "v000_identity": Plan("v000_identity", "d4ba442399c745115005bdde7af749c04f1ad0069ed4c378e3dfa4487d674de3", v000_build, v000_supports),
    "v003_fp16_operands_graph": Plan("v003_fp16_operands_graph", "487ad4fcaf8dfebbc960d8b0b6e265cc643d1e18f8210086b7d2981b127dd547", v003_build, None),
}

GENERALIST = "v000_identity"

# (batch, length, d_model, heads, layers) → (case, plan, schedule)
CELLS = {(64, 128, 128, 4, 4): (1, 'v003_fp16_operands_graph', {}),
 (1, 128, 128, 4, 4): (2, 'v003_fp16_operands_graph', {}),
 (4, 128, 128, 4, 4): (3, 'v003_fp16_operands_graph', {}),
 (16, 128, 128, 4, 4): (4, 'v003_fp16_operands_graph', {}),
 (128, 128, 128, 4, 4): (5, 'v003_fp16_operands_graph', {}),
 (10000, 128, 128, 4, 4): (6, 'v003_fp16_operands_graph', {}),
 (64, 128, 32, 4, 4): (7, 'v003_fp16_operands_graph', {}),
 (64, 128, 1024, 4, 4): (8, 'v003_fp16_operands_graph', {}),
 (64, 128, 128, 1, 4): (9, 'v003_fp16_operands_graph', {}),
 (64, 128, 128, 2, 4): (10, 'v003_fp16_operands_graph', {}),
 (64, 128, 128, 16, 4): (11, 'v003_fp16_operands_graph', {}),
 (64, 32, 128, 4, 4): (12, 'v003_fp16_operands_graph', {}),
 (64, 1024, 128, 4, 4): (13, 'v003_fp16_operands_graph', {}),
 (32, 100000, 1024, 16, 2): (14, 'v003_fp16_operands_graph', {})}

EVIDENCE = {1: {'plan': 'v003_fp16_operands_graph',
     'candidate_hash': '487ad4fcaf8dfebbc960d8b0b6e265cc643d1e18f8210086b7d2981b127dd547',
     'plan_hash': 'a23c5e460845abf3833e27d031b435126faf7bd204ed606f9ce123e47706e557',
     'since': 'b1e71559a8ce',
     'official_us': 404.64,
     'queued_us': 404.72,
     'reference_us': 1979.792,
     'ratio_to_reference': 5.009885731349814,
     'ratio_low': 4.76039562780815,
     'ratio_high': 5.296211406278449,
     'best_peer': 'sdpa_fp16_graph',
     'best_peer_us': 323.008,
     'ratio_to_best_peer': 0.7982601818900751,
     'sessions': ['ce9096f5e779', 'b1e71559a8ce']},
 2: {'plan': 'v003_fp16_operands_graph',
     'candidate_hash': '487ad4fcaf8dfebbc960d8b0b6e265cc643d1e18f8210086b7d2981b127dd547',
     'plan_hash': 'a23c5e460845abf3833e27d031b435126faf7bd204ed606f9ce123e47706e557',
     'since': 'b1e71559a8ce',
     'official_us': 159.712,
     'queued_us': 159.824,
     'reference_us': 1740.384,
     'ratio_to_reference': 11.454791308852647,
     'ratio_low': 10.608139398447829,
     'ratio_high': 12.496250719609302,
     'best_peer': 'sdpa_fp16_graph',
     'best_peer_us': 139.872,
     'ratio_to_best_peer': 0.875776397515528,
     'sessions': ['ce9096f5e779', 'b1e71559a8ce']},
 3: {'plan': 'v003_fp16_operands_graph',
     'candidate_hash': '487ad4fcaf8dfebbc960d8b0b6e265cc643d1e18f8210086b7d2981b127dd547',
     'plan_hash': 'a23c5e460845abf3833e27d031b435126faf7bd204ed606f9ce123e47706e557',
     'since': 'b1e71559a8ce',
     'official_us': 169.584,
     'queued_us': 169.576,
     'reference_us': 1769.2240000000002,
     'ratio_to_reference': 10.485415965101893,
     'ratio_low': 9.986279471884238,
     'ratio_high': 11.027439612422892,
     'best_peer': 'sdpa_fp16_graph',
     'best_peer_us': 150.336,
     'ratio_to_best_peer': 0.8864987262949335,
     'sessions': ['ce9096f5e779', 'b1e71559a8ce']},
 4: {'plan': 'v003_fp16_operands_graph',
     'candidate_hash': '487ad4fcaf8dfebbc960d8b0b6e265cc643d1e18f8210086b7d2981b127dd547',
     'plan_hash': 'a23c5e460845abf3833e27d031b435126faf7bd204ed606f9ce123e47706e557',
     'since': 'b1e71559a8ce',
     'official_us': 208.336,
     'queued_us': 208.45600000000002,
     'reference_us': 1754.24,
     'ratio_to_reference': 8.44195672104291,
     'ratio_low': 8.096204849811755,
     'ratio_high': 8.779767394869454,
     'best_peer': 'sdpa_fp16_graph',
     'best_peer_us': 180.096,
     'ratio_to_best_peer': 0.8644497350433914,
     'sessions': ['ce9096f5e779', 'b1e71559a8ce']},
 5: {'plan': 'v003_fp16_operands_graph',
     'candidate_hash': '487ad4fcaf8dfebbc960d8b0b6e265cc643d1e18f8210086b7d2981b127dd547',
     'plan_hash': 'a23c5e460845abf3833e27d031b435126faf7bd204ed606f9ce123e47706e557',
     'since': 'b1e71559a8ce',
     'official_us': 665.9359999999999,
     'queued_us': 665.792,
     'reference_us': 1736.104,
     'ratio_to_reference': 2.6249810848788857,
     'ratio_low': 2.533075787696976,
     'ratio_high': 2.739102764901329,
     'best_peer': 'sdpa_fp16_graph',
     'best_peer_us': 492.32,
     'ratio_to_best_peer': 0.7392902621272915,
     'sessions': ['ce9096f5e779', 'b1e71559a8ce']},
 6: {'plan': 'v003_fp16_operands_graph',
     'candidate_hash': '487ad4fcaf8dfebbc960d8b0b6e265cc643d1e18f8210086b7d2981b127dd547',
     'plan_hash': 'a23c5e460845abf3833e27d031b435126faf7bd204ed606f9ce123e47706e557',
     'since': 'b1e71559a8ce',
     'official_us': 46742.69575,
     'queued_us': 46745.368,
     'reference_us': 89520.43325,
     'ratio_to_reference': 1.9150371153283903,
     'ratio_low': 1.913497637428856,
     'ratio_high': 1.9165778317934479,
     'best_peer': 'sdpa_fp16_graph',
     'best_peer_us': 33036.736,
     'ratio_to_best_peer': 0.7067785772710808,
     'sessions': ['ce9096f5e779', 'b1e71559a8ce']},
 7: {'plan': 'v003_fp16_operands_graph',
     'candidate_hash': '487ad4fcaf8dfebbc960d8b0b6e265cc643d1e18f8210086b7d2981b127dd547',
     'plan_hash': 'a23c5e460845abf3833e27d031b435126faf7bd204ed606f9ce123e47706e557',
     'since': 'b1e71559a8ce',
     'official_us': 293.24,
     'queued_us': 293.192,
     'reference_us': 1732.496,
     'ratio_to_reference': 6.01486178967743,
     'ratio_low': 5.8354448677205175,
     'ratio_high': 6.221029547430938,
     'best_peer': 'sdpa_fp16_graph',
     'best_peer_us': 266.4,
     'ratio_to_best_peer': 0.9084708770972582,
     'sessions': ['ce9096f5e779', 'b1e71559a8ce']},
 8: {'plan': 'v003_fp16_operands_graph',
     'candidate_hash': '487ad4fcaf8dfebbc960d8b0b6e265cc643d1e18f8210086b7d2981b127dd547',
     'plan_hash': 'a23c5e460845abf3833e27d031b435126faf7bd204ed606f9ce123e47706e557',
     'since': 'b1e71559a8ce',
     'official_us': 2132.08,
     'queued_us': 2131.76,
     'reference_us': 3188.576,
     'ratio_to_reference': 1.5149224883769452,
     'ratio_low': 1.4935952004820547,
     'ratio_high': 1.573535194787522,
     'best_peer': 'sdpa_fp16_graph',
     'best_peer_us': 1440.064,
     'ratio_to_best_peer': 0.6754268132527861,
     'sessions': ['ce9096f5e779', 'b1e71559a8ce']},
 9: {'plan': 'v003_fp16_operands_graph',
     'candidate_hash': '487ad4fcaf8dfebbc960d8b0b6e265cc643d1e18f8210086b7d2981b127dd547',
     'plan_hash': 'a23c5e460845abf3833e27d031b435126faf7bd204ed606f9ce123e47706e557',
     'since': 'b1e71559a8ce',
     'official_us': 399.872,
     'queued_us': 399.808,
     'reference_us': 1763.72,
     'ratio_to_reference': 4.503975151903485,
     'ratio_low': 4.311035028013263,
     'ratio_high': 4.762947610792798,
     'best_peer': 'sdpa_fp16_graph',
     'best_peer_us': 316.544,
     'ratio_to_best_peer': 0.7916133162612035,
     'sessions': ['ce9096f5e779', 'b1e71559a8ce']},
 10: {'plan': 'v003_fp16_operands_graph',
      'candidate_hash': '487ad4fcaf8dfebbc960d8b0b6e265cc643d1e18f8210086b7d2981b127dd547',
      'plan_hash': 'a23c5e460845abf3833e27d031b435126faf7bd204ed606f9ce123e47706e557',
      'since': 'b1e71559a8ce',
      'official_us': 396.15999999999997,
      'queued_us': 396.192,
      'reference_us': 1955.76,
      'ratio_to_reference': 5.094889684280269,
      'ratio_low': 4.793711400036976,
      'ratio_high': 5.580036385765309,
      'best_peer': 'sdpa_fp16_graph',
      'best_peer_us': 314.72,
      'ratio_to_best_peer': 0.794426494345719,
      'sessions': ['ce9096f5e779', 'b1e71559a8ce']},
 11: {'plan': 'v003_fp16_operands_graph',
      'candidate_hash': '487ad4fcaf8dfebbc960d8b0b6e265cc643d1e18f8210086b7d2981b127dd547',
      'plan_hash': 'a23c5e460845abf3833e27d031b435126faf7bd204ed606f9ce123e47706e557',
      'since': 'b1e71559a8ce',
      'official_us': 457.048,
      'queued_us': 457.06399999999996,
      'reference_us': 1986.304,
      'ratio_to_reference': 4.5241293563642095,
      'ratio_low': 4.285029843774378,
      'ratio_high': 4.848939049253006,
      'best_peer': 'sdpa_fp16_graph',
      'best_peer_us': 375.808,
      'ratio_to_best_peer': 0.8222506170030282,
      'sessions': ['ce9096f5e779', 'b1e71559a8ce']},
 12: {'plan': 'v003_fp16_operands_graph',
      'candidate_hash': '487ad4fcaf8dfebbc960d8b0b6e265cc643d1e18f8210086b7d2981b127dd547',
      'plan_hash': 'a23c5e460845abf3833e27d031b435126faf7bd204ed606f9ce123e47706e557',
      'since': 'b1e71559a8ce',
      'official_us': 220.424,
      'queued_us': 220.456,
      'reference_us': 1806.024,
      'ratio_to_reference': 8.295545865305842,
      'ratio_low': 7.967636226819261,
      'ratio_high': 8.651180520717235,
      'best_peer': 'sdpa_fp16_graph',
      'best_peer_us': 192.736,
      'ratio_to_best_peer': 0.8743875440060973,
      'sessions': ['ce9096f5e779', 'b1e71559a8ce']},
 13: {'plan': 'v003_fp16_operands_graph',
      'candidate_hash': '487ad4fcaf8dfebbc960d8b0b6e265cc643d1e18f8210086b7d2981b127dd547',
      'plan_hash': 'a23c5e460845abf3833e27d031b435126faf7bd204ed606f9ce123e47706e557',
      'since': 'b1e71559a8ce',
      'official_us': 2678.888,
      'queued_us': 2679.2,
      'reference_us': 19694.615749999997,
      'ratio_to_reference': 7.353309160387906,
      'ratio_low': 7.346382857329376,
      'ratio_high': 7.360241993690634,
      'best_peer': 'sdpa_fp16_graph',
      'best_peer_us': 2079.744,
      'ratio_to_best_peer': 0.776346006253341,
      'sessions': ['ce9096f5e779', 'b1e71559a8ce']},
 14: {'plan': 'v003_fp16_operands_graph',
      'candidate_hash': '487ad4fcaf8dfebbc960d8b0b6e265cc643d1e18f8210086b7d2981b127dd547',
      'plan_hash': 'a23c5e460845abf3833e27d031b435126faf7bd204ed606f9ce123e47706e557',
      'since': '2c1e402cd7cc',
      'official_us': 3322227.8,
      'queued_us': None,
      'reference_us': None,
      'ratio_to_reference': None,
      'ratio_low': None,
      'ratio_high': None,
      'best_peer': None,
      'best_peer_us': None,
      'ratio_to_best_peer': None,
      'sessions': ['2c1e402cd7cc']}}


# --- The model

CHECK_BYTES = 4_000_000_000  # of scores: up to here the reference checks what no evidence speaks for


@dataclass(frozen=True)
class Case:
    """One shape as candidates see it; `id` 0 is no official one."""

    id: int
    batch: int
    length: int
    d_model: int
    heads: int
    layers: int
    dtype: str
    matmul_precision: str
    device: Device


class Submission(ref_TransformerLayer):
    """The fastest proved plan for every shape, behind the reference's own parameters.

    `config` is the official script's (d_model, num_heads, num_layers; ffn_dim, causal). forward(x, valid_token_mask)
    with x (batch, length, d_model) and a bool mask of valid prefixes gives a new tensor like x. In eval mode and where
    nothing wants a gradient, the first call with each (shape, device, precision, stream) builds the plan that holds the
    cell from the weights then present; later calls run it. Changed weights are noticed after each call and the call is
    then made anew. Everything else, and whatever a plan cannot do, takes the reference's path: `choices()` says why.
    A mask is looked at once a tensor object: what is written into it later has to be prefixes too.
    """

    def __init__(self, config: Any) -> None:
        d_model = _read(config, "d_model")
        width, causal = getattr(config, "ffn_dim", d_model), getattr(config, "causal", True)
        if width != d_model or not causal:
            raise ValueError(f"ffn_dim {width}, causal {causal}: the task has ffn_dim = d_model = {d_model} and causal")
        super().__init__(d_model, _read(config, "num_heads", "heads"), _read(config, "num_layers", "layers"))
        self.config = config
        self._sizes = (d_model, _read(config, "num_heads", "heads"), _read(config, "num_layers", "layers"))
        self._builds = Builds()

    def forward(self, x: torch.Tensor, valid_token_mask: torch.Tensor | None = None) -> torch.Tensor:
        if self.training or torch.compiler.is_compiling() or self._watched(x):
            return super().forward(x, valid_token_mask)
        if x.is_cuda and x.device.index != torch.cuda.current_device():  # kernels are launched on the current one
            with torch.cuda.device(x.device):
                return self.forward(x, valid_token_mask)
        with self._builds.lock:
            y = self._served(x, valid_token_mask)
        return super().forward(x, valid_token_mask) if y is None else y

    def choices(self) -> list[dict[str, Any]]:
        """What serves each shape called so far: case (None: no official one), sizes, plan, why, and what was tried."""
        found = []
        with self._builds.lock:
            for (shape, device, used, _), entry in self._builds.entries.items():
                cell = CELLS.get((shape[0], shape[1], *self._sizes))
                row = {"case": cell[0] if cell else None, "batch": shape[0], "length": shape[1], "device": str(device)}
                row |= {"matmul_precision": used, "plan": entry.plan, "why": entry.why, "tried": dict(entry.tried)}
                found.append(row)
        return found

    def refresh(self) -> None:
        """Build anew at the next call: for weights that were written through `.data`, or a submodule put in place."""
        with self._builds.lock:
            self._builds.clear()

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self.refresh()  # .to, .cuda, .half: the old builds' memory goes before the new weights come
        return super()._apply(fn, recurse)

    def _watched(self, x: Any) -> bool:
        """Whether autograd, autocast or a capture looks at this call, so that only the reference's path is right."""
        if type(x) is not torch.Tensor or torch.is_autocast_enabled(x.device.type):
            return True
        if torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in self.parameters())):
            return True
        return x.is_cuda and torch.cuda.is_current_stream_capturing()

    def _served(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor | None:
        """A plan's answer; None: the reference's path is to give it."""
        builds = self._builds
        if x.dim() != 3:
            return None
        if mask is None:
            mask = builds.all_valid(x)
        elif mask is not builds.seen or mask.shape != x.shape[:2] or mask.device != x.device:
            if not _prefixes(mask, x):
                return None
            builds.seen = mask
        x, mask = x.contiguous(), mask.contiguous()
        key = (x.shape, x.device, precision(), stream(x.device))
        entry = builds.entries.get(key) if x.dtype == torch.float32 else None
        if entry is None:
            return self._first(key, x, mask, {})
        builds.entries.move_to_end(key)
        if entry.forward is None:
            return None
        tried = dict(entry.tried)
        try:
            y = entry.forward(x, mask)
        except Exception as error:  # whatever a plan raises, the reference answers
            y, tried[entry.plan] = None, f"raised when called: {short(error)}"
        assert builds.weights is not None
        if not builds.weights.current():  # asked after the launch, so that the device works meanwhile
            builds.clear()
            return self._first(key, x, mask, {})
        return self._first(key, x, mask, tried) if y is None else y

    def _first(self, key: Any, x: torch.Tensor, mask: torch.Tensor, tried: dict[str, str]) -> torch.Tensor | None:
        """Build for `key` and answer its first call; plans in `tried` have failed before."""
        builds = self._builds
        parameters = list(self.parameters())
        fits = x.dtype == torch.float32 and x.shape[2] == self._sizes[0] and x.numel() > 0
        if not fits or any(p.dtype != torch.float32 or p.device != x.device for p in parameters):
            return None
        if builds.weights is None or not builds.weights.current():
            builds.clear()
            builds.weights = Weights(self)
        cell = CELLS.get((x.shape[0], x.shape[1], *self._sizes))
        case = Case(
            cell[0] if cell else 0, x.shape[0], x.shape[1], *self._sizes, "float32", key[2], device_record(x.device)
        )
        measured = case.device.name == CONTRACT["accelerator"] and key[2] == CONTRACT["matmul_precision"]
        order = [(cell[1], f"holds case {cell[0]}", cell[2])] if cell else []
        order.append((GENERALIST, "the generalist", {}))
        for name, why, schedule in order:
            if name in tried:
                continue
            proved = measured and cell is not None and name == cell[1]
            try:
                forward = self._build(PLANS[name], case, schedule)
                y = forward(x, mask)
                if wrong := _facts(y, x, mask) or ("" if proved else self._disagrees(x, mask, y)):
                    raise ValueError(wrong)
            except Exception as error:
                tried = {**tried, name: short(error)}
                continue
            said = why if proved else f"{why}; no evidence for it here, checked at its first call"
            builds.keep(key, Entry(forward, name, said, tried, COPIES * 4 * x.numel()), x.device)
            return y
        builds.keep(key, Entry(None, "reference", "no plan serves this shape here", tried), x.device)
        return None

    def _build(self, plan: Plan, case: Case, schedule: dict[str, Any]) -> Any:
        builds = self._builds
        weights = builds.weights
        assert weights is not None
        if plan.supports is not None and not plan.supports(case):
            raise ValueError("supports() says no")
        # Ordinary tensors, whatever mode the caller is in: later calls may come in another one.
        with torch.inference_mode(False), torch.no_grad():
            if weights.copy is None:
                private = ref_TransformerLayer(self._sizes[1], self._sizes[1], 0)  # draws no random numbers
                private.layers, private.final_norm = copy.deepcopy(self.layers), copy.deepcopy(self.final_norm)
                weights.copy = private.eval().requires_grad_(False)
            try:
                forward = plan.build(weights.copy, case, dict(schedule))
            except torch.OutOfMemoryError:
                if not builds.spare(weights.held[0].device):
                    raise
                forward = plan.build(weights.copy, case, dict(schedule))
            if case.device.type == "cuda":
                torch.cuda.synchronize(weights.held[0].device)
        return forward

    def _disagrees(self, x: torch.Tensor, mask: torch.Tensor, y: torch.Tensor) -> str:
        """What is wrong with `y` by the official rule; empty where it is right, or where the reference cannot run."""
        if x.shape[0] * self._sizes[1] * x.shape[1] ** 2 * 4 > CHECK_BYTES:
            return ""
        want = super().forward(x, mask)
        off = (y - want).abs()
        right = (off <= CONTRACT["atol"]) | (off <= CONTRACT["rtol"] * want.abs())
        worst = off.max().item()
        if bool(right.all()) or not math.isfinite(want.abs().max().item()):  # non-finite input is outside the domain
            return ""
        return f"disagrees with the reference by up to {worst:.3g} at its first call"


# The name of the official script's own class for an optimised model.
UserOptimizedTransformer = Submission


def build_model(config: Any) -> Submission:
    """A submission of this configuration, with fresh weights; load the reference's state_dict into it."""
    return Submission(config)


def build(reference: Any, case: Any, schedule: dict[str, Any]) -> Any:
    """The laboratory's door: this file as one plan. Returns forward(x, valid_token_mask), built for `case`."""
    device = reference.final_norm.weight.device
    with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng(devices=[]):
        model = Submission(case)
        model.load_state_dict(reference.state_dict(), strict=True)
        model = model.to(device).eval().requires_grad_(False)
    model(torch.zeros(case.batch, case.length, case.d_model, device=device))
    return model


def _read(config: Any, *names: str) -> int:
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return int(value)
    raise TypeError(f"the configuration has no {names[0]}; give the official TransformerConfig")


def _prefixes(mask: Any, x: torch.Tensor) -> bool:
    """Whether `mask` is a bool mask for x whose valid tokens are prefixes. Waits for the device once."""
    fits = type(mask) is torch.Tensor and mask.dtype == torch.bool and mask.shape == x.shape[:2]
    return fits and mask.device == x.device and bool((mask[:, 1:] <= mask[:, :-1]).all())


def _facts(y: Any, x: torch.Tensor, mask: torch.Tensor) -> str:
    """What is wrong with an output, its values aside."""
    if type(y) is not torch.Tensor or y.shape != x.shape or y.dtype != x.dtype or y.device != x.device:
        return "gave no tensor like x"
    shared = {t.untyped_storage().data_ptr() for t in (x, mask)}
    return "gave a view of its input" if y.untyped_storage().data_ptr() in shared else ""


# --- The official flow

QUEUED_CALLS = 8  # an eager plan's operations have to fit in the device's queue
QUEUED_ROUNDS = 12
FEASIBLE_CALLS = 3


def official(arguments: list[str] | None = None) -> int:
    """`--official [--cases 1,2] [--json]`: the official flow on the device at hand, a line a case. Returns the exit
    code: 0, or 2 where a case is beyond the tolerance."""
    import argparse
    import json

    parser = argparse.ArgumentParser(description=f"Submission for {CONTRACT['workload']}, {CONTRACT['name']}.")
    parser.add_argument("--official", action="store_true", help="accuracy and timing as the official script has them")
    parser.add_argument("--cases", default=",".join(str(case) for case in CASES), help="comma-separated case numbers")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=100, help="timed calls a round")
    parser.add_argument("--rounds", type=int, default=3, help="of alternating order")
    parser.add_argument("--trials", type=int, default=CONTRACT["trials"], help="accuracy seeds")
    asked = parser.parse_args(arguments)
    if not asked.official:
        parser.print_help()
        return 0
    numbers = [int(part) for part in asked.cases.split(",") if part.strip().isdigit()]
    unknown = [number for number in numbers if number not in CASES]
    if unknown or not numbers or min(asked.repeats, asked.rounds, asked.trials) < 1:
        known = ", ".join(str(case) for case in CASES)
        parser.error(f"--cases {asked.cases}: this submission knows {known}; repeats, rounds and trials are at least 1")
    device = torch.device(asked.device)
    torch.set_float32_matmul_precision(CONTRACT["matmul_precision"])
    torch.backends.cudnn.allow_tf32 = CONTRACT["matmul_precision"] != "highest"
    if device.type == "cpu":
        torch.set_num_threads(CONTRACT["threads"])
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    precision = f"float32, matmul precision {CONTRACT['matmul_precision']}"
    rows = []
    if not asked.json:
        protocol = f"{asked.trials} seeds, {asked.warmup} warm-up, {asked.rounds} × {asked.repeats} calls, alternating"
        print(f"{CONTRACT['workload']}, {CONTRACT['name']} on {name}, torch {torch.__version__}; {precision}")
        print(f"{protocol}; medians in µs; recorded: what the evidence of {CONTRACT['accelerator']} says")
        if name != CONTRACT["accelerator"]:
            print(f"this is {name}: the recorded figures are of another device and compare with nothing here")
        print(_line("case", "accuracy", "reference", "submission", "speed-up", "queued", "recorded", "queued", "plan"))
    for number in numbers:
        row = _case(number, device, asked)
        rows.append(row)
        if not asked.json:
            reason = row["reason"]
            shown = [_us(row[key]) for key in ("reference_us", "submission_us")]
            ratio = f"{row['ratio']:.2f}×" if row["ratio"] else "–"
            recorded = [_us(row[key]) for key in ("queued_us", "recorded_official_us", "recorded_queued_us")]
            text = row["plan"] + (f" ({reason})" if reason else "")
            print(_line(str(number), row["accuracy"], *shown, ratio, *recorded, text), flush=True)
    if asked.json:
        print(json.dumps({"contract": CONTRACT, "device": name, "torch": torch.__version__, "cases": rows}))
    return 2 if any(row["accuracy"] == "FAIL" for row in rows) else 0


def _case(number: int, device: torch.device, asked: Any) -> dict[str, Any]:
    """One case as the official script runs it; µs."""
    import gc
    import statistics
    from types import SimpleNamespace

    case, evidence = CASES[number], EVIDENCE.get(number, {})
    row: dict[str, Any] = {"case": number, "accuracy": "–", "worst": None, "reference_us": None, "submission_us": None}
    row |= {"ratio": None, "queued_us": None, "plan": "–", "why": "", "reason": ""}
    row |= {f"recorded_{key}": evidence.get(key) for key in ("official_us", "queued_us")}
    feasible = case["status"] != "scored"
    if feasible and device.type != "cuda":
        return row | {"reason": "skipped: the reference cannot run this case, and on a CPU nothing else can"}
    config = SimpleNamespace(
        batch_size=case["batch"], seq_len=case["length"], d_model=case["d_model"], num_heads=case["heads"],
        ffn_dim=case["d_model"], num_layers=case["layers"], causal=True,
    )  # fmt: skip
    torch.manual_seed(CONTRACT["seed"])
    reference = ref_TransformerLayer(case["d_model"], case["heads"], case["layers"])
    model: Submission = build_model(config)
    model.load_state_dict(reference.state_dict(), strict=True)
    reference, model = reference.to(device).eval(), model.to(device).eval()
    with torch.inference_mode():
        if feasible:
            x, mask = _draw(case, CONTRACT["seed"] + 100_000, device)
            times = _times(model, x, mask, FEASIBLE_CALLS + 1, device)[1:]
            row |= {"submission_us": statistics.median(times), "reason": "reference cannot run it: submission only"}
        else:
            worst, right = 0.0, True
            for trial in range(asked.trials):
                x, mask = _draw(case, CONTRACT["seed"] + trial, device)
                want, got = reference(x, mask), model(x, mask)
                off = (got - want).abs()
                fine = (off <= CONTRACT["atol"]) | (off <= CONTRACT["rtol"] * want.abs())
                right &= bool((fine & got.isfinite() & want.isfinite()).all())
                worst = max(worst, off.max().item())
                del want, got, off, fine
            row |= {"accuracy": "pass" if right else "FAIL", "worst": worst}
            x, mask = _draw(case, CONTRACT["seed"] + 100_000, device)
            for module in (reference, model):
                _times(module, x, mask, asked.warmup, device)
            samples: dict[Any, list[float]] = {reference: [], model: []}
            for turn in range(asked.rounds):
                for module in (reference, model) if turn % 2 == 0 else (model, reference):
                    samples[module] += _times(module, x, mask, asked.repeats, device)
            us = [statistics.median(samples[module]) for module in (reference, model)]
            row |= {"reference_us": us[0], "submission_us": us[1], "ratio": us[0] / us[1]}
            if device.type == "cuda":
                row["queued_us"] = _queued(model, x, mask)
    choice = next(iter(model.choices()), {"plan": "reference", "why": "", "tried": {}})
    row |= {"plan": choice["plan"], "why": choice["why"]}
    if choice["tried"]:
        row["reason"] = "; ".join(filter(None, [row["reason"], *(f"{k}: {v}" for k, v in choice["tried"].items())]))
    del reference, model, x, mask
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return row


def _draw(case: dict[str, Any], seed: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(case["batch"], case["length"], case["d_model"], generator=generator, device=device)
    return x, torch.ones(case["batch"], case["length"], dtype=torch.bool, device=device)


def _times(module: Any, x: torch.Tensor, mask: torch.Tensor, calls: int, device: torch.device) -> list[float]:
    """µs of each call: events around it on the current stream, nothing waited for in between; on a CPU wall time."""
    import time

    if device.type != "cuda":
        found = []
        for _ in range(calls):
            began = time.perf_counter_ns()
            module(x, mask)
            found.append((time.perf_counter_ns() - began) / 1e3)
        return found
    starts = [torch.cuda.Event(enable_timing=True) for _ in range(calls)]
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(calls)]
    torch.cuda.synchronize(device)
    for start, end in zip(starts, ends, strict=True):
        start.record()
        module(x, mask)
        end.record()
    torch.cuda.synchronize(device)
    return [start.elapsed_time(end) * 1e3 for start, end in zip(starts, ends, strict=True)]


def _queued(module: Any, x: torch.Tensor, mask: torch.Tensor) -> float | None:
    """Median device µs of a call that the host has queued in time: behind a spin of twice what queueing takes. None
    where the device ran dry all the same."""
    import statistics
    import time

    found: list[float] = []
    enqueue_s = 0.0
    for turn in range(QUEUED_ROUNDS + 1):
        starts = [torch.cuda.Event(enable_timing=True) for _ in range(QUEUED_CALLS)]
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(QUEUED_CALLS)]
        for event in (*starts, *ends):
            event.record()
        torch.cuda.synchronize()
        if turn:
            torch.cuda._sleep(int(2 * enqueue_s * 2e9) + 200_000)  # cycles, at about 2 GHz
        began = time.perf_counter()
        for start, end in zip(starts, ends, strict=True):
            start.record()
            module(x, mask)
            end.record()
        enqueue_s = max(enqueue_s, time.perf_counter() - began) if turn != 1 else time.perf_counter() - began
        pending = not starts[0].query()
        torch.cuda.synchronize()
        if turn and pending:
            found += [start.elapsed_time(end) * 1e3 for start, end in zip(starts, ends, strict=True)]
    return statistics.median(found) if found else None


def _us(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _line(*cells: str) -> str:
    widths = (5, 9, 12, 12, 9, 12, 12, 12)
    return " ".join([f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=False)] + [f" {cells[-1]}"])


if __name__ == "__main__":
    raise SystemExit(official())
