"""The few CUDA runtime calls that torch does not offer: own allocations, IPC handles, a tensor over an address.

An IPC handle opens the whole allocation it belongs to, so what is shared must come from a `cudaMalloc` of its own and
never from torch's caching allocator. Knows nothing of judges and runners.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

_KEPT: dict[int, Any] = {}  # address of a managed tensor → the ctypes objects that must outlive it


class CudaError(RuntimeError):
    """A CUDA runtime call returned something other than success."""


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


@_Deleter
def _keep(_address: int) -> None:
    """The memory belongs to whoever allocated it: dropping the tensor frees nothing."""


@functools.cache
def runtime() -> ctypes.CDLL:
    """The CUDA runtime that torch itself has loaded. Raises CudaError when there is none."""
    torch.cuda.init()
    with open("/proc/self/maps") as maps:
        paths = [line.split()[-1] for line in maps if "libcudart" in line]
    if not paths:
        raise CudaError("torch has loaded no libcudart; a CUDA build of torch is needed for shared device memory")
    return ctypes.CDLL(paths[0])


def _check(code: int, what: str) -> None:
    if code:
        text = runtime().cudaGetErrorString
        text.restype = ctypes.c_char_p
        raise CudaError(f"{what}: {text(code).decode()} (error {code})")


def malloc(nbytes: int) -> int:
    """Address of a fresh device allocation of `nbytes`."""
    address = ctypes.c_void_p()
    _check(runtime().cudaMalloc(ctypes.byref(address), ctypes.c_size_t(nbytes)), f"cudaMalloc of {nbytes} bytes")
    return int(address.value or 0)


def free(address: int) -> None:
    """Give back what `malloc` returned."""
    _check(runtime().cudaFree(ctypes.c_void_p(address)), "cudaFree")


def ipc_handle(address: int) -> str:
    """The IPC handle of an allocation, as hex text."""
    handle = _IpcHandle()
    _check(runtime().cudaIpcGetMemHandle(ctypes.byref(handle), ctypes.c_void_p(address)), "cudaIpcGetMemHandle")
    return bytes(handle).hex()


def ipc_open(handle: str) -> int:
    """Address, in this process, of the allocation behind an IPC handle of another process."""
    address = ctypes.c_void_p()
    value = _IpcHandle.from_buffer_copy(bytes.fromhex(handle))
    _check(runtime().cudaIpcOpenMemHandle(ctypes.byref(address), value, 1), "cudaIpcOpenMemHandle")
    return int(address.value or 0)


def ipc_close(address: int) -> None:
    """Close what `ipc_open` returned."""
    _check(runtime().cudaIpcCloseMemHandle(ctypes.c_void_p(address)), "cudaIpcCloseMemHandle")


def reset_persisting_l2() -> None:
    """Give up every line of L2 set aside by an access-policy window, so that a flush reaches them."""
    _check(runtime().cudaCtxResetPersistingL2Cache(), "cudaCtxResetPersistingL2Cache")


def bytes_at(address: int, nbytes: int, index: int = 0) -> torch.Tensor:
    """A uint8 CUDA tensor of `nbytes` over device memory at `address`; it owns nothing."""
    shape = (ctypes.c_int64 * 1)(nbytes)
    strides = (ctypes.c_int64 * 1)(1)
    managed = _Managed(_Tensor(address, _Device(2, index), 1, _DataType(1, 8, 1), shape, strides, 0), None, _keep)
    _KEPT[ctypes.addressof(managed)] = (managed, shape, strides)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return from_dlpack(new(ctypes.addressof(managed), b"dltensor", None))
