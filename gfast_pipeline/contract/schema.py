"""The contract as records: every field, its type and the range in which it makes sense.

Knows one contract by itself. What spans fields or needs the workload is in `rules`, files and lines in `load`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")
Many = Annotated[tuple[T, ...], Field(strict=False)]  # TOML has lists; a frozen record holds tuples
Some = Annotated[tuple[T, ...], Field(strict=False, min_length=1)]

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\-]+$", max_length=64)]
Dotted = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]
Text = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$")]
Size = Annotated[int, Field(gt=0, lt=2**31)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[float, Field(gt=0)]
Small = Annotated[float, Field(gt=0, lt=0.5)]
Mode = Literal["official", "queued", "cold"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Target(_Record):
    """The accelerator by the name its driver gives it, or "cpu"; how the reference computes on it."""

    accelerator: Text
    device: Literal["cuda", "cpu"]
    dtype: Literal["float32"]
    matmul_precision: Literal["highest", "high", "medium"]
    threads: Annotated[int, Field(ge=1, le=1024)]
    grad_mode: Literal["inference"]


class Case(_Record):
    """One official input shape; `shape` holds the names of the workload's SHAPE."""

    id: Annotated[int, Field(ge=1)]
    status: Literal["scored", "feasibility"]
    regime: Name
    weight: Positive
    shape: dict[str, Size]


class Variant(_Record):
    """One input distribution: randn times `scale`, with the padded share of each sequence."""

    name: Label
    seed: Seed
    scale: Positive
    padding: Annotated[float, Field(ge=0, lt=1)]


class WeightDraw(_Record):
    """One way to draw the weights, and the variants it meets."""

    name: Name
    seed: Seed
    variants: Some[Label]


class OfficialGate(_Record):
    """|err| ≤ atol or ≤ rtol·|ref| against the reference; inputs seeded seed … seed + trials - 1."""

    atol: Positive
    rtol: Annotated[float, Field(gt=0, lt=1)]
    trials: Annotated[int, Field(ge=1, le=1000)]
    seed: Seed


class AnchoredGate(_Record):
    """The factor k of the allowance max(1, k·u) against fp64."""

    factor: Annotated[float, Field(ge=1)]


class BudgetGate(_Record):
    """The share of the allowance against fp64 that a promotion may use on the official draw."""

    share: Annotated[float, Field(gt=0, le=1)]


class Gate(_Record):
    official: OfficialGate
    anchored: AnchoredGate
    budget: BudgetGate


class ModeChoice(_Record):
    """Which timing mode heads the table, which ones promotion weighs, which one the gap divides."""

    headline: Mode
    promotion: Some[Mode]
    gap: Mode


class Screen(_Record):
    generations: Annotated[int, Field(ge=1, le=100)]
    blocks: Annotated[int, Field(ge=2, le=1000)]


class Limits(_Record):
    """Datasheet rates at maximum clock, dense: TFLOP/s by precision, TB/s, MB, 10¹² exponentials a second."""

    compute_tflops: dict[Literal["float32", "tf32", "float16", "bfloat16"], Positive] = {}
    memory_tb_s: Positive | None = None
    l2_mb: Positive | None = None
    exponentials_t_s: Positive | None = None


class Thresholds(_Record):
    """Gap below which a case is done and above which it is structural; lower bound a screen must reach."""

    done: Annotated[float, Field(ge=1)]
    structural: Annotated[float, Field(gt=1)]
    screen_advance: Annotated[float, Field(gt=0, lt=2)]


class Budget(_Record):
    """What one cycle may cost: device minutes, model calls, US dollars."""

    device_minutes: Positive
    model_calls: Annotated[int, Field(ge=0)]
    usd: Annotated[float, Field(ge=0)]


class Prohibited(_Record):
    """What the static policy refuses: modules with all below them, called names, attribute names."""

    imports: Many[Dotted]
    calls: Many[Dotted]
    attributes: Many[Dotted]


class Contract(_Record):
    """One contract. `plain()` is what travels in a job and what the hash is taken of."""

    name: Name
    workload: Name
    purpose: Text
    target: Target
    cases: Some[Case]
    serial_cases: Many[int]
    profiles: dict[Name, Some[int]]
    variants: Some[Variant]
    weight_draws: Some[WeightDraw]
    structured: Many[Name]
    gate: Gate
    mode: ModeChoice
    visit_ms: Annotated[float, Field(gt=0, le=60_000)]
    generations: Annotated[int, Field(ge=2, le=100)]
    blocks: Annotated[int, Field(ge=2, le=1000)]
    margin: Small
    max_noise: Small
    screen: Screen
    ratio_gate: Annotated[float, Field(gt=1, lt=100)]
    limits: Limits
    build_limit_s: Annotated[float, Field(gt=0, le=86_400)]
    call_limit_s: Annotated[float, Field(gt=0, le=86_400)]
    peers: Many[Name]
    publish_sessions: Annotated[int, Field(ge=1, le=100)]
    thresholds: Thresholds
    budget: Budget
    ownership: Literal["output_owned"]
    prohibited: Prohibited

    def plain(self) -> dict[str, Any]:
        """The contract as JSON values, absent limits as null; key names as in the file."""
        return self.model_dump(mode="json")

    def case(self, number: int) -> Case:
        """The case with this id. Raises KeyError."""
        for case in self.cases:
            if case.id == number:
                return case
        raise KeyError(number)

    @property
    def scored(self) -> tuple[Case, ...]:
        """The cases that count, in the file's order."""
        return tuple(case for case in self.cases if case.status == "scored")
