"""A job sealed into one Python file, carried to a machine with torch alone, and its sealed session taken in again.

Knows the wire format, the contract and the files under kernels/. Runs nothing here and appends nothing to the log.
A seal finds damage and slips of the hand; it is a checksum, no signature, and proves nothing about who measured.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from gfast_pipeline.bench import messages
from gfast_pipeline.bench.messages import Job, Session, Visit, canonical, digest, to_plain, unseal
from gfast_pipeline.contract import approval
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import Loaded, load
from gfast_pipeline.execution.bundle_head import HEADER
from gfast_pipeline.ledger.evidence import warehouse
from gfast_pipeline.ledger.sessions import settled

LINE = 118  # characters of base64 a line
WRITTEN = "name what `python BUNDLE run` wrote"
AGAIN = "carry it over again byte for byte from where it was measured, or run the bundle again"
ANEW = "make a new bundle here with `gfast bundle create` and run that one"
_STATUSES = ("complete", "partial", "void", "failed")


class BundleError(GfastError):
    """A bundle that cannot be written, or a result that cannot be taken in."""


def create(job: Job, path: Path) -> Path:
    """Write `job` with all of the bench as one executable Python file; equal jobs give equal bytes. Returns its path.

    `path` is a new file, or a folder, in which the file is called `gfast-KIND-JOBHASH.py`. Raises BundleError where
    another file lies already, or the folder does not take it.
    """
    content = canonical(to_plain(job))
    packed = base64.b64encode(_archive(content))
    lines = [b"#|" + packed[start : start + LINE] for start in range(0, len(packed), LINE)]
    sealed = HEADER.encode() + b"\n".join(lines)
    whole = sealed + b"\n# sha256 " + hashlib.sha256(sealed).hexdigest().encode() + b"\n"
    if path.is_dir():
        path = path / f"gfast-{job.kind}-{hashlib.sha256(content).hexdigest()[:12]}.py"
    part = path.with_name(path.name + ".part")
    try:
        if path.exists() and path.read_bytes() != whole:
            raise BundleError(f"{path}: another file lies there; name a new one, or remove it first")
        part.write_bytes(whole)
        part.chmod(0o755)
        os.replace(part, path)
    except OSError as error:
        raise BundleError(f"{path}: cannot be written: {error.strerror}; name a file in a folder of yours") from None
    return path


def _archive(job: bytes) -> bytes:
    """The zip of a bundle: always the same bytes for the same files and job."""
    bench = Path(messages.__file__).parent
    files = {"gfast_pipeline/__init__.py": (bench.parent / "__init__.py").read_bytes()}
    files |= {f"gfast_pipeline/bench/{path.name}": path.read_bytes() for path in sorted(bench.glob("*.py"))}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in {**files, "job.json": job}.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, 0o644 << 16, 3
            archive.writestr(entry, content)
    return buffer.getvalue()


def ingest(
    result: Path | bytes, resolve: Callable[[str], Loaded] = load, name: str = "the result"
) -> tuple[Session, list[str]]:
    """A sealed session from elsewhere, proved to be whole and of the contract here, with what is worth saying of it.

    `result` is the file (gzip or plain), or its content, then called `name`. `resolve` gives the contract of
    `workload/name`. The list says, a sentence each with its remedy, what keeps evidence from being used: candidates
    that are no files here, a partial or a void session. Raises BundleError for everything that makes it no evidence:
    damage, another protocol, another or an unapproved contract, visits or cells that are not as the session says.
    """
    if isinstance(result, Path):
        name = str(result)
        try:
            result = result.read_bytes()
        except OSError as error:
            raise BundleError(f"{name}: cannot be read: {error.strerror}; {WRITTEN}") from None
    session = _opened(result, name)
    try:
        loaded = _contract(session, resolve, name)
        if fault := next(_faults(session, loaded), None):
            raise BundleError(f"{name}: {fault}; {AGAIN}")
        problems = [f"{name}: {problem}" for problem in _problems(session, loaded)]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise BundleError(f"{name}: not as this gfast writes a session ({error}); {ANEW}") from None
    return session, problems


def _opened(content: bytes, name: str) -> Session:
    try:
        return unseal(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    except (OSError, EOFError, zlib.error):
        raise BundleError(f"{name}: it is damaged or cut short; {AGAIN}") from None
    except ValueError as error:
        raise BundleError(f"{name}: {error}; {ANEW if 'protocol' in str(error) else AGAIN}") from None
    except (TypeError, AttributeError, RecursionError):
        raise BundleError(f"{name}: it is no session; {WRITTEN}") from None


def _contract(session: Session, resolve: Callable[[str], Loaded], name: str) -> Loaded:
    """The contract here that the session was measured under, with the same hash, and approved."""
    called = f"{session.workload}/{session.contract_name}"
    try:
        loaded = resolve(called)
        if loaded.hash != session.contract_hash:
            raise BundleError(
                f"{name}: contract_hash: it was measured under {session.contract_hash[:12]} of {called}, which is "
                f"{loaded.hash[:12]} here; check that contract out as it was, or {ANEW}"
            )
        approval.check(loaded)
    except BundleError:
        raise
    except GfastError as error:
        raise BundleError(f"{name}: contract {called}: {error}") from None
    return loaded


def _faults(session: Session, loaded: Loaded) -> Iterator[str]:
    """Everything in which a session contradicts itself or its contract, each with its place."""
    if session.kind not in messages.KINDS:
        yield f"kind: {session.kind!r} is none of {', '.join(messages.KINDS)}"
    if session.status not in _STATUSES:
        yield f"status: {session.status!r} is none of {', '.join(_STATUSES)}"
    if strange := set(session.cases) - {case.id for case in loaded.contract.cases}:
        yield f"cases: {min(strange)} is no case of the contract"
    for index, record in enumerate(session.participants):
        if record["role"] not in messages.ROLES:
            yield f"participants[{index}].role: {record['role']!r} is none of {', '.join(messages.ROLES)}"
        if record["plan_hash"] != digest({"candidate": record["candidate_hash"], "schedules": record["schedules"]}):
            yield f"participants[{index}].plan_hash: it is not that of {record['name']}'s source and schedules"
    yield from _cell_faults(session)
    yield from _visit_faults(session)
    yield from _holes(session)


def _cell_faults(session: Session) -> Iterator[str]:
    done, missing = _cells(session.cells_done), _cells(session.cells_missing)
    for place, cells in (("cells_done", done), ("cells_missing", missing)):
        if len(set(cells)) < len(cells):
            yield f"{place}: a cell stands there twice"
    if both := set(done) & set(missing):
        yield f"cells_missing: {_cell(min(both))} is measured and missing at once"
    generations = 1 if session.kind == "judge" else session.generations  # one process proves a plan
    grid = {(g, c) for g in range(generations) for c in session.cases}
    if beyond := (set(done) | set(missing)) - grid:
        yield f"cells_done: the session has no {_cell(min(beyond))}"
    if session.rest_of is None and (lost := grid - set(done) - set(missing)):
        yield f"cells_done: {_cell(min(lost))} is neither measured nor missing"
    if session.status == "partial" and not missing:
        yield "status: it is partial and no cell is missing"


def _visit_faults(session: Session) -> Iterator[str]:
    names, done, seen = {record["name"] for record in session.participants}, set(_cells(session.cells_done)), set()
    for index, visit in enumerate(session.visits):
        place = f"visits[{index}] ({visit.participant}, {_cell((visit.generation, visit.case))}, {visit.mode})"
        key = (visit.participant, visit.case, visit.generation, visit.mode, visit.block, visit.turn)
        if visit.participant not in names or visit.mode not in session.modes:
            yield f"{place}: the session has no such participant or mode"
        if (visit.generation, visit.case) not in done:
            yield f"{place}: this cell is not among cells_done"
        if visit.block not in range(session.blocks) or visit.turn not in range(_turns(session)):
            yield f"{place}: block {visit.block} turn {visit.turn} is beyond {session.blocks} × {_turns(session)}"
        if key in seen:
            yield f"{place}: block {visit.block} turn {visit.turn} stands there twice"
        seen.add(key)
        if fault := _time_fault(visit):
            yield f"{place}: {fault}"


def _time_fault(visit: Visit) -> str | None:
    if visit.status == "host_bound":
        return None if visit.event_us is None else "event_us: a host-bound visit has no times"
    if visit.status != "ok":
        return f"status: {visit.status!r} is neither ok nor host_bound"
    times = visit.event_us or []
    if visit.calls != len(times) or not times:
        return f"event_us: {len(times)} times for {visit.calls} calls"
    strange = [us for us in times if isinstance(us, bool) or not math.isfinite(us) or us <= 0]
    return f"event_us: {strange[0]!r} µs is no time" if strange else None


def _holes(session: Session) -> Iterator[str]:
    """Visits of measured cells that are not there, but for those who fell or declined and peers that sat a case out."""
    if not _measures(session):
        return
    present: dict[tuple[str, int, int], set[tuple[str, int, int]]] = {}
    for visit in session.visits:
        cell = present.setdefault((visit.participant, visit.generation, visit.case), set())
        cell.add((visit.mode, visit.block, visit.turn))
    places = [(block, turn) for block in range(session.blocks) for turn in range(_turns(session))]
    roles = {record["name"]: record["role"] for record in session.participants}
    failed = [verdict for verdict in session.verdicts if verdict.status == "failed"]
    fallen = {v.participant for v in failed if messages.ends(session.kind, roles.get(v.participant, ""), v)}
    # a skipped clock or physics gate could not tell; every other skip means that the participant declined
    declined = {
        (verdict.participant, verdict.case)
        for verdict in session.verdicts
        if verdict.status == "skipped" and verdict.gate not in ("clock", "physics")
    }
    sat_out = declined | {(verdict.participant, verdict.case) for verdict in failed}
    peers = [name for name, role in roles.items() if role == "peer"]
    for generation, case in _cells(session.cells_done):
        if session.kind == "peers" and all((name, case) in sat_out for name in peers):
            continue  # nobody to measure reference and v000 beside
        for name, role in roles.items():
            found = present.get((name, generation, case), set())
            excused = name in fallen or (name, case) in sat_out or (name, None) in declined
            if excused or (role == "peer" and not found):
                continue
            modes = messages.measured_modes(role, session.modes)
            wanted = [(mode, *place) for mode in modes for place in places]
            lost = [place for place in wanted if place not in found]
            if lost:
                mode, block, turn = lost[0]
                yield (
                    f"visits: {name}, {_cell((generation, case))} lacks {len(lost)} of {len(wanted)} visits, "
                    f"first {mode} block {block} turn {turn}"
                )


def _problems(session: Session, loaded: Loaded) -> Iterator[str]:
    folder = loaded.workload.folder
    paths = [*folder.glob("candidates/*.py"), *folder.glob("peers/*.py"), folder / "submission.py"]
    paths += [*warehouse().glob(f"submissions/{loaded.name}.py"), *warehouse().glob("submissions/confirming/*.py")]
    here = {hashlib.sha256(path.read_bytes()).hexdigest(): path.stem for path in paths if path.is_file()}
    for record in session.participants:
        name, source = record["name"], record["candidate_hash"]
        if record["role"] != "reference" and source not in here:
            how = f"{name}.py has changed since" if name in here.values() else f"there is no file of {name} here"
            yield f"participants: {how} (sha256 {source[:12]} was measured); restore it, or measure the new one anew"
    if session.status in ("void", "failed"):
        yield f"it is {session.status}: {session.reason}; it is kept and decides nothing; run the bundle again"
    elif session.cells_missing and not settled(session):
        count, first = len(session.cells_missing), _cell(min(_cells(session.cells_missing)))
        yield (
            f"it is partial: {count} cells are missing, first {first}; measure the rest: "
            f"gfast bundle create --rest SESSION --contract {session.contract_name} FILE"
        )


def _measures(session: Session) -> bool:
    return session.kind not in ("judge", "ceilings")


def _turns(session: Session) -> int:
    return 1 if session.kind == "serial" else 2


def _cells(cells: list[list[int]]) -> list[tuple[int, int]]:
    return [(generation, case) for generation, case in cells]


def _cell(cell: tuple[int, int]) -> str:
    return f"generation {cell[0]} case {cell[1]}"
