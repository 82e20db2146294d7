"""The definitions as a whole: every asset complete, every trap of automation and partitions avoided."""

from __future__ import annotations

from itertools import pairwise

import dagster as dg
import pytest

from gfast_pipeline.defs import lineage, sensors
from gfast_pipeline.defs.automation import when_inputs_change
from gfast_pipeline.defs.stage import STAGES


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    from gfast_pipeline.definitions import defs

    return defs()


def test_they_load_and_hold_every_stage_of_every_contract(definitions: dg.Definitions):
    keys = {key.to_user_string() for key in definitions.resolve_all_asset_keys()}
    for contract in ("h200_fp32", "cpu_fp32"):
        assert {f"transformer_layer/{contract}/{stage.name}" for stage in STAGES} <= keys


def test_every_asset_says_what_it_is_whose_it_is_and_which_code_decides_it(definitions: dg.Definitions):
    for spec in definitions.resolve_all_asset_specs():
        assert spec.description and spec.group_name == spec.key.path[0], spec.key
        assert spec.owners and spec.kinds and spec.code_version, spec.key


def test_checks_of_partitioned_assets_are_partitioned_so_that_one_bad_candidate_blocks_itself_alone(
    definitions: dg.Definitions,
):
    graph = definitions.resolve_asset_graph()
    starred = {stage.name for stage in STAGES if stage.starred}
    assert graph.asset_check_keys
    for key in graph.asset_check_keys:
        found = graph.get(key).partitions_def
        assert (found is not None) is (key.asset_key.path[-1] in starred), key


def test_what_measures_waits_in_a_pool_and_is_never_asked_for_by_changed_inputs(definitions: dg.Definitions):
    for stage in STAGES:
        key = lineage.key_of("transformer_layer", "cpu_fp32", stage.name)
        asset = definitions.resolve_assets_def(key)
        condition = next(iter(asset.specs)).automation_condition
        assert bool(asset.op.pool) is stage.measures, stage.name
        if stage.measures or stage.starred:
            assert condition is None, stage.name
        elif stage.after:
            assert condition is when_inputs_change, stage.name


def test_sensors_and_automation_run_by_default(definitions: dg.Definitions):
    found = list(definitions.sensors or ())
    assert {sensor.name for sensor in found} >= {
        "inputs_changed",
        "transformer_layer_candidate_landed",
        "transformer_layer_contract_edited",
    }
    assert {sensor.default_status for sensor in found} == {dg.DefaultSensorStatus.RUNNING}


def test_the_lineage_is_the_one_that_the_design_draws():
    after = {stage.name: set(stage.after) for stage in STAGES}
    chain = ["candidate", "correctness", "screening", "timings", "decision", "confirmation", "gap_to_sol", "archive"]
    for earlier, later in pairwise(chain):
        assert earlier in after[later], (earlier, later)
    assert after["submission"] == {"archive", "beam"} and "submission" in after["report"]


def test_a_candidate_file_that_is_still_being_written_is_left_alone(tmp_path):
    import os
    import time

    old, new = tmp_path / "v001_old.py", tmp_path / "v002_new.py"
    for path in (old, new):
        path.write_text("x")
    os.utime(old, (time.time() - 10, time.time() - 10))
    assert sensors.settled(tmp_path) == [old]
