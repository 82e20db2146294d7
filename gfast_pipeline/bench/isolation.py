"""The ladder of isolation a runner climbs down, best rung first, before it imports torch or any candidate.

`namespace`: a network namespace and a uid of its own. `seccomp`: no new privileges and a filter that refuses network
sockets and reaching into other processes; needs no privileges. `none`: only when asked for with --unsafe.
No PID namespace and no address-space limit: CUDA does not start in the first and maps far more than it uses.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
import subprocess
import sys

RUNGS = ("namespace", "seccomp", "none")
FIRST_UID = 61001
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
# system call numbers: ptrace, process_vm_readv, process_vm_writev, pidfd_getfd, io_uring_setup (a ring opens sockets
# without socket()), then socket, and the audit architecture
_CALLS = {
    "x86_64": ((101, 310, 311, 438, 425), 41, 0xC000003E),
    "aarch64": ((117, 270, 271, 438, 425), 198, 0xC00000B7),
}


class IsolationError(RuntimeError):
    """A rung could not be taken."""


def apply(rung: str, uid: int) -> None:
    """Take a rung in this very process; raises IsolationError when the system refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    files = 4 << 30
    resource.setrlimit(resource.RLIMIT_FSIZE, (files if hard < 0 else min(files, hard), hard))
    os.setsid()
    if rung == "namespace":
        if libc.unshare(_CLONE_NEWNET):
            raise IsolationError(f"no network namespace of its own: {os.strerror(ctypes.get_errno())}")
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        except OSError as error:
            raise IsolationError(f"no uid of its own: {error}") from None
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a change of uid clears it
    elif rung == "seccomp":
        _install_filter(libc)
    elif rung != "none":
        raise IsolationError(f"unknown rung {rung!r}; there are {', '.join(RUNGS)}")


def _install_filter(libc: ctypes.CDLL) -> None:
    machine = platform.machine()
    if machine not in _CALLS:
        raise IsolationError(f"no filter is known for {machine}")
    refused, socket_call, architecture = _CALLS[machine]
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    allow, deny = 0x7FFF0000, 0x00050000 | 1  # SECCOMP_RET_ALLOW; SECCOMP_RET_ERRNO with EPERM
    program = [(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, deny), (load, 0, 0, 0)]
    if machine == "x86_64":
        program += [(at_least, 0, 1, 0x40000000), (give, 0, 0, deny)]  # the x32 numbering would walk around the list
    for call in refused:
        program += [(equal, 0, 1, call), (give, 0, 0, deny)]
    # socket(): the first argument is the family; only AF_UNIX (1) and AF_NETLINK (16) stay
    program += [(equal, 0, 4, socket_call), (load, 0, 0, 16), (equal, 2, 0, 1), (equal, 1, 0, 16), (give, 0, 0, deny)]
    program += [(give, 0, 0, allow)]
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    steps = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]

    wanted = Program(len(program), ctypes.addressof(steps))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise IsolationError("new privileges cannot be given up here")
    if libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(wanted), 0, 0):
        raise IsolationError(f"no system call filter: {os.strerror(ctypes.get_errno())}")


def best_rung(unsafe: bool, python_path: str) -> str:
    """The best rung that works here, tried for real in a child that must still be able to read its Python and torch.

    Raises IsolationError when only `none` is left and `unsafe` was not asked for.
    """
    trial = (
        "import sys, importlib.util as u; from gfast_pipeline.bench import isolation as i\n"
        "i.apply(sys.argv[1], i.FIRST_UID)\n"
        "import subprocess as s; where = u.find_spec('torch').origin; open(where).close()\n"
        "s.run([sys.executable, '-c', 'import json, ctypes'], check=True)\n"
    )
    reasons = []
    for rung in RUNGS[:-1]:
        done = subprocess.run(
            [sys.executable, "-c", trial, rung],
            env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": python_path},
            capture_output=True,
            text=True,
            timeout=60,
            cwd="/",
        )
        if done.returncode == 0:
            return rung
        reasons.append(f"{rung}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    if unsafe:
        return "none"
    raise IsolationError(
        "no isolation for candidates is to be had here (" + "; ".join(reasons) + "); "
        "run on Linux, as root or with seccomp, or accept the risk with --unsafe"
    )
