"""From a candidate to a title: proved right, screened, raced beside the incumbent, decided on, confirmed.

Each stage looks for its session or decision in the log first, by contract, plan and scope.
"""

from __future__ import annotations

from gfast_pipeline import decisions, laboratory
from gfast_pipeline.bench.messages import Session
from gfast_pipeline.contract.workload import Source
from gfast_pipeline.evaluation.validity import PROVED, describe
from gfast_pipeline.ledger import sessions
from gfast_pipeline.selection.incumbent import stored_withdrawals
from gfast_pipeline.selection.withdrawal import is_withdrawn
from gfast_pipeline.stages import landing
from gfast_pipeline.stages.lab import Lab
from gfast_pipeline.stages.outcome import Check, Outcome, not_needed, version_of
from gfast_pipeline.stages.shown import (
    decision_facts,
    decision_rows,
    samples,
    session_checks,
    shares,
    summary,
    timing_table,
)

CONTROL = "v000"
RIGHT, WRONG, DECLINED, UNPROVED = "right", "wrong", "declined", "unproved"


def correctness(lab: Lab, name: str, again: bool = False) -> Outcome:
    """Whether the candidate agrees with the reference on every scored case, draw and variant."""
    source = lab.candidate(name)
    head = None if again else _proof(lab, source)
    reused = head is not None
    if head is None:
        laboratory.refuse_edit(lab.loaded, source)
        _ready(lab, source, f"judging {source.name}", "judge")
        _, identity = laboratory.judge(lab.loaded, name, lab.run)
        assert identity is not None
    else:
        identity = head.id
    session = sessions.load_whole(identity)
    state, said = standing(session, source.name, [case.id for case in lab.loaded.contract.scored])
    rows = shares(session, source.name)
    touched = [
        v
        for v in session.verdicts
        if v.participant == source.name and v.gate in ("inputs_untouched", "globals_untouched")
    ]
    bad = [v for v in touched if v.status == "failed"]
    checks = [
        Check("agrees_with_reference", state == RIGHT, said, warning=state == DECLINED),
        Check(
            "weights_untouched",
            not bad,
            describe(bad[0]) if bad else "inputs, weights and global flags as they were handed out",
            warning=True,
        ),
    ]
    facts = {"standing": state, "session": identity, "kind": session.kind}
    return Outcome(
        version_of(identity, state), said, "reused" if reused else "done", [identity], facts, rows, checks=checks
    )


def screening(lab: Lab, name: str, profile: str = "neutral") -> Outcome:
    """A quick race on a profile's cases, to sort what is worth a full one."""
    source = lab.candidate(name)
    if why := _no_race(lab, source):
        return not_needed(why)
    if (head := race_of(lab, source)) is not None:
        return not_needed(f"{source.name} was raced in full, session {head.id}")
    scored = {case.id for case in lab.loaded.contract.scored}
    if set(lab.loaded.contract.profiles.get(profile, ())) >= scored:
        return not_needed(f"profile {profile} holds every scored case: the race itself is as cheap")
    head = lab.challenged(source, "screen")
    reused = head is not None
    if head is None:
        _ready(lab, source, f"screening {source.name}", "screen")
        identity = laboratory.challenge(lab.loaded, name, lab.run, profile=profile)
    else:
        identity = head.id
    raced = lab.settled(identity)
    decision = raced.decision
    facts = decision_facts(decision.plain()) | {"decision": raced.decision_id, "advances": bool(decision.advances)}
    return Outcome(
        version_of(raced.decision_id),
        decision.reason,
        "reused" if reused else "done",
        [identity],
        facts,
        decision_rows(decision.plain()),
        checks=[
            Check("worth_a_full_race", decision.advances is not False, decision.reason, warning=True),
        ],
    )


