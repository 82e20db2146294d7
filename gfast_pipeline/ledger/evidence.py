"""The log as files: append, list, read, verify, keep. One immutable `<utc>-<kind>-<sha12>.json.gz` an event.

Content is canonical JSON {"kind", "utc", "payload"} and, where a run said so, {"origin"}; the name carries the head of
its sha256, so that a file proves itself. Order is the order of names. Knows nothing of what the payloads mean, and
nothing of the database.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import math
import os
import re
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gfast_pipeline.bench.messages import canonical

MAX_BYTES = 1_000_000
"""Most bytes of one file, compressed: kept evidence is tracked by git."""

origin: ContextVar[dict[str, str] | None] = ContextVar("origin", default=None)
"""What appends for the time being, as {"run": id, "asset": key or ""}; None is not recorded, and reads as `ingest`."""

_UTC = "%Y%m%dT%H%M%S.%fZ"
_NAME = re.compile(r"(?P<utc>\d{8}T\d{6}\.\d{6}Z)-(?P<kind>[a-z][a-z0-9_]*)-(?P<sha>[0-9a-f]{12})\.json\.gz")


class EvidenceError(Exception):
    """Evidence that cannot be written or read. Says which file, what is wrong and what to do."""


@dataclass(frozen=True)
class Entry:
    """One event of the log. `id` is the head of the content's sha256; `copies` are all files that hold it."""

    utc: str
    kind: str
    id: str
    path: Path
    copies: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        return self.path.name


@dataclass(frozen=True)
class Proved:
    """A file whose content and name belong together: sha256 (hex) and size (bytes) of its content, and the content."""

    sha256: str
    bytes: int
    content: dict[str, Any]


def warehouse() -> Path:
    """Where everything is written: $GFAST_WAREHOUSE, else `warehouse/` of this repository."""
    chosen = os.environ.get("GFAST_WAREHOUSE")
    return Path(chosen) if chosen else Path(__file__).resolve().parents[2] / "warehouse"


def local_root() -> Path:
    """Evidence of this machine, untracked."""
    return warehouse() / "evidence" / "local"


def kept_root() -> Path:
    """Evidence that is tracked."""
    return warehouse() / "evidence" / "kept"


def roots() -> list[Path]:
    """Both folders, the tracked one first."""
    return [kept_root(), local_root()]


