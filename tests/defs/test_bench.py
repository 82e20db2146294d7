"""A measurement as a Pipes session of its step: what it says is heard, and its silence is a failure."""

import dagster as dg
import pytest

from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.defs import home, lineage
from gfast_pipeline.execution import local
from gfast_pipeline.ledger import evidence

pytestmark = pytest.mark.timeout(200)
V001 = "v001_fused_qkv_sdpa"


def correctness(instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    instance.add_dynamic_partitions("transformer_layer_candidate", [V001])
    assets = lineage.assets("transformer_layer", "tiny")
    key = lineage.key_of("transformer_layer", "tiny", "correctness")
    return dg.materialize(assets, selection=[key], partition_key=V001, instance=instance, raise_on_error=False)


def test_the_progress_of_the_bench_stands_in_the_log_of_the_run(place: Loaded):
    instance = home.instance()
    done = correctness(instance)
    assert done.success
    said = [record.user_message for record in instance.all_logs(done.run_id)]
    assert any("correctness of v001_fused_qkv_sdpa" in line for line in said), said
    assert any("external process successfully opened dagster pipes" in line for line in said)


def test_a_bench_that_ends_without_a_word_fails_the_step_and_materializes_nothing(place: Loaded, monkeypatch):
    instance = home.instance()
    local.examine("cpu")
    monkeypatch.setattr("gfast_pipeline.stages.lab.examined", lambda device: {"accelerator": {"name": "cpu"}})
    monkeypatch.setattr(local.sys, "executable", "/bin/true")
    done = correctness(instance)
    assert not done.success and not done.get_asset_materialization_events()
    (failure,) = [event for event in done.all_events if event.is_step_failure]
    assert "the bench ended without a session" in str(failure.step_failure_data)
    assert not [entry for entry in evidence.entries() if entry.kind == "session"]


def test_the_instance_limits_pools_and_runs_and_watches_runs_that_died(place: Loaded):
    instance = home.instance()
    settings = {key: instance.get_settings(key) for key in ("concurrency", "run_monitoring", "telemetry", "retention")}
    assert settings["concurrency"]["pools"]["default_limit"] == 1
    assert settings["concurrency"]["runs"]["max_concurrent_runs"] == 1
    assert settings["run_monitoring"]["enabled"] and settings["run_monitoring"]["free_slots_after_run_end_seconds"]
    assert settings["telemetry"]["enabled"] is False and settings["retention"]["sensor"]


def test_a_step_waits_while_another_run_holds_the_device_of_its_contract(place: Loaded):
    instance = home.instance()
    pools = {str(asset.op.pool) for asset in lineage.assets("transformer_layer", "tiny") if asset.op.pool}
    assert pools == {"device_cpu"}, "one pool a device: the bench's lease is one, too"
    storage = instance.event_log_storage
    storage.initialize_concurrency_limit_to_default(pools.copy().pop())
    first = storage.claim_concurrency_slot(pools.copy().pop(), "a run", "a step")
    second = storage.claim_concurrency_slot(pools.copy().pop(), "another run", "its step")
    assert first.is_claimed and not second.is_claimed
