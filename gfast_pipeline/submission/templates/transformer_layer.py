"""The public half of a submission for the official transformer layer. Read as text by the compiler, never imported."""

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch  # noqa: TID253

if TYPE_CHECKING:
    from torch.nn import Module

    from gfast_pipeline.submission.templates.dispatch import (
        COPIES,
        Builds,
        Device,
        Entry,
        Plan,
        Weights,
        device_record,
        precision,
        short,
        stream,
    )

    class TransformerLayer(Module):
        def __init__(self, d_model: int, heads: int, layers: int) -> None: ...

    CONTRACT: dict[str, Any] = {}
    CELLS: dict[tuple[int, ...], tuple[int, str, dict[str, Any]]] = {}
    PLANS: dict[str, Plan] = {}
    GENERALIST = ""

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


class Submission(TransformerLayer):
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
                private = TransformerLayer(self._sizes[1], self._sizes[1], 0)  # draws no random numbers
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
