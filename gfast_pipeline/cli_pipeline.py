"""The commands over the whole lineage: run, status, candidates, route, submission, withdraw. A door without logic."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gfast_pipeline import laboratory
from gfast_pipeline.cli_contract import AsJson, refusals
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import Loaded, load
from gfast_pipeline.report.tables import us
from gfast_pipeline.stages import choosing, landing, racing
from gfast_pipeline.stages.lab import Lab
from gfast_pipeline.stages.outcome import Missing

Contract = Annotated[str, typer.Option("--contract", "-c", help="The contract, as NAME or WORKLOAD/NAME.")]
submission_app = typer.Typer(no_args_is_help=True, help="The one file compiled from the evidence.")


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    for command in (run, status, candidates, route, withdraw):
        app.command()(command)
    app.add_typer(submission_app, name="submission")


def run(
    contract: Contract,
    candidate: Annotated[
        list[str] | None, typer.Option("--candidate", "-k", help="Only these; the default is every candidate.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The whole lineage, from candidate files to the compiled submission; what the log has already is reused."""
    from gfast_pipeline.defs import run as driver

    console = Console(stderr=True, highlight=False)
    with refusals():
        loaded = laboratory.approved(contract)
        names = [loaded.workload.candidate(name).name for name in candidate] if candidate else None
        steps = driver.run(loaded, lambda line: console.print(escape(line), soft_wrap=True), names)
        found = _standing(loaded, steps)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
    else:
        _leaderboard(found)
    if any(step["status"] == "failed" and step["candidate"] is None for step in found["steps"]):
        raise typer.Exit(3)


def status(contract: Contract, as_json: AsJson = False) -> None:
    """Who holds the title, what stands between each candidate and it, and what was spent."""
    with refusals():
        lab = _lab(contract)
        holder = laboratory.incumbent(lab.loaded, lab.scope)
        rows = [_where(lab, source.name) for source in lab.loaded.workload.candidates()]
        budget = lab.loaded.contract.budget.device_minutes
        spent = sum(row["device_minutes"] for row in _asked("budget_used", lab.loaded))
    found = {"incumbent": holder.name, "candidates": rows, "device_minutes": spent, "budget": budget}
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    table = Table("candidate", "correctness", "race", "confirmation", title=f"incumbent: {holder.name}")
    for row in rows:
        table.add_row(row["candidate"], row["correctness"], escape(row["race"]), escape(row["confirmation"]))
    Console().print(table)
    Console().print(f"{spent:.1f} of {budget:.0f} device minutes", highlight=False)


def candidates(contract: Contract, as_json: AsJson = False) -> None:
    """Every candidate file: hash, hypothesis, and what the static policy says."""
    with refusals():
        lab = _lab(contract)
        rows = [
            {"candidate": source.name, "sha256": source.sha256, "hypothesis": landing.headline(source)}
            | {"policy": landing.refused(lab, source) or "allowed"}
            for source in lab.loaded.workload.candidates()
        ]
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    table = Table("candidate", "sha256", "hypothesis", "policy")
    for row in rows:
        table.add_row(row["candidate"], row["sha256"][:12], escape(row["hypothesis"]), escape(row["policy"]))
    Console().print(table)


def route(contract: Contract, as_json: AsJson = False) -> None:
    """Done, tune or structural per case, overall stop or continue, with the argument."""
    with refusals():
        outcome = choosing.route(_lab(contract, reading=False))
    if as_json:
        typer.echo(json.dumps({"overall": outcome.facts, "cases": outcome.rows}, ensure_ascii=False))
        return
    Console().print(escape(outcome.summary), soft_wrap=True, highlight=False)
    table = Table("case", "route", "gap", "binds", "argument")
    for row in outcome.rows:
        gap = "–" if row["gap"] is None else f"{row['gap']:.2f}"
        table.add_row(str(row["case"]), row["route"], gap, str(row["binding_term"]), escape(str(row["argument"])))
    Console().print(table)


def withdraw(
    candidate: Annotated[str, typer.Argument(metavar="CANDIDATE", help="A candidate: v007, or its full name.")],
    contract: Contract,
    reason: Annotated[str, typer.Option("--reason", help="Why; it stays in the log for ever.")],
    by: Annotated[str, typer.Option("--as", help="Who says so.")],
) -> None:
    """Take a candidate out of every ranking under a contract. Its evidence stays; nothing is deleted."""
    from gfast_pipeline.ledger import index
    from gfast_pipeline.selection import withdrawal

    with refusals():
        entry = withdrawal.withdraw(load(contract), candidate, reason, by)
        try:  # who holds what, and what would ship, follow at once
            lab = _lab(contract, reading=False)
            told = [choosing.archive(lab).summary, choosing.submission(lab).summary]
        except Missing as missing:
            told = [str(missing)]
        index.sync()
    typer.echo(f"withdrawn, entry {entry.id}; " + "; ".join(told))


