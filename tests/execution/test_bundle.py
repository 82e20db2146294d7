"""Sealed bundles: what one holds, that damage is seen, and a race carried out and back in three parts."""

from __future__ import annotations

import ast
import os
import re
import signal
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import gfast_pipeline
from gfast_pipeline.bench.messages import canonical, to_plain
from gfast_pipeline.contract.load import Loaded
from gfast_pipeline.evaluation.decision import decide
from gfast_pipeline.execution import bundle, jobs
from gfast_pipeline.execution.bundle import HEADER, BundleError, create, ingest
from gfast_pipeline.ledger.sessions import append_session, load_whole
from tests.execution.tiny import V001, Elsewhere, race


def refused(answer: tuple[int, str, str], path: Path, *told: str) -> None:
    """The answer is exit code 2 with one line that names the file and says `told`."""
    code, said, complained = answer
    assert (code, said) == (2, "")
    assert complained.startswith(f"{path}: ")
    assert complained.count("\n") == 1
    for words in told:
        assert words in complained


# --- what a bundle is -------------------------------------------------------------------------------------------------


def test_equal_jobs_give_equal_bundles_and_others_other_ones(loaded: Loaded, tmp_path: Path):
    one, two = create(race(loaded), tmp_path / "one.py"), create(race(loaded), tmp_path / "two.py")
    assert one.read_bytes() == two.read_bytes()
    other = race(loaded)
    other.blocks += 1
    assert create(other, tmp_path / "three.py").read_bytes() != one.read_bytes()
    assert os.access(one, os.X_OK)
    assert create(race(loaded), one) == one, "the same again changes nothing"


def test_a_bundle_takes_no_other_files_place(loaded: Loaded, tmp_path: Path):
    taken = tmp_path / "notes.py"
    taken.write_text("mine")
    with pytest.raises(BundleError, match=r"notes.py: another file lies there; name a new one"):
        create(race(loaded), taken)
    assert taken.read_text() == "mine"
    with pytest.raises(BundleError, match=r"cannot be written: No such file or directory; name a file"):
        create(race(loaded), tmp_path / "no" / "bundle.py")
    into = create(race(loaded), tmp_path)
    assert re.fullmatch(r"gfast-decide-[0-9a-f]{12}\.py", into.name)


def test_a_bundle_holds_the_bench_and_the_job_and_nothing_else(loaded: Loaded, tmp_path: Path):
    packed = b"".join(
        line[2:] for line in create(race(loaded), tmp_path).read_bytes().splitlines() if line.startswith(b"#|")
    )
    path = tmp_path / "inside.zip"
    path.write_bytes(bundle.base64.b64decode(packed))
    package = Path(gfast_pipeline.__file__).parent
    with zipfile.ZipFile(path) as archive:
        names = {f"gfast_pipeline/bench/{p.name}" for p in (package / "bench").glob("*.py")}
        assert set(archive.namelist()) == names | {"gfast_pipeline/__init__.py", "job.json"}
        for name in names:
            assert archive.read(name) == (package.parent / name).read_bytes()
        assert archive.read("job.json") == canonical(to_plain(race(loaded)))


