"""The ladder of isolation, each rung taken by a real child that then tries what it must not be able to do."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys

import pytest

from gfast_pipeline.bench import isolation
from gfast_pipeline.bench.isolation import FIRST_UID, IsolationError, best_rung
from gfast_pipeline.bench.places import bench_zip
from tests.bench.sessions import ROOT

TRIES = """
import ctypes, errno, json, os, resource, socket, sys
from gfast_pipeline.bench import isolation
isolation.apply(sys.argv[1], int(sys.argv[2]))
libc = ctypes.CDLL(None, use_errno=True)

def attempt(what):
    try:
        what()
        return "allowed"
    except OSError as error:
        return errno.errorcode[error.errno]

def call(*numbers):
    if libc.syscall(*map(ctypes.c_long, numbers)) < 0:
        raise OSError(ctypes.get_errno(), "refused")

def reach():
    with socket.socket() as end:
        end.connect(("127.0.0.1", int(sys.argv[3])))

nobody = (1 << 22) + 1  # above every process id: what no filter stops answers ESRCH and harms nobody
calls = {"x86_64": (101, 310, 311, 438), "aarch64": (117, 270, 271, 438)}[os.uname().machine]
found = {
    "inet": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()),
    "inet6": attempt(lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()),
    "unix": attempt(lambda: [end.close() for end in socket.socketpair()]),
    "connect": attempt(reach),
    "ptrace": attempt(lambda: call(calls[0], 16, nobody, 0, 0)),  # PTRACE_ATTACH
    "readv": attempt(lambda: call(calls[1], nobody, 0, 0, 0, 0, 0)),
    "writev": attempt(lambda: call(calls[2], nobody, 0, 0, 0, 0, 0)),
    "getfd": attempt(lambda: call(calls[3], 0, 0, 0)),
    "signal": attempt(lambda: os.kill(os.getppid(), 0)),
    "io_uring": attempt(lambda: call(425, 1, 0)),
    "uid": os.getuid(),
    "leader": os.getsid(0) == os.getpid(),
    "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    "file": resource.getrlimit(resource.RLIMIT_FSIZE)[0],
}
print(json.dumps(found))
"""
linux = pytest.mark.skipif(platform.machine() not in isolation._CALLS, reason="no filter is known for this machine")


def child(rung: str, port: int = 9) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", TRIES, rung, str(FIRST_UID), str(port)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    if done.returncode and "IsolationError" in done.stderr:
        pytest.skip(f"{rung} is not to be had here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def port():
    """A port of this machine that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@linux
def test_without_a_rung_everything_is_allowed_that_the_rungs_refuse(port):
    found = child("none", port)
    assert (found["inet"], found["unix"], found["connect"]) == ("allowed", "allowed", "allowed")
    assert (found["ptrace"], found["readv"], found["writev"], found["getfd"]) == (
        "ESRCH",
        "allowed",
        "allowed",
        "EBADF",
    )


@linux
def test_the_filter_refuses_network_sockets_and_other_processes(port):
    found = child("seccomp", port)
    refused = ("inet", "inet6", "connect", "ptrace", "readv", "writev", "getfd", "io_uring")
    assert {name: found[name] for name in refused} == dict.fromkeys(refused, "EPERM")
    assert found["unix"] == "allowed"


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of its own takes root")
def test_the_namespace_has_no_way_out_and_a_uid_of_its_own(port):
    found = child("namespace", port)
    assert found["uid"] == FIRST_UID
    assert found["connect"] in ("ENETUNREACH", "ECONNREFUSED", "EADDRNOTAVAIL")
    assert found["signal"] == "EPERM", "the judge is another user's process"


@linux
@pytest.mark.parametrize("rung", ["none", "seccomp"])
def test_every_rung_gives_a_session_no_core_files_and_a_limit_on_files(rung):
    found = child(rung)
    assert found["leader"] is True
    assert found["core"] == 0
    assert 0 < found["file"] <= 4 << 30


def test_an_unknown_rung_is_refused_by_name():
    done = subprocess.run(
        [sys.executable, "-c", TRIES, "cellar", str(FIRST_UID), "9"], capture_output=True, text=True, cwd=ROOT
    )
    assert "unknown rung 'cellar'; there are namespace, seccomp, none" in done.stderr


def test_the_best_rung_is_one_that_a_child_can_really_take(tmp_path):
    rung = best_rung(False, bench_zip(str(tmp_path)))
    assert rung in ("namespace", "seccomp")


def test_none_is_only_given_when_asked_for_and_the_refusal_names_the_remedy(tmp_path):
    broken = tmp_path / "gfast_pipeline" / "__init__.py"  # no child can even import the bench: no rung works
    broken.parent.mkdir()
    broken.write_text("raise OSError('a disk without the bench')")
    with pytest.raises(IsolationError) as caught:
        best_rung(False, str(tmp_path))
    words = str(caught.value)
    assert "--unsafe" in words
    assert words.count("a disk without the bench") == 2, "each rung says why"
    assert best_rung(True, str(tmp_path)) == "none"
