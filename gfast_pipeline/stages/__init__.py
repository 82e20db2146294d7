"""The stages of the lineage as plain functions: each looks into the log first, measures only what is not there, and
says what it found as an `Outcome`. What Dagster's assets, the command line and the tests call. Knows no Dagster.
"""
