"""The wire format of the bench: what a job asks for and what a session answers. Plain dataclasses to and from JSON.

This is the only module of the bench that the rest of gfast imports. It knows shapes of records and nothing of torch,
contracts or statistics. Times are µs unless a name says otherwise.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

PROTOCOL = 1
"""Raised by hand when a change to the bench could move numbers. Part of every scope."""

KINDS = ("judge", "screen", "decide", "confirm", "peers", "noise", "serial", "ceilings", "probe", "parity")
ROLES = ("reference", "control", "incumbent", "twin", "challenger", "peer", "submission")
TRUSTED = ("reference", "control", "incumbent", "twin")
"""Roles whose failure says that the session, not a candidate, is wrong."""

MODES = ("official", "queued", "cold")
GATES = (
    "policy",  # static reading of the source, before anything runs
    "build",  # build() returned a callable in time
    "call",  # every call returned in time, without a fault
    "output",  # type, dtype, shape, device, completeness, own storage
    "official",  # the official rule against the reference, official draw
    "budget",  # at most 90 % of the allowance against fp64, official draw
    "anchored",  # every other draw, variant and structured input against fp64
    "determinism",  # same input, same output
    "sensitivity",  # input changes, output changes
    "inputs_untouched",  # x, mask and weights as handed out
    "globals_untouched",  # precision flags, grad mode, default dtype, threads
    "timed_output",  # two secret calls of a visit, compared after timing
    "pool_untouched",  # inputs and guards unchanged after the visit
    "clock",  # the candidate's events against the judge's wall
    "physics",  # not below the hard floor
    "serial",  # the chunked oracle of a case too large for several participants
    "canaries",  # known-bad outputs fail and the reference passes, in this very session
)
STATUSES = ("passed", "failed", "skipped", "not_run")


@dataclass
class Plan:
    """One participant: a candidate's source with its schedule per case. `source` None is the reference itself."""

    name: str
    role: str
    source: str | None
    candidate_hash: str
    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)
    prove: bool = False  # run the correctness phase, not only the checks of timed outputs
    cases: list[int] | None = None  # takes part in these only; None: in all

    @property
    def plan_hash(self) -> str:
        return digest({"candidate": self.candidate_hash, "schedules": self.schedules})

    def record(self) -> dict[str, Any]:
        """The plan as a session names its participants: everything but the source."""
        return {
            "name": self.name,
            "role": self.role,
            "candidate_hash": self.candidate_hash,
            "plan_hash": self.plan_hash,
            "schedules": self.schedules,
        }


@dataclass
class Job:
    """All that one session needs, in one JSON document; `contract` is the validated contract as plain values."""

    kind: str
    workload: str
    contract_name: str
    contract_hash: str
    contract: dict[str, Any]
    reference_source: str
    plans: list[Plan]
    cases: list[int]
    generations: int
    blocks: int
    modes: list[str]
    verdicts: list[Verdict] = field(default_factory=list)  # passed before the bench started (static policy)
    cells: list[list[int]] | None = None  # [generation, case] still to measure; None: all of them
    rest_of: str | None = None  # session id whose remainder this is
    seed: int | None = None  # session seed of the permutations and the bootstrap; None: drawn by the judge
    quick: bool = False  # correctness: one official trial of the cheapest case, nothing recorded
    unsafe: bool = False  # run without isolation where none is to be had
    protocol: int = PROTOCOL


@dataclass
class Verdict:
    """The outcome of one gate for (participant, case, draw, variant, trial).

    `share` is the largest part used of the allowance max(0.002, 0.02·|y64|) (for official: of the official rule),
    `reference_share` the same for the reference (u), `limit` what share was held against.
    """

    gate: str
    status: str
    participant: str
    case: int | None = None
    draw: str | None = None
    variant: str | None = None
    trial: int | None = None
    generation: int | None = None
    share: float | None = None
    reference_share: float | None = None
    limit: float | None = None
    reason: str = ""


def ends(kind: str, role: str, verdict: Verdict) -> bool:
    """Whether a failed verdict takes its author out of the whole session, not of its case alone.

    A peer in a session of peers is refused case by case: it stands for a library, and that one is wrong somewhere says
    nothing of its speed elsewhere. One that breaks a rule, does not build, or hangs is out all the same.
    """
    spared = kind == "peers" and role == "peer" and verdict.case is not None
    return not spared or verdict.gate in ("policy", "build", "call")


