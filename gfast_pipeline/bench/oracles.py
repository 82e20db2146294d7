"""What an output should have been: a workload's reference at the contract's precision and its float64 oracle.

Wraps a workload module (the loaded reference.py). Keeps models, never outputs, and computes only when asked, so that no
expected value exists while a candidate may run. Knows nothing of gates, processes or contracts; matmul precision is the
caller's business and does not touch float64.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LIMIT_BYTES = {"cuda": 4 << 30, "cpu": 1 << 29}
"""Temporaries of the float64 model, by device type."""

Inputs = tuple[Tensor, ...]


class Oracle:
    """Expected values for one (case, weights): `workload` is the reference module, `state` a float32 state dict."""

    def __init__(
        self,
        workload: Any,
        case: Any,
        state: dict[str, Tensor],
        device: torch.device | str,
        limit_bytes: int | None = None,
    ) -> None:
        self.workload = workload
        self.case = case
        self.state = state
        self.device = torch.device(device)
        self.limit_bytes = limit_bytes or LIMIT_BYTES.get(self.device.type, 1 << 30)
        dtype = getattr(torch, case.dtype)
        self._model = self._load(dtype)
        self._model64: Any = None

    def _load(self, dtype: torch.dtype) -> Any:
        with torch.device(self.device):  # not "meta": its first use imports seconds of torch
            model = self.workload.make(self.case)
        model = model.to(dtype).eval().requires_grad_(False)
        model.load_state_dict(self.state, strict=True)
        return model

    @property
    def model(self) -> Any:
        """The reference module at the case's dtype, on the device: for the judge's own use, never handed out."""
        return self._model

    @property
    def model64(self) -> Any:
        """The same in float64, made at the first use."""
        if self._model64 is None:
            self._model64 = self._load(torch.float64)
        return self._model64

    @torch.inference_mode()
    def reference(self, inputs: Inputs) -> Tensor:
        """The reference's answer at whatever matmul precision is set. Raises ValueError where it cannot run."""
        if not self.workload.runnable(self.case):
            raise ValueError(f"case {self.case.id}: the plain reference cannot run; compare with serial() instead")
        return self._model(*inputs)

    @torch.inference_mode()
    def y64(self, inputs: Inputs) -> Tensor:
        """The float64 answer for the whole batch, on the inputs' device."""
        return self.workload.oracle(self.model64, inputs, self.limit_bytes)
