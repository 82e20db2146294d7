"""What follows from all races: ceilings and gap, beam and archive, the route, the compiled submission, the page."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gfast_pipeline import laboratory, measuring
from gfast_pipeline.contract.workload import Source
from gfast_pipeline.execution import jobs, local
from gfast_pipeline.ledger import evidence, sessions
from gfast_pipeline.report import page, plots
from gfast_pipeline.routing import gap
from gfast_pipeline.routing import route as routing
from gfast_pipeline.selection import archive as archives
from gfast_pipeline.selection import beam as beams
from gfast_pipeline.selection.incumbent import stored_decisions, stored_withdrawals
from gfast_pipeline.selection.withdrawal import WITHDRAWAL
from gfast_pipeline.stages.lab import Lab, records, under
from gfast_pipeline.stages.outcome import Check, Missing, Outcome, not_needed, version_of
from gfast_pipeline.stages.racing import UNPROVED, WRONG, standing
from gfast_pipeline.submission import compile as compiler

DRIVEN = "submission_agrees"
DRIVE_S = 1800.0
HOLDERS = "holders"
"""Whose gap the route argues with: of each case the plan that holds it."""


def ceilings(lab: Lab, again: bool = False) -> Outcome:
    """The device at its best. Measured once a scope; again when asked."""
    head = None if again else ceilings_in_use(lab)
    reused = head is not None
    if head is None:
        lab.ready("measuring the ceilings", "ceilings")
        session = lab.run(jobs.ceilings(lab.loaded))
        identity = sessions.append_session(session).id
    else:
        identity, session = head.id, sessions.load_session(head.id)
    figures = {name: value for name, value in session.measured.items() if isinstance(value, (int, float))}
    said = f"session {identity}: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
    return Outcome(version_of(identity), said, "reused" if reused else "done", [identity], figures)


def gap_to_sol(lab: Lab, name: str) -> Outcome:
    """One candidate's device time ÷ the reachable floor, per case."""
    source = lab.candidate(name)
    rows = times_of(lab, source)
    if not rows:
        return not_needed(f"{source.name} has no times")
    payload, identity, reused = _gaps(lab, rows, source.name)
    return _gap_outcome(payload, identity, reused, f"{source.name}: ")


def beam(lab: Lab) -> Outcome:
    """The best confirmed candidates of the scope."""
    rows = (
        []
        if lab.scope is None
        else beams.beam(lab.loaded.hash, lab.scope, stored_decisions(), stored_withdrawals(lab.loaded.hash))
    )
    names = ", ".join(row["name"] for row in rows) or "nobody yet: v000 stands"
    version = version_of([[row["name"], row["plan_hash"], row["decision"]] for row in rows])
    return Outcome(version, names, "done", facts={"width": len(rows)}, rows=rows)


def archive(lab: Lab) -> Outcome:
    """Who holds each case, recorded whenever that changes."""
    payload = _holders(lab)
    identity, reused = lab.record("holders", payload, under)
    keys = ("case", "plan", "official_us", "queued_us", "reference_us", "ratio_to_reference", "ratio_low", "ratio_high")
    rows = [{key: row.get(key) for key in (*keys, "best_peer", "ratio_to_best_peer")} for row in payload["cases"]]
    held = sorted({row["plan"] for row in payload["cases"] if row.get("plan")})
    said = f"held by {', '.join(held) or 'nobody'}"
    facts = {"holders": identity, "contested": len(payload.get("contested", []))}
    return Outcome(version_of(identity), said, "reused" if reused else "done", facts=facts, rows=rows)


def route(lab: Lab) -> Outcome:
    """Done, tune or structural per case, on the figures of whoever holds it."""
    holders = _holders(lab)
    rows = [
        {
            **{key: row[key] for key in ("case", "plan", "candidate_hash", "plan_hash", "official_us", "queued_us")},
            "session": (row.get("sessions") or [None])[-1],
        }
        for row in holders["cases"]
        if row.get("official_us") is not None
    ]
    gaps, _, _ = _gaps(lab, rows, HOLDERS)
    payload = routing.route(lab.loaded, gaps)
    identity, reused = lab.record("route", payload, under)
    keys = ("case", "route", "gap", "binding_term", "argument")
    table = [{key: row.get(key) for key in keys} for row in payload["cases"]]
    return Outcome(
        version_of(identity),
        f"{payload['overall']}: {payload['argument']}",
        "reused" if reused else "done",
        facts={"overall": payload["overall"], "route": identity},
        rows=table,
        plots={"gap per case": plots.gap_plot(gaps)},
    )


