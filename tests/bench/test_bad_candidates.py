"""Everything a candidate can do wrong becomes one failed verdict of the right gate, in words, and hurts nobody else.

A few real sessions, each with several bad candidates and an honest one side by side: whatever the bad ones do, the
honest one passes, the session is whole, and no process or folder is left.
"""

from __future__ import annotations

import os
import re
import textwrap
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.bench.sessions import HONEST, REFERENCE, Outcome, contract, job, once, plan, run

HELPERS = """
import os, signal, sys, time
import torch

class Unavailable(RuntimeError):
    pass

class Sub(torch.Tensor):
    pass

calls = 0
"""


def source(forward: str = "return y", build: str = "", top: str = "") -> str:
    """A candidate: `build` runs before its forward is made; `forward` finds the right answer in y, its number in calls.

    `free` is memory that nobody has written, taken before y: after it, it might hold y's own remains.
    """
    body = f"""
def build(reference, case, schedule):
{textwrap.indent(build, "    ")}
    kept = []
    buffers = [torch.empty(case.batch, case.length, case.d_model) for _ in range(2)]

    def forward(x, valid_token_mask):
        global calls
        calls += 1
        free = torch.empty_like(x)
        y = reference(x, valid_token_mask)
{textwrap.indent(forward, "        ")}

    return forward
"""
    return f'"""v900: a candidate that does one thing wrong."""\n{HELPERS}\n{top}\n{body}'


@dataclass
class Bad:
    """A candidate's text, the gate that must stop it, and what the reason must say. No gate: it passes."""

    text: str
    gate: str | None
    reason: str = ""
    status: str = "failed"


SPEAK = "os.write(int(sys.argv[1]), {line})"
FORK = """
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
    os._exit(0)
"""
FIND_POOL = """
import gc
(runner,) = [item for item in gc.get_objects() if type(item).__name__ == "Runner"]
"""

