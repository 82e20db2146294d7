"""The nightly look at everything: what holds, what was tampered with, what cannot be measured here."""

from __future__ import annotations

import gzip

import pytest

from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.execution import local
from gfast_pipeline.ledger import evidence, sessions
from gfast_pipeline.stages import choosing, landing
from gfast_pipeline.stages.health import health
from gfast_pipeline.stages.lab import Lab

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]


@pytest.fixture
def lab(loaded: Loaded, tmp_path, monkeypatch) -> Lab:
    monkeypatch.setenv("GFAST_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    lab = Lab(loaded, lambda job: local.run(job, lambda seconds, line: None))
    landing.contract(lab)
    return lab


def passed(lab: Lab) -> dict[str, bool]:
    return {check.name: check.passed for check in health(lab).checks}


def test_a_sound_warehouse_holds_and_the_ceilings_are_measured_again(lab: Lab):
    choosing.ceilings(lab)
    outcome = health(lab)
    assert {check.name for check in outcome.checks} == {
        "chain_is_whole",
        "ceilings_hold",
        "champion_beats_reference",
        "disk_has_room",
    }
    found = {check.name: check for check in outcome.checks}
    assert found["chain_is_whole"].passed and found["disk_has_room"].passed
    assert len(sessions.list_sessions(kind="ceilings")) == 1, (
        "what an alarm measures is not what the next compares with"
    )
    assert "in session" in found["ceilings_hold"].description, "it names what it compares with"
    assert "v000 holds the title" in found["champion_beats_reference"].description


def test_an_edited_file_of_the_log_breaks_the_chain(lab: Lab):
    assert passed(lab)["chain_is_whole"]
    (entry,) = [entry for entry in evidence.entries() if entry.kind == "approval"]
    raw = gzip.decompress(entry.path.read_bytes())
    entry.path.chmod(0o644)
    entry.path.write_bytes(gzip.compress(raw.replace(b"Ada", b"Eve")))
    outcome = health(lab)
    chain = next(check for check in outcome.checks if check.name == "chain_is_whole")
    assert not chain.passed and "edited" in chain.description and entry.name in chain.description


def test_a_ceiling_that_moved_far_is_a_warning_with_both_figures(lab: Lab, monkeypatch):
    choosing.ceilings(lab)
    real = lab._run

    def slower(job):
        session = real(job)
        session.measured["memory_tb_s"] /= 3
        return session

    monkeypatch.setattr(lab, "_run", slower)
    check = next(check for check in health(lab).checks if check.name == "ceilings_hold")
    assert (check.passed, check.warning) == (False, True)
    assert "%" in check.description
