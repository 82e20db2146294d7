"""From holders to a file: what is refused, what is written, and that the merged candidates are what they were."""

from __future__ import annotations

import ast
import re

import pytest

from gfast_pipeline.bench.messages import digest
from gfast_pipeline.contract.load import load
from gfast_pipeline.contract.workload import Workload, workloads
from gfast_pipeline.generation import policy
from gfast_pipeline.ledger import evidence
from gfast_pipeline.submission import compile as compiler
from gfast_pipeline.submission.compile import SubmissionError, compile_to, path_for, plan, portfolio, render
from tests.submission.portfolios import candidate, compiled, holders, imported

V000, V001, V002, V003 = "v000_identity", "v001_fused_qkv_sdpa", "v002_sdpa_graph", "v003_fp16_operands_graph"


def made(loaded, plans, generalist=V001, **more):
    return portfolio(loaded, holders(loaded, plans, **more), loaded.workload.candidate(generalist))


def test_equal_portfolios_give_equal_bytes_and_the_file_is_left_as_it_is(bench, tmp_path):
    path, payload = compile_to(bench, made(bench, {2: V000, 7: V001}), tmp_path / "a.py")
    before = path.stat().st_mtime_ns
    again = compile_to(bench, made(bench, {7: V001, 2: V000}), path)
    assert again == (path, payload) and path.stat().st_mtime_ns == before
    compile_to(bench, made(bench, {7: V001}), tmp_path / "b.py")
    assert (tmp_path / "b.py").read_bytes() != path.read_bytes()


def test_the_payload_says_what_was_compiled(bench):
    _, payload = compile_to(bench, made(bench, {2: V002, 7: V001}, sessions=["abc"]), path_for(bench))
    assert payload["path"] == "warehouse/submissions/cpu_fp32.py"
    assert payload["generalist"]["name"] == V001
    assert [(row["case"], row["plan"], row["sessions"]) for row in payload["cases"]] == [
        (2, V002, ["abc"]), (7, V001, ["abc"])
    ]  # fmt: skip
    evidence.append("submission", payload)


def test_the_header_holds_contract_scope_and_the_evidence_of_every_case(bench):
    text = ast.get_docstring(ast.parse(render(made(bench, {2: V002}, sessions=["abc123"])))) or ""
    assert text.startswith("submission: transformer_layer") and "Never edit it" in text
    assert bench.hash in text and "name cpu, torch 2, protocol 1" in text
    assert re.search(r"^2 .* v002_sdpa_graph .* 70\.5 .* 141\.0 .* 2\.000 \(1\.900 – 2\.100\) .* abc123", text, re.M)
    assert re.search(r"^7 .* v001_fused_qkv_sdpa \(no holder\)", text, re.M)


def test_a_submission_imports_torch_triton_and_the_standard_library_only(bench):
    tree = ast.parse(render(made(bench, {2: V002, 7: V003})))
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in found if name.startswith("gfast")}


def test_of_what_the_static_policy_reads_only_the_compilers_own_part_asks_for_more(bench):
    """Candidates are refused in their own files; what is merged from them brings nothing new."""
    text = render(made(bench, {2: V002, 7: V003}, V001))
    first = text.index("# --- v001")
    last = text.index("# --- What was compiled")
    lines = range(text[:first].count("\n") + 1, text[:last].count("\n") + 1)
    found = policy.check(text, bench.plain["prohibited"], "submission.py", peer=True)
    assert [finding for finding in found if finding.line in lines] == []


def test_a_holder_that_was_edited_or_is_gone_is_refused(bench):
    candidate(bench, 9, "def build(r, c, s):\n    return r")
    payload = holders(bench, {2: "v009_made"})
    generalist = bench.workload.candidate(V001)
    path = bench.workload.folder / "candidates" / "v009_made.py"
    path.write_text(path.read_text() + "# edited\n")
    with pytest.raises(SubmissionError, match=r"v009_made\.py: judged as .* it has sha256 .* Restore"):
        portfolio(bench, payload, generalist)
    path.unlink()
    with pytest.raises(SubmissionError, match="there is no such file"):
        portfolio(bench, payload, generalist)
    with pytest.raises(SubmissionError, match="Determine the holders anew"):
        portfolio(bench, {**payload, "contract_hash": "0" * 64}, generalist)


def test_the_schedule_is_the_one_that_was_measured(bench, monkeypatch):
    body = 'SCHEDULES = {"rows": [4, 8]}\ndef build(r, c, s):\n    assert s == {"rows": 8}\n    return r'
    source = candidate(bench, 9, body)
    schedules = {"2": {"rows": 8}}
    tuned = digest({"candidate": source.sha256, "schedules": schedules})

    class Stored:
        participants = [{"name": source.name, "plan_hash": tuned, "schedules": schedules}]  # noqa: RUF012

    monkeypatch.setattr(compiler.sessions, "load_session", lambda identity: Stored)
    whole = made(bench, {2: source.name}, sessions=["abc"], plan_hash=tuned, since="abc")
    assert whole.cells[2].schedule == {"rows": 8}
    assert "'v009_made', {'rows': 8})" in render(whole)
    with pytest.raises(SubmissionError, match="Keep the evidence"):
        made(bench, {2: source.name}, sessions=["abc"], plan_hash="f" * 64, since="abc")


def test_an_edited_submission_is_no_participant(bench):
    path, payload = compile_to(bench, made(bench, {2: V001}), path_for(bench))
    ready = plan(path, payload)
    assert (ready.name, ready.role, ready.candidate_hash) == ("submission", "submission", payload["sha256"])
    path.write_text(path.read_text() + "# better\n")
    with pytest.raises(SubmissionError, match="Compile it anew"):
        plan(path, payload)


def test_a_workload_without_a_template_is_refused(bench, monkeypatch):
    monkeypatch.setattr(compiler, "REFERENCE_ROOTS", {})
    with pytest.raises(SubmissionError, match="no template"):
        render(made(bench, {2: V001}))


@pytest.mark.parametrize("name", [V000, V001])
def test_a_merged_candidate_gives_the_very_bits_of_its_own_file(bench, name):
    torch = pytest.importorskip("torch")
    whole = compiled(bench, {2: V000, 7: V001}, V003)
    alone = imported(bench.workload.folder / "candidates" / f"{name}.py")
    from types import SimpleNamespace

    case = SimpleNamespace(id=0, batch=3, length=12, d_model=16, heads=4, layers=2)
    torch.manual_seed(1)
    reference = whole.ref_TransformerLayer(16, 4, 2).eval().requires_grad_(False)
    x, mask = torch.randn(3, 12, 16), torch.arange(12)[None] < torch.tensor([12, 5, 1])[:, None]
    with torch.inference_mode():
        want = alone.build(reference, case, {})(x, mask)
        assert torch.equal(whole.PLANS[name].build(reference, case, {})(x, mask), want)


def test_the_shipped_candidates_merge_with_the_h200_contract():
    loaded = load("h200_fp32")
    plans = {case.id: V003 if case.id in (6, 8, 13, 14) else V002 for case in loaded.contract.cases}
    tree = ast.parse(render(made(loaded, plans, V003)))
    assert {"v002_build", "v003_build", "ref_TransformerLayer"} <= {getattr(n, "name", "") for n in tree.body}


def test_every_shipped_candidate_and_peer_can_be_merged():
    for shop in workloads():
        assert isinstance(shop, Workload)
        for source in [*shop.candidates(), *(shop.peer(p.stem) for p in (shop.folder / "peers").glob("*.py"))]:
            compiler.merge([compiler.Part(source.path.name, source.source, "vxyz_")])
