"""The command line's part for the record: sql, ledger, evidence. Prints; what is right is decided in `ledger`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.ledger import database, evidence, export, index, query, snapshot, verify
from gfast_pipeline.ledger.evidence import EvidenceError

ledger_app = typer.Typer(no_args_is_help=True, help="The index of the evidence: verify, rebuild, take in.")
evidence_app = typer.Typer(no_args_is_help=True, help="The evidence itself: immutable files.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
SHOWN_ROWS = 200
"""Most rows of a table on a terminal; files get all."""


def register(app: typer.Typer) -> None:
    """Add `sql`, `ledger` and `evidence` to an app."""
    app.command()(sql)
    app.add_typer(ledger_app, name="ledger")
    app.add_typer(evidence_app, name="evidence")


@contextmanager
def refusals() -> Iterator[None]:
    """One message on standard error and exit code 1 for anything that was refused."""
    try:
        yield
    except (GfastError, EvidenceError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def sql(
    what: Annotated[str | None, typer.Argument(metavar="NAME|STATEMENT", help="A named query, or one SELECT.")] = None,
    param: Annotated[list[str] | None, typer.Option("--param", "-p", help="KEY=VALUE; may be repeated.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write CSV here.")] = None,
    parquet: Annotated[Path | None, typer.Option("--parquet", help="Write Parquet here.")] = None,
    limit_s: Annotated[float, typer.Option("--limit-s", min=0.1, help="Seconds it may take.")] = query.LIMIT_S,
    as_json: AsJson = False,
) -> None:
    """Ask the evidence: a named query or any read-only statement; without an argument, what there is."""
    with refusals():
        if what is None:
            _list_queries(as_json)
            return
        result = query.ask(what, _parameters(param or []), limit_s=limit_s)
        for path, write in ((csv, export.to_csv), (parquet, export.to_parquet)):
            if path is not None:
                write(result, path)
                if not as_json:
                    typer.echo(f"{len(result.rows)} rows: {path}")
    if as_json:
        typer.echo(export.to_json(result))
    elif csv is None and parquet is None:
        _print(result)


def _list_queries(as_json: bool) -> None:
    known = query.queries()
    if as_json:
        typer.echo(json.dumps([{"name": one.name, "answers": one.answers} for one in known.values()], indent=2))
        return
    table = Table("query", "what it answers")
    for one in known.values():
        table.add_row(escape(one.name), escape(one.answers))
    Console().print(table)


def _parameters(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given:
        key, mark, value = one.partition("=")
        if not mark or not key:
            raise GfastError(f"--param {one}: write KEY=VALUE")
        found[key] = value
    return found


def _print(result: query.Result) -> None:
    numeric = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "HUGEINT")
    table = Table(
        *(
            Column(escape(name), justify="right" if any(word in kind for word in numeric) else "left", overflow="fold")
            for name, kind in zip(result.columns, result.types, strict=True)
        )
    )
    for row in result.rows[:SHOWN_ROWS]:
        table.add_row(*(escape(_cell(value)) for value in row))
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 240)  # piped: nobody's window is that of the pipe
    console.print(table)
    if len(result.rows) > SHOWN_ROWS:
        console.print(f"{SHOWN_ROWS} of {len(result.rows)} rows; all of them: --csv FILE or --json")
    elif not result.rows:
        console.print("no rows")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}" if abs(value) < 1000 else f"{value:,.1f}"
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_cell, value))
    return str(value)


@ledger_app.command("verify")
def verify_command(
    recompute: Annotated[bool, typer.Option("--recompute", help="Compute every decision again, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Holds the ledger against the evidence files, and those against themselves; exit code 1 on any fault."""
    with refusals():
        told = _taken_in()
        found = verify.verify(_recompute() if recompute else None)
        count = len(evidence.entries()) if not found else 0
    if as_json:
        problems = [{"what": one.what, "remedy": one.remedy} for one in found]
        typer.echo(json.dumps({"entries": count, "problems": problems}, ensure_ascii=False, indent=2))
    elif not found:
        how = " and every decision comes out again" if recompute else ""
        typer.echo(f"{told}{count} entries, chain {evidence.chain()[:12]}: the ledger says what the files say{how}.")
    else:
        for one in found:
            typer.echo(str(one), err=True)
    if found:
        raise typer.Exit(1)


def _taken_in() -> str:
    try:
        taken = index.sync(thorough=False)
    except database.Held:
        raise
    except (GfastError, EvidenceError):
        return ""  # verifying says the same, and more
    return f"took in {taken}; " if taken else ""


def _recompute() -> Callable[[str], list[str]]:
    from gfast_pipeline import decisions

    return decisions.recompute_decision


@ledger_app.command("rebuild")
def rebuild_command(as_json: AsJson = False) -> None:
    """Makes the ledger anew from the evidence and shows it in Dagster; an old one that holds more is set aside."""
    from gfast_pipeline.defs import publish

    with refusals():
        count = index.rebuild()
        shown = publish.everything()
    text = f"{database.path()}: {count} entries; {shown} results are new to Dagster"
    _say(as_json, {"entries": count, "path": str(database.path()), "shown": shown}, text)


@ledger_app.command("sync")
def sync_command(as_json: AsJson = False) -> None:
    """Takes in evidence files that the ledger lacks (after a pull, say), and shows them in Dagster."""
    from gfast_pipeline.defs import publish

    with refusals():
        count = index.sync(thorough=True)
        shown = publish.everything()
    _say(as_json, {"taken_in": count, "shown": shown}, f"took in {count} entries; {shown} results are new to Dagster")


@ledger_app.command("path")
def path_command(as_json: AsJson = False) -> None:
    """Where the ledger is, and the snapshot that others may read at any time."""
    paths = {
        "ledger": str(database.path()),
        "snapshot": str(snapshot.path()),
        "evidence": list(map(str, evidence.roots())),
    }
    _say(as_json, paths, f"{paths['ledger']}\n{paths['snapshot']} (for reading)")


@evidence_app.command("list")
def list_command(
    kind: Annotated[str | None, typer.Option("--kind", help="Only entries of this kind.")] = None,
    as_json: AsJson = False,
) -> None:
    """Every entry of the log in order, with where its file is."""
    with refusals():
        found = evidence.entries(kind=kind)
    kept = evidence.kept_root()
    rows = [
        {
            "utc": e.utc,
            "kind": e.kind,
            "id": e.id,
            "kept": any(copy.parent == kept for copy in e.copies),
            "path": str(e.path),
        }
        for e in found
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("utc", "kind", "id", "kept")
    for row in rows:
        table.add_row(row["utc"], row["kind"], row["id"], "kept" if row["kept"] else "")
    Console().print(table)


@evidence_app.command("keep")
def keep_command(
    identities: Annotated[list[str], typer.Argument(metavar="ID…", help="Sessions or other entries, by id.")],
    as_json: AsJson = False,
) -> None:
    """Copies entries to where version control tracks them."""
    with refusals():
        kept = [evidence.keep(identity) for identity in identities]
    paths = [str(evidence.kept_root() / entry.name) for entry in kept]
    _say(as_json, {"kept": paths}, "\n".join(paths))


def _say(as_json: bool, values: dict[str, Any], text: str) -> None:
    typer.echo(json.dumps(values, indent=2) if as_json else text)
