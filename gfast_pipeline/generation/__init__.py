"""From a brief to a candidate file, and the static policy that reads one before anything runs."""
