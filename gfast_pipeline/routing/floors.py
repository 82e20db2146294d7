"""The hard and the reachable floor of a case: counted work ÷ the device's rates. Pure functions of plain numbers.

Knows neither sessions nor files. Bytes ÷ (TB/s · 10⁶), FLOP ÷ (TFLOP/s · 10⁶) and exponentials ÷ (10¹²/s · 10⁶) are µs.

How the reachable terms combine: launch + max(memory, arithmetic, exponentials, chain).
* The throughput terms overlap in a good kernel, so the longest of them bounds it: the roofline with one roof per unit
  (Williams et al. 2009; SOL-ExecBench and TileOPs do the same with two), exponentials being the third roof since
  FlashAttention-3 (arXiv 2407.08608).
* The chain is what each phase waits for the one before: work of other sequences can hide it, so it is no summand.
* The launch can hide nothing and nothing hides it: events around a captured kernel of 10.9 to 73 µs read 1.2 to 2.6 µs
  above its own time on an H200, and the null call, two events with nothing between them, reads 1.28 there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.schema import Contract, Limits

TERMS = ("memory", "arithmetic", "exponentials", "launch", "chain")

ADMISSIBLE: dict[str, dict[str, int]] = {
    "highest": {"float32": 1, "float16": 3},
    "high": {"float32": 1, "tf32": 1, "float16": 1},
    "medium": {"float32": 1, "tf32": 1, "float16": 1, "bfloat16": 1},
}
"""`target.matmul_precision` → precision of the operands that passes the gate → products it takes for one.

`high`: operands of float16, accumulated in float32, keep the mantissa of TF32 and use 0.46 to 0.73 of the allowance;
bfloat16 uses 4 to 4.7 of it and is out. `highest`: float32 itself, or float16 split in high and low halves, hi·hi +
hi·lo + lo·hi, as accurate as float32 (Ootomo and Yokota, arXiv 2203.03341). `medium`: the reference may round to
bfloat16 itself. A precision with no measured rate does not count."""

TRIPS_A_NODE = 7
"""Where a session has no `l2_trip_us`, a node of a graph ÷ 7 stands for it: 200 to 270 cycles are 0.10 to 0.14 µs on
Hopper at 1.98 GHz (arXiv 2402.13499), a node 0.92 to 0.94."""


@dataclass(frozen=True)
class Floors:
    """Of one case, µs. `hard_us`, from limits, is None where the contract names none; `terms` has all of TERMS, 0 where
    one does not bind; `floor_us` is the reachable floor; `binding_term` the largest term; `precision` the operands at
    which arithmetic is fastest."""

    hard_us: float | None
    terms: dict[str, float]
    floor_us: float
    binding_term: str
    precision: str


def floors(
    work: Mapping[str, float], contract: Contract, measured: Mapping[str, Any], phases: int = 0, mode: str | None = None
) -> Floors:
    """The floors of one case in `mode` (default: the contract's mode of the gap).

    `work` holds flop, bytes and exponentials as the workload counts them, `measured` the figures of a ceilings session
    (TFLOP/s, TB/s, 10¹²/s, µs), `phases` the length of the dependent chain. Raises GfastError for a ceiling that is
    missing or not above zero, naming the command that measures it.
    """
    mode = mode or contract.mode.gap
    precision, arithmetic = _arithmetic(work["flop"], contract, measured)
    terms = {
        "memory": _memory(work["bytes"], contract, measured, mode),
        "arithmetic": arithmetic,
        "exponentials": 0.0,
        "launch": 0.0,
        "chain": phases * (dependent_step(measured) or (0.0, ""))[0],
    }
    if work["exponentials"]:
        terms["exponentials"] = work["exponentials"] / (_ceiling("exponentials_t_s", contract, measured) * 1e6)
    if contract.target.device == "cuda":
        terms["launch"] = _ceiling("null_queued_us", contract, measured)
    floor = terms["launch"] + max(us for term, us in terms.items() if term != "launch")
    binding = max(TERMS, key=lambda term: terms[term])
    return Floors(hard_floor(work, contract.limits, mode), terms, floor, binding, precision)


def hard_floor(work: Mapping[str, float], limits: Limits, mode: str) -> float | None:
    """What no honest result is below, µs: the rule of the bench's physics gate; None where no limits are named.

    Arithmetic at the fastest datasheet rate; memory where the mode is `cold` or the bytes exceed L2, as otherwise they
    may all be in L2 already.
    """
    if not limits.compute_tflops or limits.memory_tb_s is None or limits.l2_mb is None:
        return None
    arithmetic = work["flop"] / (max(limits.compute_tflops.values()) * 1e6)
    memory = work["bytes"] / (limits.memory_tb_s * 1e6)
    return max(arithmetic, memory if _through_memory(work["bytes"], limits.l2_mb, mode) else 0.0)


def dependent_step(measured: Mapping[str, Any]) -> tuple[float, str] | None:
    """(µs, what it is) of the least that one phase waits for the one before; None where nothing tells (a CPU).

    It is one round trip to L2, a bound for every way to hand a result on. A graph node (0.9 µs on an H200) is not: a
    fused kernel has none. A barrier in a running kernel (0.5 to 0.9 µs there) is not: only keys and values cross rows,
    and a block that holds whole rows passes the rest on through shared memory and tensor cores, which takes about as
    long as a trip to L2.
    """
    trip = _number(measured.get("l2_trip_us"))
    if trip is not None:
        return trip, "one L2 round trip"
    one, twenty = _number(measured.get("graph_1_queued_us")), _number(measured.get("graph_20_queued_us"))
    if one is None or twenty is None or twenty <= one:
        return None
    return (twenty - one) / 19 / TRIPS_A_NODE, f"one graph node ÷ {TRIPS_A_NODE}, as the session has no L2 round trip"


def _arithmetic(flop: float, contract: Contract, measured: Mapping[str, Any]) -> tuple[str, float]:
    """(precision, µs) at the admissible precision that is fastest on this device."""
    found = []
    for precision, products in ADMISSIBLE[contract.target.matmul_precision].items():
        rate = _number(measured.get(f"gemm_{precision}_tflops"))
        if rate is not None:
            found.append((products * flop / (rate * 1e6), precision))
    if not found:
        raise _missing("gemm_float32_tflops", contract)
    us, precision = min(found)
    return precision, us


def _memory(nbytes: float, contract: Contract, measured: Mapping[str, Any], mode: str) -> float:
    """µs for the bytes through memory, or through L2 where they may all be hot; 0 where that rate is not known."""
    l2_mb = contract.limits.l2_mb
    if mode != "cold" and l2_mb is None:
        return 0.0  # which cache holds what is not known
    if l2_mb is None or _through_memory(nbytes, l2_mb, mode):
        return nbytes / (_ceiling("memory_tb_s", contract, measured) * 1e6)
    l2 = _number(measured.get("l2_tb_s"))
    if l2 is None:
        return 0.0
    # L2 below memory's own rate means that the measurement waited for its host.
    return nbytes / (max(l2, _number(measured.get("memory_tb_s")) or 0.0) * 1e6)


def _through_memory(nbytes: float, l2_mb: float, mode: str) -> bool:
    return mode == "cold" or nbytes > l2_mb * 1e6


def _ceiling(name: str, contract: Contract, measured: Mapping[str, Any]) -> float:
    value = _number(measured.get(name))
    if value is None:
        raise _missing(name, contract)
    return value


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _missing(name: str, contract: Contract) -> GfastError:
    return GfastError(
        f"ceilings of {contract.target.accelerator}: no {name}. Measure them: gfast measure ceilings -c {contract.name}"
    )
