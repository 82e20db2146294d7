"""The compiled file takes part in a session of the bench, judged as any candidate is."""

from __future__ import annotations

from gfast_pipeline.execution import jobs, local
from gfast_pipeline.submission.compile import compile_to, path_for, plan, portfolio
from tests.submission.portfolios import holders

V000, V001 = "v000_identity", "v001_fused_qkv_sdpa"


def test_a_submission_is_built_proved_by_its_timed_outputs_and_timed(loaded, tmp_path, monkeypatch):
    monkeypatch.setenv("GFAST_WAREHOUSE", str(tmp_path / "warehouse"))
    shop = loaded.workload
    made = portfolio(loaded, holders(loaded, {1: V001}), shop.candidate(V001))
    path, payload = compile_to(loaded, made, path_for(loaded))
    job = jobs.race(loaded, "confirm", shop.candidate(V001), shop.candidate(V000), shop.candidate(V000), [])
    job.plans.append(plan(path, payload))
    session = local.run(job, lambda _seconds, _line: None)
    failed = [v for v in session.verdicts if v.participant == "submission" and v.status != "passed"]
    assert session.status == "complete" and failed == []
    assert {v.gate for v in session.verdicts if v.participant == "submission"} >= {"timed_output"}
    assert [v for v in session.visits if v.participant == "submission" and v.event_us]
