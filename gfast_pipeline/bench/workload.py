"""From source text to a live module, and from a contract's row to the frozen `case` record that everybody gets.

Used by the judge for the reference and by the runner for reference and candidate alike. Knows nothing of processes.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from typing import Any

import torch


class Device:
    """What a candidate may know of the device: `type`, `name`, `capability` (major, minor) or None on a CPU."""

    __slots__ = ("capability", "name", "type")

    def __init__(self, type: str, name: str, capability: tuple[int, int] | None) -> None:
        for field, value in (("type", type), ("name", name), ("capability", capability)):
            object.__setattr__(self, field, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a device record is frozen")

    def __repr__(self) -> str:
        return f"Device({self.type!r}, {self.name!r}, {self.capability!r})"


class Case:
    """One official shape as candidates see it: `id`, the workload's sizes by name, dtype, matmul_precision, device.

    Frozen and hashable; equal when all its values are.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a case record is frozen")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a case has no {name!r}; it has {', '.join(sorted(self.__dict__))}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return "Case(" + ", ".join(f"{name}={value!r}" for name, value in sorted(self.__dict__.items())) + ")"


def device_record(device: torch.device) -> Device:
    """The record of a torch device."""
    if device.type == "cuda":
        return Device("cuda", torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device))
    return Device(device.type, device.type, None)


def case_record(row: dict[str, Any], target: dict[str, Any], device: torch.device) -> Case:
    """The record of one row of `contract.cases` under `contract.target`."""
    return Case(
        {
            "id": row["id"],
            **row["shape"],
            "dtype": target["dtype"],
            "matmul_precision": target["matmul_precision"],
            "device": device_record(device),
        }
    )


def load_source(name: str, source: str, folder: str) -> types.ModuleType:
    """Write `source` to `folder/name.py` (Triton and inspect read files) and import it under `name`.

    Raises whatever the module's top level raises, SyntaxError included.
    """
    path = os.path.join(folder, f"{name}.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def apply_precision(target: dict[str, Any]) -> None:
    """Set matmul precision, TF32 flags and CPU threads as the contract says, the same for judge and runner."""
    torch.set_float32_matmul_precision(target["matmul_precision"])
    torch.backends.cudnn.allow_tf32 = target["matmul_precision"] != "highest"
    if target["device"] == "cpu":
        torch.set_num_threads(int(target.get("threads") or 1))


def flags() -> dict[str, Any]:
    """The global switches that a candidate must leave alone. A switch that cannot be read is a value too."""
    readers = {
        "matmul_precision": torch.get_float32_matmul_precision,
        "matmul_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
        "cudnn_tf32": lambda: torch.backends.cudnn.allow_tf32,
        "fp16_reduction": lambda: str(torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction),
        "grad": torch.is_grad_enabled,
        "dtype": lambda: str(torch.get_default_dtype()),
        "threads": torch.get_num_threads,
        "deterministic": torch.are_deterministic_algorithms_enabled,
    }
    seen = {}
    for name, read in readers.items():
        try:
            seen[name] = read()
        except RuntimeError as error:
            seen[name] = f"unreadable: {str(error).splitlines()[0]}"
    return seen