@submission_app.command("compile")
def compile_submission(contract: Contract, as_json: AsJson = False) -> None:
    """Compile the holders of all cases into one self-contained file."""
    from gfast_pipeline.ledger import index

    with refusals():
        outcome = choosing.submission(_lab(contract, reading=False))
        index.sync()
    if as_json:
        typer.echo(json.dumps({**outcome.facts, "cases": outcome.rows}, ensure_ascii=False))
    else:
        typer.echo(outcome.summary)
        for check in outcome.checks:
            typer.echo(("" if check.passed else "warning: " if check.warning else "refused: ") + check.description)
    if any(not check.passed and not check.warning for check in outcome.checks):
        raise typer.Exit(3)


def _lab(contract: str, reading: bool = True) -> Lab:
    return Lab(laboratory.approved(contract), _nothing, reading)


def _nothing(job: Any) -> Any:
    raise Missing("this command measures nothing; gfast run does")


def _where(lab: Lab, name: str) -> dict[str, str]:
    """In words, how far a candidate has come, from the log alone."""
    found: dict[str, str] = {"candidate": name}
    for column, stage in (
        ("correctness", racing.correctness),
        ("race", racing.decision),
        ("confirmation", racing.confirmation),
    ):
        try:
            outcome = stage(lab, name)
        except Missing:
            found[column] = "not measured"
        except GfastError as error:
            found[column] = str(error)
        else:
            found[column] = str(outcome.facts.get("standing") or outcome.facts.get("outcome") or "–")
    return found


def _standing(loaded: Loaded, steps: Any) -> dict[str, Any]:
    """What `run` prints at its end: steps, champions and leaderboard from SQL, and where things lie."""
    from gfast_pipeline.ledger import evidence
    from gfast_pipeline.submission import compile as compiler

    return {
        "steps": [vars(step) for step in steps],
        "champions": _asked("champions", loaded),
        "leaderboard": _asked("leaderboard", loaded),
        "submission": str(compiler.path_for(loaded)),
        "report": str(evidence.warehouse() / "reports" / f"{loaded.workload.name}_{loaded.name}.html"),
    }


def _asked(name: str, loaded: Loaded) -> list[dict[str, Any]]:
    """The rows of a named query that are of this contract as it stands."""
    from gfast_pipeline.ledger import query

    rows = query.ask(name).records()
    return [row for row in rows if row.get("contract_hash") == loaded.hash]


def _leaderboard(found: dict[str, Any]) -> None:
    console = Console(highlight=False)
    table = Table("case", "held by", "µs", "reference ÷ it", "gap", title="Champions", title_justify="left")
    for row in found["champions"]:
        ratio = _interval(row["ratio_to_reference"], row["ratio_low"], row["ratio_high"])
        gap = "–" if row["gap"] is None else f"{row['gap']:.2f}, {row['binding_term']}"
        table.add_row(str(row["case"]), escape(row["plan"]), us(row["official_us"]), ratio, gap)
    console.print(table)
    table = Table("plan", "µs", "against", "µs", "ratio", "outcome", title="Leaderboard", title_justify="left")
    for row in found["leaderboard"]:
        outcome = row["outcome"] + (", confirmed" if row["confirmed"] else "")
        ratio = _interval(row["ratio"], row["low"], row["high"])
        names = escape(row["plan"]), escape(row["incumbent"] or "–")
        table.add_row(names[0], us(row["challenger_us"]), names[1], us(row["incumbent_us"]), ratio, outcome)
    console.print(table)
    for row in found["leaderboard"]:
        console.print(escape(row["reason"]), soft_wrap=True, style="dim")
    reused = sum(step["status"] == "reused" for step in found["steps"])
    measured = sum(step["status"] == "done" for step in found["steps"])
    console.print(f"{reused} stages reused what the log has, {measured} were computed")
    console.print(f"submission  {found['submission']}", soft_wrap=True)
    console.print(f"report      {found['report']}\nUI          make ui", soft_wrap=True)


def _interval(ratio: float | None, low: float | None, high: float | None) -> str:
    """A ratio with its interval, where it has one."""
    if ratio is None:
        return "–"
    return f"{ratio:.3f}" if low is None or high is None else f"{ratio:.3f} ({low:.3f} to {high:.3f})"
