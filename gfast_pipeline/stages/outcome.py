"""What a stage says: a version, a sentence, figures, rows for a table, and checks. Plain values only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from gfast_pipeline.bench.messages import canonical
from gfast_pipeline.contract.errors import GfastError


class Missing(GfastError):
    """Evidence that this machine cannot make: says what would make it. A skip, no failure."""


@dataclass(frozen=True)
class Check:
    """One sentence that is true when `passed`. `warning`: shown, and nothing downstream waits for it."""

    name: str
    passed: bool
    description: str
    warning: bool = False


@dataclass(frozen=True)
class Outcome:
    """The result of a stage. `version` changes exactly when what it says changes: downstream work follows it.

    `status`: done, reused (found in the log, nothing was run), not_needed. `rows` are the table of cases, `facts`
    single figures with their unit in the name, `plots` title → SVG.
    """

    version: str
    summary: str
    status: str = "done"
    sessions: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    plots: dict[str, str] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)


def version_of(*parts: Any) -> str:
    """A short hash of plain values."""
    return hashlib.sha256(canonical(list(parts))).hexdigest()[:16]


def not_needed(why: str, **more: Any) -> Outcome:
    """Nothing to do, and why."""
    return Outcome(version_of("not_needed", why), why, "not_needed", **more)
