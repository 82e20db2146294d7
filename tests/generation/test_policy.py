"""The static policy names what it refuses, with line and remedy, and lets honest sources through."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfast_pipeline.generation.policy import MAX_BYTES, Finding, check

PROHIBITED = {
    "imports": ["os", "sys", "subprocess", "time", "torch.distributed", "torch.random"],
    "calls": ["eval", "exec", "compile", "open", "input", "__import__", "torch.load"],
    "attributes": ["__globals__", "__dict__", "__torch_dispatch__", "elapsed_time", "_getframe", "torch.cuda.Event"],
}
HEAD = '"""v007: a hypothesis. And more."""\n'
BUILD = "\ndef build(reference, case, schedule):\n    return lambda x, m: reference(x, m)\n"


def findings(body: str, filename: str = "candidates/v007_slug.py", tail: str = BUILD, **options) -> list[Finding]:
    return check(HEAD + textwrap.dedent(body) + tail, PROHIBITED, filename, **options)


def only(body: str, **options) -> Finding:
    found = findings(body, **options)
    assert len(found) == 1, [str(f) for f in found]
    return found[0]


REFUSED = [
    ("import os", "imports os"),
    ("import os.path as p", "imports os"),
    ("import numpy", "imports numpy"),
    ("from sys import modules", "imports sys"),
    ("from . import helper", "relatively"),
    ("from math import *", "everything"),
    ("import torch.distributed as d", "imports torch.distributed"),
    ("from torch import distributed", "imports torch.distributed"),
    ("import torch\ntorch.distributed.init_process_group()", "torch.distributed"),
    ("import torch\ntorch.os.system('ls')", "torch.os"),
    ("from torch import os", "torch.os"),
    ("def f(s):\n    return eval(s)", "built-in eval"),
    ("run = exec", "built-in exec"),
    ("def f():\n    return [open for _ in (1,)]", "built-in open"),
    ("def f():\n    def g():\n        eval = 1\n    return eval('1')", "built-in eval"),
    ("eval = max", "new meaning to the built-in eval"),
    ("m = __import__('os')", "built-in __import__"),
    ("import torch\ntorch.load('x')", "torch.load"),
    ("import torch as t\nl = t.load\nl('x')", "torch.load"),
    ("from torch import load", "torch.load"),
    ("def f(x, n):\n    return getattr(x, n)", "getattr with a computed name"),
    ("def f(x):\n    return getattr(x, '__globals__')", "__globals__"),
    ("import torch\nsetattr(torch.nn.Linear, 'forward', None)", "setattr on torch.nn.Linear"),
    ("import torch\ne = getattr(torch.cuda, 'Event')", "torch.cuda.Event"),
    ("def f(x):\n    return x.elapsed_time", ".elapsed_time"),
    ("def f(x):\n    return f.__globals__", "__globals__"),
    ("class T:\n    def __torch_dispatch__(self):\n        pass", "defines __torch_dispatch__"),
    ("import torch\ne = torch.cuda.Event()", "torch.cuda.Event"),
    ("import torch as t\nt.cuda.Event = None", "assigns to torch.cuda.Event"),
    ("import torch\nc = torch.cuda\nc.synchronize = None", "assigns to torch.cuda.synchronize"),
    ("from torch.nn import functional as F\nF.gelu = None", "assigns to torch.nn.functional.gelu"),
    ("import torch\ndel torch.matmul", "assigns to torch.matmul"),
    ("import torch\nfor torch.matmul in (1,):\n    pass", "assigns to torch.matmul"),
    ("import torch\ntorch.nn.modules[0] = 1", "changes torch.nn.modules"),
    ("import torch\ntorch.backends.cuda.matmul.allow_tf32 = True", "global flag torch.backends.cuda.matmul"),
    ("import torch\ntorch.backends.cuda.enable_flash_sdp(False)", "global flag"),
    ("from torch import backends as b\nb.cudnn.flags(enabled=False)", "global flag"),
    ("import torch\ntorch.set_float32_matmul_precision('high')", "global flag"),
    ("import torch\ntorch.set_num_threads(1)", "global flag"),
    ("from torch import use_deterministic_algorithms as u", "global flag"),
    ("SCHEDULES = dict(a=[1])", "SCHEDULES is computed"),
    ("SCHEDULES = {'a': []}", "SCHEDULES is no grid"),
    ("SCHEDULES: dict = {'a': 4}", "SCHEDULES is no grid"),
    ("CUDA = {'k': 'a' + str(1)}", "CUDA is computed"),
    ("def supports():\n    return True", "supports takes 0"),
]


@pytest.mark.parametrize(("body", "what"), REFUSED, ids=[body.splitlines()[-1].strip() for body, _ in REFUSED])
def test_what_is_prohibited_is_named_once_with_its_line_and_a_remedy(body, what):
    finding = only(body)
    assert what in finding.what
    line = (HEAD + body).splitlines()[finding.line - 1]
    assert line.strip() and finding.line > 1
    assert finding.remedy and str(finding).startswith(f"v007_slug.py:{finding.line}: {finding.what}. ")


ACCEPTED = [
    "import torch, math, functools, copy\nfrom torch import nn\nimport triton.language as tl",
    "import torch\ng = torch.compile(torch.sin)",
    "def f(input, open=None):\n    return input + [compile for compile in (1, 2)]",
    "def f(x):\n    return getattr(x, 'shape')",
    "class Plan:\n    def __init__(self):\n        self.rows = {}\n        self.rows['a'] = 1",
    "import torch\nok = torch.backends.cuda.is_flash_attention_available()",
    "import torch\ntorch_version = torch.__version__",
    'SCHEDULES = {"num_warps": [4, 8], "split": (1, 2)}',
    "from __future__ import annotations\nimport torch.nn.functional as F",
    "import torch\ndef f(torch_like):\n    torch_like.value = 3",
    "import torch\nclass Unavailable(RuntimeError):\n    pass",
]


@pytest.mark.parametrize("body", ACCEPTED)
def test_honest_sources_pass(body):
    tail = BUILD
    assert [str(f) for f in findings(body, tail=tail)] == []


@pytest.mark.parametrize(
    ("definition", "word"),
    [
        ("", "no function build"),
        ("build = lambda reference, case, schedule: reference", "no function build"),
        ("def build(reference, case):\n    pass", "takes 2 arguments"),
        ("def build(a, b, c, d):\n    pass", "takes 4 arguments"),
        ("def build(a, b, c, *, d):\n    pass", "is called with 3"),
    ],
)
def test_build_has_to_be_there_and_take_three_arguments(definition, word):
    finding = only(definition, tail="\n")
    assert word in finding.what and "def build(reference, case, schedule)" in finding.remedy


@pytest.mark.parametrize("definition", ["def build(r, c, s, extra=1):\n    pass", "def build(*all):\n    pass"])
def test_a_build_that_three_arguments_fit_is_accepted(definition):
    assert findings(definition, tail="\n") == []


def test_the_reference_handed_to_build_is_not_assigned_to():
    finding = only("def build(model, case, schedule):\n    model.layers[0].forward = None\n    return model", tail="\n")
    assert "the reference is not to be changed" in finding.what and finding.line == 3


@pytest.mark.parametrize(
    ("text", "filename", "word"),
    [
        ('"""v007: x."""', "v008_slug.py", "v008:"),
        ('"""A fast kernel."""', "v007_slug.py", "v007:"),
        ('"""v007:"""', "v007_slug.py", "v007:"),
        ("x = 1", "v007_slug.py", "is missing"),
        ('"""v007: x."""', "fast.py", "vNNN_slug.py"),
        ('"""v007: x."""', "v7_Slug.py", "vNNN_slug.py"),
    ],
)
def test_name_and_docstring_have_to_agree(text, filename, word):
    found = check(text + BUILD, PROHIBITED, filename)
    assert len(found) == 1 and word in found[0].what and found[0].remedy


def test_a_peer_has_no_number():
    assert check('"""peer: compiled."""' + BUILD, PROHIBITED, "compile_default.py", peer=True) == []
    assert "peer:" in check('"""v007: x."""' + BUILD, PROHIBITED, "compile_default.py", peer=True)[0].what


def test_a_source_that_does_not_parse_gives_its_line():
    found = check(HEAD + "def f(:\n    pass\n", PROHIBITED, "v007_slug.py")
    assert len(found) == 1 and found[0].line == 2 and "does not parse" in found[0].what


@pytest.mark.parametrize("source", ["x = '\0'", "x = " + "(" * 5000, "x = " + "-" * 100_000 + "1", "x" + ".a" * 60_000])
def test_a_source_that_breaks_the_parser_is_a_finding_and_no_crash(source):
    found = check(source, PROHIBITED, "v007_slug.py")
    assert found and all(finding.remedy for finding in found)


def test_a_file_too_large_is_refused_before_it_is_parsed():
    found = check(HEAD + "#" * MAX_BYTES, PROHIBITED, "v007_slug.py")
    assert len(found) == 1 and "bytes" in found[0].what and str(found[0]).startswith("v007_slug.py: ")
    assert findings("#" * (MAX_BYTES - 1000)) == []


def test_findings_come_in_the_order_of_lines():
    found = findings("import torch\ntorch.load('x')\nimport os\neval('1')")
    assert [finding.line for finding in found] == [3, 4, 5]


@given(st.text(max_size=200))
def test_any_text_is_answered_with_findings(text):
    assert all(str(finding) for finding in check(text, PROHIBITED, "v007_slug.py"))


@given(st.sampled_from(["eval", "exec", "open"]), st.integers(0, 3), st.integers(0, 3))
def test_a_built_in_is_seen_however_deep_it_is_used(name, functions, lambdas):
    body = "".join("    " * depth + f"def f{depth}(a):\n" for depth in range(functions))
    body += "    " * functions + "y = " + "lambda b: " * lambdas + f"{name}('1')\n"
    assert any(f"built-in {name}" in finding.what for finding in findings(body))