def test_the_header_is_plain_python_of_the_standard_library_that_older_versions_can_read():
    tree = ast.parse(HEADER, feature_version=(3, 7))
    modules = {
        alias.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert modules - sys.stdlib_module_names == {"torch", "gfast_pipeline.bench.__main__"}
    assert max(map(len, HEADER.splitlines())) <= 120


# --- damage on the way there ------------------------------------------------------------------------------------------


def test_a_cut_in_the_header_leaves_no_python_or_the_check_that_finds_it():
    """Where a cut leaves code that runs, the check at the top has to be whole: Python gets no further than that."""
    check = HEADER.index("\nimport argparse")
    runs = []
    for cut in range(check):
        try:
            compile(HEADER[:cut], "bundle", "exec")
        except SyntaxError:
            continue
        runs.append(HEADER[:cut].rstrip())
    prose = HEADER[: HEADER.index("\ntry:")].rstrip()
    code = {text.removeprefix(prose).strip() for text in runs if text.startswith(prose)}
    assert len([text for text in runs if text.startswith(prose)]) < len(runs), "the shebang alone is Python"
    assert code == {"", "t", "tr", HEADER[len(prose) : check].strip()}, "t and tr are names that nothing defines"


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_a_bundle_cut_short_says_so(loaded: Loaded, elsewhere: Elsewhere, share: float):
    path = create(race(loaded), elsewhere.home)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    for verb in (["info"], ["run", "out.json"]):
        refused(elsewhere.run(str(path), *verb), path, "it is cut short", "copy it again", "gfast bundle create")


def test_a_bundle_that_lacks_its_last_byte_says_so(loaded: Loaded, elsewhere: Elsewhere):
    path = create(race(loaded), elsewhere.home)
    path.write_bytes(path.read_bytes()[:-1])
    refused(elsewhere.run(str(path), "info"), path, "it is cut short")


@pytest.mark.parametrize(
    "edit",
    [
        lambda content: content.replace(b"nothing of gfast", b"nothing of ours", 1),
        lambda content: content.replace(b"\n#|U", b"\n#|V", 1),
        lambda content: content.replace(b"\n", b"\r\n"),
        lambda content: content + b"print('and more')\n",
        lambda content: content[:-3] + b"00\n",
    ],
    ids=["header", "payload", "line ends", "appended", "seal"],
)
def test_an_edited_bundle_says_so(loaded: Loaded, elsewhere: Elsewhere, edit: Callable[[bytes], bytes]):
    path = create(race(loaded), elsewhere.home)
    whole = path.read_bytes()
    path.write_bytes(edit(whole))
    assert path.read_bytes() != whole
    refused(elsewhere.run(str(path), "run", "out.json"), path, "it was edited or damaged on the way")
    assert not (elsewhere.home / "out.json").exists()


# --- what it says before it measures ----------------------------------------------------------------------------------


def test_info_says_what_would_be_measured(loaded: Loaded, elsewhere: Elsewhere):
    path = create(race(loaded), elsewhere.home)
    code, said, complained = elsewhere.run("-S", str(path), "info")
    assert (code, complained) == (0, "")
    told = dict(line.split(maxsplit=1) for line in said.splitlines())
    assert told["kind"] == "decide"
    assert (told["contract"], told["hash"], told["protocol"]) == ("transformer_layer/tiny", loaded.hash, "1")
    assert told["participants"].endswith(f"twin (twin), {V001} (challenger)")
    assert told["cases"] == "1"


def test_without_torch_or_a_place_for_the_result_nothing_starts(loaded: Loaded, elsewhere: Elsewhere):
    path = create(race(loaded), elsewhere.home)
    bare = elsewhere.run("-S", str(path), "run", "out.json")
    refused(bare, path, "torch cannot be imported by", "No module named 'torch'", "torch 2.6 or newer")
    refused(elsewhere.run(str(path), "run", "no/out.json"), path, "there is no folder", "make it, or name another")
    (elsewhere.home / "out.json").write_text("an earlier session")
    refused(elsewhere.run(str(path), "run", "out.json"), path, "exists already", "name another file")
    assert (elsewhere.home / "out.json").read_text() == "an earlier session"
    assert elsewhere.run(str(path))[0] == 2


# --- a race, there and back -------------------------------------------------------------------------------------------


def test_a_race_carried_away_in_three_parts_comes_back_as_one_that_decides(
    loaded: Loaded, elsewhere: Elsewhere, tmp_path: Path
):
    log, shop = tmp_path / "log", loaded.workload
    sources = {source.sha256: source for source in shop.candidates()}

    first = create(race(loaded), elsewhere.home)
    code, said, complained = elsewhere.run(str(first), "run", ".", "--minutes", "0")
    assert (code, complained) == (3, ""), said
    (out,) = elsewhere.home.glob("*.json.gz")
    assert f"gfast bundle ingest {out.name}" in said
    session, problems = ingest(out)
    assert (session.status, session.cells_done, session.visits) == ("partial", [], [])
    assert len(problems) == 1
    assert "it is partial: 2 cells are missing" in problems[0]
    assert "gfast bundle create --rest SESSION" in problems[0]
    root = append_session(session, log).id

    # A part that ended before its proof leaves the proof, too.
    job = jobs.rest(loaded, load_whole(root, [log]), root, sources)
    assert [plan.role for plan in job.plans if plan.prove] == ["challenger"]
    second = create(job, elsewhere.home)
    process = elsewhere.start(str(second), "run", ".")
    assert process.stdout is not None
    for line in process.stdout:
        if "generation 1/2 case 1:" in line:
            process.send_signal(signal.SIGINT)
            break
    said, complained = process.communicate(timeout=120)
    assert (complained, "stopped as asked" in said) == ("", True)
    (out,) = set(elsewhere.home.glob("*.json.gz")) - {out}
    session, problems = ingest(out)
    assert (session.rest_of, session.cells_done, session.cells_missing) == (root, [[0, 1]], [[1, 1]])
    assert [problem for problem in problems if "1 cells are missing, first generation 1 case 1" in problem]
    append_session(session, log)
    assert load_whole(root, [log]).status == "partial"

    third = create(jobs.rest(loaded, load_whole(root, [log]), root, sources), elsewhere.home)
    code, said, complained = elsewhere.run(str(third), "run", "rest.json")
    assert (code, complained) == (0, ""), said
    session, problems = ingest(elsewhere.home / "rest.json")
    assert (session.status, session.cells_done, problems) == ("complete", [[1, 1]], [])
    append_session(session, log)

    whole = load_whole(root, [log])
    assert (whole.status, whole.reason, whole.cells_missing) == ("complete", "", [])
    assert len(whole.visits) == 2 * 2 * 2 * 4
    decision = decide([whole], loaded.plain, resamples=200)
    quiet = decision.outcome in ("promote", "reject", "uncertain")
    assert quiet or "A/A control" in decision.reason, decision.reason  # a loud machine is no fault of the bundle
    assert [path.name for path in elsewhere.scratch.iterdir()] == ["gfast-cpu.lease"], "what was unpacked is gone"
