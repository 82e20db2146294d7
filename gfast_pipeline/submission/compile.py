"""From what the archive holds to a portfolio, and from a portfolio to the file of a submission.

Reads candidate files and the holders' payload; runs no candidate and measures nothing. Equal input gives equal bytes.
"""

from __future__ import annotations

import hashlib
import os
import pprint
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gfast_pipeline.bench.messages import Plan
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.contract.workload import CANDIDATE, Source
from gfast_pipeline.ledger import evidence, sessions
from gfast_pipeline.submission.header import header
from gfast_pipeline.submission.merge import Part, merge

TEMPLATES = Path(__file__).parent / "templates"
REFERENCE_ROOTS = {"transformer_layer": ("TransformerLayer",)}
"""What a template needs of its workload's reference."""
SHIP = "ship.toml"
"""Beside a workload's reference: `contract = NAME`, whose submission is the workload's own, tracked in kernels/."""
EVIDENCE = (
    "plan", "candidate_hash", "plan_hash", "since", "official_us", "queued_us", "reference_us", "ratio_to_reference",
    "ratio_low", "ratio_high", "best_peer", "best_peer_us", "ratio_to_best_peer", "sessions",
)  # fmt: skip


class SubmissionError(GfastError):
    """A submission that cannot be compiled."""


@dataclass(frozen=True)
class Cell:
    """The holder of one case: its file, its schedule there, and the evidence (keys of EVIDENCE; µs)."""

    case: int
    source: Source
    schedule: dict[str, Any]
    evidence: dict[str, Any]


@dataclass(frozen=True)
class Portfolio:
    """What one submission is compiled from: the generalist and who holds which case, in `scope`."""

    loaded: Loaded
    generalist: Source
    cells: dict[int, Cell]
    scope: dict[str, Any]

    @property
    def sources(self) -> list[Source]:
        """Every candidate file in it, once, by name."""
        every = {s.sha256: s for s in (self.generalist, *(cell.source for cell in self.cells.values()))}
        return sorted(every.values(), key=lambda source: source.name)


def portfolio(loaded: Loaded, holders: Mapping[str, Any], incumbent: Source) -> Portfolio:
    """The portfolio that the payload of a `holders` entry describes, `incumbent` being the generalist.

    Raises SubmissionError, with the remedy, where the payload is of another contract, where a holder's file is missing
    or not as it was judged, or where no session tells its schedule.
    """
    if holders["contract_hash"] != loaded.hash:
        raise SubmissionError(
            f"{loaded.path}: the holders are those of contract {holders['contract_hash'][:12]}, this is "
            f"{loaded.hash[:12]}. Determine the holders anew under this contract."
        )
    known = {case.id for case in loaded.contract.cases}
    there = {source.sha256: source for source in loaded.workload.candidates()}
    _present(loaded, incumbent.name, incumbent.sha256, there)
    cells = {}
    for row in holders["cases"]:
        if row["case"] not in known or row.get("plan") is None:
            continue
        source = _present(loaded, row["plan"], row["candidate_hash"], there)
        facts = {key: row.get(key) for key in EVIDENCE}
        cells[row["case"]] = Cell(row["case"], source, _schedule(row, source), facts)
    return Portfolio(loaded, there[incumbent.sha256], cells, dict(holders.get("scope") or {}))


def _present(loaded: Loaded, name: str, sha256: str, there: Mapping[str, Source]) -> Source:
    if sha256 in there:
        return there[sha256]
    path = loaded.workload.folder / "candidates" / f"{name}.py"
    now = next((source for source in there.values() if source.name == name), None)
    what = f"it has sha256 {now.sha256[:12]} now" if now else "there is no such file"
    raise SubmissionError(
        f"{path}: judged as {sha256[:12]}, and {what}. Restore the file that was judged (version control, or "
        "the `candidate` entry of the ledger, has it); what was changed belongs in a file with the next number."
    )


