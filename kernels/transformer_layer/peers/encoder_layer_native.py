"""peer: torch's own nn.TransformerEncoderLayer, pre-norm, with the reference's weights moved over.

With an even number of heads, in eval and inference mode, a given mask does not stop its fused native path (one operator
a layer; seen in a profile of torch 2.13). With an odd number (case 9: one head) torch itself takes the ordinary path.
Only the causal mask is passed: under prefix padding a valid query sees valid keys alone; invalid rows are zeroed last.
On CUDA the native path's GELU is the tanh approximation, off by at most 5e-4 before the last product.
"""

import torch
from torch import nn


def supports(case):
    """The native path writes the score tensor: the reference's own limit, under 64 GB."""
    return case.batch * case.heads * case.length**2 * 4 < 64_000_000_000


def build(reference, case, schedule):
    device = reference.final_norm.weight.device
    stack = []
    for block in reference.layers:
        a = block.attention
        layer = nn.TransformerEncoderLayer(
            case.d_model,
            case.heads,
            dim_feedforward=case.d_model,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
            device=device,
        )
        moved = {
            "self_attn.in_proj_weight": torch.cat([a.q_proj.weight, a.k_proj.weight, a.v_proj.weight]),
            "self_attn.in_proj_bias": torch.cat([a.q_proj.bias, a.k_proj.bias, a.v_proj.bias]),
        }
        renamed = {
            "self_attn.out_proj": a.out_proj,
            "linear1": block.ffn_in,
            "linear2": block.ffn_out,
            "norm1": block.norm1,
            "norm2": block.norm2,
        }
        for name, module in renamed.items():
            moved[f"{name}.weight"], moved[f"{name}.bias"] = module.weight, module.bias
        layer.load_state_dict(moved, strict=True)
        stack.append(layer.eval())
    final_norm = reference.final_norm
    causal = torch.ones(case.length, case.length, dtype=torch.bool, device=device).triu(1)

    def forward(x, valid_token_mask):
        for layer in stack:
            x = layer(x, src_mask=causal, is_causal=True)
        return final_norm(x).masked_fill_(valid_token_mask.logical_not()[..., None], 0)

    return forward
