"""The docstring of a compiled submission: for which contract and device it is, and the evidence behind each choice.

Words and a table only; knows nothing of how the file works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gfast_pipeline.submission.compile import Portfolio

COLUMNS = ("case", "batch", "length", "d_model", "heads", "layers", "plan", "µs", "queued µs", "reference µs",
           "÷ reference (95 %)", "best peer µs", "sessions")  # fmt: skip


def header(made: Portfolio) -> str:
    """The docstring in its quotes. Figures are the payload's: median µs of the official mode unless a column says
    otherwise, ratios reference ÷ plan; a dash where nothing was measured."""
    loaded = made.loaded
    contract = loaded.contract
    lines = [
        f"submission: {contract.workload} for contract {contract.name}, compiled from evidence. Never edit it.",
        "",
        f"Contract {contract.name}, hash {loaded.hash}.",
        f"Scope: {_scope(made.scope)}.",
        f"Generalist, for every other shape: {made.generalist.name}, checked against the reference at its first call.",
        "",
        "Needs torch and triton only. `Submission(config)` and `build_model(config)` take the official configuration;",
        "its state_dict is the reference's. `python FILE --official` repeats the official flow on a device.",
        "",
        *_table(made),
        "",
        "µs: median of a call with events around it; queued: device time alone; interval: of the paired ratio.",
    ]
    body = "\n".join(line.rstrip() for line in lines).replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{body}\n"""\n'


def _scope(scope: dict[str, Any]) -> str:
    parts = []
    for name in ("accelerator", "software"):
        values = scope.get(name) or {}
        parts += [f"{key} {value}" for key, value in values.items() if isinstance(value, str | int | float) and value]
    if "protocol" in scope:
        parts.append(f"protocol {scope['protocol']}")
    return ", ".join(parts) or "not recorded"


def _table(made: Portfolio) -> list[str]:
    rows: list[tuple[str, ...]] = [COLUMNS]
    for case in made.loaded.contract.cases:
        sizes = tuple(str(case.shape[name]) for name in COLUMNS[1:6])
        cell = made.cells.get(case.id)
        if cell is None:
            rows.append((str(case.id), *sizes, f"{made.generalist.name} (no holder)", *["–"] * 6))
            continue
        facts = cell.evidence
        peer = f"{_us(facts['best_peer_us'])} {facts['best_peer']}" if facts["best_peer"] else "–"
        figures = [_us(facts[name]) for name in ("official_us", "queued_us", "reference_us")]
        where = " ".join(facts["sessions"] or ()) or "–"
        rows.append((str(case.id), *sizes, cell.source.name, *figures, _ratio(facts), peer, where))
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows]


def _us(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _ratio(facts: dict[str, Any]) -> str:
    if facts["ratio_to_reference"] is None:
        return "–"
    if facts["ratio_low"] is None:
        return f"{facts['ratio_to_reference']:.3f}"
    return f"{facts['ratio_to_reference']:.3f} ({facts['ratio_low']:.3f} – {facts['ratio_high']:.3f})"
