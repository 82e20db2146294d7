"""What runs on the GPU machine: judge, runner, inputs, oracles, clocks, ceilings. Standard library and torch only."""