GROUPS: dict[str, dict[str, Bad]] = {
    "build": {
        "does_not_parse": Bad("def build(reference, case, schedule:\n", "build", r"SyntaxError.*line 1"),
        "lacks_build": Bad(
            '"""v900: nothing."""\n', "build", r"lacks_build\.py has no build\(reference, case, schedule\)"
        ),
        "build_raises": Bad(source(build="raise ValueError(__file__)"), "build", r"ValueError: /.*build_raises\.py"),
        "build_returns_nothing": Bad(
            "def build(reference, case, schedule):\n    pass\n", "build", "build returned NoneType, not a callable"
        ),
        "build_hangs": Bad(source(build="while True: pass"), "build", r"no answer within 6 s"),
        "unavailable": Bad(
            source(build="raise Unavailable('no compiler here')"), "build", "Unavailable: no compiler here", "skipped"
        ),
        "supports_nothing": Bad(
            source(top="def supports(case):\n    return case.d_model > 10_000"),
            "build",
            r"supports\(1\) says no",
            "skipped",
        ),
        "leaves_a_child": Bad(source(build=FORK), None),
        "prints_fifty_megabytes": Bad(source(top="for _ in range(50):\n    print('x' * 1_000_000)"), None),
    },
    "call": {
        "raises": Bad(source("raise RuntimeError('no \\ud800 path')"), "call", "RuntimeError: no . path"),
        "declines_a_call": Bad(source("raise Unavailable('not today')"), "call", "Unavailable: not today"),
        "hangs": Bad(source("while True: pass"), "call", "no answer within 5 s: it hangs"),
        "exits": Bad(
            source("print('out of luck', flush=True); time.sleep(0.2); os._exit(0)"),
            "call",
            r"ended without an answer \(exit code 0; last words: out of luck",
        ),
        "dies_by_signal": Bad(source("os.kill(os.getpid(), signal.SIGSEGV)"), "call", r"\(signal SIGSEGV"),
        "speaks_nonsense": Bad(source(SPEAK.format(line=r"b'[' * 100_000 + b'\n'")), "call", "not JSON"),
        "refuses_in_anothers_name": Bad(
            source(SPEAK.format(line=r"""b'{"ok": false, "gate": "canaries", "error": ["\\ud800"]}\n'""")),
            "call",
            r"\[",
        ),
    },
    "output": {
        "wrong_shape": Bad(source("return y[:, :-1].clone()"), "output", r"has shape \(2, 15, 32\), not \(2, 16, 32\)"),
        "wrong_dtype": Bad(source("return y.double()"), "output", "is torch.float64, not torch.float32"),
        "none": Bad(source("pass"), "output", "NoneType, not exactly torch.Tensor"),
        "subclass": Bad(source("return y.as_subclass(Sub)"), "output", "not exactly torch.Tensor"),
        "nan": Bad(
            source("y[-1, -1, -1] = float('nan'); return y"), "official", r"inf of the allowance.*\[1, 15, 31\]"
        ),
        "zeros": Bad(source("return torch.zeros_like(y)"), "official", "of the allowance used where 1 is allowed"),
        "view_of_input": Bad(source("return x"), "output", "shares memory with an input"),
        "static_buffer": Bad(source("return buffers[0].copy_(y)"), "output", "shares memory with .* an earlier output"),
        "unfinished": Bad(source("free[:, :-2] = y[:, :-2]; return free"), "official", r"\[\d, 1[45], \d+\]"),
        "ignores_the_mask": Bad(source("return reference(x, None)"), "anchored", "of the allowance used"),
        "over_budget": Bad(
            source("return y + 0.95 * torch.maximum(0.02 * y.abs(), torch.tensor(0.002))"), "budget", r"0\.9 is allowed"
        ),
    },
    "habits": {
        "modifies_x": Bad(source("x.add_(1); return y"), "inputs_untouched", "inputs or guards changed"),
        "writes_before_x": Bad(
            source("x.as_strided((1,), (1,), x.storage_offset() - 1).fill_(0); return y"), "inputs_untouched", "guards"
        ),
        # adding one number to every key's bias changes no softmax: only the weight itself shows it
        "modifies_a_weight": Bad(
            source(build="reference.layers[0].attention.k_proj.bias.add_(1)"),
            "inputs_untouched",
            r"weight layers\.0\.attention\.k_proj\.bias was changed",
        ),
        "sets_threads": Bad(source("torch.set_num_threads(2); return y"), "globals_untouched", "threads: 1 → 2"),
        "sets_the_default_dtype": Bad(
            source(build="torch.set_default_dtype(torch.float64)"), "globals_untouched", "dtype: .*float32 → .*float64"
        ),
        "caches_its_first_output": Bad(
            source("kept.append(y); return kept[0].clone()"), "sensitivity", "output did not change when the input did"
        ),
        "answers_by_chance": Bad(
            source("return y + 0.0008 * torch.rand_like(y)"), "determinism", "between two calls on one input"
        ),
        "overwrites_its_last_output": Bad(
            source("if kept:\n    kept.pop().mul_(2)\nkept.append(y)\nreturn y"),
            "output",
            "changed when the next call ran",
        ),
    },
}
LATER: dict[str, Bad] = {
    "wrong_later": Bad(
        source("return y if calls < 60 else y * 1.5"), "timed_output", r"of calls \[\d+, \d+\] of block"
    ),
    "unfinished_later": Bad(
        source("return y if calls < 60 else y.index_fill_(1, torch.tensor([15]), float('nan'))"),
        "timed_output",
        "unfinished, not finite or not its own",
    ),
    "two_buffers": Bad(source("return buffers[calls % 2].copy_(y)"), "timed_output", r"of calls \[\d+, \d+\] of block"),
    "modifies_x_later": Bad(
        source("x.add_(int(calls > 60)); return y"), "pool_untouched", "inputs or guards were changed"
    ),
    "empties_the_pool": Bad(
        source("if calls > 60:\n    runner.opened['pool'].payload.zero_()\nreturn y", FIND_POOL),
        "pool_untouched",
        "inputs or guards were changed",
    ),
    "dies_later": Bad(
        source("if calls > 60:\n    os.kill(os.getpid(), 40)\nreturn y"), "call", r"ended .* \(signal 40"
    ),
    "shrinks_later": Bad(source("return y if calls < 60 else y[:1].clone()"), "output", r"timed call \d+: .*has shape"),
    "speaks_in_the_runners_place": Bad(
        source("if calls == 60:\n    " + SPEAK.format(line=r"""b'{"ok": true}\n'""") + "\nreturn y"),
        "call",
        "no sound 'events'",
    ),
}
ALL = [(group, name) for group, members in GROUPS.items() for name in members]


def judge_group(group: str, folder: Path) -> Outcome:
    """The session of a group; the honest candidate goes last, so that it meets whatever the others left."""
    plans = [plan(name, bad.text) for name, bad in GROUPS[group].items()]
    return run(job("judge", [*plans, plan("honest", HONEST)], contract(build_limit_s=6)), folder)