def submission(lab: Lab) -> Outcome:
    """One file compiled from the holders. Where this machine can, it is driven as the official script would before it
    replaces the one that lies there."""
    portfolio = compiler.portfolio(lab.loaded, _holders(lab), laboratory.incumbent(lab.loaded, lab.scope))
    path, digest = compiler.path_for(lab.loaded), compiler.digest(portfolio)
    newest = [there for _, there in records("submission") if under(there) == [lab.loaded.hash, lab.scope]][-1:]
    known = bool(newest) and newest[0]["sha256"] == digest and path.is_file()
    if known:
        check = Check(DRIVEN, True, f"{path.name}, sha256 {digest[:12]}, is the file that was recorded")
    elif lab.reading:
        raise Missing("submission: not compiled from what the log holds yet")
    else:
        check = _driven(lab, portfolio)
    if not check.passed and not check.warning:
        return Outcome(version_of("refused", digest), check.description, checks=[check])
    path, payload = (path, newest[0]) if known else compiler.compile_to(lab.loaded, portfolio, path)
    identity, reused = lab.record("submission", payload, under)
    rows = [
        {"case": row["case"], "plan": row.get("plan"), "sessions": ", ".join(row["sessions"])}
        for row in payload["cases"]
    ]
    return Outcome(
        version_of(payload["sha256"]),
        f"{path}, sha256 {payload['sha256'][:12]}",
        "reused" if reused else "done",
        facts={"path": str(path), "sha256": payload["sha256"], "submission": identity},
        rows=rows,
        checks=[check],
    )


def report(lab: Lab) -> Outcome:
    """The page of the lineage, from the log alone."""
    if lab.reading:
        raise Missing("the page is written when the lineage runs")
    path, digest = page.write(lab.loaded, lab.scope)
    return Outcome(version_of(digest), str(path), facts={"path": str(path)})


def times_of(lab: Lab, source: Source) -> list[dict[str, Any]]:
    """A row a case with a plan's median official and queued µs, from the newest whole session in which it was right and
    timed; serial cases from theirs."""
    found: dict[int, dict[str, Any]] = {}
    plan_hash = lab.plan_hash(source)
    for head in reversed(lab.heads("decide", "confirm", "serial")):
        record = next((r for r in head.participants if _is(r, source, plan_hash)), None)
        if record is None:
            continue
        session = sessions.load_whole(head.id)
        wrong = standing(session, record["name"], [])[0] in (WRONG, UNPROVED)
        if session.status != "complete" or wrong:
            continue
        for case in session.cases:
            us = {mode: measuring.median_us(session, record["name"], case, mode) for mode in ("official", "queued")}
            if case not in found and us["official"] is not None:
                row = {"case": case, "plan": source.name, "candidate_hash": source.sha256, "plan_hash": plan_hash}
                found[case] = {**row, "official_us": us["official"], "queued_us": us["queued"], "session": head.id}
    return [found[case] for case in sorted(found)]


def _is(record: dict[str, Any], source: Source, plan_hash: str) -> bool:
    if record["role"] == "twin":
        return False
    serial = record["candidate_hash"] == source.sha256 and not any(record["schedules"].values())
    return record["plan_hash"] == plan_hash or serial


def _gaps(lab: Lab, rows: list[dict[str, Any]], of: str) -> tuple[dict[str, Any], str, bool]:
    """The gap of a candidate (`of`: its name) or of the holders, recorded: (payload, id, whether it was there)."""
    head = ceilings_in_use(lab)
    if head is None:
        raise Missing(f"there are no ceilings to hold times against; gfast measure ceilings -c {lab.loaded.name}")
    payload = {"of": of, **gap.gaps(lab.loaded, rows, sessions.load_session(head.id), head.id)}
    identity, reused = lab.record("gap", payload, _whose)
    return payload, identity, reused