def _schedule(row: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """The schedule that was measured on this case, from one of the sessions that the row names."""
    if not source.default_schedule:
        return {}
    for identity in row.get("sessions") or ():
        for record in sessions.load_session(identity).participants:
            if record["plan_hash"] == row["plan_hash"]:
                return dict(record["schedules"].get(str(row["case"]), {}))
    if row.get("since") is None:
        return dict(source.default_schedule)
    raise SubmissionError(
        f"{source.path}: no session of {', '.join(row.get('sessions') or ()) or 'none'} measured plan "
        f"{row['plan_hash'][:12]} on case {row['case']}. Keep the evidence of the session that did, or race it anew."
    )


def path_for(loaded: Loaded) -> Path:
    """Where the contract's submission belongs: beside the workload for the one that ships, else in the warehouse,
    untracked. Raises SubmissionError for a ship.toml that cannot be read."""
    ship = loaded.workload.folder / SHIP
    if ship.is_file():
        try:
            shipped = tomllib.loads(ship.read_text(encoding="utf-8"))["contract"]
        except (tomllib.TOMLDecodeError, KeyError, UnicodeDecodeError) as error:
            raise SubmissionError(f'{ship}: {error!r}. Write one line in it: contract = "NAME".') from None
        if shipped == loaded.name:
            return loaded.workload.folder / "submission.py"
    return evidence.warehouse() / "submissions" / f"{loaded.name}.py"


def digest(made: Portfolio) -> str:
    """sha256 of what the portfolio compiles to."""
    return hashlib.sha256(render(made).encode()).hexdigest()


def unshipped(loaded: Loaded, made: Portfolio) -> Path:
    """Where a submission lies that is measured before anybody ships it; its name follows its content."""
    return evidence.warehouse() / "submissions" / "confirming" / f"{loaded.name}_{digest(made)[:12]}.py"


def compiled(loaded: Loaded) -> list[Path]:
    """Every compiled file of a contract that lies here: the one that ships, and those that were measured before."""
    waiting = sorted((evidence.warehouse() / "submissions" / "confirming").glob(f"{loaded.name}_*.py"))
    return [path for path in (path_for(loaded), *waiting) if path.is_file()]


def render(made: Portfolio) -> str:
    """The text of the submission. Raises MergeError, SubmissionError."""
    loaded = made.loaded
    kind = loaded.contract.workload
    template = TEMPLATES / f"{kind}.py"
    if kind not in REFERENCE_ROOTS or not template.is_file():
        ready = ", ".join(sorted(REFERENCE_ROOTS))
        raise SubmissionError(f"{template}: no template for this workload yet; there are {ready}. Write one.")
    plans = made.sources
    prefixes = [_prefix(source) for source in plans]
    links = dict.fromkeys(REFERENCE_ROOTS[kind], "reference.py")
    public = [
        Part(f"{name}.py", (TEMPLATES / f"{name}.py").read_text(), "", links=links)
        for name in ("dispatch", kind, "official")
    ]
    reference = Part(
        "reference.py", loaded.workload.reference_source, "ref_", roots=REFERENCE_ROOTS[kind],
        title="--- The reference: what is run wherever no plan is, and what a plan gets a copy of",
    )  # fmt: skip
    candidates = [
        Part(source.path.name, source.source, prefix, title=_title(source))
        for source, prefix in zip(plans, prefixes, strict=True)
    ]
    whole = merge([*public, reference, *candidates])
    dispatch, layer, official = whole.bodies[:3]
    linked = {source.name: new for source, new in zip(plans, whole.renamed[4:], strict=True)}
    pieces = [
        header(made),
        whole.imports + "\n",
        "# --- Records, builds and weights\n\n" + dispatch,
        *whole.bodies[3:],
        "# --- What was compiled: the contract, its cases, the plans and who holds which cell\n\n"
        + _tables(made, linked),
        "# --- The model\n\n" + layer,
        "# --- The official flow\n\n" + official,
        'if __name__ == "__main__":\n    raise SystemExit(official())\n',
    ]
    return "\n\n".join(piece.strip("\n") + "\n" for piece in pieces)


def compile_to(loaded: Loaded, made: Portfolio, path: Path) -> tuple[Path, dict[str, Any]]:
    """Write the submission to `path`, whole or not at all. Returns it with the payload of a `submission` entry. A file
    that has these bytes already stays as it is. Raises MergeError, SubmissionError."""
    text = render(made)
    compile(text, path.name, "exec", dont_inherit=True)
    data = text.encode()
    if not (path.is_file() and path.read_bytes() == data):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    rows = [
        {
            "case": cell.case,
            "plan": cell.source.name,
            "candidate_hash": cell.source.sha256,
            "plan_hash": cell.evidence["plan_hash"],
            "sessions": list(cell.evidence["sessions"] or ()),
        }
        for cell in _ordered(made)
    ]
    payload = {
        "workload": loaded.contract.workload,
        "contract_name": loaded.name,
        "contract_hash": loaded.hash,
        "scope": made.scope,
        "path": _shown(loaded, path),
        "sha256": hashlib.sha256(data).hexdigest(),
        "generalist": {"name": made.generalist.name, "candidate_hash": made.generalist.sha256},
        "cases": rows,
    }
    return path, payload


def plan(path: Path, payload: Mapping[str, Any], prove: bool = True) -> Plan:
    """The compiled file as a participant with the role `submission`. Raises SubmissionError where it is missing or was
    edited since: it is compiled, never written by hand."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SubmissionError(f"{path}: cannot be read: {error.strerror}. Compile the submission anew.") from None
    found = hashlib.sha256(data).hexdigest()
    if found != payload["sha256"]:
        raise SubmissionError(
            f"{path}: edited, it was compiled as {payload['sha256'][:12]} and is {found[:12]}. Compile it anew; a "
            "change belongs in a candidate or in the templates."
        )
    return Plan("submission", "submission", data.decode(), found, {}, prove)


def _ordered(made: Portfolio) -> Sequence[Cell]:
    return [made.cells[case] for case in sorted(made.cells)]


def _prefix(source: Source) -> str:
    number = CANDIDATE.fullmatch(source.name)
    return f"v{number[1]}_" if number else f"{source.name}_"


def _title(source: Source) -> str:
    import ast

    doc = ast.get_docstring(ast.parse(source.source)) or source.hypothesis
    return f"--- {source.name}, sha256 {source.sha256[:12]}\n\n{doc}"


def _tables(made: Portfolio, names: Mapping[str, Mapping[str, str]]) -> str:
    contract = made.loaded.contract
    target, gate = contract.target, contract.gate.official
    about = {
        "name": contract.name, "workload": contract.workload, "hash": made.loaded.hash,
        "accelerator": target.accelerator, "matmul_precision": target.matmul_precision, "threads": target.threads,
        "atol": gate.atol, "rtol": gate.rtol, "trials": gate.trials, "seed": gate.seed,
    }  # fmt: skip
    cases = {case.id: {"status": case.status, **case.shape} for case in contract.cases}
    held = {}
    for cell in _ordered(made):
        shape = contract.case(cell.case).shape
        key = tuple(shape[name] for name in ("batch", "length", "d_model", "heads", "layers"))
        held[key] = (cell.case, cell.source.name, cell.schedule)
    rows = {cell.case: cell.evidence for cell in _ordered(made)}
    plans = []
    for source in made.sources:
        new = names[source.name]
        if "build" not in new:
            raise SubmissionError(f"{source.path}: has no build at top level. Restore the file that was judged.")
        call = f'Plan("{source.name}", "{source.sha256}", {new["build"]}, {new.get("supports", "None")})'
        plans.append(f'    "{source.name}": {call},\n')
    said = [
        f"CONTRACT = {_literal(about)}",
        f"CASES = {_literal(cases)}",
        "PLANS = {\n" + "".join(plans) + "}",
        f'GENERALIST = "{made.generalist.name}"',
        "# (batch, length, d_model, heads, layers) → (case, plan, schedule)",
        f"CELLS = {_literal(held)}",
        f"EVIDENCE = {_literal(rows)}",
    ]
    return (
        "\n\n".join(said).replace("layers) → (case, plan, schedule)\n\n", "layers) → (case, plan, schedule)\n") + "\n"
    )


def _literal(value: Any) -> str:
    return pprint.pformat(value, width=118, sort_dicts=False)


def _shown(loaded: Loaded, path: Path) -> str:
    """The path as it is recorded: from the folder that holds the warehouse or kernels/, never of this machine."""
    for root in (evidence.warehouse(), loaded.workload.folder.parent):
        if path.resolve().is_relative_to(root.resolve()):
            return str(Path(root.name) / path.resolve().relative_to(root.resolve()))
    return path.name