def time_later(folder: Path) -> Outcome:
    """A session that times the reference, the late ones and the honest one."""
    plans = [plan(name, bad.text, prove=False) for name, bad in LATER.items()]
    # how well the clock gate judges is not the question here, and this machine may be busy
    rules = contract(ratio_gate=20.0)
    return run(job("decide", [REFERENCE, *plans, plan("honest", HONEST, prove=False)], rules), folder)


SESSIONS = {f"bad-{group}": partial(judge_group, group) for group in GROUPS} | {"bad-later": time_later}


def judged(factory: pytest.TempPathFactory, group: str) -> Outcome:
    return once(factory, SESSIONS, f"bad-{group}")


def timed(factory: pytest.TempPathFactory) -> Outcome:
    return judged(factory, "later")


def check(outcome: Outcome, name: str, bad: Bad) -> None:
    found = [v for v in outcome.session.verdicts if v.participant == name and v.status != "passed"]
    if bad.gate is None:
        assert found == []
        assert any(v.participant == name and v.gate == "anchored" for v in outcome.session.verdicts)
        return
    assert [(v.gate, v.status) for v in found] == [(bad.gate, bad.status)], [v.reason for v in found]
    assert re.search(bad.reason, found[0].reason), found[0].reason


@pytest.mark.parametrize(("group", "name"), ALL, ids=[name for _, name in ALL])
def test_one_verdict_says_what_is_wrong(tmp_path_factory, group, name):
    check(judged(tmp_path_factory, group), name, GROUPS[group][name])


@pytest.mark.parametrize("name", LATER)
def test_what_goes_wrong_only_later_is_caught_when_it_is_timed(tmp_path_factory, name):
    check(timed(tmp_path_factory), name, LATER[name])


@pytest.mark.parametrize("group", GROUPS)
def test_the_honest_neighbour_passes_and_the_session_is_whole(tmp_path_factory, group):
    outcome = judged(tmp_path_factory, group)
    session = outcome.session
    honest = [v for v in session.verdicts if v.participant == "honest"]
    assert {v.status for v in honest} == {"passed"}, [v for v in honest if v.status != "passed"]
    gates = {"build", "official", "budget", "anchored", "determinism", "sensitivity"}
    assert {v.gate for v in honest} == gates | {"inputs_untouched", "globals_untouched"}
    assert [v.status for v in session.verdicts if v.gate == "canaries"] == ["passed"]
    assert (outcome.code, session.status, session.reason) == (0, "complete", "")
    assert session.cells_missing == []


def test_those_lost_while_timed_leave_the_others_measured_and_unblamed(tmp_path_factory):
    outcome = timed(tmp_path_factory)
    session = outcome.session
    assert (outcome.code, session.status) == (0, "complete"), session.reason
    assert session.cells_done == [[0, 1], [1, 1]]
    for name in ("reference", "honest"):
        assert [v for v in session.verdicts if v.participant == name and v.status == "failed"] == []
        places = [(v.generation, v.block, v.turn) for v in session.visits if v.participant == name]
        assert sorted(places) == [(g, b, t) for g in range(2) for b in range(2) for t in range(2)]
    assert not [v for v in session.visits if v.generation == 1 and v.participant in LATER], "those out stay out"
    assert any(p.phase == "health" for p in session.phases), "a lost participant is followed by a look at the device"


@pytest.mark.parametrize("group", [*GROUPS, "later"])
def test_no_process_is_left_behind(tmp_path_factory, group):
    assert judged(tmp_path_factory, group).left == []


def test_no_folder_is_left_behind(tmp_path_factory):
    session = judged(tmp_path_factory, "build").session
    (told,) = [v.reason for v in session.verdicts if v.participant == "build_raises" and v.status == "failed"]
    home = Path(told.removeprefix("ValueError: ")).parent
    assert home.name == "g0-build_raises"
    assert not os.path.exists(home.parent), "the session's own folder is gone"


def test_progress_names_each_loss_while_it_happens(tmp_path_factory):
    for group in GROUPS:
        told = judged(tmp_path_factory, group).out
        for name, bad in GROUPS[group].items():
            lines = [line for line in told.splitlines() if name in line and "correctness of" not in line]
            if bad.status == "failed":
                assert bool(lines) == (bad.gate is not None), (name, lines)
