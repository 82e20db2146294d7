"""Is our reference the official model? Runs the official script's model and ours on the same weights and inputs.

The script is the user's own copy, loaded by path and run as it is. Needs torch, imported only when called; knows no
gate and no clock.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.contract.schema import Case

RELATIVE = 1e-6  # of the output's largest magnitude: room for another order of summation, not for another formula


@dataclass(frozen=True)
class Comparison:
    """One case. `largest`: largest |official - ours| over the official draw's variants, `scale`: largest |official|;
    both None where skipped, with the reason."""

    case: int
    status: str  # same · differs · skipped
    largest: float | None = None
    scale: float | None = None
    variant: str | None = None  # where the largest difference stood
    reason: str = ""


def compare(loaded: Loaded, script: Path, max_gb: float, device: str) -> Iterator[Comparison]:
    """Compares on every case whose score tensor (batch · heads · length² floats) fits in `max_gb` 10⁹ bytes, one result
    a case as it is known. Raises GfastError for a script or device that cannot be used."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise GfastError("torch sees no CUDA device here. Give --device cpu, or run this on the machine with the card.")
    if not {"batch", "heads", "length", "d_model", "layers"} <= set(loaded.contract.cases[0].shape):
        raise GfastError(f"{loaded.path}: its workload is not the official transformer. Give --contract h200_fp32.")
    official = _module(script, "gfast_official_script")
    for name in ("TransformerConfig", "BaselineTransformer"):
        if not hasattr(official, name):
            raise GfastError(f"{script}: defines no {name}. Give the official PyTorch benchmark script.")
    ours = _module(loaded.workload.reference_path, "gfast_reference")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(loaded.contract.target.matmul_precision)
    try:
        for case in loaded.contract.cases:
            gigabytes = case.shape["batch"] * case.shape["heads"] * case.shape["length"] ** 2 * 4 / 1e9
            record = _record(case, loaded, device)
            if not ours.runnable(record):
                yield Comparison(case.id, "skipped", reason="the plain reference cannot run it")
            elif gigabytes > max_gb:
                reason = f"its score tensor has {gigabytes:.3g} GB, above --max-gb {max_gb:g}"
                yield Comparison(case.id, "skipped", reason=reason)
            else:
                yield _compare(case, record, loaded, official, ours, script, device)
    finally:
        torch.set_float32_matmul_precision(before)


def _compare(
    case: Case, record: Any, loaded: Loaded, official: ModuleType, ours: ModuleType, script: Path, device: str
) -> Comparison:
    import torch

    contract = loaded.contract
    draw = next(draw for draw in contract.weight_draws if draw.name == "official")
    state = ours.draw_weights(record, "official", draw.seed)
    try:
        config = official.TransformerConfig(
            batch_size=case.shape["batch"],
            seq_len=case.shape["length"],
            d_model=case.shape["d_model"],
            num_heads=case.shape["heads"],
            ffn_dim=case.shape["d_model"],
            num_layers=case.shape["layers"],
            causal=True,
        )
        theirs = official.BaselineTransformer(config).to(device).eval()
        theirs.load_state_dict(state, strict=True)
        theirs(*ours.draw_inputs(record, 0, 1.0, 0.0, device))
    except Exception as error:  # whatever a script of someone else's may raise
        first = str(error).strip().split("\n")
        message = f"{script}: its model does not take case {case.id}: {type(error).__name__}: {' '.join(first[:3])}"
        raise GfastError(f"{message}. Its parameters, configuration and call must be the official ones.") from None
    mine = ours.make(record).to(device).eval()
    mine.load_state_dict(state, strict=True)
    largest, scale, where = 0.0, 0.0, None
    variants = {variant.name: variant for variant in contract.variants}
    with torch.inference_mode():
        for name in draw.variants:
            variant = variants[name]
            x, mask = ours.draw_inputs(record, variant.seed, variant.scale, variant.padding, device)
            want = theirs(x, mask)
            gap = (want.double() - mine(x, mask).double()).abs().max().item()
            scale = max(scale, want.abs().max().item())
            if math.isnan(gap) or gap > largest:  # a NaN stays: it is a difference
                largest, where = gap, name
    same = largest <= RELATIVE * scale
    return Comparison(case.id, "same" if same else "differs", largest, scale, where)


def _record(case: Case, loaded: Loaded, device: str) -> Any:
    target = loaded.contract.target
    place = SimpleNamespace(type=device, name=target.accelerator, capability=None)
    precision = {"dtype": target.dtype, "matmul_precision": target.matmul_precision}
    return SimpleNamespace(id=case.id, **case.shape, **precision, device=place)


def _module(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise GfastError(f"{path}: no such Python file. Give the path of the official script.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise GfastError(f"{path}: cannot be loaded: {type(error).__name__}: {error}. Correct or replace it.") from None
    return module
