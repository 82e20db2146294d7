"""The static policy's word on a file as the verdicts of a session."""

from __future__ import annotations

from gfast_pipeline.bench.messages import Verdict
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.contract.workload import Source
from gfast_pipeline.generation import policy


def static_verdicts(loaded: Loaded, source: Source, peer: bool = False) -> list[Verdict]:
    """The static policy's verdict on a source: one passed, or one failed a finding."""
    prohibited = loaded.plain["prohibited"]
    findings = policy.check(source.source, prohibited, source.path.name, peer)
    reasons = [str(finding) for finding in findings] or ([source.trouble] if source.trouble else [])
    if not reasons:
        return [Verdict("policy", "passed", source.name)]
    return [Verdict("policy", "failed", source.name, reason=reason) for reason in reasons]
