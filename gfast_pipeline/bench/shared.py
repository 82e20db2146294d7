"""Memory that judge and runner share: a block of its own, guarded at both ends, passed as a handle in JSON.

On CUDA the block is one `cudaMalloc` opened through CUDA IPC; on the CPU it is a file mapped by both. The judge
allocates and frees; a runner opens and closes. Knows nothing of what the bytes mean.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

import torch

from gfast_pipeline.bench import cudart

GUARD_BYTES = 4096
_PATTERN = 0xA5


class Shared:
    """One shared block: `payload` is a uint8 tensor of `nbytes` between two guards."""

    def __init__(self, whole: torch.Tensor, nbytes: int, description: dict[str, Any], close: Any) -> None:
        self._whole, self.nbytes, self.description, self._close = whole, nbytes, description, close
        self.payload = whole[GUARD_BYTES : GUARD_BYTES + nbytes]

    @classmethod
    def allocate(cls, nbytes: int, device: torch.device, folder: str, uid: int | None = None) -> Shared:
        """A new block on `device`; on the CPU a file in `folder`, handed to `uid` where one is given."""
        size = nbytes + 2 * GUARD_BYTES
        if device.type == "cuda":
            address = cudart.malloc(size)
            whole = cudart.bytes_at(address, size, device.index or 0)
            description = {"kind": "cuda", "handle": cudart.ipc_handle(address), "nbytes": nbytes}
            block = cls(whole, nbytes, description, lambda: cudart.free(address))
        else:
            path = os.path.join(folder, f"block-{os.urandom(8).hex()}")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            os.ftruncate(descriptor, size)
            os.fchmod(descriptor, 0o666)  # the folder keeps strangers out
            whole = _mapped(descriptor, size)
            block = cls(whole, nbytes, {"kind": "file", "path": path, "nbytes": nbytes}, lambda: os.unlink(path))
        block._whole.fill_(_PATTERN)
        return block

    @classmethod
    def open(cls, description: dict[str, Any], device: torch.device) -> Shared:
        """The block that another process described."""
        nbytes = description["nbytes"]
        size = nbytes + 2 * GUARD_BYTES
        if description["kind"] == "cuda":
            address = cudart.ipc_open(description["handle"])
            whole = cudart.bytes_at(address, size, device.index or 0)
            return cls(whole, nbytes, description, lambda: cudart.ipc_close(address))
        whole = _mapped(os.open(description["path"], os.O_RDWR), size)
        return cls(whole, nbytes, description, lambda: None)

    def view(self, dtype: torch.dtype, shape: tuple[int, ...] | list[int], offset: int = 0) -> torch.Tensor:
        """A tensor of `dtype` and `shape` over the payload, `offset` bytes in."""
        count = torch.Size(shape).numel() * dtype.itemsize
        if offset + count > self.nbytes:
            raise ValueError(f"a shared block of {self.nbytes} bytes cannot hold {count} at {offset}")
        return self.payload[offset : offset + count].view(dtype).view(tuple(shape))

    def guards_intact(self) -> bool:
        """Whether nobody wrote outside the payload."""
        ends = torch.cat([self._whole[:GUARD_BYTES], self._whole[GUARD_BYTES + self.nbytes :]])
        return bool((ends == _PATTERN).all())

    def mend(self) -> None:
        """Write the guards anew, so that nobody is blamed for what another did."""
        self._whole[:GUARD_BYTES].fill_(_PATTERN)
        self._whole[GUARD_BYTES + self.nbytes :].fill_(_PATTERN)

    def close(self) -> None:
        """Free (allocator) or unmap (opener). Tensors over the block must not be used afterwards."""
        del self.payload, self._whole
        self._close()


def _mapped(descriptor: int, size: int) -> torch.Tensor:
    try:
        return torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)
    finally:
        os.close(descriptor)


def pack(tensors: dict[str, torch.Tensor]) -> tuple[list[dict[str, Any]], int]:
    """Where each tensor lies in one block (16-byte aligned) and how many bytes the block needs."""
    layout, offset = [], 0
    for name, tensor in tensors.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        layout.append({"name": name, "dtype": dtype, "shape": list(tensor.shape), "offset": offset})
        offset += -(-tensor.numel() * tensor.dtype.itemsize // 16) * 16
    return layout, max(offset, 16)


def unpack(block: Shared, layout: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """The tensors of a `layout` as views over `block`."""
    return {item["name"]: block.view(getattr(torch, item["dtype"]), item["shape"], item["offset"]) for item in layout}
