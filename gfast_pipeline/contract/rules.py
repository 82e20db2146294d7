"""What a contract must satisfy beyond single fields: ids that exist, names the workload has, numbers that agree.

Each rule yields where it is broken, what is wrong and the remedy. Knows no files; `load` adds the lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gfast_pipeline.contract.schema import Contract, Limits

Breach = tuple[tuple[str | int, ...], str, str]
"""Path in the contract, what is wrong, what to do."""


def breaches(contract: Contract, literals: dict[str, Any]) -> Iterator[Breach]:
    """Every broken rule. `literals`: SHAPE, DIVISORS, WEIGHT_DRAWS, STRUCTURED of the workload's reference."""
    yield from _cases(contract)
    yield from _shapes(contract, literals["SHAPE"], literals["DIVISORS"])
    yield from _draws(contract, literals["WEIGHT_DRAWS"], literals["STRUCTURED"])
    yield from _numbers(contract)
    yield from _target(contract)


def _cases(contract: Contract) -> Iterator[Breach]:
    yield from _repeated((("cases", i, "id"), case.id) for i, case in enumerate(contract.cases))
    if not contract.scored:
        yield ("cases",), "no case is scored", 'Set status = "scored" for at least one case.'
    status = {case.id: case.status for case in contract.cases}
    for i, number in enumerate(contract.serial_cases):
        at = ("serial_cases", i)
        if number not in status:
            yield at, f"there is no case {number}", _known(status)
        elif status[number] == "scored":
            message = f"case {number} is scored, and a serial case is never raced against another participant"
            yield at, message, 'Make it status = "feasibility" or take it out of serial_cases.'
    yield from _repeated((("serial_cases", i), number) for i, number in enumerate(contract.serial_cases))
    if "neutral" not in contract.profiles:
        yield (
            ("profiles",),
            "there is no profile 'neutral'",
            "Add neutral = [...]: the screen that guards against bias.",
        )
    for name, numbers in contract.profiles.items():
        yield from _repeated((("profiles", name, i), number) for i, number in enumerate(numbers))
        for i, number in enumerate(numbers):
            at = ("profiles", name, i)
            if number not in status:
                yield at, f"there is no case {number}", _known(status)
            elif status[number] != "scored":
                yield at, f"case {number} is not scored", "A profile screens scored cases; take it out."


def _shapes(contract: Contract, shape: tuple[str, ...], divisors: dict[str, str]) -> Iterator[Breach]:
    for i, case in enumerate(contract.cases):
        at = ("cases", i, "shape")
        for key in sorted(set(case.shape) - set(shape)):
            yield (*at, key), f"unknown key {key!r}", f"A shape of this workload has {', '.join(shape)}."
        for key in shape:
            if key not in case.shape:
                yield at, f"{key!r} is missing", f"A shape of this workload has {', '.join(shape)}."
        for whole, part in divisors.items():
            if whole in case.shape and part in case.shape and case.shape[whole] % case.shape[part]:
                message = f"{whole} {case.shape[whole]} is not a multiple of {part} {case.shape[part]}"
                yield (*at, whole), message, f"Choose {part} that divides {whole}."


def _draws(contract: Contract, draws: tuple[str, ...], structured: tuple[str, ...]) -> Iterator[Breach]:
    variants = {variant.name: variant for variant in contract.variants}
    yield from _repeated((("variants", i, "name"), variant.name) for i, variant in enumerate(contract.variants))
    yield from _repeated((("weight_draws", i, "name"), draw.name) for i, draw in enumerate(contract.weight_draws))
    for i, draw in enumerate(contract.weight_draws):
        at = ("weight_draws", i)
        if draw.name not in draws:
            yield (*at, "name"), f"the reference draws no weights {draw.name!r}", _known(draws)
        yield from _repeated(((*at, "variants", j), name) for j, name in enumerate(draw.variants))
        for j, name in enumerate(draw.variants):
            if name not in variants:
                yield (*at, "variants", j), f"there is no variant {name!r}", _known(variants)
    official = next((draw for draw in contract.weight_draws if draw.name == "official"), None)
    if official is None:
        yield ("weight_draws",), "the draw 'official' is missing", "Add it: the official gate stands on it."
    elif not any(_plain(variants[name]) for name in official.variants if name in variants):
        message = "the official draw meets no plain variant"
        yield ("weight_draws",), message, "Give it one with scale = 1.0 and padding = 0.0: the official gate needs it."
    for i, name in enumerate(contract.structured):
        if name not in structured:
            yield ("structured", i), f"the reference has no structured input {name!r}", _known(structured)
    yield from _repeated((("structured", i), name) for i, name in enumerate(contract.structured))


def _plain(variant: Any) -> bool:
    return variant.scale == 1.0 and variant.padding == 0.0


def _numbers(contract: Contract) -> Iterator[Breach]:
    if contract.margin > contract.max_noise:
        message = f"margin {contract.margin:g} is above max_noise {contract.max_noise:g}: every session would be void"
        yield ("margin",), message, "Lower margin or raise max_noise."
    if contract.thresholds.structural <= contract.thresholds.done:
        message = f"structural {contract.thresholds.structural:g} is not above done {contract.thresholds.done:g}"
        yield ("thresholds", "structural"), message, "Raise it: between the two lies what tuning can close."
    if contract.mode.headline not in contract.mode.promotion:
        message = f"the headline mode {contract.mode.headline!r} is not among the promotion modes"
        yield ("mode", "promotion"), message, "Add it: what heads the table must decide."
    yield from _repeated((("mode", "promotion", i), mode) for i, mode in enumerate(contract.mode.promotion))
    yield from _repeated((("peers", i), name) for i, name in enumerate(contract.peers))


def _target(contract: Contract) -> Iterator[Breach]:
    target, limits = contract.target, contract.limits
    if (target.device == "cpu") != (target.accelerator == "cpu"):
        message = f"accelerator {target.accelerator!r} does not go with device {target.device!r}"
        yield (
            ("target", "accelerator"),
            message,
            'Both are "cpu", or device is "cuda" and accelerator the card\'s name.',
        )
    if target.device == "cpu" and limits == Limits():
        return  # the physics gate is not run; with limits in part it could not be
    for key in ("float32", "tf32", "float16", "bfloat16"):
        if key not in limits.compute_tflops:
            yield ("limits", "compute_tflops"), f"{key!r} is missing", "Give its dense datasheet rate in TFLOP/s."
    for key, unit in (("memory_tb_s", "TB/s"), ("l2_mb", "MB"), ("exponentials_t_s", "10^12/s")):
        if getattr(limits, key) is None:
            yield (
                ("limits",),
                f"{key!r} is missing",
                f"Give the datasheet's figure in {unit}: results beyond it are refused.",
            )


def _repeated(items: Iterable[tuple[tuple[str | int, ...], Any]]) -> Iterator[Breach]:
    seen: set[Any] = set()
    for path, value in items:
        if value in seen:
            yield path, f"{value!r} stands here a second time", "Keep one of them."
        seen.add(value)


def _known(names: Iterable[Any]) -> str:
    return f"There are {', '.join(map(str, names))}."
