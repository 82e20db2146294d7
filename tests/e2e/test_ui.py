"""`make ui` in a real browser: a candidate that lands is judged and ranked, another is materialized by clicking."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gfast_pipeline.contract.load import Loaded

ROOT = Path(__file__).parents[2]
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DEADLINE_S = 600.0
"""For one thing to happen, on a machine that does other work beside."""
LANDED, CLICKED, V001 = "v950_landed", "v951_clicked", "v001_fused_qkv_sdpa"
SENSOR = "transformer_layer_candidate_landed"
ASSETS = "/assets/transformer_layer/tiny"

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(BROWSER is None, reason="no browser here: apt-get install chromium, then this test drives it"),
]


def test_make_ui_judges_and_ranks_what_lands_and_materializes_what_is_clicked(loaded: Loaded, tmp_path: Path):
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: it comes with the dev extra")
    candidates = loaded.workload.folder / "candidates"
    for name in ("v002_sdpa_graph", "v003_fp16_operands_graph"):
        (candidates / f"{name}.py").unlink()
    with (
        make_ui(tmp_path) as ui,
        sync_api.sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"]) as browser,
    ):
        page = browser.new_page(viewport={"width": 1600, "height": 1200})
        page.set_default_timeout(60_000)
        ui.until(lambda: V001 in ui.leaderboard(), "v001, which lay there already, is ranked")

        land(candidates, LANDED)
        ui.until(lambda: LANDED in ui.leaderboard(), "the landed candidate is ranked, nobody having done anything")
        ui.until(lambda: ui.runs(LANDED) == ["SUCCESS"], "its run ends")
        row = ui.leaderboard()[LANDED]
        assert row["reason"].startswith(LANDED) and row["incumbent"] and row["challenger_us"] > 0

        timings_show_microseconds(ui, page)
        checks_say_sentences(ui, page)
        the_graph_holds_the_lineage(ui, page)

        page.goto(f"{ui.url}/locations/gfast/sensors/{SENSOR}")
        page.locator("label").filter(has=page.get_by_role("checkbox")).click()  # the sensor's only switch
        ui.until(lambda: ui.sensor() == "STOPPED", "the landing sensor is off")
        land(candidates, CLICKED)
        ui.until(lambda: CLICKED in ui.partitions(), "the catalogue registers the second candidate")
        materialize(ui, page, "candidate", CLICKED)
        shown(page, f"{CLICKED[:4]}: ")
        materialize(ui, page, "correctness", CLICKED)
        shown(page, f"{CLICKED} is right on case 1")
        ui.photograph(page, "clicked")
        assert ui.runs(CLICKED) == ["SUCCESS"] * 2, "the runs that were clicked"
        assert CLICKED not in ui.leaderboard(), "nothing but what was clicked has run"

        materialize(ui, page, "ceilings")
        shown(page, "memory TB/s")
        ui.photograph(page, "ceilings")
        materialize(ui, page, "gap_to_sol", V001)
        shown(page, "times its floor")
        page.get_by_text("[Show Markdown]").click()
        plot = page.get_by_role("dialog").locator("img")
        plot.wait_for()
        assert plot.evaluate("image => image.decode().then(() => image.naturalWidth)") > 300, "the plot is drawn"
        ui.photograph(page, "gap")
        assert not re.search("(?i)join the community", page.content())


def timings_show_microseconds(ui: Ui, page: Any) -> None:
    page.goto(f"{ui.url}{ASSETS}/timings?partition={LANDED}&view=partitions")
    table = page.get_by_role("table").filter(has=page.get_by_role("columnheader", name="official µs")).last
    table.wait_for()
    rows = [row.inner_text().split() for row in table.get_by_role("row").all()]
    ui.photograph(page, "timings")
    (own,) = [row for row in rows if LANDED in row]
    assert float(own[own.index(LANDED) + 1].replace(",", "")) > 0
    assert any("reference" in row for row in rows)


def checks_say_sentences(ui: Ui, page: Any) -> None:
    page.goto(f"{ui.url}{ASSETS}/correctness?view=checks")
    shown(page, "Every answer lies within the contract's gate.")
    shown(page, f"{LANDED} is right on case 1")
    ui.photograph(page, "checks")


def the_graph_holds_the_lineage(ui: Ui, page: Any) -> None:
    page.goto(f"{ui.url}/locations/gfast/asset-groups/transformer_layer/lineage")
    for stage in ("contract", "candidate", "timings", "decision", "archive", "submission"):
        page.get_by_text(stage, exact=True).first.wait_for()
    page.wait_for_timeout(5000)  # the stages take on their colours
    ui.photograph(page, "lineage")


def materialize(ui: Ui, page: Any, stage: str, partition: str | None = None) -> None:
    """Click until the stage runs, wait for its success, and open its page anew."""
    place = f"{ui.url}{ASSETS}/{stage}" + (f"?partition={partition}&view=partitions" if partition else "")
    page.goto(place)
    if partition:
        page.get_by_text(partition, exact=True).first.wait_for()
    page.get_by_role("button").filter(has_text="Materialize").first.click()
    if partition:
        dialog = page.get_by_role("dialog")
        dialog.get_by_text(partition, exact=True).first.wait_for(state="attached")  # shown shortened
        ui.photograph(page, f"dialog-{stage}")
        dialog.get_by_role("button").filter(has_text="Launch 1 run").click()
    page.get_by_text("Launched run").first.wait_for()
    page.get_by_role("link").filter(has_text=re.compile("^View$")).first.click()
    page.get_by_text("Success", exact=True).first.wait_for(timeout=DEADLINE_S * 1000)
    page.goto(place)


def shown(page: Any, text: str) -> None:
    page.get_by_text(text).first.wait_for()


def land(folder: Path, name: str) -> None:
    """A new candidate: v001 under another name, with one harmless line more."""
    text = (folder / f"{V001}.py").read_text().replace("v001:", f"{name[:4]}:", 1)
    (folder / f"{name}.py").write_text(f"{text}\n\nLANDED = {name!r}\n")


class Ui:
    """What `make ui` serves, and ways to ask it and the ledger beside the browser."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], variables: dict[str, str], log: Path) -> None:
        self.url, self._process, self._variables, self._log = f"http://127.0.0.1:{port}", process, variables, log
        self._photographs = [log.parent, *map(Path, filter(None, [os.environ.get("GFAST_SCREENSHOTS")]))]

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait. Where the deadline passes, the server ends or a run fails, fail with the log from there on."""
        end, said = time.monotonic() + DEADLINE_S, ""
        while time.monotonic() < end and self._process.poll() is None and " - RUN_FAILURE - " not in said:
            with contextlib.suppress(OSError):
                if true():
                    return
            time.sleep(1)
            said = self._log.read_text(errors="replace")
        failed = said.find("_FAILURE - ")
        pytest.fail(f"not seen: {what}\n{said[failed:][:5000] if failed >= 0 else said[-5000:]}")

    def ask(self, query: str, **variables: Any) -> Any:
        """The one thing that a GraphQL query asks for."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            (found,) = json.load(answer)["data"].values()
        return found

    def runs(self, candidate: str) -> list[str]:
        """How the runs of a candidate's partition stand."""
        query = "query($of: RunsFilter) {runsOrError(filter: $of) {... on Runs {results {status}}}}"
        found = self.ask(query, of={"tags": [{"key": "dagster/partition", "value": candidate}]})
        return [run["status"] for run in found["results"]]

    def sensor(self) -> str:
        """Whether the landing sensor is RUNNING or STOPPED."""
        query = (
            "query($of: SensorSelector!) {sensorOrError(sensorSelector: $of) {... on Sensor {sensorState {status}}}}"
        )
        place = {"repositoryName": "__repository__", "repositoryLocationName": "gfast", "sensorName": SENSOR}
        return self.ask(query, of=place)["sensorState"]["status"]

    def partitions(self) -> list[str]:
        """The registered candidates."""
        query = "query($of: AssetKeyInput!) {assetNodeOrError(assetKey: $of) {... on AssetNode {partitionKeys}}}"
        return self.ask(query, of={"path": ["transformer_layer", "tiny", "candidate"]})["partitionKeys"]

    def leaderboard(self) -> dict[str, dict[str, Any]]:
        """Rows of the ledger's leaderboard by plan; empty while there is none to read."""
        command = [sys.executable, "-m", "gfast_pipeline.cli", "sql", "leaderboard", "--json"]
        done = subprocess.run(command, cwd=ROOT, env=self._variables, capture_output=True, text=True, timeout=120)
        return {row["plan"]: row for row in json.loads(done.stdout)} if done.returncode == 0 else {}

    def photograph(self, page: Any, name: str) -> None:
        """A screenshot beside the log, and where GFAST_SCREENSHOTS says."""
        for folder in self._photographs:
            folder.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=folder / f"ui-{name}.png")


@contextlib.contextmanager
def make_ui(folder: Path) -> Iterator[Ui]:
    """`make ui` on a warehouse of its own under `folder`; all it started is ended, whatever happens."""
    warehouse, scratch, log = folder / "warehouse", folder / "scratch", folder / "ui.log"
    warehouse.mkdir()
    scratch.mkdir()
    shutil.copy(ROOT / "warehouse" / "dagster.yaml", warehouse)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {name: value for name, value in os.environ.items() if name not in ("DAGSTER_HOME", "MAKEFLAGS")}
    variables |= {"GFAST_WAREHOUSE": str(warehouse), "TMPDIR": str(scratch)}
    command = ["make", "-o", ".venv/.installed", "ui", f"PORT={port}"]  # -o: what is installed is what is tested
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        ui = Ui(port, process, variables, log)
        ui.until(lambda: bool(ui.ask("{version}")), "the UI answers")
        yield ui
    finally:
        _end(process, scratch)


def _end(process: subprocess.Popen[bytes], scratch: Path) -> None:
    """Ask the group, then kill what is left of it and whatever it started in sessions of its own."""
    mark = f"TMPDIR={scratch}".encode()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(30)
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
