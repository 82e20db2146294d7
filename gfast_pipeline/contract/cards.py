"""Cards and their datasheets: which card is at hand, and the rates no honest result on a known card can exceed.

Rates are the makers' dense figures at boost clock, never the sparse ones; exponentials: 16 a clock a multiprocessor.
An unknown card has no rates here, and none are guessed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass

from gfast_pipeline.contract.errors import GfastError

PRECISIONS = ("float32", "tf32", "float16", "bfloat16")


@dataclass(frozen=True)
class Card:
    """The accelerator at hand: its driver's name, multiprocessors (None: not known) and memory in bytes."""

    name: str
    sm_count: int | None
    memory_bytes: int


@dataclass(frozen=True)
class Rates:
    """Dense TFLOP/s by precision, memory in TB/s, L2 in MB, 10¹² exponentials a second. None where not given."""

    float32: float | None = None
    tf32: float | None = None
    float16: float | None = None
    bfloat16: float | None = None
    memory_tb_s: float | None = None
    l2_mb: float | None = None
    exponentials_t_s: float | None = None

    def missing(self) -> list[str]:
        """Names of the figures not given."""
        return [name for name, value in vars(self).items() if value is None]


# GeForce cards do float16 at full rate only with float16 accumulation; as a bound the full rate is the one that holds.
DATASHEETS = {
    "A100-SXM4-40GB": Rates(19.5, 156, 312, 312, 1.555, 40, 2.44),
    "A100-PCIE-40GB": Rates(19.5, 156, 312, 312, 1.555, 40, 2.44),
    "A100-SXM4-80GB": Rates(19.5, 156, 312, 312, 2.039, 40, 2.44),
    "A100 80GB PCIe": Rates(19.5, 156, 312, 312, 1.935, 40, 2.44),
    "H100 80GB HBM3": Rates(66.9, 494.7, 989.4, 989.4, 3.35, 50, 4.2),
    "H100 PCIe": Rates(51.2, 378, 756, 756, 2.039, 50, 3.21),
    "H100 NVL": Rates(60.3, 417.5, 835.5, 835.5, 3.9, 50, 3.78),
    "H200": Rates(66.9, 494.7, 989.4, 989.4, 4.8, 60, 4.2),
    "L40S": Rates(91.6, 183, 362.05, 362.05, 0.864, 96, 5.73),
    "GeForce RTX 4090": Rates(82.6, 82.6, 330.3, 165.2, 1.008, 72, 5.17),
    "GeForce RTX 3090": Rates(35.6, 35.6, 142, 71, 0.936, 6, 2.23),
}


def datasheet(name: str) -> Rates | None:
    """The datasheet of the card that a driver calls `name`; None for an unknown one."""
    bare = _bare(name)
    return next((rates for card, rates in DATASHEETS.items() if _bare(card) == bare), None)


def card_at_hand() -> Card:
    """The first card of this machine, asked of nvidia-smi, else of torch in a process of its own. Raises GfastError."""
    asked = _from_torch()
    smi = _from_nvidia_smi()
    if smi and asked:
        return Card(smi.name, asked.sm_count, smi.memory_bytes)
    found = smi or asked
    if found is None:
        raise GfastError(
            "No card found by nvidia-smi or torch. Run this on the machine that has it, or name it: --accelerator"
        )
    return found


def _bare(name: str) -> str:
    return name.lower().removeprefix("nvidia ").strip()


def _from_nvidia_smi() -> Card | None:
    if shutil.which("nvidia-smi") is None:
        return None
    answer = _output(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"])
    try:
        name, mebibytes = answer.splitlines()[0].rsplit(",", 1)
        return Card(name.strip(), None, int(mebibytes) * 2**20)
    except (IndexError, ValueError):
        return None


def _from_torch() -> Card | None:
    code = (
        "import json, torch; p = torch.cuda.get_device_properties(0); "
        "print(json.dumps([p.name, p.multi_processor_count, p.total_memory]))"
    )
    try:
        name, sm_count, memory = json.loads(_output([sys.executable, "-c", code]))
        return Card(name, sm_count, memory)
    except ValueError:
        return None


def _output(command: list[str]) -> str:
    """What the command prints; nothing when it fails, since either source may be absent."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
