"""What this device can do at best, measured: copy and L2 bandwidth, GEMM rate by precision, exponentials, launches.

Ceilings route and raise questions; they give no verdicts (limits, from the datasheet, do that). Random data only: zeros
run faster than any real input. Rates in TFLOP/s, TB/s and 10¹²/s; launch costs and L2 round trips in µs. On a CPU with
the contract's threads.
"""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from gfast_pipeline.bench import environment
from gfast_pipeline.bench.messages import Clock, Job, Phase, Session, digest, to_plain
from gfast_pipeline.bench.workload import apply_precision

REPEATS = {"cuda": 9, "cpu": 25}


class Ceilings:
    """Measures the ceilings of the device that the job's contract is for."""

    def __init__(self, job: Job, say: Callable[[str], None], minutes: float | None = None) -> None:
        del minutes  # it takes seconds
        self.job, self.say, self.stop = job, say, False

    def run(self) -> Session:
        """One session of kind `ceilings`: `measured` maps a name to a figure with its unit in the name."""
        job, target = self.job, self.job.contract["target"]
        device = torch.device(target["device"])
        if device.type == "cuda" and not torch.cuda.is_available():
            raise environment.Busy("the contract is for a CUDA device and torch sees none here")
        apply_precision(target)
        torch.set_grad_enabled(False)
        session = Session(
            job.kind,
            job.workload,
            job.contract_name,
            job.contract_hash,
            digest(to_plain(job)),
            job.seed or secrets.randbits(48),
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            scope=environment.scope(device),
        )
        with environment.lease(device):
            busy = environment.foreign_work(device)
            if busy and device.type == "cuda":
                raise environment.Busy(f"the device is busy: {busy}; end that work first")
            if busy:
                self.say(f"the device is busy: {busy}")
            session.environment["before"] = {**environment.snapshot(device), "busy": busy}
            began = time.perf_counter()
            card = environment.card(device)
            for name, measure in (_CUDA if device.type == "cuda" else _CPU).items():
                # Digits, not decimals: a CPU's rates are small.
                session.measured[name] = float(f"{measure(device):.5g}")
                self.say(f"{name} {session.measured[name]:.4g}")
                session.clocks.append(Clock(None, None, None, **(card.state() if card else {})))
            session.phases.append(Phase("timing", round(time.perf_counter() - began, 2)))
            session.environment["after"] = environment.snapshot(device)
        session.ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return session


def seconds(device: torch.device, call: Callable[[], Any], inner: int = 1) -> float:
    """Seconds of `call` ÷ inner over REPEATS, after two warm-ups: on CUDA the median, by events; on a CPU the least, by
    wall, as other work beside can only slow it: in a busy minute the median gave half the rate.
    """
    for _ in range(2):
        call()
    found = []
    for _ in range(REPEATS[device.type]):
        if device.type == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(inner):
                call()
            end.record()
            torch.cuda.synchronize()
            found.append(start.elapsed_time(end) / 1e3 / inner)
        else:
            began = time.perf_counter()
            for _ in range(inner):
                call()
            found.append((time.perf_counter() - began) / inner)
    return statistics.median(found) if device.type == "cuda" else min(found)


