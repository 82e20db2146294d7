"""Drives a submission as the official script does. Read as text by the compiler, never imported."""

from typing import TYPE_CHECKING, Any

import torch  # noqa: TID253

if TYPE_CHECKING:
    from torch.nn import Module

    from gfast_pipeline.submission.templates.transformer_layer import Submission, build_model

    class TransformerLayer(Module):
        def __init__(self, d_model: int, heads: int, layers: int) -> None: ...

    CONTRACT: dict[str, Any] = {}
    CASES: dict[int, dict[str, Any]] = {}
    EVIDENCE: dict[int, dict[str, Any]] = {}

QUEUED_CALLS = 8  # an eager plan's operations have to fit in the device's queue
QUEUED_ROUNDS = 12
FEASIBLE_CALLS = 3


def official(arguments: list[str] | None = None) -> int:
    """`--official [--cases 1,2] [--json]`: the official flow on the device at hand, a line a case. Returns the exit
    code: 0, or 2 where a case is beyond the tolerance."""
    import argparse
    import json

    parser = argparse.ArgumentParser(description=f"Submission for {CONTRACT['workload']}, {CONTRACT['name']}.")
    parser.add_argument("--official", action="store_true", help="accuracy and timing as the official script has them")
    parser.add_argument("--cases", default=",".join(str(case) for case in CASES), help="comma-separated case numbers")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=100, help="timed calls a round")
    parser.add_argument("--rounds", type=int, default=3, help="of alternating order")
    parser.add_argument("--trials", type=int, default=CONTRACT["trials"], help="accuracy seeds")
    asked = parser.parse_args(arguments)
    if not asked.official:
        parser.print_help()
        return 0
    numbers = [int(part) for part in asked.cases.split(",") if part.strip().isdigit()]
    unknown = [number for number in numbers if number not in CASES]
    if unknown or not numbers or min(asked.repeats, asked.rounds, asked.trials) < 1:
        known = ", ".join(str(case) for case in CASES)
        parser.error(f"--cases {asked.cases}: this submission knows {known}; repeats, rounds and trials are at least 1")
    device = torch.device(asked.device)
    torch.set_float32_matmul_precision(CONTRACT["matmul_precision"])
    torch.backends.cudnn.allow_tf32 = CONTRACT["matmul_precision"] != "highest"
    if device.type == "cpu":
        torch.set_num_threads(CONTRACT["threads"])
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    precision = f"float32, matmul precision {CONTRACT['matmul_precision']}"
    rows = []
    if not asked.json:
        protocol = f"{asked.trials} seeds, {asked.warmup} warm-up, {asked.rounds} × {asked.repeats} calls, alternating"
        print(f"{CONTRACT['workload']}, {CONTRACT['name']} on {name}, torch {torch.__version__}; {precision}")
        print(f"{protocol}; medians in µs; recorded: what the evidence of {CONTRACT['accelerator']} says")
        if name != CONTRACT["accelerator"]:
            print(f"this is {name}: the recorded figures are of another device and compare with nothing here")
        print(_line("case", "accuracy", "reference", "submission", "speed-up", "queued", "recorded", "queued", "plan"))
    for number in numbers:
        row = _case(number, device, asked)
        rows.append(row)
        if not asked.json:
            reason = row["reason"]
            shown = [_us(row[key]) for key in ("reference_us", "submission_us")]
            ratio = f"{row['ratio']:.2f}×" if row["ratio"] else "–"
            recorded = [_us(row[key]) for key in ("queued_us", "recorded_official_us", "recorded_queued_us")]
            text = row["plan"] + (f" ({reason})" if reason else "")
            print(_line(str(number), row["accuracy"], *shown, ratio, *recorded, text), flush=True)
    if asked.json:
        print(json.dumps({"contract": CONTRACT, "device": name, "torch": torch.__version__, "cases": rows}))
    return 2 if any(row["accuracy"] == "FAIL" for row in rows) else 0


