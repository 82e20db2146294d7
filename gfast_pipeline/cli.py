"""The command line: judge, race, show, noise, measure, bundle, doctor, beside what the other `cli_` modules bring.

A door without logic. Exit codes: 0 done (a rejection is an answer too), 1 refused with one message, 2 wrong usage, 3
the candidate or its session is invalid.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Column, Table

from gfast_pipeline import cli_ledger, cli_pipeline, decisions, laboratory, measuring
from gfast_pipeline.bench.messages import Job, Session
from gfast_pipeline.cli_contract import AsJson, approve, contract_app, reference_app
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import Loaded, load
from gfast_pipeline.evaluation.noise import noise_report
from gfast_pipeline.evaluation.timings import timing_rows
from gfast_pipeline.execution import bundle, local
from gfast_pipeline.ledger import evidence, sessions
from gfast_pipeline.ledger.evidence import EvidenceError
from gfast_pipeline.report import plain, tables

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Judge kernel candidates, measure them beside the incumbent, and decide from recorded evidence.",
)
bundle_app = typer.Typer(no_args_is_help=True, help="One sealed file that measures on a machine with torch alone.")
app.add_typer(contract_app, name="contract")
app.add_typer(reference_app, name="reference")
app.add_typer(bundle_app, name="bundle")
app.command()(approve)
cli_pipeline.register(app)
cli_ledger.register(app)


@app.callback()
def main() -> None:
    """Judge kernel candidates, measure them beside the incumbent, and decide from recorded evidence."""
    evidence.origin.set({"run": "cli", "asset": ""})


Contract = Annotated[str, typer.Option("--contract", "-c", help="The contract, as NAME or WORKLOAD/NAME.")]
Candidate = Annotated[str, typer.Argument(metavar="CANDIDATE", help="A candidate: v007, or its full name.")]
Names = Annotated[list[str] | None, typer.Option("--candidate", "-k", help="Candidate or peer; may be repeated.")]
Unsafe = Annotated[bool, typer.Option("--unsafe", help="Run candidates without isolation where none is to be had.")]
Cases = Annotated[str | None, typer.Option("--cases", help="Case numbers, as 1,8,13; the default is all scored ones.")]


@contextmanager
def refusals() -> Iterator[None]:
    """One message on standard error and exit code 1 for anything that was refused."""
    try:
        yield
    except (GfastError, EvidenceError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


@app.command()
def judge(
    candidate: Candidate,
    contract: Contract,
    dry: Annotated[
        bool, typer.Option("--dry", help="Policy, build and one trial in seconds; nothing recorded.")
    ] = False,
    unsafe: Unsafe = False,
    as_json: AsJson = False,
) -> None:
    """Prove one candidate right or wrong, on every case, draw and variant of the contract."""
    with refusals():
        loaded = load(contract) if dry else laboratory.approved(contract)
        session, identity = laboratory.judge(loaded, candidate, _here(as_json, unsafe), dry)
        _show(session, identity, as_json)
    if not as_json:
        Console().print(laboratory.judgement(session), highlight=False)
    if any(verdict.status == "failed" for verdict in session.verdicts):
        raise typer.Exit(3)


@app.command()
def race(
    candidate: Candidate,
    contract: Contract,
    screen: Annotated[
        str | None, typer.Option("--screen", help="Only a profile's cases, to sort; promotes nothing.")
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="Race this candidate instead of the incumbent.")
    ] = None,
    confirm: Annotated[bool, typer.Option(help="Confirm a promotion in a second session at once.")] = True,
    unsafe: Unsafe = False,
    as_json: AsJson = False,
) -> None:
    """Measure a candidate beside the incumbent and decide: promote, reject, uncertain or invalid, with the reason."""
    with refusals():
        loaded, run = laboratory.approved(contract), _here(as_json, unsafe)
        raced = laboratory.race(loaded, candidate, run, screen, against)
        _show_race(raced, as_json)
        if confirm and raced.decision.outcome == "promote":
            raced = laboratory.confirmation(loaded, raced, run)
            _show_race(raced, as_json)
    if raced.decision.outcome == "invalid":
        raise typer.Exit(3)


@app.command()
def noise(
    contract: Contract,
    candidate: Annotated[str, typer.Argument(help="Whose two processes to compare.")] = "v000",
    cases: Cases = None,
    unsafe: Unsafe = False,
    as_json: AsJson = False,
) -> None:
    """Is this machine quiet enough to decide 2 %? One candidate against a second process of itself."""
    with refusals():
        loaded = laboratory.approved(contract)
        session, identity = measuring.measure(loaded, "noise", _here(as_json, unsafe), [candidate], _numbers(cases))
        _show(session, identity, as_json)


@app.command()
def measure(
    kind: Annotated[str, typer.Argument(help="ceilings, peers, noise, serial, parity or probe.")],
    contract: Contract,
    candidate: Names = None,
    cases: Cases = None,
    unsafe: Unsafe = False,
    as_json: AsJson = False,
) -> None:
    """A session that decides nothing: the device at its best, the peers, cases too large for a race, the noise."""
    with refusals():
        loaded = laboratory.approved(contract)
        session, identity = measuring.measure(loaded, kind, _here(as_json, unsafe), candidate, _numbers(cases))
        _show(session, identity, as_json)


@app.command()
def confirm(
    decision: Annotated[str, typer.Argument(help="A promotion, by its decision's id.")],
    contract: Contract,
    unsafe: Unsafe = False,
    as_json: AsJson = False,
) -> None:
    """Confirm a promotion in a second session, with the best peers beside it; only then does it hold the title."""
    with refusals():
        loaded = laboratory.approved(contract)
        raced = laboratory.confirmation(loaded, decisions.load_race(decision), _here(as_json, unsafe))
        _show_race(raced, as_json)
    if raced.decision.outcome == "invalid":
        raise typer.Exit(3)


@app.command()
def resume(
    session: Annotated[str, typer.Argument(help="A partial session: interrupted, or out of minutes.")],
    contract: Contract,
    unsafe: Unsafe = False,
    as_json: AsJson = False,
) -> None:
    """Measure what a partial session left, and decide on the whole."""
    with refusals():
        loaded = laboratory.approved(contract)
        identity, raced = laboratory.resume(loaded, session, _here(as_json, unsafe))
        if raced is not None:
            _show_race(raced, as_json)
        else:
            _show(sessions.load_whole(identity), identity, as_json)


@app.command()
def show(
    session: Annotated[
        str | None, typer.Argument(help="A session's id or the start of it; none: list them all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """A session as a person wants to see it: decision, gates, timings, phases; without an id, the list."""
    with refusals():
        if session is None:
            _list(as_json)
            return
        entry = evidence.find(session, None, sessions.SESSION)
        _show(sessions.load_whole(entry.id), entry.id, as_json)


@app.command()
def doctor(
    device: Annotated[
        bool, typer.Option("--device", help="Measure the protocol itself: an A/A probe, recorded.")
    ] = False,
    contract: Annotated[str, typer.Option("--contract", "-c", help="The contract whose device is meant.")] = "cpu_fp32",
    unsafe: Unsafe = False,
    as_json: AsJson = False,
) -> None:
    """What this machine can do for gfast, and what stands in the way; --device: how far its figures can be trusted."""
    with refusals():
        loaded = load(contract)
        found = local.examine(loaded.contract.target.device)
        if as_json and not device:
            typer.echo(json.dumps(found, indent=2))
        elif not as_json:
            Console().print(tables.doctor_view(found))
        if device:
            measured = measuring.measure(laboratory.approved(contract), "probe", _here(as_json, unsafe))
            _show(*measured, as_json)
    if found["problems"]:
        raise typer.Exit(1)


@bundle_app.command("create")
def create(
    out: Annotated[Path, typer.Argument(help="The file to write.")],
    contract: Contract,
    kind: Annotated[
        str, typer.Option("--kind", help="decide, screen, confirm, judge, or a kind of `measure`.")
    ] = "decide",
    candidate: Names = None,
    screen: Annotated[str | None, typer.Option("--screen", help="The profile of a screen.")] = None,
    against: Annotated[str | None, typer.Option("--against", help="Race this one instead of the incumbent.")] = None,
    cases: Cases = None,
    decision: Annotated[
        str | None, typer.Option("--decision", help="With --kind confirm: the promotion to confirm.")
    ] = None,
    rest: Annotated[
        str | None, typer.Option("--rest", metavar="SESSION", help="What this partial session left.")
    ] = None,
) -> None:
    """Seal a session's job, candidates and the bench itself into one file; run it there with `python FILE run OUT`."""
    with refusals():
        loaded = laboratory.approved(contract)
        job = _job(loaded, kind, candidate or [], screen, against, _numbers(cases), decision, rest)
        path = bundle.create(job, out)
    typer.echo(
        f"{path}: a {job.kind} session of {len(job.cases)} cases. There: python {path.name} run OUT [--minutes M]"
    )


