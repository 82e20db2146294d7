"""The lineage in a real Dagster instance: one process, a real bench, a real ledger."""

from __future__ import annotations

import dagster as dg
import pytest

from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.defs import home, lineage, publish, run
from gfast_pipeline.defs.health import purge
from gfast_pipeline.ledger import database, evidence, sessions

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(400)]
V000, V001, V002 = "v000_identity", "v001_fused_qkv_sdpa", "v002_sdpa_graph"


def events(instance: dg.DagsterInstance, stage: str, partition: str | None = None) -> list:
    filter_ = dg.AssetRecordsFilter(
        asset_key=lineage.key_of("transformer_layer", "tiny", stage),
        asset_partitions=[partition] if partition else None,
    )
    return list(instance.fetch_materializations(filter_, limit=50).records)


def checks(instance: dg.DagsterInstance, stage: str, name: str) -> list[dg.AssetCheckEvaluation]:
    key = dg.AssetCheckKey(lineage.key_of("transformer_layer", "tiny", stage), name)
    found = instance.event_log_storage.get_asset_check_execution_history(key, limit=50)
    return [record.event.dagster_event.asset_check_evaluation_data for record in found]  # type: ignore[union-attr]


def test_the_whole_lineage_twice_measures_once_and_every_row_names_its_run(place: Loaded):
    first = run.run(place, lambda line: None, [V000, V001, V002])
    assert not [step for step in first if step.status == "failed"], first
    said = {(step.stage, step.candidate): step for step in first}
    assert said["timings", V001].status == "done" and said["timings", V002].status == "not_needed"
    assert "held by" in said["archive", None].summary
    count = len(evidence.entries())
    second = run.run(place, lambda line: None, [V000, V001, V002])
    assert len(evidence.entries()) == count, "nothing was measured or concluded anew"
    assert {step.status for step in second} <= {"done", "reused", "not_needed"}
    assert {(s.stage, s.candidate): s.status for s in second}["timings", V001] == "reused"
    instance = home.instance()
    assert len(events(instance, "timings", V001)) == 2
    versions = {publish._shown(instance, lineage.key_of("transformer_layer", "tiny", "timings"), V001)}
    assert len(versions) == 1
    with database.transaction() as (connection, _):
        rows = connection.execute("SELECT run, asset FROM entry WHERE kind = 'session'").fetchall()
    assert rows and all(run_id and asset.startswith("transformer_layer/tiny/") for run_id, asset in rows)


def test_a_wrong_candidate_blocks_its_own_partition_and_no_other(place: Loaded):
    folder = place.workload.folder / "candidates"
    text = (folder / f"{V001}.py").read_text()
    wrong = text.replace("v001:", "v900:").replace("return final_norm(x)", "return 1.5 * final_norm(x)")
    (folder / "v900_wrong.py").write_text(wrong)
    steps = {(s.stage, s.candidate): s for s in run.run(place, lambda line: None, ["v900_wrong", V001])}
    instance = home.instance()
    assert steps["screening", "v900_wrong"].status == "skipped" and steps["timings", V001].status == "done"
    assert len(events(instance, "correctness", "v900_wrong")) == 1, "the materialization is kept"
    assert not events(instance, "timings", "v900_wrong")
    found = {check.partition: check.passed for check in checks(instance, "correctness", "agrees_with_reference")}
    assert found == {"v900_wrong": False, V001: True}


def test_evidence_from_elsewhere_is_shown_without_a_run_and_shown_once(place: Loaded):
    run.run(place, lambda line: None, [V001])
    fresh = evidence.warehouse() / "elsewhere"
    fresh.mkdir()
    with dg.instance_for_test(temp_dir=str(fresh)) as instance:
        assert publish.publish(instance, place) > 5
        assert publish.publish(instance, place) == 0
        assert not instance.get_runs()
        (record,) = events(instance, "timings", V001)
        assert "cases" in record.asset_materialization.metadata  # type: ignore[union-attr]
        assert set(instance.get_dynamic_partitions("transformer_layer_candidate")) >= {V000, V001, V002}
        assert all(check.passed for check in checks(instance, "correctness", "agrees_with_reference"))


def test_a_contract_edited_after_its_approval_stops_every_stage_with_one_message(place: Loaded):
    path = place.path
    path.write_text(path.read_text().replace("margin = 0.02", "margin = 0.03"))
    steps = run.run(place, lambda line: None, [V001])
    assert not [entry for entry in evidence.entries() if entry.kind == sessions.SESSION]
    assert all(step.status != "done" or step.stage == "contract" for step in steps)
    found = checks(home.instance(), "contract", "contract_is_approved")
    assert [check.passed for check in found] == [False]
    assert "gfast approve tiny" in (found[0].description or "")


def test_a_partition_that_is_no_file_fails_with_one_message(place: Loaded):
    instance = home.instance()
    instance.add_dynamic_partitions("transformer_layer_candidate", ["v777_nobody"])
    key = lineage.key_of("transformer_layer", "tiny", "candidate")
    assets = lineage.assets("transformer_layer", "tiny")
    done = dg.materialize(assets, selection=[key], partition_key="v777_nobody", instance=instance, raise_on_error=False)
    failures = [event for event in done.all_events if event.is_step_failure]
    assert len(failures) == 1 and "v777_nobody" in str(failures[0].step_failure_data)


def test_old_runs_are_deleted_and_what_they_showed_is_shown_again_from_the_log(place: Loaded):
    run.run(place, lambda line: None, [V001])
    instance = home.instance()
    runs = len(instance.get_runs())
    assert runs and purge(instance, days=1) == 0 and purge(instance, days=-1) == runs
    assert not events(instance, "timings", V001)
    assert publish.publish(instance, place) > 5 and events(instance, "timings", V001)
