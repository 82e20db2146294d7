"""Sensors as ticks: what lands is asked for once, an edit once more, and no tick needs the database or torch."""

import os
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.defs import sensors
from gfast_pipeline.ledger import database

ROOT = Path(__file__).parents[2]


def landing(instance: dg.DagsterInstance, cursor: str | None = None) -> dg.SensorResult:
    sensor = next(s for s in sensors.all_sensors() if s.name == "transformer_layer_candidate_landed")
    found = sensor(dg.build_sensor_context(instance=instance, cursor=cursor))
    assert isinstance(found, dg.SensorResult)
    return found


def keys(result: dg.SensorResult) -> dict[str, str]:
    return {str(request.partition_key): str(request.run_key) for request in result.run_requests or ()}


@pytest.fixture
def settled(place: Loaded) -> Loaded:
    """All files have lain still."""
    for path in (place.workload.folder / "candidates").glob("*.py"):
        os.utime(path, (time.time() - 60, time.time() - 60))
    return place


def test_every_candidate_that_lies_still_is_asked_for_under_a_key_that_follows_its_content(settled: Loaded):
    with dg.instance_for_test() as instance:
        first = landing(instance)
        again = landing(instance)
        assert set(keys(first)) == {"v000_identity", "v001_fused_qkv_sdpa", "v002_sdpa_graph"}
        assert keys(first) == keys(again), "the daemon drops a key that it has seen"
        path = settled.workload.folder / "candidates" / "v001_fused_qkv_sdpa.py"
        path.write_text(path.read_text() + "\n")
        assert set(keys(landing(instance))) == {"v000_identity", "v002_sdpa_graph"}, "it is being written"
        os.utime(path, (time.time() - 60, time.time() - 60))
        edited = keys(landing(instance))
        assert edited["v001_fused_qkv_sdpa"] != keys(first)["v001_fused_qkv_sdpa"]
        assert edited["v000_identity"] == keys(first)["v000_identity"]


def test_a_content_that_returns_is_asked_for_again_although_its_key_was_spent(settled: Loaded):
    path = settled.workload.folder / "candidates" / "v001_fused_qkv_sdpa.py"
    texts = [path.read_text(), path.read_text() + "\n", path.read_text()]
    seen, cursor = [], None
    with dg.instance_for_test() as instance:
        for text in texts:
            path.write_text(text)
            os.utime(path, (time.time() - 60, time.time() - 60))
            found = landing(instance, cursor)
            cursor = found.cursor
            seen.append(keys(found)["v001_fused_qkv_sdpa"])
            assert keys(landing(instance, cursor))["v001_fused_qkv_sdpa"] == seen[-1]
    assert len(set(seen)) == 3


def test_partitions_are_added_in_the_tick_that_asks_for_them(settled: Loaded):
    with dg.instance_for_test() as instance:
        (added,) = list(landing(instance).dynamic_partitions_requests or ())
        assert added.partitions_def_name == "transformer_layer_candidate"
        assert set(added.partition_keys) >= set(keys(landing(instance)))


def test_a_contract_approved_anew_is_raced_anew(settled: Loaded):
    with dg.instance_for_test() as instance:
        before = keys(landing(instance))
        approval = settled.path.with_name("tiny.approved.toml")
        approval.write_text(approval.read_text() + "# signed again\n")
        after = keys(landing(instance))
        assert all(after[name] != before[name] for name in before)


def test_a_tick_does_not_wait_for_the_database(settled: Loaded):
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import duckdb; c = duckdb.connect({str(database.path())!r}); print(1, flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline()
        with pytest.raises(duckdb.IOException):
            duckdb.connect(str(database.path()))
        with dg.instance_for_test() as instance:
            assert keys(landing(instance))
    finally:
        holder.communicate("\n")


def test_loading_the_definitions_imports_neither_torch_nor_plots():
    code = (
        "import sys; from gfast_pipeline.definitions import defs; defs().resolve_all_asset_keys(); "
        "sys.exit(', '.join({'torch', 'triton', 'altair', 'pandas'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-500:]


def test_no_env_file_overrides_the_home_that_ci_sets():
    assert not list(ROOT.glob(".env*"))


def test_a_second_workload_has_a_lineage_of_its_own_without_a_line_of_code(settled: Loaded, monkeypatch):
    import shutil

    from gfast_pipeline.defs.lineages import lineages
    from gfast_pipeline.defs.stage import STAGES

    kernels = settled.workload.folder.parent
    shutil.copytree(settled.workload.folder, kernels / "another_layer")
    found = lineages()
    keys_ = {asset.key.to_user_string() for asset in found.assets or () if isinstance(asset, dg.AssetsDefinition)}
    assert {f"another_layer/tiny/{stage.name}" for stage in STAGES} <= keys_
    assert {f"transformer_layer/tiny/{stage.name}" for stage in STAGES} <= keys_
