"""The page of a contract: who holds what, who won and why, how far from the hardware. Regenerated from the log alone.

Reads recorded conclusions; computes none. One self-contained HTML file, plots inline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.ledger import evidence, sessions
from gfast_pipeline.report import plots


def write(loaded: Loaded, scope: Mapping[str, Any] | None) -> tuple[Path, str]:
    """Write `warehouse/reports/<workload>_<contract>.html`: (its path, sha256 of its content)."""
    from jinja2 import Environment

    found = content(loaded, scope)
    text = resources.files("gfast_pipeline.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["us"] = _us
    html = environment.from_string(text).render(**found)
    folder = evidence.warehouse() / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{loaded.workload.name}_{loaded.name}.html"
    part = path.with_suffix(".part")
    part.write_text(html, encoding="utf-8")
    part.replace(path)
    return path, hashlib.sha256(html.encode()).hexdigest()


def content(loaded: Loaded, scope: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the page says, as plain values: the newest holders, gap and route, and every decision, newest first."""
    holders, route = _newest("holders", loaded, scope), _newest("route", loaded, scope)
    gap = _newest("gap", loaded, scope, "holders")
    decisions = [
        {**plain, "id": identity, "utc": utc}
        for identity, utc, plain in reversed(_of(sessions.DECISION, loaded, scope))
    ]
    gaps = {row["case"]: row for row in (gap or {}).get("cases", [])}
    cases = [
        {**row, **{key: gaps.get(row["case"], {}).get(key) for key in ("gap", "binding_term", "floor_us")}}
        for row in (holders or {}).get("cases", [])
    ]
    drawn = (
        {"How far each case is from the hardware": plots.gap_plot(gap)}
        if gap and any(row.get("gap") for row in gap["cases"])
        else {}
    )
    promoted = next((one for one in decisions if one["outcome"] == "promote" and one.get("cases")), None)
    if promoted is not None:
        drawn[f"{promoted['challenger']} against {promoted['incumbent']}"] = plots.ratio_plot(promoted)
    accelerator = ((scope or {}).get("accelerator") or {}).get("name") or loaded.contract.target.accelerator
    software = ", ".join(f"{k} {v}" for k, v in ((scope or {}).get("software") or {}).items() if v)
    return {
        "contract": loaded.name,
        "workload": loaded.workload.name,
        "hash": loaded.hash[:12],
        "purpose": loaded.contract.purpose,
        "headline": loaded.contract.mode.headline,
        "accelerator": accelerator,
        "software": software,
        "route": route,
        "cases": cases,
        "decisions": decisions,
        "plots": drawn,
    }


def _of(kind: str, loaded: Loaded, scope: Mapping[str, Any] | None) -> list[tuple[str, str, dict[str, Any]]]:
    """(id, utc, payload) of entries of a kind under the contract in scope, oldest first."""
    found = [(entry, sessions.payload(entry)) for entry in evidence.entries(None, kind)]
    return [
        (entry.id, entry.utc, plain)
        for entry, plain in found
        if plain["contract_hash"] == loaded.hash and scope is not None and sessions.same_scope(plain["scope"], scope)
    ]


def _newest(kind: str, loaded: Loaded, scope: Mapping[str, Any] | None, of: str | None = None) -> dict[str, Any] | None:
    """The newest conclusion of a kind; of the gaps, that of `of`."""
    found = [plain for _, _, plain in _of(kind, loaded, scope) if of is None or plain.get("of") == of]
    return found[-1] if found else None


def _us(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"