@dataclass
class Visit:
    """One participant's turn in a pass: `event_us` holds one figure a timed call (CPU: wall µs), None where invalid."""

    participant: str
    case: int
    generation: int
    block: int
    turn: int  # 0 the permutation, 1 its reverse
    position: int
    mode: str
    calls: int  # timed; `untimed` more ran before them
    event_us: list[float] | None
    judge_wall_us: float
    runner_wall_us: float
    handshake_us: float
    spin_us: float = 0.0
    status: str = "ok"  # ok · host_bound
    untimed: int = 2
    host_us: float = 0.0  # a fixed Python loop on the core, the slower of before and after: how fast the host was


@dataclass
class Phase:
    """How long one phase took, for the table of times. Reported, never ranked."""

    phase: str  # startup · build · correctness · oracle · timing · health
    seconds: float
    participant: str | None = None
    case: int | None = None
    generation: int | None = None


@dataclass
class Clock:
    """The card's state beside one block; None where the machine cannot say."""

    case: int | None
    generation: int | None
    block: int | None
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttle_reasons: int | None = None


@dataclass
class Usage:
    """Peak device memory a participant held on a case. Shown, never ranked."""

    participant: str
    case: int
    generation: int
    peak_bytes: int
    energy_j: float | None = None  # of a call; not measured yet


@dataclass
class Session:
    """One run of the judge on one device. `status`: complete · partial · void · failed, with the reason in words."""

    kind: str
    workload: str
    contract_name: str
    contract_hash: str
    job_hash: str
    seed: int
    started: str  # UTC, ISO 8601
    ended: str = ""
    status: str = "complete"
    reason: str = ""
    rest_of: str | None = None
    scope: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)  # before, after
    isolation: str = ""
    participants: list[dict[str, Any]] = field(default_factory=list)  # name, role, candidate_hash, plan_hash, schedules
    cases: list[int] = field(default_factory=list)
    generations: int = 0
    blocks: int = 0
    modes: list[str] = field(default_factory=list)
    cells_done: list[list[int]] = field(default_factory=list)
    cells_missing: list[list[int]] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)  # gates not built or not possible here, each with why
    verdicts: list[Verdict] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)  # ceilings and probes: name → figures
    protocol: int = PROTOCOL


_NESTED = {
    Job: {"plans": Plan, "verdicts": Verdict},
    Session: {"verdicts": Verdict, "visits": Visit, "phases": Phase, "clocks": Clock, "usage": Usage},
}


def measured_modes(role: str, modes: list[str]) -> list[str]:
    """In which of a session's modes a participant of this role is measured.

    Reference and control decide nothing and cost the most: they are measured as the official script would alone.
    """
    return [mode for mode in modes if role not in ("reference", "control") or mode == "official"]


def to_plain(record: Any) -> dict[str, Any]:
    """A record as plain JSON values, in field order."""
    return dataclasses.asdict(record)


def from_plain(kind: type, values: dict[str, Any]) -> Any:
    """The record of `kind` that `values` describe. Raises ValueError naming an unknown or a missing field."""
    known = {f.name for f in dataclasses.fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"{kind.__name__}: unknown field {unknown[0]!r}")
    nested = _NESTED.get(kind, {})
    ready = {
        name: [from_plain(nested[name], item) for item in value] if name in nested else value
        for name, value in values.items()
    }
    try:
        return kind(**ready)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from None


def seal(session: Session) -> bytes:
    """A session as it travels: canonical JSON with the sha256 of itself, so that a cut or an edit is seen."""
    plain = to_plain(session)
    return canonical({"sha256": digest(plain), "session": plain})


def unseal(content: bytes) -> Session:
    """The session of a sealed document. Raises ValueError saying what is wrong with it."""
    try:
        document = json.loads(content)
        plain, claimed = document["session"], document["sha256"]
    except (ValueError, TypeError, KeyError):
        raise ValueError("it is cut short, or no session at all") from None
    if digest(plain) != claimed:
        raise ValueError("its content does not match its seal: it was edited or damaged")
    if plain.get("protocol") != PROTOCOL:
        raise ValueError(f"it speaks protocol {plain.get('protocol')} where this gfast speaks {PROTOCOL}")
    return from_plain(Session, plain)


def canonical(values: Any) -> bytes:
    """Canonical JSON: sorted keys, no blanks, UTF-8. NaN and infinities are refused (ValueError)."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(values: Any) -> str:
    """sha256 (hex) of the canonical JSON of `values`."""
    return hashlib.sha256(canonical(values)).hexdigest()