@bundle_app.command("ingest")
def ingest(
    result: Annotated[Path, typer.Argument(help="What `python BUNDLE run` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Check a sealed result against contract and files, keep it as evidence, and decide where it decides."""
    from gfast_pipeline.defs import publish

    evidence.origin.set({"run": "ingest", "asset": ""})
    with refusals():
        session, remarks = bundle.ingest(result)
        for remark in remarks:
            typer.echo(remark, err=True)
        identity = laboratory.take_in(session)
        loaded = laboratory.approved(f"{session.workload}/{session.contract_name}")
        first = sessions.root(identity)
        raced = decisions.conclude(loaded, first, keep=True)
        publish.everything()  # shown in Dagster without a run
        if raced is not None:
            _show_race(raced, as_json)
        else:
            _show(sessions.load_whole(first), first, as_json)


def _job(
    loaded: Loaded,
    kind: str,
    names: list[str],
    screen: str | None,
    against: str | None,
    cases: list[int] | None,
    decision: str | None,
    rest: str | None,
) -> Job:
    if rest is not None:
        return laboratory.rest_job(loaded, rest)
    if kind == "confirm":
        if decision is None:
            raise GfastError("a confirmation confirms a promotion: say which with --decision ID")
        return laboratory.confirm_job(loaded, decisions.load_race(decision))
    if kind in ("decide", "screen", "judge"):
        if len(names) != 1:
            raise GfastError(f"a {kind} session has one challenger: name it with --candidate")
        return laboratory.racing_job(loaded, kind, names[0], screen, against)
    return measuring.measuring_job(loaded, kind, names or None, cases)


def _show(session: Session, identity: str | None, as_json: bool) -> None:
    if session.kind in ("ceilings",):
        _emit(plain.ceilings_plain(session, identity), tables.ceilings_view, as_json)
        return
    with refusals():
        timings = [asdict(row) for row in timing_rows(session)] if session.visits else []
        if timings:
            timings = sorted([*timings, *measuring.beside(session)], key=lambda row: row["case"])
    decision = decisions.decision_on(identity) if identity else None
    shown = plain.session_plain(session, timings=timings, decision=decision, identity=identity)
    if session.kind in ("noise", "probe") and session.visits:
        try:
            loaded = load(f"{session.workload}/{session.contract_name}")
            shown["noise"] = plain.noise_plain(asdict(noise_report(session, loaded.plain)))
        except (GfastError, ValueError) as error:
            typer.echo(f"no A/A table: {error}", err=True)
    _emit(shown, tables.session_view, as_json)
    if not as_json and shown.get("noise"):
        Console().print(tables.noise_view(shown["noise"]))


def _show_race(raced: decisions.Race, as_json: bool) -> None:
    _show(sessions.load_whole(raced.session_ids[-1]), raced.session_ids[-1], as_json)
    if not as_json:
        Console().print(f"[dim]decision[/] {raced.decision_id}  [dim]sessions[/] {' '.join(raced.session_ids)}")


def _emit(shown: dict[str, Any], view: Any, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(shown, ensure_ascii=False, allow_nan=False))
    else:
        drawn: RenderableType = view(shown)
        Console().print(drawn)


def _list(as_json: bool) -> None:
    heads = [asdict(head) for head in sessions.list_sessions()]
    if as_json:
        typer.echo(json.dumps(heads, ensure_ascii=False))
        return
    table = Table(Column("session", no_wrap=True), "when", "kind", "contract", "on", "who", "status")
    for head in heads:
        who = ", ".join(record["name"] for record in head["participants"] if record["role"] in ("challenger", "peer"))
        name = (head["scope"].get("accelerator") or {}).get("name", "–")
        table.add_row(
            head["id"],
            f"{head['utc'][:8]} {head['utc'][9:13]}",
            head["kind"],
            head["contract_name"],
            name,
            who,
            head["status"],
        )
    Console().print(table)


def _here(quiet: bool, unsafe: bool) -> measuring.Run:
    """Runs jobs on this machine; progress goes to standard error unless `quiet`."""
    console = Console(stderr=True, highlight=False)

    def say(seconds: float, line: str) -> None:
        if not quiet:
            console.print(f"[dim]{seconds:7.1f} s[/]  {escape(line)}", soft_wrap=True)

    def run(job: Job) -> Session:
        job.unsafe = unsafe
        return local.run(job, say)

    return run


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise GfastError(f"--cases {text!r}: write numbers with commas, as 1,8,13") from None


if __name__ == "__main__":
    app()
