"""peer: torch.compile of the reference in its default mode, what a user types first.

Compiled once a case and process; a later build for other weights lays them into the model that was compiled, which is
what loading a checkpoint does. Every case is one more compilation of the same code, hence the raised limit.
"""

import torch

LIMIT = 64
BUILT = {}  # case → (the model that was compiled, its call)


class Unavailable(RuntimeError):
    """Not possible on this machine: a recorded skip, no failure."""


def supports(case):
    """Where the plain reference fits: its float32 score tensor stays under 64 GB."""
    return case.batch * case.heads * case.length**2 * 4 < 64_000_000_000


def build(reference, case, schedule):
    if case in BUILT:
        model, call = BUILT[case]
        model.load_state_dict(reference.state_dict())
        return call
    compiled = torch.compile(reference, fullgraph=True, dynamic=False)

    def call(x, valid):
        return compiled(x, valid)

    device = reference.final_norm.weight.device
    with torch.inference_mode(False):  # as the inputs to come: another kind of tensor compiles everything once more
        x = torch.zeros(case.batch, case.length, case.d_model, device=device)
        valid = torch.ones(case.batch, case.length, dtype=torch.bool, device=device)
    try:
        with torch._dynamo.config.patch(recompile_limit=LIMIT):
            call(x, valid)
    except Exception as error:
        if "InvalidCxxCompiler" in repr(error) or "InvalidCxxCompiler" in str(error):
            raise Unavailable("torch.compile needs a C++ compiler on a CPU") from None
        raise
    call(x, valid)
    BUILT[case] = (reference, call)
    return call