def timings(lab: Lab, name: str, again: bool = False) -> Outcome:
    """The session in which the candidate was raced beside the incumbent: µs of everybody on every case."""
    source = lab.candidate(name)
    if source.name.startswith(CONTROL + "_"):
        return _control(lab, source)
    head = None if again else race_of(lab, source)
    reused = head is not None
    if head is None:
        if why := _no_race(lab, source) or _screened_out(lab, source):
            return not_needed(why)
        _ready(lab, source, f"racing {source.name}", "decide")
        identity = laboratory.challenge(lab.loaded, name, lab.run)
    else:
        identity = head.id
    session = sessions.load_whole(identity)
    return Outcome(
        version_of(identity),
        summary(session, identity),
        "reused" if reused else "done",
        [identity],
        {"session": identity, "visits": len(session.visits), "samples": samples(session), "status": session.status},
        timing_table(session),
        checks=session_checks(session),
    )


def decision(lab: Lab, name: str) -> Outcome:
    """Promote, reject, uncertain or invalid, on the newest race of the candidate, with the reason in one sentence."""
    source = lab.candidate(name)
    head = race_of(lab, source)
    if head is None:
        return not_needed(f"{source.name} has no race to decide on")
    before = decisions.decision_id_on(head.id, confirmed=False)
    raced = lab.settled(head.id)
    plain = raced.decision.plain()
    noise, most = raced.decision.noise, lab.loaded.contract.max_noise
    quiet = noise is not None and noise.far_end <= most
    said = (
        "the race has no A/A control"
        if noise is None
        else f"the incumbent's twin differs from it by up to {noise.far_end:.2%}; {most:.0%} is allowed"
    )
    return Outcome(
        version_of(raced.decision_id),
        raced.decision.reason,
        "reused" if before == raced.decision_id else "done",
        raced.session_ids,
        decision_facts(plain) | {"decision": raced.decision_id},
        decision_rows(plain),
        checks=[Check("control_is_quiet", quiet, said, warning=noise is None)],
    )


def confirmation(lab: Lab, name: str) -> Outcome:
    """A promotion once more, in a second session with the best peers beside it; only then does it hold the title."""
    source = lab.candidate(name)
    head = race_of(lab, source)
    first = None if head is None else decisions.decision_id_on(head.id, confirmed=False)
    if first is None:
        return not_needed(f"{source.name} has no decision to confirm")
    raced = decisions.load_race(first)
    if raced.decision.outcome != "promote":
        return not_needed(f"{source.name} was not promoted: {raced.decision.outcome}")
    if not decisions.for_title(first):
        return not_needed(f"{source.name} beat {raced.decision.incumbent}, who holds no title")
    found = decisions.confirmation_of(raced)
    reused = found is not None
    if found is None and not lab.reading and (pending := decisions.undecided_confirmation(raced)) is not None:
        found = decisions.settle_confirmation(lab.loaded, raced, pending)  # measured, and then interrupted
    if found is None:
        lab.ready(f"confirming {source.name}", "confirm", f" --decision {first}")
        found = laboratory.confirmation(lab.loaded, raced, lab.run)
    plain = found.decision.plain()
    return Outcome(
        version_of(found.decision_id),
        ("confirmed: " if found.decision.confirmed else "not confirmed: ") + found.decision.reason,
        "reused" if reused else "done",
        found.session_ids,
        decision_facts(plain) | {"decision": found.decision_id, "confirmed": found.decision.confirmed},
        decision_rows(plain),
        checks=session_checks(sessions.load_whole(found.session_ids[-1])),
    )


def standing(session: Session, name: str, cases: list[int]) -> tuple[str, str]:
    """What a session says of a participant's answers: (right, wrong, declined or unproved; the sentence)."""
    own = [verdict for verdict in session.verdicts if verdict.participant == name]
    proving = [v for v in own if v.gate not in ("clock", "physics")]
    failed = next((verdict for verdict in proving if verdict.status == "failed"), None)
    if failed is not None:
        return WRONG, f"{name} is refused: {describe(failed)}"
    proved = {gate: {v.case for v in own if (v.gate, v.status) == (gate, "passed")} for gate in PROVED}
    missing = [case for case in cases if not all(case in proved[gate] for gate in PROVED)]
    declined = next((v for v in own if (v.gate, v.status) == ("build", "skipped")), None)
    if missing and declined is not None and len(missing) == len(cases):
        return DECLINED, f"{name} does not build here: {declined.reason}"
    if missing:
        return UNPROVED, f"{name} was never proved on case {missing[0]}: {session.reason or session.status}"
    return RIGHT, laboratory.judgement(session) if session.kind == "judge" else (
        f"{name} is right on {len(cases)} cases, every draw and variant (session of kind {session.kind})."
    )


