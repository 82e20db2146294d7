"""How long the chain of dependent phases of the transformer layer is, however it is split and fused. Needs no torch.

A block of layers has five phases, each of which needs all of a row, or all earlier rows, of the one before it: norm and
q, k, v; attention; output projection and residual; norm, ffn_in and GELU; ffn_out and residual. After the last block
comes the final norm. A norm goes with the product behind it, since both need the same whole row.
"""

from __future__ import annotations

from typing import Any


def phases(case: Any) -> int:
    """Phases that wait for one another in one forward of `case` (which has `layers`): 5 a layer, and the final norm."""
    return 5 * case.layers + 1
