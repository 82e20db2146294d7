"""From who stands where to the gap of every case: real contracts, real work, and the evidence of the H200."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gfast_pipeline.bench.messages import canonical
from gfast_pipeline.contract.errors import GfastError, WorkloadError
from gfast_pipeline.contract.load import load
from gfast_pipeline.ledger import sessions
from gfast_pipeline.measuring import median_us
from gfast_pipeline.routing.gap import gaps
from gfast_pipeline.routing.work import work_of
from tests.routing.measured import MEASURED, SCOPE, ceilings, standing

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "warehouse" / "evidence" / "kept"
H200 = load("h200_fp32")


def row(payload, case):
    return next(found for found in payload["cases"] if found["case"] == case)


def test_every_case_of_the_contract_has_a_row_and_the_payload_is_plain():
    found = gaps(H200, standing(H200, 100.0), ceilings(H200), "abc")
    assert [one["case"] for one in found["cases"]] == list(range(1, 15))
    assert (found["contract_hash"], found["ceilings"], found["scope"]) == (H200.hash, "abc", SCOPE)
    assert canonical(found)
    two = row(found, 2)
    assert two["gap"] == pytest.approx(100.0 / two["floor_us"]) and two["reason"] == ""
    assert two["mode"] == "queued" and two["plan"] == "v007_fused" and two["session"] == "s"
    assert two["binding_term"] == "chain" and two["floors"]["chain"] == pytest.approx(21 * 0.135)
    assert row(found, 1)["binding_term"] == "arithmetic"
    assert row(found, 6)["floors"]["memory"] == pytest.approx(1312e6 / 4.2e6, rel=0.01)


def test_what_has_no_gap_says_why():
    stands = standing(H200, 100.0)
    stands[2]["queued_us"] = None
    found = gaps(H200, [one for one in stands if one["case"] != 5], ceilings(H200), "abc")
    assert row(found, 3)["gap"] is None and "waits for its host" in row(found, 3)["reason"]
    assert row(found, 5)["gap"] is None and "no plan" in row(found, 5)["reason"] and row(found, 5)["plan"] is None
    assert row(found, 14)["gap"] is None and "feasibility" in row(found, 14)["reason"]
    assert row(found, 14)["floor_us"] > 1e6


def test_a_cpu_divides_its_official_time():
    measured = {"gemm_float32_tflops": 0.1, "exponentials_t_s": 0.0015, "memory_tb_s": 0.03}
    cpu = load("cpu_fp32")
    session = ceilings(cpu, measured, scope={"accelerator": {"name": "cpu"}})
    found = gaps(cpu, standing(cpu, 3000.0, queued_us=None), session, "abc")
    assert row(found, 2)["mode"] == "official" and row(found, 2)["gap"] == pytest.approx(
        3000 / row(found, 2)["floor_us"]
    )
    assert row(found, 2)["hard_floor_us"] is None


def test_a_workload_without_phases_has_no_chain(loaded):
    counted = work_of(loaded)[1]
    assert counted["phases"] == 0 and counted["flop"] > 0


def test_phases_are_counted_without_torch():
    code = (
        "import sys, runpy, types; phases = runpy.run_path('kernels/transformer_layer/phases.py')['phases']; "
        "assert phases(types.SimpleNamespace(layers=4)) == 21; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_routing_is_imported_without_torch():
    code = "import sys, gfast_pipeline.routing.gap, gfast_pipeline.routing.route; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_ceilings_of_another_device_or_kind_are_refused():
    with pytest.raises(GfastError, match=r"is peers, complete: no complete ceilings.*gfast measure ceilings"):
        gaps(H200, [], ceilings(H200, kind="peers"), "abc")
    with pytest.raises(GfastError, match="NVIDIA A100; h200_fp32 is for NVIDIA H200"):
        gaps(H200, [], ceilings(H200, scope={"accelerator": {"name": "NVIDIA A100"}}), "abc")
    with pytest.raises(GfastError, match="is for a CPU"):
        gaps(load("cpu_fp32"), [], ceilings(H200), "abc")
    with pytest.raises(GfastError, match="no case 99"):
        gaps(H200, [{**standing(H200, 1.0)[0], "case": 99}], ceilings(H200), "abc")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def phases(case):\n    return case.depth", "phases\\(case 1\\) raised AttributeError"),
        ("def phases(case) return 1", "cannot be used: SyntaxError"),
        ("PHASES = 5", "cannot be used: AttributeError"),
    ],
)
def test_a_broken_phases_file_names_itself(loaded, text, says):
    (loaded.workload.folder / "phases.py").write_text(text)
    with pytest.raises(WorkloadError, match=rf"phases\.py: {says}"):
        work_of(loaded)


def test_work_that_lacks_a_count_names_it(loaded):
    source = loaded.workload.reference_path
    source.write_text(source.read_text().replace('"exponentials": layers', '"exps": layers'))
    with pytest.raises(WorkloadError, match=r"work\(case 1\) gives no exponentials"):
        work_of(loaded)


def test_what_a_floor_rests_on_is_said():
    older = {**MEASURED, "l2_tb_s": 2.7}
    del older["l2_trip_us"]
    basis = " ".join(gaps(H200, [], ceilings(H200, older), "abc")["basis"])
    assert "graph node ÷ 7" in basis and "L2 was measured at 2.7 TB/s" in basis


def test_no_plan_of_the_kept_evidence_is_faster_than_its_reachable_floor():
    heads = [head for head in sessions.list_sessions([KEPT], contract_hash=H200.hash) if head.status != "void"]
    measured = {case.id: [] for case in H200.contract.cases}
    for head in heads:
        session = sessions.load_session(head.id, [KEPT])
        for case in session.cases if session.visits else ():
            for name in (record["name"] for record in session.participants):
                measured[case] += [us for mode in session.modes if (us := median_us(session, name, case, mode))]
    rates = [sessions.load_session(head.id, [KEPT]) for head in heads if head.kind == "ceilings"]
    assert rates and all(measured[case.id] for case in H200.contract.scored)
    for one in rates:
        for found in gaps(H200, [], one, "abc")["cases"]:
            assert found["floor_us"] < min(measured[found["case"]], default=float("inf"))
            assert found["hard_floor_us"] < found["floor_us"]
