"""The command line's part for contracts: show, list, check, new, approve, and the check of the reference.

Prints and asks; what is right is decided in `contract`.
"""

from __future__ import annotations

import getpass
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gfast_pipeline.contract import approval, cards, new
from gfast_pipeline.contract.errors import GfastError, NotApproved
from gfast_pipeline.contract.load import Loaded, load, load_file
from gfast_pipeline.contract.workload import workloads

contract_app = typer.Typer(no_args_is_help=True, help="Contracts: what is measured, on what, and who approved it.")
reference_app = typer.Typer(no_args_is_help=True, help="The reference, held against the official script.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
ContractName = Annotated[str, typer.Argument(metavar="NAME", help="A contract, as NAME or WORKLOAD/NAME.")]


@contextmanager
def refusals() -> Iterator[None]:
    """Turns a GfastError into its message on stderr and exit code 1."""
    try:
        yield
    except GfastError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


@contract_app.command("list")
def list_contracts(as_json: AsJson = False) -> None:
    """All contracts of all workloads, with their hash and approval."""
    with refusals():
        rows = [_row(path) for found in workloads() for path in found.contracts()]
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    table = Table("contract", "workload", "accelerator", "cases", "hash", "approval")
    for row in rows:
        told = row["error"] or row["approval"]
        cells = (row["name"], row["workload"], row["accelerator"], str(row["cases"]), row["hash"][:12], told)
        table.add_row(*map(escape, cells))
    Console().print(table)


def _row(path: Path) -> dict[str, Any]:
    row = {"name": path.stem, "workload": path.parent.parent.name, "accelerator": "", "cases": 0, "hash": ""}
    try:
        loaded = load_file(path)
    except GfastError as error:
        return {**row, "approval": "", "error": str(error)}
    contract = loaded.contract
    row |= {"accelerator": contract.target.accelerator, "cases": len(contract.cases), "hash": loaded.hash}
    return {**row, "approval": _standing(loaded), "error": ""}


def _standing(loaded: Loaded) -> str:
    try:
        held = approval.check(loaded)
    except NotApproved:
        return "void: changed since" if approval.approval_path(loaded).is_file() else "not approved"
    except GfastError as error:
        return str(error)
    return f"approved by {held.by}, {held.date[:10]}"


@contract_app.command("show")
def show(name: ContractName, as_json: AsJson = False) -> None:
    """One contract: target, cases, protocol, gate, hash and approval."""
    with refusals():
        loaded = load(name)
    if as_json:
        told = {"path": str(loaded.path), "hash": loaded.hash, "approval": _standing(loaded), "contract": loaded.plain}
        typer.echo(json.dumps(told, ensure_ascii=False, indent=2))
        return
    console, contract, target = Console(), loaded.contract, loaded.contract.target
    console.print(f"[bold]{escape(contract.name)}[/]  {escape(contract.purpose)}", highlight=False)
    console.print(f"{loaded.path}\nhash {loaded.hash}\n{_standing(loaded)}", highlight=False, markup=False)
    console.print(
        f"\n{target.accelerator} · {target.dtype} · matmul precision {target.matmul_precision} · "
        f"{target.threads} CPU thread{'s' if target.threads > 1 else ''}\n"
        f"{contract.generations} generations × {contract.blocks} blocks, {contract.visit_ms:g} ms a visit · "
        f"margin {contract.margin:.1%}, void above {contract.max_noise:.1%} · "
        f"promotes on {' and '.join(contract.mode.promotion)}, {contract.publish_sessions} sessions to publish\n"
        f"peers: {', '.join(contract.peers) or 'none'}",
        highlight=False,
        markup=False,
    )
    shape = list(contract.cases[0].shape)
    table = Table("case", "status", "regime", "weight", *shape, "profiles")
    for case in contract.cases:
        profiles = ", ".join(key for key, cases in contract.profiles.items() if case.id in cases)
        sizes = [str(case.shape[key]) for key in shape]
        table.add_row(str(case.id), case.status, case.regime, f"{case.weight:g}", *sizes, profiles)
    console.print(table)


@contract_app.command("check")
def check(file: Annotated[Path, typer.Argument(help="A contract file.")], as_json: AsJson = False) -> None:
    """Reads a contract file and its peers; says every fault with line, key and remedy."""
    with refusals():
        loaded = load_file(file)
        for peer in loaded.contract.peers:
            loaded.workload.peer(peer)
    if as_json:
        typer.echo(json.dumps({"path": str(file), "hash": loaded.hash, "approval": _standing(loaded)}))
        return
    typer.echo(f"{file}: in order\nhash {loaded.hash}\n{_standing(loaded)}")


@contract_app.command("new")
def new_contract(
    name: Annotated[str, typer.Argument(help="Name of the contract to write.")],
    like: Annotated[str, typer.Option(help="The contract whose cases, gate and protocol it takes over.")],
    accelerator: Annotated[str | None, typer.Option(help="The card's name as its driver gives it.")] = None,
    purpose: Annotated[str | None, typer.Option(help="One line: what the contract is for.")] = None,
    float32: Annotated[float | None, typer.Option(help="Limit: dense TFLOP/s in float32.")] = None,
    tf32: Annotated[float | None, typer.Option(help="Limit: dense TFLOP/s in TF32.")] = None,
    float16: Annotated[float | None, typer.Option(help="Limit: dense TFLOP/s in float16.")] = None,
    bfloat16: Annotated[float | None, typer.Option(help="Limit: dense TFLOP/s in bfloat16.")] = None,
    memory_tb_s: Annotated[float | None, typer.Option(help="Limit: memory bandwidth, TB/s.")] = None,
    l2_mb: Annotated[float | None, typer.Option(help="L2 cache, MB.")] = None,
    exponentials_t_s: Annotated[float | None, typer.Option(help="Limit: 10^12 exponentials a second.")] = None,
    as_json: AsJson = False,
) -> None:
    """Writes a contract for the card at hand (or --accelerator), with its datasheet's rates as limits."""
    with refusals():
        given = cards.Rates(float32, tf32, float16, bfloat16, memory_tb_s, l2_mb, exponentials_t_s)
        card = cards.Card(accelerator, None, 0) if accelerator else cards.card_at_hand()
        path = new.new_contract(name, load(like), card, given, purpose)
        loaded = load_file(path)
    if as_json:
        told = {"path": str(path), "hash": loaded.hash, "accelerator": card.name, "limits": loaded.plain["limits"]}
        typer.echo(json.dumps(told, ensure_ascii=False, indent=2))
        return
    typer.echo(f"Wrote {path} for {card.name}. Read it, then type: gfast approve {name}")


def approve(
    name: ContractName,
    full_hash: Annotated[str | None, typer.Option("--hash", help="The full hash, where there is no terminal.")] = None,
    by: Annotated[str | None, typer.Option("--as", help="Who approves.")] = None,
    as_json: AsJson = False,
) -> None:
    """Approves a contract as it stands: shows what changed and asks for the first eight characters of its hash."""
    with refusals():
        loaded = load(name)
        last = approval.read(loaded)
        if full_hash is not None and by is not None:
            path = approval.approve(loaded, full_hash, by)
        elif sys.stdin.isatty() and sys.stdout.isatty() and full_hash is None and not as_json:
            _show_change(loaded, last)
            typed = typer.prompt("First eight characters of the hash, to approve it")
            if typed.strip() != loaded.hash[:8]:
                raise GfastError("Those are not the first eight characters of the hash: nothing was approved.")
            path = approval.approve(loaded, loaded.hash, by or getpass.getuser())
        else:
            raise GfastError(
                f"Approving {loaded.name} needs a person at a terminal, or both --hash and --as. After reading what "
                f"changed, type: gfast approve {loaded.name} --hash FULL_HASH --as YOUR_NAME"
            )
        held = approval.check(loaded)
    if as_json:
        typer.echo(json.dumps({"path": str(path), "hash": held.hash, "by": held.by, "date": held.date}))
        return
    typer.echo(f"{loaded.name} is approved by {held.by}: {path}")


def _show_change(loaded: Loaded, last: approval.Approval | None) -> None:
    console = Console()
    if last is None:
        console.print(f"{loaded.path}: never approved before. All of it is new; read the file.", markup=False)
    else:
        changes = approval.difference(last, loaded)
        told = "changed since:" if changes else "nothing changed since."
        console.print(f"Last approved by {last.by} on {last.date}; {told}", highlight=False, markup=False)
        for line in changes:
            console.print(f"  {line}", highlight=False, markup=False)
    console.print(f"hash {loaded.hash}", highlight=False)


@reference_app.command("check")
def reference_check(
    script: Annotated[Path, typer.Argument(help="Your copy of the official PyTorch benchmark script.")],
    contract: Annotated[str, typer.Option(help="Whose cases are compared.")] = "h200_fp32",
    max_gb: Annotated[float, typer.Option(min=0.0, help="Skip cases with a larger score tensor, 10^9 bytes.")] = 2.0,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; default: cuda where there is one.")] = None,
    as_json: AsJson = False,
) -> None:
    """Runs the official model and our reference on the same weights and inputs; fails where they differ.

    The script is executed: give only one that you trust.
    """
    with refusals():
        loaded = load(contract)
        try:
            import torch

            from gfast_pipeline.contract.reference_check import compare
        except ImportError:
            raise GfastError("This needs torch. Install the extra: pip install -e .[bench]") from None
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if device not in ("cpu", "cuda"):
            raise GfastError(f"No device {device!r}. Give --device cpu or --device cuda.")
        results = []
        for result in compare(loaded, script, max_gb, device):
            results.append(result)
            if not as_json:
                where = f" ({result.variant})" if result.variant else ""
                told = (
                    result.reason or f"largest difference {result.largest:.3g}{where}, largest value {result.scale:.3g}"
                )
                typer.echo(f"case {result.case:>2}  {result.status:<8} {told}")
    differs = [result.case for result in results if result.status == "differs"]
    compared = [result for result in results if result.largest is not None]
    if as_json:
        rows = [{k: _finite(v) for k, v in asdict(result).items()} for result in results]
        typer.echo(json.dumps({"device": device, "same": not differs and bool(compared), "cases": rows}, indent=2))
    if differs:
        typer.echo(f"{script}: differs from our reference in cases {', '.join(map(str, differs))}.", err=True)
    if not compared:
        typer.echo("No case was compared. Raise --max-gb.", err=True)
    if differs or not compared:
        raise typer.Exit(1)


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
