"""Tables for a terminal, drawn from plain values (`report.plain`). Knows how things look, not what they mean.

No ratio is drawn without the µs it is a ratio of: both stand in one cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

_STATUS = {"passed": "green", "failed": "bold red", "skipped": "yellow", "not_run": "yellow"}
_OUTCOME = {"promote": "bold green", "reject": "red", "uncertain": "yellow", "invalid": "bold red"}
_CLOCKS = {"sm_mhz": "SM clock MHz", "memory_mhz": "memory clock MHz", "temperature_c": "°C", "power_w": "W"}
Plain = Mapping[str, Any]
_RATIOS = (  # mode (None: the headline), what, role above, role below, field of the decision
    (None, "incumbent ÷ challenger", "incumbent", "challenger", "shown"),
    ("queued", "queued, incumbent ÷ challenger", "incumbent", "challenger", "queued"),
    (None, "reference ÷ challenger", "reference", "challenger", "ratio_to_reference"),
    (None, "A/A control, incumbent ÷ twin", "incumbent", "twin", "noise"),
    (None, "health, reference ÷ v000", "reference", "control", "health"),
)


ASKED = 0.02
"""The difference that `gfast noise` asks about."""


def session_view(shown: Plain) -> RenderableType:
    """A session from `session_plain`: header, decision, gates, timings, phases, clocks, and what was not run."""
    parts: list[RenderableType] = [_header(shown["header"])]
    if shown["decision"]:
        parts.append(_decision(shown["decision"]))
    parts += [_gates(shown["gates"]), *_some(shown["failures"], _failures), *_some(shown["skips"], _skips)]
    parts += [*_some(shown["shares"], _shares), *_some(shown["timings"], _timings), *_some(shown["phases"], _phases)]
    if shown["clocks"]:
        parts.append(_clocks(shown["clocks"]))
    if shown["header"]["kind"] == "parity":
        parts.append(_parity(shown["measured"]))
    elif shown["header"]["kind"] == "probe":
        parts.append(_figures("What the protocol costs here", shown["measured"]))
    if shown["not_run"]:
        parts.append(_list("Gates not run", shown["not_run"], "yellow"))
    return _spaced(parts)


def noise_view(shown: Plain) -> RenderableType:
    """An A/A report from `noise_plain`: spreads in percent per case and mode, and what this machine can decide."""
    table = _table(
        "Noise: the same code in two processes",
        ["case", "mode", "!µs", "!ratio: between processes", "!within", "!time: between", "!within", "!twin, 95 %"],
    )
    for row in shown["rows"]:
        spreads = (row[name] for name in ("ratio_between", "ratio_within", "time_between", "time_within"))
        table.add_row(
            str(row["case"]),
            row["mode"],
            us(row["us"]),
            *(f"{spread:.2f} %" for spread in spreads),
            ratio(row["interval"]),
        )
    lines = []
    for mode in shown["modes"]:
        far = max(mode["interval"]["high"], 1 / mode["interval"]["low"]) - 1
        quiet = "quiet enough" if far <= ASKED else "not quiet enough"
        lines.append(
            f"{mode['mode']}: {us(mode['pair_us'])} µs ÷ {us(mode['twin_us'])} µs = {ratio(mode['interval'])}: "
            f"{quiet} to decide {ASKED:.0%}, as the same code in two processes differs by up to {far:.2%}. With the "
            f"margin of {mode['margin']:.2%} the smallest gain that can be promoted is {mode['smallest']:.2%}."
        )
    about = f"{shown['twin']} against {shown['pair']}, {shown['generations']} generations × {shown['blocks']} blocks"
    header = [_header(shown["header"])] if shown.get("header") else []
    notes = [_list("Notes", shown["notes"], "yellow")] if shown["notes"] else []
    return _spaced([*header, Text(about), table, _list("Over all cases", lines, ""), *notes])


def ceilings_view(shown: Plain) -> RenderableType:
    """What was measured of the device, from `ceilings_plain`."""
    return _spaced([_header(shown["header"]), _figures("Measured on this device", shown["measured"])])


def doctor_view(found: Plain) -> RenderableType:
    """What `local.examine` found: the device, its software, isolation, and what stands in the way."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    scope = found["scope"]
    if scope:
        grid.add_row("accelerator", ", ".join(f"{k} {v}" for k, v in scope["accelerator"].items() if v is not None))
        grid.add_row("software", ", ".join(f"{k} {v}" for k, v in scope["software"].items() if v is not None))
        grid.add_row("protocol", str(scope["protocol"]))
        load = ", ".join(f"{value:.2f}" for value in found["snapshot"]["load"])
        grid.add_row("host", f"{found['snapshot']['cpu']}, {found['snapshot']['cores']} cores, load {load}")
        grid.add_row("isolation", found["isolation"])
        grid.add_row("compiler", found["compiler"] or "none")
    for problem in found["problems"]:
        grid.add_row(Text("problem", style="bold red"), escape(problem))
    if not found["problems"]:
        grid.add_row("", Text("ready to measure", style="green"))
    return grid


