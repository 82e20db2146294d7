from __future__ import annotations

import tomllib
from datetime import UTC, datetime, timedelta

import pytest

from gfast_pipeline.contract import approval
from gfast_pipeline.contract.errors import GfastError, NotApproved, WorkloadError
from gfast_pipeline.contract.load import load_file


@pytest.fixture
def approved(contract_file):
    """The contract's file, approved as it stands by Ada."""
    loaded = load_file(contract_file)
    approval.approve(loaded, loaded.hash, "Ada")
    return contract_file


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_an_unapproved_contract_names_the_one_command_to_type(contract_file):
    with pytest.raises(NotApproved, match=r"no one has approved this contract\. Type: gfast approve small$"):
        approval.check(load_file(contract_file))


def test_an_approval_holds_and_says_who_when_and_what(approved):
    loaded = load_file(approved)
    held = approval.check(loaded)
    assert (held.by, held.hash, held.contract) == ("Ada", loaded.hash, loaded.plain)
    when = datetime.fromisoformat(held.date)
    assert when.tzinfo == UTC
    assert abs(datetime.now(UTC) - when) < timedelta(minutes=5)
    record = tomllib.loads(approval.approval_path(loaded).read_text())
    assert record["hash"] == loaded.hash


def test_an_edit_of_the_contract_voids_it_and_is_shown(approved):
    edit(approved, "margin = 0.01", "margin = 0.02")
    with pytest.raises(NotApproved) as caught:
        approval.check(load_file(approved))
    assert "changed since Ada approved it on 2" in str(caught.value)
    assert "margin: 0.01 → 0.02. Type: gfast approve small" in str(caught.value)


def test_an_edit_of_the_reference_code_voids_it_and_is_shown(approved, kernels):
    edit(kernels / "doubling" / "reference.py", "2 * x", "x + x")
    with pytest.raises(NotApproved, match=r"reference.py: its code changed\. Type: gfast approve small$"):
        approval.check(load_file(approved))


def test_docstrings_comments_and_layout_do_not_void_it(approved, kernels):
    edit(kernels / "doubling" / "reference.py", '"""Twice x."""', '"""Two times x."""  # the same')
    edit(approved, "margin = 0.01", "# how much must be gained\nmargin  =  1e-2")
    assert approval.check(load_file(approved)).by == "Ada"


def test_approving_anew_after_an_edit_makes_it_hold(approved):
    edit(approved, "margin = 0.01", "margin = 0.02")
    loaded = load_file(approved)
    approval.approve(loaded, loaded.hash, "Grace")
    assert approval.check(load_file(approved)).by == "Grace"


def test_a_hash_that_is_not_the_contracts_own_approves_nothing(contract_file):
    loaded = load_file(contract_file)
    for wrong in (loaded.hash[:8], "0" * 64, ""):
        with pytest.raises(GfastError, match=rf"its hash is {loaded.hash}"):
            approval.approve(loaded, wrong, "Ada")
    assert not approval.approval_path(loaded).exists()


@pytest.mark.parametrize("by", ["", "  ", "a\nb", "\x1b[2J"])
def test_an_approval_without_a_printable_name_is_refused(contract_file, by):
    loaded = load_file(contract_file)
    with pytest.raises(GfastError, match="needs a name"):
        approval.approve(loaded, loaded.hash, by)


@pytest.mark.parametrize("by", ['O"Neill \\ Söhne', "it's", "'''", "名前"])
def test_any_printable_name_survives_the_record(contract_file, by):
    loaded = load_file(contract_file)
    approval.approve(loaded, loaded.hash, by)
    assert approval.check(loaded).by == by


def test_a_contract_whose_peer_is_missing_cannot_be_approved(contract_file, kernels):
    (kernels / "doubling" / "peers" / "plain.py").unlink()
    loaded = load_file(contract_file)
    with pytest.raises(WorkloadError, match=r"plain.py: no such peer"):
        approval.approve(loaded, loaded.hash, "Ada")


@pytest.mark.parametrize(
    "text", ["", "hash = ", "hash = 'x'\n", "hash='a'\nby='b'\ndate='c'\nreference='d'\ncontract='['"]
)
def test_a_broken_record_is_one_clear_refusal(contract_file, text):
    loaded = load_file(contract_file)
    approval.approval_path(loaded).write_text(text)
    with pytest.raises(
        GfastError, match=r"small.approved.toml: not a readable approval record: .* gfast approve small"
    ):
        approval.check(loaded)


def test_a_record_copied_from_another_contract_does_not_count(approved):
    loaded = load_file(approved)
    path = approval.approval_path(loaded)
    path.write_text(path.read_text().replace(loaded.hash, "0" * 64))
    with pytest.raises(NotApproved, match="the record's hash belongs to another contract"):
        approval.check(loaded)


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("weight = 2.0", "weight = 3.0", ["cases[2].weight: 2.0 → 3.0"]),
        ("launch = [2]\n", "", ["profiles.launch: removed (was [2])"]),
        ("launch = [2]\n", "launch = [2]\nlong = [1]\n", ["profiles.long: added [1]"]),
        ("seed = 44", "seed = 45", ["variants[pad.3].seed: 44 → 45"]),
        ('structured = ["offset"]', "structured = []", ['structured: ["offset"] → []']),
        ('calls = ["eval"]', "calls = []", ['prohibited.calls: ["eval"] → []']),
        ("id = 3", "id = 4", ["serial_cases: [3] → [4]", "cases[3]: removed", "cases[4]: added"]),
    ],
)
def test_the_difference_names_each_changed_value(approved, old, new, lines):
    before = approval.read(load_file(approved))
    assert before is not None
    edit(approved, old, new)
    if old == "id = 3":
        edit(approved, "serial_cases = [3]", "serial_cases = [4]")
    told = approval.difference(before, load_file(approved))
    assert len(told) == len(lines)
    for line in lines:
        assert any(found.startswith(line) for found in told)


def test_another_order_of_cases_is_a_difference(approved):
    before = approval.read(load_file(approved))
    assert before is not None
    head, *cases = approved.read_text().split("[[cases]]")
    last, rest = cases[-1].split("[profiles]")
    approved.write_text("[[cases]]".join([head, cases[1], cases[0], last]) + "[profiles]" + rest)
    assert approval.difference(before, load_file(approved)) == ["cases: order changed"]