def _whose(payload: dict[str, Any]) -> Any:
    """The subject of a gap: whose times it holds against the floors."""
    return [*under(payload), payload.get("of")]


def _gap_outcome(payload: dict[str, Any], identity: str, reused: bool, who: str) -> Outcome:
    keys = ("case", "plan", "official_us", "queued_us", "floor_us", "binding_term", "gap")
    rows = [{key: row.get(key) for key in keys} for row in payload["cases"]]
    known = [row for row in payload["cases"] if row.get("gap") is not None]
    worst = max(known, key=lambda row: row["gap"], default=None)
    said = who + (
        "no gap is known" if worst is None else f"farthest on case {worst['case']}, {worst['gap']:.1f} times its floor"
    )
    facts: dict[str, Any] = {"gap": identity} | ({"largest_gap": worst["gap"]} if worst else {})
    drawn = {"gap per case": plots.gap_plot(payload)} if known else {}
    return Outcome(version_of(identity), said, "reused" if reused else "done", [], facts, rows, drawn)


def ceilings_in_use(lab: Lab) -> sessions.SessionHead | None:
    """The newest whole session of ceilings in scope."""
    found = [head for head in lab.heads("ceilings") if head.status == "complete"]
    return found[-1] if found else None


def _holders(lab: Lab) -> dict[str, Any]:
    if lab.scope is None:
        raise Missing("nothing was measured under this contract yet")
    stamp = tuple(entry.id for entry in evidence.entries() if entry.kind in (sessions.SESSION, WITHDRAWAL))
    if lab.holders is None or lab.holders[0] != stamp:  # publishing asks three times, and it takes seconds
        peers = measuring.peer_times(lab.loaded.hash, lab.scope, lab.loaded.contract.mode.headline)
        lab.holders = stamp, archives.holders(lab.loaded, lab.scope, peers=peers)
    if not any(row.get("official_us") for row in lab.holders[1]["cases"]):
        raise Missing("nothing was measured on any case yet")
    return lab.holders[1]


def _driven(lab: Lab, portfolio: compiler.Portfolio) -> Check:
    """The compiled text in a process of its own, by the official protocol, where the device is here: right on every
    case, each served by the plan that holds it."""
    if lab.here is None:
        return Check(DRIVEN, False, f"not driven: {lab.loaded.contract.target.accelerator} is not here", warning=True)
    scored = [case.id for case in lab.loaded.contract.scored]
    with tempfile.TemporaryDirectory(prefix="gfast-driven-") as folder:
        path = Path(folder, "submission.py")
        path.write_text(compiler.render(portfolio), encoding="utf-8")
        command = [sys.executable, str(path), "--official", "--cases", ",".join(map(str, scored)), "--json"]
        command += ["--warmup", "2", "--repeats", "5"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=DRIVE_S, env=local.with_package())
        except subprocess.TimeoutExpired:
            return Check(DRIVEN, False, f"the compiled submission did not end within {DRIVE_S:.0f} s")
    try:
        found = {row["case"]: row for row in json.loads(done.stdout.splitlines()[-1])["cases"]}
    except (ValueError, KeyError, IndexError):
        words = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        return Check(DRIVEN, False, f"the compiled submission does not run: {words}")
    for case in scored:
        row = found.get(case, {})
        if row.get("accuracy") != "pass":
            return Check(DRIVEN, False, f"case {case}: {row.get('reason') or row.get('accuracy') or 'no answer'}")
        held = portfolio.cells[case].source.name if case in portfolio.cells else None
        if held is not None and row.get("plan") != held:
            why = row.get("reason") or row.get("why")
            return Check(DRIVEN, False, f"case {case} is served by {row.get('plan')}, {held} holds it: {why}")
    return Check(DRIVEN, True, f"right on cases {', '.join(map(str, scored))}, each served by the plan that holds it")
