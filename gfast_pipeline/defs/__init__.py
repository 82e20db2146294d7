"""All that imports dagster: the stages as assets, and what sets them going. No logic of its own."""

import warnings

from dagster import PreviewWarning

# Partitioned checks and Pipes readers are previews in the version that constraints.txt pins; tests hold them to what we
# rely on, so the same warning thirty times a command tells nobody anything.
warnings.filterwarnings("ignore", category=PreviewWarning)