def race_of(lab: Lab, source: Source) -> sessions.SessionHead | None:
    """The race that stands for a candidate: the one that won it the title, or the newest against the present holder,
    or the newest that it lost. Where it won against somebody who holds nothing now, or the race was void through no
    fault of its own, it has to race anew."""
    holder = laboratory.incumbent(lab.loaded, lab.scope)
    title = decisions.title(lab.loaded.hash, lab.scope)
    out = stored_withdrawals(lab.loaded.hash)
    for head in lab.races(source, "decide"):
        record = next((r for r in head.participants if r["role"] == "incumbent"), None)
        if _loud(head.id, source.name):
            continue
        if record is None or record["candidate_hash"] == holder.sha256:
            return head
        if title is not None and holder.sha256 == source.sha256 and head.id in title.decision["session_ids"]:
            return head
        if is_withdrawn(out, record["candidate_hash"], record["plan_hash"]):
            continue
        decided = decisions.decision_on(head.id)
        if decided is not None and decided["outcome"] == "reject":
            return head
    return None


def _loud(session_id: str, name: str) -> bool:
    """Whether a race came to nothing although nothing is wrong with the candidate: its control was too loud, say."""
    decided = decisions.decision_on(session_id)
    if decided is None or decided["outcome"] != "invalid":
        return False
    verdicts = sessions.load_whole(session_id).verdicts
    return not any(verdict.participant == name and verdict.status == "failed" for verdict in verdicts)


def _ready(lab: Lab, source: Source, what: str, kind: str) -> None:
    """A candidate that the static policy refuses needs no device to be refused."""
    if lab.reading or not landing.refused(lab, source):
        lab.ready(what, kind, f" --candidate {source.name}")


def _proof(lab: Lab, source: Source) -> sessions.SessionHead | None:
    """The newest session that settles whether a plan is right: a judge's, or a race that proved or refused it."""
    cases = [case.id for case in lab.loaded.contract.scored]
    for kinds in (("judge",), ("decide",)):
        head = lab.challenged(source, *kinds)
        if head is not None and standing(sessions.load_whole(head.id), source.name, cases)[0] != UNPROVED:
            return head
    return None


def _no_race(lab: Lab, source: Source) -> str:
    """Why a candidate is not raced at all; empty where it is."""
    if source.name.startswith(CONTROL + "_"):
        return f"{source.name} is the control of every session; it challenges nobody"
    if laboratory.incumbent(lab.loaded, lab.scope).sha256 == source.sha256:
        return f"{source.name} holds the title"
    proof = _proof(lab, source)
    if proof is None:
        return ""
    cases = [case.id for case in lab.loaded.contract.scored]
    state, said = standing(sessions.load_whole(proof.id), source.name, cases)
    return "" if state == RIGHT else said


def _screened_out(lab: Lab, source: Source) -> str:
    head = lab.challenged(source, "screen")
    if head is None:
        return ""
    decided = decisions.decision_on(head.id)
    return "" if decided is None or decided.get("advances") is not False else f"screened out: {decided['reason']}"


def _control(lab: Lab, source: Source) -> Outcome:
    """v000 races nobody: its times are those of the newest deciding session it took part in."""
    for head in reversed(lab.heads("decide", "confirm")):
        if any(record["candidate_hash"] == source.sha256 for record in head.participants):
            session = sessions.load_whole(head.id)
            if session.status != "complete":
                continue
            rows = [r for r in timing_table(session) if r["participant"] in (source.name, "reference")]
            said = f"the control of every session; here as in session {head.id}"
            return Outcome(version_of(head.id), said, "reused", [head.id], {"session": head.id}, rows)
    return not_needed(f"{source.name} is the control of every session, and there is none yet")
