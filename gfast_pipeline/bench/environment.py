"""What machine this is, whether it is quiet, and who holds the device: snapshot, scope, lease, idle and health.

Two snapshots frame a session; the scope is the part of them that must agree before two sessions may be compared.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import sys
import tempfile
import time
from importlib import metadata
from typing import Any

import torch

from gfast_pipeline.bench import nvml, workload
from gfast_pipeline.bench.messages import PROTOCOL

# variables that can change a number without changing a version
_TELLING = ("CUBLAS_", "CUDA_", "CUDNN_", "NVIDIA_", "TORCH_", "TORCHINDUCTOR_", "TRITON_", "OMP_", "MKL_", "PYTORCH_")


class Busy(RuntimeError):
    """Somebody else computes on the device, or holds its lease."""


def uuid(device: torch.device) -> str:
    """The card's UUID as NVML spells it."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def card(device: torch.device) -> nvml.Card | None:
    """NVML's view of a CUDA device; None on a CPU."""
    return nvml.Card(uuid(device)) if device.type == "cuda" else None


def scope(device: torch.device) -> dict[str, Any]:
    """Accelerator and software: nothing is ranked across two of these."""
    software = {
        "torch": torch.__version__,
        "triton": _version("triton"),
        "cuda": torch.version.cuda,
        "driver": None,
    }
    if device.type != "cuda":
        return {
            "protocol": PROTOCOL,
            "accelerator": {
                "name": "cpu",
                "model": _cpu_model(),
                "sms": None,
                "memory_mb": None,
                "power_limit_w": None,
                "mig": None,
            },
            "software": software,
        }
    properties, facts = torch.cuda.get_device_properties(device), nvml.Card(uuid(device)).facts()
    software["driver"] = facts["driver"]
    return {
        "protocol": PROTOCOL,
        "accelerator": {
            "name": properties.name,
            "sms": properties.multi_processor_count,
            "memory_mb": properties.total_memory >> 20,
            "power_limit_w": facts["power_limit_w"],
            "mig": facts["mig"],
        },
        "software": software,
    }


def snapshot(device: torch.device) -> dict[str, Any]:
    """Everything worth knowing beside a number: versions, flags, variables, load, the card's state."""
    seen: dict[str, Any] = {
        "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load": list(os.getloadavg()),
        "flags": workload.flags(),
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(_TELLING)},
        "argv0": os.path.basename(sys.argv[0]),
    }
    if device.type == "cuda":
        reader = nvml.Card(uuid(device))
        seen["card"] = {**reader.facts(), **reader.state(), "uuid": uuid(device), "processes": len(reader.processes())}
        seen["cudnn"] = torch.backends.cudnn.version()
    return seen


def lease(device: torch.device) -> Any:
    """Hold the device: an OS file lock per device, given back when the file is closed. Raises Busy, saying who."""
    name = uuid(device) if device.type == "cuda" else "cpu"
    path = os.path.join(tempfile.gettempdir(), f"gfast-{name}.lease")
    try:
        file = open(path, "a+")  # noqa: SIM115 - closing it is what gives the lease back
    except PermissionError:
        raise Busy(f"{path} belongs to another user; have it removed, or set TMPDIR to a folder of your own") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "another process"
        file.close()
        raise Busy(f"{name} is leased by {holder}; wait for it to end, or end it ({path})") from None
    file.truncate(0)
    file.write(f"pid {os.getpid()} since {time.strftime('%H:%M:%SZ', time.gmtime())}")
    file.flush()
    return file


def foreign_work(device: torch.device) -> str:
    """Who else computes here, in words; empty when nobody does. Called before any runner starts."""
    if device.type == "cuda":
        reader = nvml.Card(uuid(device))
        others = [
            (pid, size) for pid, size in reader.processes() if pid != os.getpid() and size < 1 << 50
        ]  # else unknown
        if others and any(size and size > 1 << 20 for _, size in others):
            return ", ".join(f"process {pid} holds {size >> 20} MiB" for pid, size in others)
        used = torch.cuda.mem_get_info(device)
        busy = reader.utilization()
        if busy and busy > 20 and (used[1] - used[0]) > 8 << 30:
            return f"the card is {busy} % busy and {(used[1] - used[0]) >> 20} MiB of it are taken"
        return ""
    before = _cpu_busy()
    time.sleep(0.5)
    after = _cpu_busy()
    share = (after[0] - before[0]) / max(after[1] - before[1], 1)
    free = (1 - share) * (os.cpu_count() or 1)
    return f"only {free:.1f} of {os.cpu_count()} cores are idle" if free < 1.0 else ""


def healthy(device: torch.device) -> str:
    """After a lost runner: a small product with a known answer, on an idle device. Empty when all is well."""
    try:
        a = torch.ones(256, 256, device=device)
        if float((a @ a).sum()) != 256.0**3:
            return "a product of ones came out wrong"
    except RuntimeError as error:
        return f"the device answers with an error: {str(error).splitlines()[0]}"
    return ""


def _cpu_busy() -> tuple[int, int]:
    try:
        with open("/proc/stat") as stat:
            ticks = [int(value) for value in stat.readline().split()[1:9]]
    except OSError:
        return 0, 1
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def tool(name: str) -> str | None:
    """Where a program lies, or None."""
    return shutil.which(name)