def _case(number: int, device: torch.device, asked: Any) -> dict[str, Any]:
    """One case as the official script runs it; µs."""
    import gc
    import statistics
    from types import SimpleNamespace

    case, evidence = CASES[number], EVIDENCE.get(number, {})
    row: dict[str, Any] = {"case": number, "accuracy": "–", "worst": None, "reference_us": None, "submission_us": None}
    row |= {"ratio": None, "queued_us": None, "plan": "–", "why": "", "reason": ""}
    row |= {f"recorded_{key}": evidence.get(key) for key in ("official_us", "queued_us")}
    feasible = case["status"] != "scored"
    if feasible and device.type != "cuda":
        return row | {"reason": "skipped: the reference cannot run this case, and on a CPU nothing else can"}
    config = SimpleNamespace(
        batch_size=case["batch"], seq_len=case["length"], d_model=case["d_model"], num_heads=case["heads"],
        ffn_dim=case["d_model"], num_layers=case["layers"], causal=True,
    )  # fmt: skip
    torch.manual_seed(CONTRACT["seed"])
    reference = TransformerLayer(case["d_model"], case["heads"], case["layers"])
    model: Submission = build_model(config)
    model.load_state_dict(reference.state_dict(), strict=True)
    reference, model = reference.to(device).eval(), model.to(device).eval()
    with torch.inference_mode():
        if feasible:
            x, mask = _draw(case, CONTRACT["seed"] + 100_000, device)
            times = _times(model, x, mask, FEASIBLE_CALLS + 1, device)[1:]
            row |= {"submission_us": statistics.median(times), "reason": "reference cannot run it: submission only"}
        else:
            worst, right = 0.0, True
            for trial in range(asked.trials):
                x, mask = _draw(case, CONTRACT["seed"] + trial, device)
                want, got = reference(x, mask), model(x, mask)
                off = (got - want).abs()
                fine = (off <= CONTRACT["atol"]) | (off <= CONTRACT["rtol"] * want.abs())
                right &= bool((fine & got.isfinite() & want.isfinite()).all())
                worst = max(worst, off.max().item())
                del want, got, off, fine
            row |= {"accuracy": "pass" if right else "FAIL", "worst": worst}
            x, mask = _draw(case, CONTRACT["seed"] + 100_000, device)
            for module in (reference, model):
                _times(module, x, mask, asked.warmup, device)
            samples: dict[Any, list[float]] = {reference: [], model: []}
            for turn in range(asked.rounds):
                for module in (reference, model) if turn % 2 == 0 else (model, reference):
                    samples[module] += _times(module, x, mask, asked.repeats, device)
            us = [statistics.median(samples[module]) for module in (reference, model)]
            row |= {"reference_us": us[0], "submission_us": us[1], "ratio": us[0] / us[1]}
            if device.type == "cuda":
                row["queued_us"] = _queued(model, x, mask)
    choice = next(iter(model.choices()), {"plan": "reference", "why": "", "tried": {}})
    row |= {"plan": choice["plan"], "why": choice["why"]}
    if choice["tried"]:
        row["reason"] = "; ".join(filter(None, [row["reason"], *(f"{k}: {v}" for k, v in choice["tried"].items())]))
    del reference, model, x, mask
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return row


def _draw(case: dict[str, Any], seed: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(case["batch"], case["length"], case["d_model"], generator=generator, device=device)
    return x, torch.ones(case["batch"], case["length"], dtype=torch.bool, device=device)


def _times(module: Any, x: torch.Tensor, mask: torch.Tensor, calls: int, device: torch.device) -> list[float]:
    """µs of each call: events around it on the current stream, nothing waited for in between; on a CPU wall time."""
    import time

    if device.type != "cuda":
        found = []
        for _ in range(calls):
            began = time.perf_counter_ns()
            module(x, mask)
            found.append((time.perf_counter_ns() - began) / 1e3)
        return found
    starts = [torch.cuda.Event(enable_timing=True) for _ in range(calls)]
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(calls)]
    torch.cuda.synchronize(device)
    for start, end in zip(starts, ends, strict=True):
        start.record()
        module(x, mask)
        end.record()
    torch.cuda.synchronize(device)
    return [start.elapsed_time(end) * 1e3 for start, end in zip(starts, ends, strict=True)]


def _queued(module: Any, x: torch.Tensor, mask: torch.Tensor) -> float | None:
    """Median device µs of a call that the host has queued in time: behind a spin of twice what queueing takes. None
    where the device ran dry all the same."""
    import statistics
    import time

    found: list[float] = []
    enqueue_s = 0.0
    for turn in range(QUEUED_ROUNDS + 1):
        starts = [torch.cuda.Event(enable_timing=True) for _ in range(QUEUED_CALLS)]
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(QUEUED_CALLS)]
        for event in (*starts, *ends):
            event.record()
        torch.cuda.synchronize()
        if turn:
            torch.cuda._sleep(int(2 * enqueue_s * 2e9) + 200_000)  # cycles, at about 2 GHz
        began = time.perf_counter()
        for start, end in zip(starts, ends, strict=True):
            start.record()
            module(x, mask)
            end.record()
        enqueue_s = max(enqueue_s, time.perf_counter() - began) if turn != 1 else time.perf_counter() - began
        pending = not starts[0].query()
        torch.cuda.synchronize()
        if turn and pending:
            found += [start.elapsed_time(end) * 1e3 for start, end in zip(starts, ends, strict=True)]
    return statistics.median(found) if found else None


def _us(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _line(*cells: str) -> str:
    widths = (5, 9, 12, 12, 9, 12, 12, 12)
    return " ".join([f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=False)] + [f" {cells[-1]}"])
