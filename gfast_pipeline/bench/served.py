"""What a runner does for its judge: load, build, call, visit. The only place where candidate code is called.

For each timed call the next pool entry is copied, untimed and in stream order, into one fixed address; then start
event, forward, end event; the output is kept until the visit is over and only then copied into the judge's slots, so
that an output which shares storage with a later one is thereby wrong.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from typing import Any

import torch

from gfast_pipeline.bench import cudart, workload
from gfast_pipeline.bench.channel import Channel
from gfast_pipeline.bench.gate import output_facts
from gfast_pipeline.bench.quiet import QuietCore
from gfast_pipeline.bench.shared import Shared, unpack


def warm_up(device: torch.device) -> None:
    """Load what every participant needs (context, cuBLAS, the common kernels): seconds once, and not its build's."""
    for dtype in (torch.float32, torch.float16):
        x = torch.ones(64, 64, device=device, dtype=dtype)
        torch.nn.functional.gelu(torch.nn.functional.layer_norm(torch.softmax(x @ x, -1), (64,)))
    torch.cuda.synchronize(device)


class Runner:
    """State of one runner: the loaded candidate, the current build and the shared blocks of the current case."""

    def __init__(self, folder: str, channel: Channel) -> None:
        self.folder, self.channel = folder, channel
        self.blocks: list[Shared] = []
        self.forward: Any = None
        self.model: Any = None
        self.state: dict[str, torch.Tensor] = {}
        self.kept: list[torch.Tensor] = []
        self.flush: torch.Tensor | None = None
        self.core = QuietCore()
        self.settled_us: float | None = None

    def do_load(self, name: str, source: str | None, reference: str, target: dict[str, Any]) -> dict[str, Any]:
        """Import reference and candidate; `source` None: the participant is the reference itself."""
        self.target = target
        self.device = torch.device(target["device"])
        workload.apply_precision(target)
        torch.set_grad_enabled(False)
        if self.device.type == "cuda":
            warm_up(self.device)
        self.reference = workload.load_source("gfast_reference", reference, self.folder)
        self.candidate = None if source is None else workload.load_source(name, source, self.folder)
        if self.candidate is not None and not callable(getattr(self.candidate, "build", None)):
            raise AttributeError(
                f"{name}.py has no build(reference, case, schedule); write one, see kernels/*/README.md"
            )
        self.before = workload.flags()
        return {"ok": True}

    def do_attach(self, inputs: list[dict[str, Any]], **blocks: Any) -> dict[str, Any]:
        """Open the blocks of a case: `x` (inputs at their fixed address), `pool`, `slots`; `inputs` is a layout."""
        self._release()
        self.layout = inputs
        self.opened = {name: Shared.open(value, self.device) for name, value in blocks.items() if value}
        self.blocks = list(self.opened.values())
        self.inputs = list(unpack(self.opened["x"], inputs).values())
        return {"ok": True}

    def do_build(
        self, case: dict[str, Any], weights: dict[str, Any], layout: list[dict[str, Any]], schedule: dict[str, Any]
    ) -> dict[str, Any]:
        """build(reference, case, schedule) on a private copy of the weights; Unavailable is a recorded skip."""
        self.forward, self.kept = None, []
        self._collect()
        record = workload.case_record({"id": case["id"], "shape": case["shape"]}, self.target, self.device)
        supports = getattr(self.candidate, "supports", None)
        if supports is not None and not supports(record):
            return {"ok": False, "skip": True, "error": f"supports({record.id}) says no"}
        block = Shared.open(weights, self.device)
        state = {name: tensor.clone() for name, tensor in unpack(block, layout).items()}
        block.close()
        with torch.device(self.device):  # not "meta": its first use imports seconds of torch
            model = self.reference.make(record).eval()
        model.load_state_dict(state, strict=True)
        self.model, self.state, self.case = model, state, record
        self.shape, self.dtype = tuple(self.reference.output_shape(record)), getattr(torch, record.dtype)
        with torch.inference_mode():
            self.forward = model if self.candidate is None else self.candidate.build(model, record, dict(schedule))
        if not callable(self.forward):
            raise TypeError(
                f"build returned {type(self.forward).__name__}, not a callable forward(x, valid_token_mask)"
            )
        self._synchronize()
        return {"ok": True}

    def do_call(self, slot: int, keep: bool = False, again: int | None = None) -> dict[str, Any]:
        """One call on the inputs at their fixed address; the output goes to `slot`. `keep` holds on to it.

        `again`: copy the kept output once more, into that slot, to see whether it survived this call.
        """
        with torch.inference_mode():
            y = self.forward(*self.inputs)
            wrong = self._facts(y, self.kept)
            if wrong:
                return {"ok": False, "gate": "output", "error": wrong}
            self._slot(slot).copy_(y)
            if again is not None and self.kept:
                self._slot(again).copy_(self.kept[0])
            self.kept = [y] if keep else []
            self._synchronize()
        return {"ok": True}

    def do_timed_call(self, slot: int) -> dict[str, Any]:
        """One call with its own pair of events, for cases too large for a visit; the output goes to `slot`."""
        with torch.inference_mode():
            self._synchronize()
            began = time.perf_counter()
            if self.device.type == "cuda":
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                y = self.forward(*self.inputs)
                end.record()
                torch.cuda.synchronize()
                event_us = start.elapsed_time(end) * 1e3
            else:
                y = self.forward(*self.inputs)
                event_us = (time.perf_counter() - began) * 1e6
            wall_us = (time.perf_counter() - began) * 1e6
            wrong = self._facts(y)
            if wrong:
                return {"ok": False, "gate": "output", "error": wrong}
            self._slot(slot).copy_(y)
            del y
            self._synchronize()
        return {"ok": True, "event_us": round(event_us, 1), "wall_us": round(wall_us, 1)}

    def do_untouched(self) -> dict[str, Any]:
        """Which weights and which global flags differ from what was handed out."""
        with torch.inference_mode():
            now = self.model.state_dict()
            weights = [name for name, value in self.state.items() if not torch.equal(now[name], value)]
        after = workload.flags()
        changed = [f"{k}: {self.before[k]} → {after[k]}" for k in after if after[k] != self.before[k]]
        return {"ok": True, "weights": weights, "flags": changed}

    def do_ping(self) -> dict[str, Any]:
        """A handshake: synchronise and answer."""
        self._synchronize()
        return {"ok": True}

    def do_settle(self) -> dict[str, Any]:
        """Find a quiet core for the visit that follows, before the judge's clock starts."""
        self.settled_us = self.core.settle()
        return {"ok": True}

    def do_visit(
        self, mode: str, calls: int, spin_cycles: int = 0, null: bool = False, untimed: int = 2
    ) -> dict[str, Any]:
        """A turn: `untimed` calls, then `calls` timed ones. Answers when done, and again when outputs are copied."""
        forward = self.forward
        if null:
            ready = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
            forward = lambda *_: ready  # noqa: E731
        settled_us, self.settled_us = self.settled_us, None
        with torch.inference_mode(), self.core.hold(settled_us) as held:
            measured = (self._visit_cuda if self.device.type == "cuda" else self._visit_cpu)(
                forward, mode, calls, spin_cycles, untimed
            )
        with torch.inference_mode():
            kept = measured.pop("kept")
            self.channel.send({"ok": True, "host_us": round(held.us, 1), **measured})
            if null:
                return {"ok": True}
            for index, y in enumerate(kept):
                # that it owns its storage shows in the slots: what a later call overwrote is wrong there
                wrong = output_facts(y, self.shape, self.dtype, self.device)
                if wrong:
                    return {"ok": False, "gate": "output", "error": f"timed call {index}: {wrong}"}
                self._slot(index).copy_(y)
            del kept
            self._synchronize()
        return {"ok": True}

    def do_usage(self) -> dict[str, Any]:
        """Peak device memory since the last question, in bytes."""
        if self.device.type != "cuda":
            return {"ok": True, "peak_bytes": 0}
        peak = torch.cuda.max_memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        return {"ok": True, "peak_bytes": peak}

    def do_drop(self) -> dict[str, Any]:
        """Forget build and blocks; give cached memory back to the device."""
        self.forward = self.model = None
        self.state = {}
        self._release()
        return {"ok": True}

    def _visit_cuda(self, forward: Any, mode: str, calls: int, spin_cycles: int, untimed: int) -> dict[str, Any]:
        fixed, pool = self.opened["x"].payload, self._pool()
        starts = [torch.cuda.Event(enable_timing=True) for _ in range(calls)]
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(calls)]
        for event in (*starts, *ends):
            event.record()  # creates it, so that the first record of a visit costs what the others do
        kept: list[Any] = []
        pending = True
        torch.cuda.synchronize()
        began = time.perf_counter()
        for index in range(untimed):
            fixed.copy_(pool[index])
            forward(*self.inputs)
        if mode == "queued":
            torch.cuda.synchronize()
            torch.cuda._sleep(spin_cycles)
        queued = time.perf_counter()
        for index in range(calls):
            fixed.copy_(pool[untimed + index])
            if mode == "cold":
                self._flush()
            starts[index].record()
            y = forward(*self.inputs)
            ends[index].record()
            kept.append(y)
        enqueued = time.perf_counter()
        if mode == "queued":
            pending = not starts[0].query()
        torch.cuda.synchronize()
        ended = time.perf_counter()
        events = [round(start.elapsed_time(end) * 1e3, 3) for start, end in zip(starts, ends, strict=False)]
        return {
            "events": events,
            "wall_us": (ended - began) * 1e6,
            "enqueue_us": (enqueued - queued) * 1e6,
            "pending": pending,
            "kept": kept,
        }

    def _visit_cpu(self, forward: Any, mode: str, calls: int, spin_cycles: int, untimed: int) -> dict[str, Any]:
        del mode, spin_cycles  # wall time serves every mode on a CPU
        fixed, pool = self.opened["x"].payload, self._pool()
        kept, events = [], []
        began = time.perf_counter_ns()
        for index in range(untimed + calls):
            fixed.copy_(pool[index])
            start = time.perf_counter_ns()
            y = forward(*self.inputs)
            end = time.perf_counter_ns()
            if index >= untimed:
                kept.append(y)
                events.append(round((end - start) / 1e3, 3))
        wall = (time.perf_counter_ns() - began) / 1e3
        return {"events": events, "wall_us": wall, "enqueue_us": wall, "pending": True, "kept": kept}

    def _flush(self) -> None:
        if self.flush is None:
            size = 2 * torch.cuda.get_device_properties(self.device).L2_cache_size
            self.flush = torch.empty(size, dtype=torch.uint8, device=self.device)
        cudart.reset_persisting_l2()
        self.flush.fill_(1)

    def _pool(self) -> torch.Tensor:
        entry = self.opened["x"].nbytes
        return self.opened["pool"].payload.view(-1, entry)

    def _slot(self, index: int) -> torch.Tensor:
        size = torch.Size(self.shape).numel() * self.dtype.itemsize
        return self.opened["slots"].view(self.dtype, self.shape, index * size)

    def _facts(self, y: object, kept: Sequence[torch.Tensor] = ()) -> str:
        return output_facts(y, self.shape, self.dtype, self.device, self.inputs, self.model.state_dict(), kept)

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _collect(self) -> None:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()

    def _release(self) -> None:
        self.kept, self.inputs, self.opened, self.flush = [], [], {}, None
        self._collect()
        for block in self.blocks:
            block.close()
        self.blocks = []
