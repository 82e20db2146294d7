"""Automation without a daemon: what follows changed data or code, and what does not follow mere repetition."""

from collections.abc import Callable

import dagster as dg
import pytest

from gfast_pipeline.defs.automation import when_inputs_change


class World:
    """A partitioned upstream and the stage that rests on all of it, under the condition in use."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance, self.cursor, self.code = instance, None, "1"
        self.version: Callable[[str], str] = lambda partition: "a"
        instance.add_dynamic_partitions("c", ["v1", "v2"])

    def definitions(self) -> dg.Definitions:
        partitions = dg.DynamicPartitionsDefinition(name="c")

        @dg.asset(partitions_def=partitions)
        def races(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
            return dg.MaterializeResult(data_version=dg.DataVersion(self.version(context.partition_key)))

        @dg.asset(deps=[races], automation_condition=when_inputs_change, code_version=self.code)
        def archive() -> None: ...

        return dg.Definitions(assets=[races, archive])

    def race(self, partition: str) -> None:
        asset = next(a for a in self.definitions().assets or () if a.key.path == ["races"])  # type: ignore[union-attr]
        assert dg.materialize([asset], partition_key=partition, instance=self.instance).success  # type: ignore[list-item]

    def tick(self) -> int:
        """Requests of one tick; what is requested is made, as the daemon would."""
        definitions = self.definitions()
        found = dg.evaluate_automation_conditions(definitions, self.instance, cursor=self.cursor)
        self.cursor = found.cursor
        if found.total_requested:
            asset = next(a for a in definitions.assets or () if a.key.path == ["archive"])  # type: ignore[union-attr]
            assert dg.materialize([asset], instance=self.instance).success  # type: ignore[list-item]
        return found.total_requested


@pytest.fixture
def world():
    with dg.instance_for_test() as instance:
        found = World(instance)
        found.race("v1")
        found.race("v2")
        for _ in range(3):
            found.tick()
        yield found


def test_quiet_ticks_ask_for_nothing(world: World):
    assert [world.tick() for _ in range(3)] == [0, 0, 0]


def test_a_race_made_anew_with_the_same_result_asks_for_nothing(world: World):
    world.race("v1")
    assert [world.tick() for _ in range(3)] == [0, 0, 0]


def test_a_race_with_another_result_asks_once(world: World):
    world.version = lambda partition: "b" if partition == "v2" else "a"
    world.race("v2")
    assert sum(world.tick() for _ in range(4)) == 1


def test_a_candidate_that_never_gets_there_keeps_nobody_else_waiting(world: World):
    world.instance.add_dynamic_partitions("c", ["v3_wrong"])
    world.version = lambda partition: "b"
    world.race("v1")
    assert sum(world.tick() for _ in range(4)) == 1


def test_changed_code_asks_once(world: World):
    world.code = "2"
    assert sum(world.tick() for _ in range(4)) == 1
