"""Layer 6: where a bench job runs. Jobs are built here, then run here (`local`) or sealed and carried (`bundle`)."""
