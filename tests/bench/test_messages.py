"""The wire format: records survive the journey, strangers are refused by name, and a seal shows any edit or cut."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfast_pipeline.bench import messages
from gfast_pipeline.bench.__main__ import read_job
from gfast_pipeline.bench.messages import (
    PROTOCOL,
    Clock,
    Job,
    Phase,
    Plan,
    Session,
    Usage,
    Verdict,
    Visit,
    canonical,
    digest,
    from_plain,
    seal,
    to_plain,
    unseal,
)

words = st.text(max_size=8)
figures = st.floats(allow_nan=False, allow_infinity=False)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | figures | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
KINDS = [Plan, Verdict, Visit, Phase, Clock, Usage]


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type: the record's own annotation decides, so a new field is tested when it is added."""
    if hint is Any:
        return anything
    if hint in (str, int, float, bool):
        return {str: words, int: st.integers(), float: figures, bool: st.booleans()}[hint]
    if hint is type(None):
        return st.none()
    inside, origin = get_args(hint), get_origin(hint)
    if origin is list:
        return st.lists(values_of(inside[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(words, values_of(inside[1]), max_size=2)
    if dataclasses.is_dataclass(hint):
        return records(hint)
    return st.one_of(*map(values_of, inside))


def records(kind: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind, dict(vars(messages)))
    return st.fixed_dictionaries({name: values_of(hint) for name, hint in hints.items() if name != "protocol"}).map(
        lambda values: kind(**values)
    )


@given(st.one_of(*map(records, KINDS)))
@settings(deadline=None)
def test_a_record_survives_the_journey(record):
    assert from_plain(type(record), json.loads(canonical(to_plain(record)))) == record


@given(records(Job))
@settings(deadline=None, max_examples=30)
def test_a_job_survives_the_journey(job):
    assert read_job(json.loads(canonical(to_plain(job)))) == job


@given(records(Session))
@settings(deadline=None, max_examples=30)
def test_a_session_survives_its_seal(session):
    assert unseal(seal(session)) == session


@given(records(Session), st.data())
@settings(deadline=None, max_examples=30)
def test_a_sealed_session_that_was_cut_is_refused(session, data):
    sealed = seal(session)
    with pytest.raises(ValueError, match="cut short, or no session"):
        unseal(sealed[: data.draw(st.integers(0, len(sealed) - 1))])


@given(records(Visit), st.floats(1, 1e6))
@settings(deadline=None, max_examples=30)
def test_an_edited_figure_breaks_the_seal(visit, other):
    session = small()
    session.visits = [visit]
    document = json.loads(seal(session))
    if document["session"]["visits"][0]["judge_wall_us"] == other:
        return
    document["session"]["visits"][0]["judge_wall_us"] = other
    with pytest.raises(ValueError, match="does not match its seal"):
        unseal(canonical(document))


def test_another_protocol_is_refused_with_both_numbers():
    plain = to_plain(small()) | {"protocol": PROTOCOL + 1}
    document = canonical({"sha256": digest(plain), "session": plain})
    with pytest.raises(ValueError, match=f"protocol {PROTOCOL + 1} where this gfast speaks {PROTOCOL}"):
        unseal(document)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"\xff\x00", b'{"session": {}}'])
def test_what_never_was_a_session_is_refused_in_words(content):
    with pytest.raises(ValueError, match="cut short, or no session"):
        unseal(content)


@pytest.mark.parametrize("kind", [*KINDS, Session])
def test_an_unknown_field_is_refused_by_name(kind):
    with pytest.raises(ValueError, match=f"{kind.__name__}: unknown field 'colour'"):
        from_plain(kind, {"colour": 1})


def test_an_unknown_field_is_found_inside_too():
    plain = to_plain(small()) | {
        "verdicts": [{"gate": "call", "status": "passed", "participant": "v1", "mood": "good"}]
    }
    with pytest.raises(ValueError, match="Verdict: unknown field 'mood'"):
        from_plain(Session, plain)


def test_a_missing_field_is_named():
    with pytest.raises(ValueError, match=r"Verdict: .*'participant'"):
        from_plain(Verdict, {"gate": "call", "status": "passed"})


@pytest.mark.parametrize("values", [{"protocol": PROTOCOL + 1}, {}, [], None, "job"])
def test_a_job_of_another_kind_is_refused(values):
    with pytest.raises(ValueError, match="protocol"):
        read_job(values)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_no_figure_without_a_number_can_be_sealed(value):
    session = small()
    session.measured = {"bandwidth": value}
    with pytest.raises(ValueError, match="JSON compliant"):
        seal(session)


@given(st.dictionaries(words, anything, max_size=4))
@settings(deadline=None)
def test_the_digest_does_not_depend_on_the_order_of_keys(values):
    assert digest(values) == digest(dict(reversed(list(values.items()))))


def test_a_plan_is_known_by_candidate_and_schedules_alone():
    plan = Plan("v1", "challenger", "source", "hash", {"1": {"rows": 8}})
    renamed = dataclasses.replace(plan, name="twin", role="twin", prove=True)
    assert renamed.plan_hash == plan.plan_hash
    assert dataclasses.replace(plan, schedules={"1": {"rows": 16}}).plan_hash != plan.plan_hash
    assert dataclasses.replace(plan, candidate_hash="other").plan_hash != plan.plan_hash


def small() -> Session:
    return Session("decide", "layer", "cpu", "hash", "job", 7, "2026-01-01T00:00:00Z")
