"""peer: torch.compile of the reference in its default mode, what a user types first.

Compiled and warmed in build for the case's shape. Earlier compilations of the process are dropped: they would count
towards the recompilation limit, beyond which torch runs eagerly without a word.
"""

import torch


class Unavailable(RuntimeError):
    """Not possible on this machine: a recorded skip, no failure."""


def supports(case):
    """Where the plain reference fits: its float32 score tensor stays under 64 GB."""
    return case.batch * case.heads * case.length**2 * 4 < 64_000_000_000


def build(reference, case, schedule):
    torch.compiler.reset()
    compiled = torch.compile(reference, fullgraph=True, dynamic=False)
    device = reference.final_norm.weight.device
    x = torch.zeros(case.batch, case.length, case.d_model, device=device)
    valid = torch.ones(case.batch, case.length, dtype=torch.bool, device=device)
    try:
        compiled(x, valid)
    except Exception as error:
        if "InvalidCxxCompiler" in repr(error) or "InvalidCxxCompiler" in str(error):
            raise Unavailable("torch.compile needs a C++ compiler on a CPU") from None
        raise
    compiled(x, valid)

    def forward(x, valid_token_mask):
        return compiled(x, valid_token_mask)

    return forward
