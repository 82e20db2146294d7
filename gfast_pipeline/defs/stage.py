"""What a stage is to Dagster: its name, its place in the lineage, what it shows. The table of all of them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gfast_pipeline.stages import choosing, landing, racing
from gfast_pipeline.stages.outcome import Outcome

PACKAGE = Path(__file__).parents[1]
JUDGING = ("bench", "contract", "generation", "execution/jobs.py", "laboratory.py", "stages/lab.py", "stages/racing.py")
DECIDING = ("evaluation", "decisions.py", "stages/racing.py")


@dataclass(frozen=True)
class Stage:
    """One asset of a lineage. `starred`: one partition a candidate. `checks`: (name, the sentence, blocking)."""

    name: str
    call: Callable[..., Outcome]
    after: tuple[str, ...]
    description: str
    decided_by: tuple[str, ...]
    kinds: tuple[str, ...] = ("python",)
    checks: tuple[tuple[str, str, bool], ...] = ()
    starred: bool = False
    measures: bool = False

    @property
    def repeatable(self) -> bool:
        """Whether a further session can be asked for although the log has one."""
        return self.name in ("correctness", "timings", "ceilings")

    @property
    def code_version(self) -> str:
        """Hash of the files that decide what the stage says."""
        return code_hash(self.decided_by)


@functools.cache
def code_hash(places: tuple[str, ...]) -> str:
    """First 12 hex digits of sha256 over the sources under these places of the package."""
    total = hashlib.sha256()
    for place in places:
        path = PACKAGE / place
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            total.update(file.read_bytes())
    return total.hexdigest()[:12]


STAGES = (
    Stage(
        "contract",
        landing.contract,
        (),
        "The constitution: cases, gate, protocol, margins. A human approves one hash; any change voids it.",
        ("contract", "stages/landing.py"),
        ("toml",),
        (("contract_is_approved", "A human has approved exactly this contract and reference.", True),),
    ),
    Stage(
        "catalogue",
        landing.catalogue,
        ("contract",),
        "Every candidate file, by name and hash. Registers them as partitions.",
        ("contract/workload.py", "stages/landing.py"),
    ),
    Stage(
        "candidate",
        landing.candidate,
        ("catalogue",),
        "One candidate file: hypothesis, hash, what the static policy says. Its source goes into the log.",
        ("contract/workload.py", "generation", "stages/landing.py"),
        ("triton",),
        (
            ("file_is_unedited", "The file is what was judged, or was not judged yet.", True),
            ("policy_allows_it", "Nothing in it is prohibited by the contract.", False),
        ),
        starred=True,
    ),
    Stage(
        "correctness",
        racing.correctness,
        ("contract", "candidate"),
        "Every draw, variant and structured input of every scored case, against the reference and a float64 oracle.",
        JUDGING,
        ("pytorch",),
        (
            ("agrees_with_reference", "Every answer lies within the contract's gate.", True),
            ("weights_untouched", "Inputs, weights and global flags are left as they were handed out.", False),
        ),
        starred=True,
        measures=True,
    ),
    Stage(
        "screening",
        racing.screening,
        ("correctness",),
        "A quick race on a few cases, to sort what is worth a full one. Promotes nothing.",
        JUDGING,
        ("pytorch",),
        (("worth_a_full_race", "The screen does not rule out that it is faster.", False),),
        starred=True,
        measures=True,
    ),
    Stage(
        "timings",
        racing.timings,
        ("screening",),
        "The race beside the incumbent, its twin, v000 and the reference: µs of everybody on every case.",
        JUDGING,
        ("pytorch",),
        (
            ("clocks_agree", "The judge's clock agrees with every participant's, and nobody beats physics.", True),
            (
                "outputs_were_checked",
                "Outputs of timed calls, drawn in secret after the clock stopped, are right.",
                True,
            ),
        ),
        starred=True,
        measures=True,
    ),
    Stage(
        "decision",
        racing.decision,
        ("timings",),
        "Promote, reject, uncertain or invalid: a paired bootstrap over processes and blocks, with its reason.",
        DECIDING,
        ("python",),
        (("control_is_quiet", "The incumbent's twin stays within what the contract allows.", True),),
        starred=True,
    ),
    Stage(
        "confirmation",
        racing.confirmation,
        ("decision",),
        "A promotion once more in a second session, pooled with the first; only then does it hold the title.",
        (*JUDGING, *DECIDING),
        ("pytorch",),
        (
            ("clocks_agree", "The judge's clock agrees with every participant's, and nobody beats physics.", True),
            (
                "outputs_were_checked",
                "Outputs of timed calls, drawn in secret after the clock stopped, are right.",
                True,
            ),
        ),
        starred=True,
        measures=True,
    ),
    Stage(
        "ceilings",
        choosing.ceilings,
        ("contract",),
        "The device at its best: copy and L2 bandwidth, GEMM rates, exponentials, launch costs.",
        ("bench/ceilings.py",),
        ("pytorch",),
        measures=True,
    ),
    Stage(
        "gap_to_sol",
        choosing.gap_to_sol,
        ("ceilings", "confirmation"),
        "Measured device time ÷ reachable floor, per case, and the term that binds.",
        ("routing/floors.py", "routing/gap.py", "stages/choosing.py"),
        starred=True,
    ),
    Stage(
        "beam",
        choosing.beam,
        ("confirmation",),
        "The best confirmed candidates: parents of the next hypotheses.",
        ("selection", "evaluation", "stages/choosing.py"),
    ),
    Stage(
        "archive",
        choosing.archive,
        ("confirmation", "gap_to_sol"),
        "Who holds each case: taken only by a paired result, Holm over the cases contested, confirmed.",
        ("selection", "evaluation", "stages/choosing.py"),
    ),
    Stage(
        "route",
        choosing.route,
        ("archive", "gap_to_sol"),
        "Done, tune or structural per case, and whether to go on at all, with the argument.",
        ("routing", "stages/choosing.py"),
    ),
    Stage(
        "submission",
        choosing.submission,
        ("archive", "beam"),
        "The portfolio compiled into one self-contained file, with the evidence behind each choice in its header.",
        ("submission", "stages/choosing.py"),
        checks=(
            ("submission_agrees", "Driven as the official script drives it, the file's answers pass the gate.", True),
        ),
    ),
    Stage(
        "report",
        choosing.report,
        ("submission", "route"),
        "The page of this lineage: champions, leaderboard, plots. Regenerated from the log.",
        ("report", "stages/choosing.py"),
    ),
)