def us(value: float | None) -> str:
    """Microseconds with a precision that fits, without unit; "–" for none."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def ratio(interval: Plain | None) -> str:
    """A ratio with its 95 % interval: "1.112 (1.098 to 1.126)"; empty for none."""
    return f"{interval['ratio']:.3f} ({interval['low']:.3f} to {interval['high']:.3f})" if interval else ""


def _header(header: Plain) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    status = Text(header["status"], style="green" if header["status"] == "complete" else "bold red")
    if header["reason"]:
        status.append(f": {header['reason']}", style="default")
    cells = f"{header['generations']} generations × {header['blocks']} blocks, {', '.join(header['modes'])}"
    missing = f", {len(header['cells_missing'])} cells missing" if header["cells_missing"] else ""
    rows: list[tuple[str, Text]] = [
        ("session", Text(f"{header['id'] or '(not stored)'}  {header['kind']}  {header['started']}")),
        ("contract", Text(f"{header['workload']}/{header['contract']}  {header['contract_hash'][:12]}")),
        ("scope", Text(_scope(header["scope"]))),
        ("isolation", Text(header["isolation"])),
        (
            "measured",
            Text(f"cases {', '.join(map(str, header['cases']))}; {cells}{missing}" if header["cases"] else ""),
        ),
        ("status", status),
    ]
    for name, value in rows:
        if value.plain:
            grid.add_row(name, value)
    return grid


def _scope(scope: Plain) -> str:
    """A scope in words: what was measured on, and with which software."""
    card, software = scope.get("accelerator", {}), scope.get("software", {})
    if not card:
        return "unknown"
    facts = [card.get("model") or card["name"]]
    facts += [f"{card['sms']} SMs"] if card.get("sms") else []
    facts += [f"{card['memory_mb'] / 1024:.0f} GiB"] if card.get("memory_mb") else []
    facts += [f"{card['power_limit_w']:.0f} W"] if card.get("power_limit_w") else []
    facts += ["MIG"] if card.get("mig") else []
    facts += [f"{name} {version}" for name, version in software.items() if version]
    return ", ".join([*facts, f"protocol {scope.get('protocol')}"])


def _decision(decision: Plain) -> RenderableType:
    outcome = decision["outcome"]
    style = _OUTCOME.get(outcome.removeprefix("screen_"), "bold")
    lines = [Text.assemble((outcome, style), "  ", decision["reason"])]
    for mode, what, upper, lower, name in _RATIOS:
        measured = decision["us"].get(mode or decision["mode"], {})
        if decision.get(name) and upper in measured and lower in measured:
            figures = f"{us(measured[upper])} µs ÷ {us(measured[lower])} µs"
            lines.append(Text(f"{what}: {figures} = {ratio(decision[name])}", style="" if name == "shown" else "dim"))
    if decision.get("margin") is not None:
        lines.append(Text(f"margin: {decision['margin']:.2%}", style="dim"))
    lines += [Text(note, style="yellow") for note in decision.get("notes", ())]
    return Group(*lines)


def _gates(gates: list[Plain]) -> RenderableType:
    if not gates:
        return Text("No verdicts.", style="yellow")
    table = _table("Gates", ["gate", *(f"!{status.replace('_', ' ')}" for status in _STATUS)])
    for row in gates:
        cells = (Text(str(row[s]), style=_STATUS[s]) if row.get(s) else Text("") for s in _STATUS)
        table.add_row(row["gate"], *cells)
    return table


def _failures(failures: list[Plain]) -> RenderableType:
    return _verdicts("Failures", failures)


def _skips(skips: list[Plain]) -> RenderableType:
    """Skips alike but for their place are one line: a gate that fits no short visit skips a hundred times."""
    alike: dict[tuple[str, str, str], set[str]] = {}
    for verdict in skips:
        key = (verdict["participant"], verdict["gate"], verdict["reason"])
        alike.setdefault(key, set()).add(str(verdict["case"]) if verdict["case"] is not None else "all")
    table = _table("Skipped", ["participant", "gate", "cases", "reason"])
    for (participant, gate, reason), cases in alike.items():
        table.add_row(escape(participant), gate, ", ".join(sorted(cases, key=lambda c: (len(c), c))), escape(reason))
    return table


def _verdicts(title: str, verdicts: list[Plain]) -> RenderableType:
    table = _table(title, ["participant", "gate", "case", "input", "!share", "!u", "!limit", "reason"])
    for verdict in verdicts:
        place = "/".join(str(verdict[name]) for name in ("draw", "variant", "trial") if verdict[name] is not None)
        numbers = (verdict[name] for name in ("share", "reference_share", "limit"))
        table.add_row(
            escape(verdict["participant"]), verdict["gate"], _maybe(verdict["case"]), place, *map(_share, numbers),
            escape(verdict["reason"]),
        )  # fmt: skip
    return table


def _shares(shares: list[Plain]) -> RenderableType:
    """Each participant where it came nearest to its limit; every case is in the JSON."""
    nearest: dict[str, Plain] = {}
    for row in shares:
        if row["participant"] not in nearest or row["used"] > nearest[row["participant"]]["used"]:
            nearest[row["participant"]] = row
    table = _table(
        "Nearest to the error allowance", ["participant", "case", "gate", "input", "!share", "!u", "!limit", "!used"]
    )
    for row in nearest.values():
        table.add_row(
            escape(row["participant"]), str(row["case"]), row["gate"], row["input"],
            *(_share(row[name]) for name in ("share", "u", "limit")),
            Text(f"{row['used']:.0%}", style=_STATUS["failed"] if row["used"] > 1 else ""),
        )  # fmt: skip
    return table


def _timings(timings: list[Plain]) -> RenderableType:
    modes = list(dict.fromkeys(row["mode"] for row in timings))
    base = timings[0]["base"]
    found = {(row["case"], row["participant"], row["mode"]): row for row in timings}
    beside = f", and {base} ÷ participant with its 95 % interval" if base else ""
    table = _table(f"Times: median µs{beside}",
                   ["case", "participant", *(f"!{mode} µs" for mode in modes), "!calls"])  # fmt: skip
    last = None
    for case, participant in dict.fromkeys((row["case"], row["participant"]) for row in timings):
        if last is not None and case != last:
            table.add_section()
        rows = [found.get((case, participant, mode)) for mode in modes]
        calls = sum(row["calls"] for row in rows if row is not None)
        table.add_row(str(case), escape(participant), *(_timing(row) for row in rows), str(calls))
        last = case
    return table


def _timing(row: Plain | None) -> str:
    """µs and ratio in one cell. A row without a figure had only host-bound visits, or none."""
    if row is None:
        return "–"
    bound = f"  [{row['host_bound']} host bound]" if row["host_bound"] else ""
    return escape(f"{us(row['median_us'])}  {ratio(row['interval'])}{bound}".rstrip())


def _phases(phases: list[Plain]) -> RenderableType:
    table = _table("Time spent", ["phase", "!seconds", "!longest", "!count"])
    for row in phases:
        table.add_row(row["phase"], f"{row['seconds']:.1f}", f"{row['longest']:.1f}", str(row["count"]))
    return table


def _clocks(clocks: Plain) -> RenderableType:
    lines = [f"{label}: {least:g} to {most:g}" for name, label in _CLOCKS.items() if name in clocks
             for least, most in [clocks[name]]]  # fmt: skip
    if "throttle_reasons" in clocks:
        reasons = (f"{reason} ({count} ×)" for reason, count in clocks["throttle_reasons"].items())
        lines.append(f"throttle reasons: {', '.join(reasons)}")
    return _list("Clocks beside the blocks", lines, "")


def _table(title: str, columns: Iterable[str]) -> Table:
    """A table; a column whose name begins with "!" holds figures and stands to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for name in columns:
        table.add_column(name.removeprefix("!"), justify="right" if name.startswith("!") else "left", overflow="fold")
    return table


