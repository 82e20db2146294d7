"""v002: captured in one CUDA graph, the fused-attention layer loses the host's launch time on the small cases.

Mechanism: v001's kernels replayed by a single launch; x and mask are copied into the graph's own input and the static
output is cloned inside the call, so that every output owns its storage. Parent: v001. Target cases: 1 to 5, 7, 9 to 12,
where the host is the limit. Refuted by: less than the graph's copy and clone (about 5 µs) saved on case 2.
"""

import torch
from torch.nn import functional as F

ELEMENTS = 1 << 28  # beyond this the copies cost more than launches do


class Unavailable(RuntimeError):
    """Not possible on this machine: a recorded skip, no failure."""


def supports(case):
    return case.batch * case.length * case.d_model <= ELEMENTS


def build(reference, case, schedule):
    if case.device.type != "cuda":
        raise Unavailable("CUDA graphs need an NVIDIA device")
    heads, d_model, batch, length = case.heads, case.d_model, case.batch, case.length
    blocks = []
    for block in reference.layers:
        attention = block.attention
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        weight = torch.cat([p.weight for p in projections])
        bias = torch.cat([p.bias for p in projections])
        blocks.append((block, attention.out_proj, weight, bias))
    final_norm = reference.final_norm

    def layers(x, valid):
        for block, out_proj, weight, bias in blocks:
            qkv = F.linear(block.norm1(x), weight, bias).view(batch, length, 3, heads, d_model // heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + out_proj(mixed.transpose(1, 2).reshape(batch, length, d_model))
            x = x + block.ffn_out(F.gelu(block.ffn_in(block.norm2(x))))
        return final_norm(x).masked_fill_(valid.logical_not()[..., None], 0)

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
