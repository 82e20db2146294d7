"""From files to what may be judged: the contract, the catalogue of candidates, one candidate."""

from __future__ import annotations

from typing import Any

from gfast_pipeline import laboratory
from gfast_pipeline.contract import approval
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.workload import Source
from gfast_pipeline.generation.verdicts import static_verdicts
from gfast_pipeline.stages.lab import Lab
from gfast_pipeline.stages.outcome import Check, Outcome, version_of


def contract(lab: Lab) -> Outcome:
    """The constitution: its hash, its cases, who approved it. Its approval goes into the log once."""
    loaded = lab.loaded
    facts = {"hash": loaded.hash, "accelerator": loaded.contract.target.accelerator}
    facts |= {"margin": loaded.contract.margin, "purpose": loaded.contract.purpose}
    rows = [
        {"case": case.id, "status": case.status, "regime": case.regime, "weight": case.weight, **case.shape}
        for case in loaded.contract.cases
    ]
    try:
        found = approval.check(loaded)
    except GfastError as error:
        check = Check("contract_is_approved", False, str(error))
        return Outcome(loaded.hash[:16], f"{loaded.name} is not approved", facts=facts, rows=rows, checks=[check])
    stated = {"workload": loaded.workload.name, "contract_name": loaded.name, "contract_hash": loaded.hash}
    lab.record(
        "approval",
        {**stated, "by": found.by, "date": found.date},
        _signed,
    )
    said = f"{loaded.name} {loaded.hash[:12]}, approved by {found.by} on {found.date}"
    return Outcome(loaded.hash[:16], said, facts=facts, rows=rows, checks=[Check("contract_is_approved", True, said)])


def catalogue(lab: Lab) -> Outcome:
    """Every candidate file there is, by name and hash."""
    found = lab.loaded.workload.candidates()
    rows = [
        {"candidate": source.name, "sha256": source.sha256[:12], "hypothesis": headline(source)} for source in found
    ]
    version = version_of([[source.name, source.sha256] for source in found])
    misnamed = lab.loaded.workload.misnamed()
    facts = {"candidates": len(found), "misnamed": ", ".join(path.name for path in misnamed) or "none"}
    return Outcome(version, f"{len(found)} candidates", facts=facts, rows=rows)


def candidate(lab: Lab, name: str) -> Outcome:
    """One candidate file: its hash, its hypothesis, and whether it is still what was judged. Goes into the log once."""
    source = lab.candidate(name)
    checks = []
    try:
        laboratory.refuse_edit(lab.loaded, source)
        checks.append(Check("file_is_unedited", True, f"{source.path.name} is what was judged, or was not judged yet"))
    except GfastError as error:
        checks.append(Check("file_is_unedited", False, str(error)))
    else:
        entry = {"workload": lab.loaded.workload.name, "name": source.name, "candidate_hash": source.sha256}
        lab.record(
            "candidate",
            {**entry, "source": source.source, "hypothesis": source.hypothesis},
            lambda one: [one["workload"], one["name"], one["candidate_hash"]],
        )
    refused = [verdict.reason for verdict in static_verdicts(lab.loaded, source) if verdict.status == "failed"]
    checks.append(
        Check(
            "policy_allows_it", not refused, refused[0] if refused else "nothing the contract prohibits", warning=True
        )
    )
    facts = {"sha256": source.sha256, "lines": source.source.count("\n") + 1, "hypothesis": source.hypothesis}
    return Outcome(version_of(name, source.sha256), headline(source), facts=facts, checks=checks)


def _signed(one: dict[str, Any]) -> Any:
    return [one["contract_hash"], one["by"], one["date"]]


def refused(lab: Lab, source: Source) -> str:
    """What the static policy has against a candidate; empty where nothing."""
    verdicts = static_verdicts(lab.loaded, source)
    return next((verdict.reason for verdict in verdicts if verdict.status == "failed"), "")


def headline(source: Source) -> str:
    """The first line of a candidate's docstring."""
    return (source.hypothesis or source.trouble or "no hypothesis").strip().splitlines()[0]