def _figures(title: str, measured: Plain) -> Table:
    table = _table(title, ["what", "!figure"])
    for name, figure in _flat("", measured):
        table.add_row(escape(name), figure)
    return table


def _parity(measured: Plain) -> Table:
    """Ours beside the plain loop; `host`: how much slower than the best of the session the host was while it ran."""
    table = _table(
        "Our official figure beside a plain restatement of the official loop",
        ["case", "plan", "!ours µs", "!plain µs", "!ours ÷ plain", "!host, ours", "!host, plain"],
    )
    rows = [(int(key.partition("/")[0]), key.partition("/")[2], found)
            for key, found in measured.items() if "/" in key and isinstance(found, Mapping)]  # fmt: skip
    for number, name, found in sorted(rows, key=lambda row: row[0]):
        case = str(number)
        if "error" in found:
            table.add_row(case, escape(name), "–", escape(found["error"]))
        elif "ratio" in found:
            slow = (f"{found[side]:.3f}" if side in found else "–" for side in ("ours_host", "plain_host"))
            ratio_text = f"{found['ratio']:.3f}"
            table.add_row(case, escape(name), us(found["ours_us"]), us(found["plain_us"]), ratio_text, *slow)
    return table


def _list(title: str, lines: Iterable[str], style: str) -> RenderableType:
    return Group(Text(title, style="bold"), *(Text(f"  {line}", style=style) for line in lines))


def _some(rows: list[Plain], draw: Any) -> list[RenderableType]:
    return [draw(rows)] if rows else []


def _spaced(parts: list[RenderableType]) -> RenderableType:
    spaced: list[RenderableType] = []
    for part in parts:
        spaced += [part, Text("")]
    return Group(*spaced[:-1])


def _flat(prefix: str, values: Plain) -> Iterable[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{name}.", value)
        elif isinstance(value, float):
            yield f"{prefix}{name}", f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
        else:
            yield f"{prefix}{name}", ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _maybe(value: Any) -> str:
    return "–" if value is None else str(value)
