"""v003: fp16 operands with fp32 accumulation halve the product time of TF32 and stay inside the tolerance.

Mechanism: every matrix product and the attention take fp16 operands (11 significant bits, as TF32 has) and accumulate
in fp32; residual stream, norms, biases and GELU stay in fp32. fp16 reaches twice TF32's rate and has flash attention.
Captured in a CUDA graph as v002; a batch beyond the workspace runs a few sequences at a time without a graph.
Parent: v002. Target cases: 6, 8, 13, 14. Refuted by: over 90 % of the error budget anywhere, or no gain on 8 and 13.
"""

import torch
from torch.nn import functional as F

ELEMENTS = 1 << 28  # of one captured activation
WORKSPACE_BYTES = 24_000_000_000


class Unavailable(RuntimeError):
    """Not possible on this machine: a recorded skip, no failure."""


def build(reference, case, schedule):
    if case.device.type != "cuda":
        raise Unavailable("fp16 products with an fp32 result need an NVIDIA device")
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
    step = max(1, min(batch, WORKSPACE_BYTES // (40 * length * d_model)))

    def in_steps(x, valid_token_mask):
        y = torch.empty_like(x)
        for start in range(0, batch, step):
            rows = slice(start, start + step)
            y[rows] = layers(x[rows], valid_token_mask[rows])
        return y

    if step < batch or batch * length * d_model > ELEMENTS:
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