def _copy(nbytes: int, inner: int) -> Callable[[torch.device], float]:
    """TB/s, read and written, of `inner` copies in a row. More than one are captured on CUDA: a host takes longer to
    launch a copy than the L2 takes for 12 MiB. One is not: a captured copy of 2 GiB ran at 2.7 instead of 4.2 TB/s."""

    def measure(device: torch.device) -> float:
        source = torch.randn(nbytes // 4, device=device)
        target = torch.empty_like(source)

        def copies() -> None:
            for _ in range(inner):
                target.copy_(source)

        call: Callable[[], Any] = copies
        if device.type == "cuda" and inner > 1:
            copies()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                copies()
            call = graph.replay
        return 2 * nbytes * inner / seconds(device, call) / 1e12

    return measure


def _gemm(size: int, dtype: torch.dtype, precision: str) -> Callable[[torch.device], float]:
    def measure(device: torch.device) -> float:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(precision)
        try:
            a = torch.randn(size, size, device=device).to(dtype)
            b = torch.randn(size, size, device=device).to(dtype)
            return 2 * size**3 / seconds(device, lambda: a @ b, 2) / 1e12
        finally:
            torch.set_float32_matmul_precision(before)

    return measure


def _exponentials(device: torch.device) -> float:
    """Exponentials a second, 10¹²: the slope between 64 and 192 chained ones, where arithmetic alone decides.

    With 4 and 36 the shorter one waits for memory, and the rate comes out a tenth too high.
    """
    if device.type != "cuda":  # in the cache, into memory that is there: arithmetic alone here too
        x = torch.rand(1 << 16)
        y = torch.empty_like(x)
        return x.numel() / seconds(device, lambda: torch.exp(x, out=y), 16) / 1e12
    x = torch.rand(1 << 24, device=device)
    import triton

    from gfast_pipeline.bench.spin import exponential_chain

    def run(count: int) -> float:
        grid = (triton.cdiv(x.numel(), 1024),)
        return seconds(device, lambda: exponential_chain[grid](x, x.numel(), COUNT=count, BLOCK=1024), 4)  # pyright: ignore[reportArgumentType]

    return 128 * x.numel() / (run(192) - run(64)) / 1e12


def _l2_trip(device: torch.device) -> float:
    """µs from one load that L2 answers to the next that needs its answer: the slope between 1,024 and 5,120 of them.

    The least that one phase of a running kernel waits for another's result. One thread follows one random cycle through
    all lines of 8 MiB, past the L1, so that near and far halves of the L2 come as they do.
    """
    from gfast_pipeline.bench.spin import pointer_chase

    line, lines = 32, (8 << 20) // 128  # words, lines of 128 bytes
    order = torch.randperm(lines) * line
    following = torch.zeros(lines * line, dtype=torch.int32)
    following[order] = order.roll(-1).to(torch.int32)
    chain, end = following.to(device), torch.zeros(1, dtype=torch.int32, device=device)
    chain.mul_(1)  # written last by the device: L2 holds it, the copy from the host went past it

    def run(count: int) -> float:
        return seconds(device, lambda: pointer_chase[(1,)](chain, end, COUNT=count, num_warps=1), 2)  # pyright: ignore[reportCallIssue]

    return (run(5120) - run(1024)) / 4096 * 1e6


def _null(queued: bool, nodes: int) -> Callable[[torch.device], float]:
    """µs between two events around a graph of `nodes` tiny kernels (0: nothing at all), idle or behind a spin."""

    def measure(device: torch.device) -> float:
        x = torch.zeros(32, device=device)
        graph = torch.cuda.CUDAGraph()
        if nodes:
            x.add_(1)
            with torch.cuda.graph(graph):
                for _ in range(nodes):
                    x.add_(1)
            graph.replay()
        found = []
        for _ in range(60):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            if queued:
                torch.cuda._sleep(200_000)
            start.record()
            if nodes:
                graph.replay()
            end.record()
            torch.cuda.synchronize()
            found.append(start.elapsed_time(end) * 1e3)
        return statistics.median(found[10:])

    return measure


_F32, _F16, _B16, _F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
_CUDA: dict[str, Callable[[torch.device], float]] = {
    "memory_tb_s": _copy(2 << 30, 1),
    "l2_tb_s": _copy(12 << 20, 50),
    "gemm_float32_tflops": _gemm(8192, _F32, "highest"),
    "gemm_tf32_tflops": _gemm(8192, _F32, "high"),
    "gemm_float16_tflops": _gemm(8192, _F16, "high"),
    "gemm_bfloat16_tflops": _gemm(8192, _B16, "high"),
    "gemm_float64_tflops": _gemm(4096, _F64, "high"),
    "exponentials_t_s": _exponentials,
    "l2_trip_us": _l2_trip,
    "null_official_us": _null(False, 0),
    "null_queued_us": _null(True, 0),
    "graph_1_official_us": _null(False, 1),
    "graph_1_queued_us": _null(True, 1),
    "graph_20_queued_us": _null(True, 20),
}
_CPU: dict[str, Callable[[torch.device], float]] = {
    "memory_tb_s": _copy(256 << 20, 1),
    "gemm_float32_tflops": _gemm(1024, _F32, "highest"),
    "gemm_float64_tflops": _gemm(1024, _F64, "highest"),
    "exponentials_t_s": _exponentials,
}
