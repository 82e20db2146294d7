"""v000: the reference itself, unchanged, is neither faster nor slower than the reference.

Mechanism: none; every call is the reference's own forward. Parent: none. Target cases: all that the reference can run.
It stays as the live noise control: anything but a ratio of one is the measurement's error. Refuted by: any other ratio.
"""


def supports(case):
    """Where the plain reference fits: its float32 score tensor stays under 64 GB."""
    return case.batch * case.heads * case.length**2 * 4 < 64_000_000_000


def build(reference, case, schedule):
    def forward(x, valid_token_mask):
        return reference(x, valid_token_mask)

    return forward
