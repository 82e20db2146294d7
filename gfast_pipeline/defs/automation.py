"""When the stages that rest on all candidates run again: when what they read has changed, not when it was made anew.

A candidate that is wrong never has times, and its blocking check has failed: waiting for every partition to be there
and sound would switch the rest off for good. A stage that finds nothing to go on says so itself.
"""

import dagster as dg

AC = dg.AutomationCondition

when_inputs_change = (
    (AC.any_deps_match(AC.data_version_changed()) | AC.code_version_changed() | AC.newly_missing())
    .since_last_handled()  # pyright: ignore[reportAttributeAccessIssue]: a key type that is wider than declared
    .with_label("inputs changed")
    & ~AC.any_deps_in_progress()
    & ~AC.in_progress()
).with_label("when inputs change")
