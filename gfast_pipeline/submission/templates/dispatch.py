"""The half of a submission that knows no workload: records, the builds it holds, and the weights they were made from.

Read as text by the compiler and never imported.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch  # noqa: TID253

MAX_BUILDS = 16  # captured graphs hold memory
MEMORY_SHARE = 0.25  # of the device, by estimate, for all builds together
CPU_BYTES = 4_000_000_000
COPIES = 12  # activations that one build may hold: its inputs, outputs and a graph's pool

POINTER = torch.Tensor.data_ptr
VERSION: Callable[..., int] = torch.Tensor._version.__get__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Device:
    """What a plan may know of the device; `capability` is None on a CPU."""

    type: str
    name: str
    capability: tuple[int, int] | None


@dataclass(frozen=True)
class Plan:
    """One candidate in this file: `build(reference, case, schedule)`, `supports(case)` or None, its source's sha256."""

    name: str
    sha256: str
    build: Callable[..., Any]
    supports: Callable[..., Any] | None


@dataclass
class Entry:
    """What serves one key: `forward` None is the reference's own path. `why` and `tried` say how it came to that."""

    forward: Callable[..., Any] | None
    plan: str
    why: str
    tried: dict[str, str] = field(default_factory=dict)
    bytes: int = 0


class Weights:
    """The parameters of a module as they were when builds were made from them.

    The addresses cannot come back with other content: the storages are held. Writes through `.data` escape notice.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.tables = [m._parameters for m in module.modules() if m._parameters]
        now = self._parameters()
        self.held = [p.detach() for p in now]
        self.pointers, self.versions = list(map(POINTER, now)), self._versions(now)
        self.copy: Any = None  # what builds get instead of the module itself

    def current(self) -> bool:
        """Whether nothing changed since. About 0.1 µs a parameter."""
        try:
            now = self._parameters()
            return list(map(POINTER, now)) == self.pointers and self._versions(now) == self.versions
        except (TypeError, RuntimeError):  # a parameter was taken away
            return False

    def _parameters(self) -> list[Any]:
        return [p for table in self.tables for p in table.values()]

    @staticmethod
    def _versions(parameters: list[Any]) -> list[int] | None:
        try:
            return list(map(VERSION, parameters))
        except RuntimeError:  # made in inference mode: torch keeps no versions of those
            return None


class Builds:
    """The builds of one module, least recently used first. A copy or a pickle of it is empty."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # captured plans own their input buffers: one call at a time
        self.entries: OrderedDict[Any, Entry] = OrderedDict()
        self.weights: Weights | None = None
        self.masks: OrderedDict[Any, torch.Tensor] = OrderedDict()  # all valid, for calls without a mask
        self.seen: torch.Tensor | None = None  # the mask that was last found to be prefixes

    def __deepcopy__(self, memo: dict[int, Any]) -> "Builds":
        return Builds()

    def __reduce__(self) -> tuple[Any, ...]:
        return Builds, ()

    def clear(self) -> None:
        """Forget everything that was built."""
        self.entries.clear()
        self.masks.clear()
        self.weights = self.seen = None

    def keep(self, key: Any, entry: Entry, device: torch.device) -> None:
        """Hold `entry`; the least recently used go where there are too many, or where they hold too much."""
        self.entries[key] = entry
        self.entries.move_to_end(key)
        most = CPU_BYTES
        if device.type == "cuda":
            most = int(torch.cuda.get_device_properties(device).total_memory * MEMORY_SHARE)
        while len(self.entries) > 1 and (
            len(self.entries) > MAX_BUILDS or sum(e.bytes for e in self.entries.values()) > most
        ):
            self.entries.popitem(last=False)

    def spare(self, device: torch.device) -> bool:
        """After running out of memory: let the builds go. False where there were none."""
        had = bool(self.entries)
        self.entries.clear()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        return had

    def all_valid(self, x: torch.Tensor) -> torch.Tensor:
        """A mask for a call without one: every token valid."""
        key = (x.shape[0], x.shape[1], x.device)
        if key not in self.masks:
            with torch.inference_mode(False):
                self.masks[key] = torch.ones(x.shape[0], x.shape[1], dtype=torch.bool, device=x.device)
            if len(self.masks) > MAX_BUILDS:
                self.masks.popitem(last=False)
        return self.masks[key]


def device_record(device: torch.device) -> Device:
    if device.type == "cuda":
        return Device("cuda", torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device))
    return Device(device.type, device.type, None)


def precision() -> str:
    """The matmul precision in force: a captured graph keeps the one it was captured with."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # set through the newer flags, in a way that the older reader refuses
        return "unreadable"


def stream(device: torch.device) -> int:
    """The current stream: a graph's buffers serve one stream only."""
    return torch.cuda.current_stream(device).stream_id if device.type == "cuda" else 0


def short(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return (f"{type(error).__name__}: {text[0]}" if text else type(error).__name__)[:300]
