"""The bay of one case: its shared blocks, its weights, its inputs and what they should give.

The judge lays inputs in, hands the blocks to runners, and computes expected values only when it is asked to compare.
Knows nothing of gates' verdicts, statistics or processes.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

import torch

from gfast_pipeline.bench import workload
from gfast_pipeline.bench.oracles import Oracle
from gfast_pipeline.bench.shared import Shared, pack, unpack

MOST_CALLS = 50
MOST_UNTIMED = 10
_POOL_BYTES = {"cuda": 4 << 30, "cpu": 1 << 30}
# elements of an output compared after a timed call, in whole sequences drawn in secret each time
_SAMPLE_ELEMENTS = {"cuda": 1 << 21, "cpu": 1 << 15}


class Bay:
    """Shared memory and oracles of one case. `slots` outputs can be kept at once beside the pool."""

    def __init__(
        self,
        module: Any,
        row: dict[str, Any],
        contract: dict[str, Any],
        device: torch.device,
        folder: str,
        provers: int,
        timed: bool,
    ) -> None:
        self.module, self.row, self.device, self.folder = module, row, device, folder
        self.case = workload.case_record(row, contract["target"], device)
        self.shape = tuple(module.output_shape(self.case))
        self.dtype = getattr(torch, contract["target"]["dtype"])
        self.output_bytes = torch.Size(self.shape).numel() * self.dtype.itemsize
        example = self._draw(0, 1.0, 0.0)
        self.layout, entry = pack({str(i): tensor for i, tensor in enumerate(example)})
        largest = max(entry, self.output_bytes)
        self.most_calls = max(2, min(MOST_CALLS, _POOL_BYTES[device.type] // largest - 2)) if timed else 0
        self.most_untimed = max(2, min(MOST_UNTIMED, self.most_calls))
        self.entries = self.most_calls + self.most_untimed if timed else 0
        entries = self.entries
        self.x = self._block(entry)
        self.inputs = list(unpack(self.x, self.layout).values())
        self.pool = self._block(entry * entries) if timed else None
        self.shadow = torch.empty(entry * entries, dtype=torch.uint8, device=device)
        self.slots = self._block(self.output_bytes * max(self.most_calls, 3 * provers, 1))
        self.used = entries  # of the pool, once calibration knows
        self.weights: Shared | None = None
        self.weight_layout: list[dict[str, Any]] = []
        self.oracle: Oracle | None = None
        self.oracle_seconds = 0.0

    def blocks(self) -> dict[str, Any]:
        """What a runner needs to attach to this bay."""
        pool = None if self.pool is None else self.pool.description
        return {
            "inputs": self.layout,
            "x": self.x.description,
            "slots": self.slots.description,
            "pool": pool,
        }

    def draw_weights(self, draw: str, seed: int) -> None:
        """Lay the weights of a draw into shared memory and make the oracle for them."""
        state = self.module.draw_weights(self.case, draw, seed)
        self.weight_layout, size = pack(state)
        if self.weights is None or self.weights.nbytes < size:
            if self.weights is not None:
                self.weights.close()
            self.weights = self._block(size)
        for name, view in unpack(self.weights, self.weight_layout).items():
            view.copy_(state[name])
        began = time.perf_counter()
        self.oracle = None
        self.oracle = Oracle(self.module, self.case, state, self.device)
        self.oracle_seconds += time.perf_counter() - began

    def draw_official_weights(self, contract: dict[str, Any]) -> None:
        """`draw_weights` of the official draw, with the contract's seed: what is timed."""
        official = next(draw for draw in contract["weight_draws"] if draw["name"] == "official")
        self.draw_weights("official", official["seed"])

    def lay(self, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Put inputs at their fixed address; returns the judge's private copy."""
        for view, tensor in zip(self.inputs, tensors, strict=False):
            view.copy_(tensor)
        self.synchronize()  # a runner's stream knows nothing of ours
        return tensors

    def random(self, seed: int, scale: float, padding: float) -> tuple[torch.Tensor, ...]:
        """Inputs of a variant, laid in."""
        return self.lay(self._draw(seed, scale, padding))

    def structured(self, name: str, seed: int) -> tuple[torch.Tensor, ...]:
        """Structured inputs, laid in."""
        return self.lay(tuple(self.module.structured_inputs(self.case, name, seed, self.device)))

    def intact(self, private: tuple[torch.Tensor, ...]) -> bool:
        """Whether the inputs at their fixed address, and the guards, are as they were laid."""
        same = all(torch.equal(view, tensor) for view, tensor in zip(self.inputs, private, strict=False))
        return same and self.x.guards_intact() and self.slots.guards_intact()

    def slot(self, index: int) -> torch.Tensor:
        """Output slot `index`."""
        return self.slots.view(self.dtype, self.shape, index * self.output_bytes)

    def poison(self, count: int) -> None:
        """Fill the first `count` slots with NaN, so that what was not written is seen."""
        self.slots.view(self.dtype, (count, *self.shape)).fill_(float("nan"))
        self.synchronize()

    def refill(self) -> None:
        """New secret values in the whole pool, and a private copy of them; nobody ever sees a value twice."""
        assert self.pool is not None
        for index in range(self.used):
            drawn = self._draw(secrets.randbits(62), 1.0, 0.0)
            for view, tensor in zip(self._entry(self.pool.payload, index), drawn, strict=False):
                view.copy_(tensor)
        self.shadow.copy_(self.pool.payload)
        self.synchronize()

    def pool_untouched(self, entries: int) -> bool:
        """Whether pool, guards and the fixed inputs are what the judge wrote."""
        assert self.pool is not None
        used = entries * self.x.nbytes
        last = self.shadow[used - self.x.nbytes : used]
        return (
            torch.equal(self.pool.payload[:used], self.shadow[:used])
            and torch.equal(self.x.payload, last)
            and all(block.guards_intact() for block in (self.pool, self.x, self.slots))
        )

    def mend(self) -> None:
        """Guards and pool as they were, after somebody wrote where he should not."""
        if self.pool is not None:
            self.pool.payload.copy_(self.shadow)
        for block in (self.x, self.pool, self.slots):
            if block is not None:
                block.mend()
        self.synchronize()

    def secret_rows(self, calls: int, untimed: int) -> tuple[list[int], torch.Tensor, tuple[torch.Tensor, ...]]:
        """Two timed calls drawn in secret, the sequences to compare, and their inputs, from the private copy."""
        drawn = sorted(secrets.SystemRandom().sample(range(calls), min(2, calls)))
        batch = self.shape[0]
        per_row = torch.Size(self.shape[1:]).numel()
        count = max(1, min(batch, _SAMPLE_ELEMENTS[self.device.type] // per_row))
        rows = torch.tensor(sorted(secrets.SystemRandom().sample(range(batch), count)), device=self.device)
        entries = [self._entry(self.shadow, call + untimed) for call in drawn]
        inputs = tuple(torch.cat([entry[i][rows] for entry in entries]) for i in range(len(self.inputs)))
        return drawn, rows, inputs

    def expected(self, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """float64 outputs for `inputs`; the time it takes is kept in `oracle_seconds`."""
        assert self.oracle is not None
        began = time.perf_counter()
        y64 = self.oracle.y64(inputs)
        self.synchronize()
        self.oracle_seconds += time.perf_counter() - began
        return y64

    def reference(self, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """The reference's own output at the contract's precision."""
        assert self.oracle is not None
        began = time.perf_counter()
        y = self.oracle.reference(inputs)
        self.synchronize()
        self.oracle_seconds += time.perf_counter() - began
        return y

    def synchronize(self) -> None:
        """Wait for the judge's own work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def close(self) -> None:
        """Free everything."""
        self.oracle, self.inputs, self.shadow = None, [], torch.empty(0)
        for block in (self.x, self.pool, self.slots, self.weights):
            if block is not None:
                block.close()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _draw(self, seed: int, scale: float, padding: float) -> tuple[torch.Tensor, ...]:
        return tuple(self.module.draw_inputs(self.case, seed, scale, padding, self.device))

    def _entry(self, memory: torch.Tensor, index: int) -> list[torch.Tensor]:
        entry = memory[index * self.x.nbytes : (index + 1) * self.x.nbytes]
        views = []
        for item in self.layout:
            dtype = getattr(torch, item["dtype"])
            size = torch.Size(item["shape"]).numel() * dtype.itemsize
            views.append(entry[item["offset"] : item["offset"] + size].view(dtype).view(item["shape"]))
        return views

    def _block(self, nbytes: int) -> Shared:
        return Shared.allocate(nbytes, self.device, self.folder)
