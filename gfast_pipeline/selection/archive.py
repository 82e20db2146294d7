"""The archive: per case the plan that holds the cell, and who contests it. A pure function of the log, in one scope.

Every scored case starts with v000. The races of the log are gone through in order; after each, whoever of those timed
there stands a confirmed win over a holder takes that cell, the largest ratio first. `contest` has the rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gfast_pipeline.bench.messages import Session
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.ledger import evidence, sessions
from gfast_pipeline.selection import rows
from gfast_pipeline.selection import scope as scopes
from gfast_pipeline.selection.contest import Contests, Standing
from gfast_pipeline.selection.field import Field, Identity, Plan, Seen
from gfast_pipeline.selection.rows import Cell, Peers
from gfast_pipeline.selection.withdrawal import WITHDRAWAL, Withdrawn, withdrawn

HOLDERS = "holders"


def holders(
    loaded: Loaded, scope: Mapping[str, Any], *, peers: Peers | None = None, folders: Sequence[Path] | None = None
) -> dict[str, Any]:
    """The payload of a `holders` entry for a contract in a scope, from the log.

    `peers` is what `measuring.peer_times` gives. Raises EvidenceError, and WorkloadError where there is no v000.
    """
    control = loaded.workload.candidate("v000")
    default = Plan(control.name, control.sha256, control.plan("control", []).plan_hash)
    out = withdrawn(evidence.entries(folders, WITHDRAWAL), loaded.hash)
    log = read_log(loaded.hash, scope, folders)
    return {
        "workload": loaded.workload.name,
        "contract_name": loaded.name,
        "contract_hash": loaded.hash,
        "scope": dict(scope),
        **archive(loaded.plain, default, log, out, peers or {}),
    }


def read_log(
    contract_hash: str, scope: Mapping[str, Any], folders: Sequence[Path] | None = None
) -> list[tuple[str, Session]]:
    """(id, session) of everything measured under a contract in a scope, in order, each with its remainders joined."""
    heads = sessions.list_sessions(folders, contract_hash=contract_hash, scope=scope)
    parted = {head.rest_of for head in heads}
    log = []
    for head in heads:
        if head.rest_of is None:  # joining reads the whole log anew, so only where there is something to join
            load = sessions.load_whole if head.id in parted else sessions.load_session
            log.append((head.id, load(head.id, folders)))
    return log


def archive(
    contract: Mapping[str, Any], default: Plan, log: Sequence[tuple[str, Session]], out: Withdrawn, peers: Peers
) -> dict[str, Any]:
    """{"cases", "contested"} of a `holders` payload. `contract` as plain values, `default` v000, `log` in its order.

    Raises ScopeError where the sessions are of several scopes or contracts: then there is nothing to rank.
    """
    scopes.refuse_across((session for _, session in log), "the sessions of an archive")
    field = Field(contract, log, out)
    contests = Contests(field)
    cells, taken = _replay(contests, default)
    cases = []
    for case in contract["cases"]:
        number = int(case["id"])
        if case["status"] == "scored":
            cell = cells[number] if cells[number].since else rows.default_cell(number, default, field)
            cases.append(rows.scored_row(number, cell, field, peers.get(number)))
        else:
            cases.append(rows.feasibility_row(number, log, out))
    return {
        "cases": cases,
        "contested": [rows.contested_row(one) for one in (*taken, *_open(contests, cells, default))],
    }


def _replay(contests: Contests, default: Plan) -> tuple[dict[int, Cell], list[Standing]]:
    """The cells after the last race, and every standing by which one changed hands, in order."""
    field = contests.field
    cells = {case: Cell(default) for case in field.weights}
    taken: list[Standing] = []
    for upto, race in enumerate(field.seen, 1):
        known = _plans(field.seen[:upto], default)
        contenders = {identity[0] for right in race.right.values() for identity in right} & known.keys()
        held = {(case, cell.holder.identity) for case, cell in cells.items()}
        while best := _winners(
            contests, [plan for name in sorted(contenders) for plan in known[name]], cells, upto, held
        ):
            for case, one in sorted(best.items()):
                cells[case] = Cell(one.challenger, race.id, one.races)
                held.add((case, one.challenger.identity))  # never back within one race, so that this ends
                taken.append(one)
            contenders = known.keys()  # a new holder is open to all who met it before
    return cells, taken


def _winners(
    contests: Contests,
    plans: Sequence[Mapping[int, Plan]],
    cells: Mapping[int, Cell],
    upto: int,
    held: set[tuple[int, Identity]],
) -> dict[int, Standing]:
    """case → the standing that takes it, the largest ratio where several do."""
    now = {case: cell.holder for case, cell in cells.items()}
    best: dict[int, Standing] = {}
    for plan in plans:
        for case, one in contests.standings(plan, now, upto).items():
            other = best.get(case)
            if not one.takes or (case, one.challenger.identity) in held:
                continue
            if other is None or (one.ratio or 0.0) > (other.ratio or 0.0):
                best[case] = one
    return best


def _open(contests: Contests, cells: Mapping[int, Cell], default: Plan) -> list[Standing]:
    """How everybody else stands against the present holders; v000 aside, whose ratio to the reference says it."""
    seen = contests.field.seen
    now = {case: cell.holder for case, cell in cells.items()}
    found: list[Standing] = []
    for plan in (plan for plans in _plans(seen, default).values() for plan in plans):
        # Nobody takes anything here: a win that the races leave open (a circle of three) waits for the next race.
        found += [replace(one, takes=False) for one in contests.standings(plan, now, len(seen), shown=True).values()]
    return sorted(found, key=lambda one: (one.case, one.challenger.name, one.challenger.schedule))


def _plans(seen: Sequence[Seen], default: Plan) -> dict[str, list[dict[int, Plan]]]:
    """candidate hash → its plans as case → plan, v000 aside: it holds what nobody took and takes nothing back.

    A second schedule of a case makes a second plan; what counts for Holm is what one plan contests.
    """
    found: dict[str, dict[int, dict[Identity, Plan]]] = {}
    for race in seen:
        for case, right in race.right.items():
            for identity, plan in right.items():
                if plan.candidate_hash != default.candidate_hash:
                    found.setdefault(plan.candidate_hash, {}).setdefault(case, {})[identity] = plan
    return {
        candidate: [
            {case: list(of.values())[index] for case, of in sorted(cases.items()) if index < len(of)}
            for index in range(max(map(len, cases.values())))
        ]
        for candidate, cases in found.items()
    }
