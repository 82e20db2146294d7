"""Is all of it still true? The log, the device's ceilings, the champion against the reference, room on the disk."""

from __future__ import annotations

import shutil

from gfast_pipeline import decisions, laboratory
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.execution import jobs
from gfast_pipeline.ledger import evidence, index, sessions, verify
from gfast_pipeline.stages import choosing
from gfast_pipeline.stages.lab import Lab
from gfast_pipeline.stages.outcome import Check, Missing, Outcome, version_of

DRIFT = 0.10
"""How far a ceiling may lie from its last measurement."""
ROOM_BYTES = 5_000_000_000


def health(lab: Lab) -> Outcome:
    """Four checks; what cannot be measured here says so and is no failure."""
    checks = [_chain(), _ceilings(lab), _champion(lab), _disk()]
    wrong = [check.description for check in checks if not check.passed]
    said = "; ".join(wrong) or "everything holds"
    return Outcome(version_of([[check.name, check.passed] for check in checks]), said, checks=checks)


def _chain() -> Check:
    try:
        index.sync()
    except GfastError as error:
        return Check("chain_is_whole", False, str(error))
    problems = verify.verify()
    said = str(problems[0]) if problems else f"{len(evidence.entries())} entries, chain {evidence.chain()[:12]}"
    return Check("chain_is_whole", not problems, said)


def _ceilings(lab: Lab) -> Check:
    name = "ceilings_hold"
    used = choosing.ceilings_in_use(lab)
    if lab.here is None or used is None:
        accelerator = lab.loaded.contract.target.accelerator
        why = "there is nothing to compare with" if lab.here else f"{accelerator} is not here"
        return Check(name, True, f"not measured: {why}", warning=True)
    old = sessions.load_session(used.id).measured
    new = lab.run(jobs.ceilings(lab.loaded)).measured  # recorded, an alarm would be what the next one compares with
    known = [key for key in old if all(isinstance(one.get(key), (int, float)) for one in (old, new))]
    drifts = {key: new[key] / old[key] - 1 for key in known}
    worst = max(drifts, key=lambda key: abs(drifts[key]), default=None)
    if worst is None:
        return Check(name, True, "no figure is in both measurements", warning=True)
    said = f"{worst} reads {new[worst]:.4g}, {old[worst]:.4g} in session {used.id}: {drifts[worst]:+.1%}"
    return Check(name, abs(drifts[worst]) <= DRIFT, said, warning=True)


def _champion(lab: Lab) -> Check:
    name = "champion_beats_reference"
    holder = laboratory.incumbent(lab.loaded, lab.scope)
    if holder.name.startswith("v000"):
        return Check(name, True, "v000 holds the title: it is the reference", warning=True)
    try:
        lab.ready("measuring the champion", "screen", f" --candidate {holder.name}")
        identity = laboratory.challenge(lab.loaded, holder.name, lab.run, "neutral", "v000")
    except Missing as missing:
        return Check(name, True, f"not measured: {missing}", warning=True)
    decision = decisions.settled_on(lab.loaded, identity).decision
    good = decision.low is not None and decision.low > 1
    return Check(name, good, decision.reason, warning=decision.low is None)


def _disk() -> Check:
    free = shutil.disk_usage(evidence.warehouse()).free
    return Check("disk_has_room", free >= ROOM_BYTES, f"{free / 1e9:,.0f} GB free; {ROOM_BYTES / 1e9:.0f} are wanted")
