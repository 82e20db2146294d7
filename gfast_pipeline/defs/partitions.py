"""One dynamic dimension a workload: its candidates, by file name."""

import dagster as dg


def candidates(workload: str) -> dg.DynamicPartitionsDefinition:
    """The partitions of every starred stage of a workload."""
    return dg.DynamicPartitionsDefinition(name=f"{workload}_candidate")