def append(kind: str, payload: dict[str, Any], root: Path | None = None, *, utc: datetime | None = None) -> Entry:
    """Write one event into `root` (by default `local_root()`), durable when this returns.

    The time is now, moved past the last entry of `root`, and for the local one of the tracked ones too, where a clock
    went back, or one elsewhere was ahead: order of names is order of events.
    Raises EvidenceError on a kind that is no name, on NaN or what JSON cannot hold, on a file above MAX_BYTES, and
    where the name is taken: nothing is ever overwritten. What `origin` holds is stored beside the payload.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", kind):
        raise EvidenceError(f"kind {kind!r}: use lower-case letters, digits and underscores")
    folder = local_root() if root is None else root
    folder.mkdir(parents=True, exist_ok=True)
    stamp = _stamp(folder) if utc is None else utc.astimezone(UTC).strftime(_UTC)
    said = origin.get()
    try:
        content = canonical({"kind": kind, "utc": stamp, "payload": payload} | ({"origin": said} if said else {}))
    except (ValueError, TypeError) as error:
        where = _unfit(payload, "payload") or "payload"
        raise EvidenceError(f"{kind}: {where} cannot be stored ({error}); record what failed as null") from None
    # Level and mtime fixed: the same content gives the same bytes. Verification never relies on it, only diffs do.
    data = gzip.compress(content, compresslevel=9, mtime=0)
    if len(data) > MAX_BYTES:
        raise EvidenceError(
            f"{kind}: {len(data):,} bytes compressed, the most is {MAX_BYTES:,}; measure fewer cases or participants "
            "in one session, or lower visit_ms, generations or blocks"
        )
    identity = hashlib.sha256(content).hexdigest()[:12]
    path = folder / f"{stamp}-{kind}-{identity}.json.gz"
    _write_new(path, data)
    return Entry(stamp, kind, identity, path, (path,))


def entries(folders: Sequence[Path] | None = None, kind: str | None = None) -> list[Entry]:
    """All events of `folders` (by default `roots()`) in the order of the log; the same file in two of them is one.

    Contents are not read. Raises EvidenceError on a `.json.gz` whose name is not that of an event.
    """
    copies: dict[str, list[Path]] = {}
    for folder in roots() if folders is None else folders:
        for path in folder.glob("*.json.gz"):
            if not path.name.startswith("."):
                _parsed(path)
                copies.setdefault(path.name, []).append(path)
    found = []
    for name in sorted(copies):
        parts = _parsed(copies[name][0])
        if kind is None or parts["kind"] == kind:
            found.append(Entry(parts["utc"], parts["kind"], parts["sha"], copies[name][0], tuple(copies[name])))
    return found


def read(path: Path) -> dict[str, Any]:
    """The payload of one file, after proving that content and name belong together.

    Raises EvidenceError naming the file and the remedy when it is missing, truncated or edited.
    """
    return content(path)["payload"]


def content(path: Path) -> dict[str, Any]:
    """As `read`, the whole content: kind, utc, payload, and origin where a run appended it."""
    return prove(path).content


def chain(folders: Sequence[Path] | None = None) -> str:
    """sha256 (hex) over the content hashes of all events in order: a function of the set of events alone.

    Every copy of every event is read and proved. Raises EvidenceError at the first that does not hold.
    """
    total = hashlib.sha256()
    for entry in entries(folders):
        total.update({prove(path).sha256 for path in entry.copies}.pop().encode())
    return total.hexdigest()


def find(identity: str, folders: Sequence[Path] | None = None, kind: str | None = None) -> Entry:
    """The one event whose id, or whole name, begins with `identity`. Raises EvidenceError on none or several."""
    found = [
        e for e in entries(folders, kind) if identity and (e.id.startswith(identity) or e.name.startswith(identity))
    ]
    what = kind or "entry"
    if not found:
        raise EvidenceError(f"no {what} begins with {identity!r}; list what there is and copy an id from it")
    if len(found) > 1:
        raise EvidenceError(f"{identity!r} begins several: {', '.join(e.id for e in found[:5])}; give more characters")
    return found[0]


def keep(identity: str) -> Entry:
    """Copy an event from `local_root()` to `kept_root()`, where it is tracked; keeping it again changes nothing.

    The local copy stays: checking out a commit without the tracked one must not lose evidence. Raises EvidenceError.
    """
    entry = find(identity)
    prove(entry.path)
    target = kept_root() / entry.name
    if target not in entry.copies:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_new(target, entry.path.read_bytes())
    return find(entry.name)


def prove(path: Path) -> Proved:
    """One file, read and proved. Raises EvidenceError as `read`."""
    parts = _parsed(path)
    remedy = (
        "evidence is never changed: restore it from version control or the bundle it came with, or delete this copy"
    )
    try:
        raw = gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        raise EvidenceError(f"{path}: no such file; {remedy}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise EvidenceError(f"{path}: damaged or cut short ({error}); {remedy}") from None
    sha = hashlib.sha256(raw).hexdigest()
    if sha[:12] != parts["sha"]:
        raise EvidenceError(
            f"{path}: edited, its content has sha256 {sha[:12]} and its name says {parts['sha']}; {remedy}"
        )
    try:
        content = json.loads(raw)
    except ValueError as error:
        raise EvidenceError(f"{path}: no JSON ({error}); {remedy}") from None
    written = (content.get("utc"), content.get("kind")) if isinstance(content, dict) else (None, None)
    if written != (parts["utc"], parts["kind"]):
        raise EvidenceError(f"{path}: renamed, it was {written[0]}-{written[1]}; give it its name back")
    return Proved(sha, len(raw), content)


def _parsed(path: Path) -> dict[str, str]:
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise EvidenceError(
            f"{path}: no name of evidence (<utc>-<kind>-<sha12>.json.gz); give it its name back or move it elsewhere"
        )
    return match.groupdict()


def _stamp(folder: Path) -> str:
    now = datetime.now(UTC)
    beside = roots() if folder == local_root() else [folder]
    last = max((entry.utc for entry in entries(beside)), default="")
    if now.strftime(_UTC) <= last:
        now = datetime.strptime(last, _UTC) + timedelta(microseconds=1)
    return now.strftime(_UTC)


def _write_new(path: Path, data: bytes) -> None:
    """Write `path` whole or not at all, durable, never over something. Raises EvidenceError where it exists."""
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o444)
            os.fsync(file.fileno())
        # A link fails where the name is taken; a rename would overwrite it.
        os.link(temporary, path)
    except FileExistsError:
        raise EvidenceError(f"{path}: exists already; evidence is never overwritten") from None
    except PermissionError:  # some mounts know no links; the name carries time and content, so nothing else makes it
        if path.exists():
            raise EvidenceError(f"{path}: exists already; evidence is never overwritten") from None
        os.rename(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _unfit(value: Any, place: str) -> str | None:
    """Where in a payload the first value stands that JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{place} = {value}"
    inside: Iterable[tuple[str, Any]] = ()
    if isinstance(value, dict):
        inside = ((f"{place}.{key}", item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        inside = ((f"{place}[{index}]", item) for index, item in enumerate(value))
    elif not isinstance(value, (str, int, float, bool, type(None))):
        return f"{place} of type {type(value).__name__}"
    return next((bad for key, item in inside if (bad := _unfit(item, key))), None)
