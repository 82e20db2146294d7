"""The card's state through NVML by ctypes: cheap enough to read beside every block. Reads only, never sets.

Every reading is None where the library or the reading is missing. Knows nothing of torch.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


class Card:
    """One card by its UUID (`GPU-…`), as torch names it."""

    def __init__(self, uuid: str) -> None:
        self._handle = ctypes.c_void_p()
        self._nvml = _library()
        if self._nvml is not None and self._nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self._handle)):
            self._nvml = None

    def _number(self, call: str, *arguments: Any, kind: type = ctypes.c_uint) -> int | None:
        if self._nvml is None:
            return None
        value = kind()
        failed = getattr(self._nvml, call)(self._handle, *arguments, ctypes.byref(value))
        return None if failed else value.value

    def state(self) -> dict[str, Any]:
        """Clocks (MHz), temperature (°C), power (W) and throttle reasons (bits), now."""
        power = self._number("nvmlDeviceGetPowerUsage")
        return {
            "sm_mhz": self._number("nvmlDeviceGetClockInfo", 1),
            "memory_mhz": self._number("nvmlDeviceGetClockInfo", 2),
            "temperature_c": self._number("nvmlDeviceGetTemperature", 0),
            "power_w": None if power is None else power / 1000,
            "throttle_reasons": self._number("nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong),
        }

    def facts(self) -> dict[str, Any]:
        """Power limit (W), maximum clocks (MHz), MIG mode, driver."""
        limit = self._number("nvmlDeviceGetEnforcedPowerLimit")
        driver = ctypes.create_string_buffer(96)
        known = self._nvml is not None and self._nvml.nvmlSystemGetDriverVersion(driver, 96) == 0
        mig, pending = ctypes.c_uint(), ctypes.c_uint()
        no_mig = self._nvml is None or self._nvml.nvmlDeviceGetMigMode(
            self._handle, ctypes.byref(mig), ctypes.byref(pending)
        )
        return {
            "power_limit_w": None if limit is None else limit / 1000,
            "max_sm_mhz": self._number("nvmlDeviceGetMaxClockInfo", 1),
            "max_memory_mhz": self._number("nvmlDeviceGetMaxClockInfo", 2),
            "mig": None if no_mig else bool(mig.value),
            "driver": driver.value.decode() if known else None,
        }

    def utilization(self) -> int | None:
        """Share of the last sampling period with a kernel running, per cent."""
        if self._nvml is None:
            return None
        rates = _Utilization()
        return None if self._nvml.nvmlDeviceGetUtilizationRates(self._handle, ctypes.byref(rates)) else rates.gpu

    def processes(self) -> list[tuple[int, int]]:
        """(pid, bytes) of every process that computes on the card, as far as the driver says."""
        if self._nvml is None:
            return []
        count = ctypes.c_uint(64)
        found = (_Process * 64)()
        if self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(self._handle, ctypes.byref(count), found):
            return []
        return [(found[i].pid, found[i].bytes) for i in range(count.value)]
