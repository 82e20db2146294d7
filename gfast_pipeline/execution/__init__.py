"""Layer 6: where a bench job runs. Jobs are built here, run here (`local`), or sealed to be carried elsewhere (`bundle`)."""
