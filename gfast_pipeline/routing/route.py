"""What to do about each case, and whether to go on at all: gaps in, one `route` payload with its arguments out.

A pure function of a `gap` payload and the contract's thresholds. No ratio stands without the µs it is a ratio of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import Loaded

FARTHEST = 3  # cases that the overall argument names
HOST_BOUND = 1.25  # official ÷ queued above which the way to the device, not the device, is what a user waits for

ROUTES = ("structural", "tune", "unmeasured", "done")
FIRST = {"structural": "a new structure", "tune": "launch parameters", "unmeasured": "what is not measured yet"}
MEANS = {
    "memory": "bytes through memory",
    "arithmetic": "arithmetic",
    "exponentials": "exponentials",
    "launch": "the null call",
    "chain": "the chain of dependent phases",
}
MOVES = {
    "memory": "passes over memory that a fused kernel does not make",
    "arithmetic": "time in which the tensor cores wait: launches, passes over memory, products in the wrong precision",
    "exponentials": "time in which the softmax waits: launches, score matrices in memory, products before it",
    "launch": "kernels and host work around them",
    "chain": "launches and barriers between phases that one kernel can run through",
}


def route(loaded: Loaded, gap_payload: Mapping[str, Any]) -> dict[str, Any]:
    """The payload of an entry of kind `route`: per case `done`, `tune`, `structural` or `unmeasured`, overall `stop`
    or `continue`, each with its argument.

    gap < thresholds.done is done, up to thresholds.structural it is tune, above structural. `stop` only where every
    scored case is done. Raises GfastError where the gaps are of another contract.
    """
    if gap_payload["contract_hash"] != loaded.hash:
        raise GfastError(
            f"these gaps are of contract {gap_payload['contract_hash'][:12]}, {loaded.name} is {loaded.hash[:12]} now. "
            "Compute them again."
        )
    done, structural = loaded.contract.thresholds.done, loaded.contract.thresholds.structural
    rows = []
    for row in gap_payload["cases"]:
        chosen = route_of(row["gap"], done, structural)
        rows.append(
            {
                "case": row["case"],
                "route": chosen,
                "gap": row["gap"],
                "binding_term": row["binding_term"],
                "argument": _argument(row, chosen, done, structural, loaded.name),
            }
        )
    scored = {case.id for case in loaded.contract.scored}
    counted = [(row, given) for row, given in zip(rows, gap_payload["cases"], strict=True) if row["case"] in scored]
    if len(counted) != len(scored):
        raise GfastError(f"these gaps lack scored cases of {loaded.name}. Compute them again.")
    stop = all(row["route"] == "done" for row, _ in counted)
    return {
        "workload": gap_payload["workload"],
        "contract_name": gap_payload["contract_name"],
        "contract_hash": gap_payload["contract_hash"],
        "scope": dict(gap_payload["scope"]),
        "overall": "stop" if stop else "continue",
        "argument": _overall(counted, stop, done),
        "cases": rows,
    }


def route_of(gap: float | None, done: float, structural: float) -> str:
    """The route of a gap: `done` below `done`, `structural` above `structural`, `tune` between, None `unmeasured`."""
    if gap is None:
        return "unmeasured"
    return "done" if gap < done else "structural" if gap > structural else "tune"


def _argument(row: Mapping[str, Any], chosen: str, done: float, structural: float, contract: str) -> str:
    floor, binds = row["floor_us"], MEANS[row["binding_term"]]
    if chosen == "unmeasured":
        return f"No gap: {row['reason']}. The reachable floor is {us(floor)} ({binds} binds)."
    figure = row["gap"] * floor
    told = (
        f"{row['plan']} takes {us(figure)} ({row['mode']}), {row['gap']:.3g} times the reachable floor of {us(floor)}, "
        f"where {binds} binds ({us(row['floors'][row['binding_term']])}): {chosen}."
    )
    if row["gap"] < 1:
        why = (
            "It lies below the floor, so a ceiling or the count of the work asks too much: "
            f"measure the ceilings again (gfast measure ceilings -c {contract})."
        )
    elif chosen == "done":
        why = f"All that other launch parameters and another structure could gain together is {us(figure - floor)}."
    elif chosen == "tune":
        why = (
            f"Launch parameters cost no new code and come first: {us(figure - done * floor)} have to go. A new "
            f"structure pays above {us(structural * floor)}, {structural:g} times the floor, and needs tuning as well."
        )
    else:
        why = (
            f"Even {us(structural * floor)}, {structural:g} times the floor, is {us(figure - structural * floor)} off, "
            f"and no launch parameter removes {MOVES[row['binding_term']]}."
        )
    return f"{told} {why}{_host(row)}"


def _host(row: Mapping[str, Any]) -> str:
    """What to know where users wait for the host rather than the device."""
    official, queued = row["official_us"], row["queued_us"]
    if row["mode"] != "queued" or not official or not queued or official <= HOST_BOUND * queued:
        return ""
    return f" Officially it takes {us(official)}: there the launch path decides, not the kernel of {us(queued)}."


def _overall(counted: list[tuple[Mapping[str, Any], Mapping[str, Any]]], stop: bool, done: float) -> str:
    """Why to stop or to go on: how many cases stand where, and the farthest with what binds them."""
    routes = Counter(row["route"] for row, _ in counted)
    far = sorted((given for row, given in counted if row["gap"] is not None), key=lambda row: -row["gap"])[:FARTHEST]
    named = "; ".join(
        f"case {row['case']} with {us(row['gap'] * row['floor_us'])} against {us(row['floor_us'])} "
        f"({row['gap']:.3g} times, {MEANS[row['binding_term']]})"
        for row in far
    )
    beaten = ", ".join(f"case {given['case']}" for row, given in counted if row["gap"] is not None and row["gap"] < 1)
    doubt = f" Below its floor: {beaten}; its ceilings need measuring again." if beaten else ""
    if stop:
        return f"Stop: all {len(counted)} scored cases are under {done:g} times their floor. Farthest: {named}.{doubt}"
    stands = ", ".join(f"{routes[name]} {name}" for name in ROUTES if routes[name])
    if not far:
        return f"Continue: no scored case has a gap yet ({stands or 'there are none'}). Race a candidate first."
    binding = Counter(MEANS[given["binding_term"]] for row, given in counted if row["route"] in ("structural", "tune"))
    bound = ", ".join(f"{what} in {count}" for what, count in binding.most_common())
    first = next(FIRST[name] for name in ROUTES if routes[name])
    what = f" What binds: {bound}." if bound else ""
    return f"Continue with {first}: of {len(counted)} scored cases {stands}. Farthest: {named}.{what}{doubt}"


def us(value: float) -> str:
    """Microseconds with three digits or more and the unit."""
    return f"{value:,.0f} µs" if value >= 1000 else f"{value:.1f} µs" if value >= 10 else f"{value:.2f} µs"
