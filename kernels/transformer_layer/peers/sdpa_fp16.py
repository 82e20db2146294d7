"""peer: packed q, k, v and fused attention in half precision, launched kernel by kernel.

What `sdpa_fp16_graph` captures, without the capture: the difference between the two is what launches cost. Residual
stream and norms in fp32; a batch beyond the workspace runs a few sequences at a time.
"""

import torch
from torch.nn import functional as F

WORKSPACE_BYTES = 24_000_000_000


class Unavailable(RuntimeError):
    """Not possible on this machine: a recorded skip, no failure."""


def build(reference, case, schedule):
    if case.device.type != "cuda":
        raise Unavailable("fp16 attention needs an NVIDIA device")
    heads, d_model, batch, length = case.heads, case.d_model, case.batch, case.length

    def half(*linears):
        weight = torch.cat([linear.weight for linear in linears]).half()
        return weight, torch.cat([linear.bias for linear in linears]).half()

    blocks = []
    for block in reference.layers:
        a = block.attention
        qkv = half(a.q_proj, a.k_proj, a.v_proj)
        blocks.append((block, qkv, half(a.out_proj), half(block.ffn_in), half(block.ffn_out)))

    def layers(x, valid):
        count = x.shape[0]
        for block, qkv, out, ffn_in, ffn_out in blocks:
            packed = F.linear(block.norm1(x).half(), *qkv).view(count, length, 3, heads, d_model // heads)
            q, k, v = packed.permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + F.linear(mixed.transpose(1, 2).reshape(count, length, d_model), *out)
            x = x + F.linear(F.gelu(F.linear(block.norm2(x).half(), *ffn_in)), *ffn_out)
        return reference.final_norm(x).masked_fill_(valid.logical_not()[..., None], 0)

    step = max(1, min(batch, WORKSPACE_BYTES // (40 * length * d_model)))
    if step == batch:
        return layers

    def in_steps(x, valid_token_mask):
        y = torch.empty_like(x)
        for start in range(0, batch, step):
            rows = slice(start, start + step)
            y[rows] = layers(x[rows], valid_token_mask[rows])
        return y

    return in_steps
