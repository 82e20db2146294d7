"""Ceilings as an H200 gave them, and records of the kind that routing reads."""

from __future__ import annotations

from typing import Any

from gfast_pipeline.bench.messages import Session
from gfast_pipeline.contract.load import Loaded

SCOPE = {"accelerator": {"name": "NVIDIA H200"}, "software": {}, "protocol": 1}
MEASURED = {
    "memory_tb_s": 4.2, "l2_tb_s": 5.8, "gemm_float32_tflops": 51.0, "gemm_tf32_tflops": 406.0,
    "gemm_float16_tflops": 756.0, "gemm_bfloat16_tflops": 780.0, "exponentials_t_s": 4.1, "null_queued_us": 1.28,
    "graph_1_queued_us": 2.9, "graph_20_queued_us": 20.8, "l2_trip_us": 0.135,
}  # fmt: skip
WORK = {"flop": 7.5e9, "bytes": 1e7, "weight_bytes": 1e6, "exponentials": 8.4e6, "output_bytes": 4e6}


def ceilings(loaded: Loaded, measured: dict[str, Any] | None = None, **fields: Any) -> Session:
    """A complete ceilings session of an H200."""
    one = Session("ceilings", loaded.workload.name, loaded.name, loaded.hash, "job", 1, "2026-12-01T10:00:00Z")
    one.measured = dict(MEASURED if measured is None else measured)
    one.scope = dict(SCOPE)
    for name, value in fields.items():
        setattr(one, name, value)
    return one


def standing(loaded: Loaded, us: float, **fields: Any) -> list[dict[str, Any]]:
    """One plan on every case, `us` in both modes."""
    row = {"plan": "v007_fused", "candidate_hash": "c", "plan_hash": "p", "official_us": us, "queued_us": us}
    return [{"case": case.id, **row, "session": "s", **fields} for case in loaded.contract.cases]
