"""Merged files behave as the separate ones did: every construct by example, and little programs by the hundred."""

from __future__ import annotations

import ast
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfast_pipeline.submission.merge import MergeError, Part, merge
from tests.submission.constructs import CONSTRUCTS


def run(text: str) -> dict:
    module = types.ModuleType("merged")
    exec(compile(text, "merged.py", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def merged(*sources: str, **options) -> list[dict]:
    """What each source's own names are in the module that all of them were merged into."""
    whole = merge([Part(f"{n}.py", source, f"p{n}_", **options) for n, source in enumerate(sources)])
    space = run("\n\n".join([whole.imports, *whole.bodies]))
    return [{old: space[new] for old, new in table.items() if new in space} for table in whole.renamed]


OTHER = 'import os as math\nX = "other"\ndef helper(*a, **k):\n    return "other"\nclass K:\n    X = "other"\n'


@pytest.mark.parametrize("name", CONSTRUCTS)
@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
def test_a_merged_part_behaves_as_it_did_alone(name, first):
    source = CONSTRUCTS[name]
    alone = run(source)["go"]()
    both = (source, OTHER) if first else (OTHER, source)
    assert merged(*both)[0 if first else 1]["go"]() == alone


def test_two_parts_with_the_same_names_do_not_meet():
    one, two = merged("X = 1\ndef go():\n    return X", "X = 2\ndef go():\n    return X")
    assert (one["go"](), two["go"]()) == (1, 2)


def test_a_type_variable_of_one_part_is_not_what_another_part_misses():
    assert merged(CONSTRUCTS["undefined"], "from typing import Any as Tensor")[0]["go"]() == "none"


def test_an_import_that_hides_a_builtin_stays_with_its_part():
    one, two = merged(
        "from operator import add as sum\ndef go():\n    return sum(1, 2)", "def go():\n    return sum([4])"
    )
    assert (one["go"](), two["go"]()) == (3, 4)


def test_equal_imports_become_one_line_and_comments_stay():
    source = "# why\nimport math\nX = math.pi  # kept\n"
    whole = merge([Part("a.py", source, "a_"), Part("b.py", source, "b_")])
    assert whole.imports == "import math"
    assert whole.bodies == ["a_X = math.pi  # kept\n", "b_X = math.pi  # kept\n"]


def test_of_a_part_with_roots_only_what_they_need_stays():
    source = "import math\nimport os\nA = 1\ndef need():\n    return A\nB = os.sep\nclass Root:\n    v = need()\n"
    whole = merge([Part("a.py", source, "a_", roots=("Root",))])
    assert whole.imports == ""
    assert "a_A" in whole.bodies[0] and "a_B" not in whole.bodies[0]


def test_kernels_keep_their_source_and_their_annotations():
    source = (
        "from __future__ import annotations\nimport triton\nimport triton.language as tl\nSIZE: tl.constexpr = 4\n"
        "@triton.jit\ndef kernel(x, N: tl.constexpr):\n    # load, then store\n    v = tl.load(x + N)  # N\n"
        "    helper(v, SIZE)\n@triton.jit\ndef helper(v, N): return v\n"
    )
    body = merge([Part("a.py", source, "v007_")]).bodies[0]
    assert "@triton.jit\ndef v007_kernel(x, N: tl.constexpr):\n    # load, then store\n" in body
    assert "    v = tl.load(x + N)  # N\n    v007_helper(v, v007_SIZE)\n" in body


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def f(:\n", "does not parse"),
        ("from math import *\n", "imports everything"),
        ("from . import x\n", "imports relatively"),
        ("X = 1\nclass K:\n    if X:\n        X = 2\n    Y = X\n", "depending on what ran before"),
        ("__x = 1\nclass K:\n    def f(self):\n        return __x\n", "mangled"),
        ("class K:\n    __v = 1\nY = K._K__v\n", "private name"),
        ("import os; X = 1\n", "share a line"),
    ],
)
def test_what_cannot_be_merged_names_file_line_and_remedy(source, said):
    with pytest.raises(MergeError, match=said) as caught:
        merge([Part("v009_x.py", source, "v009_")])
    assert str(caught.value).startswith("v009_x.py:")


# --- little programs

NAMES = ("a", "b", "c", "f", "g", "K", "math")
name = st.sampled_from(NAMES)


def block(lines) -> str:
    return "\n".join("    " + line for text in lines for line in text.splitlines()) or "    pass"


expression = st.recursive(
    st.one_of(name, st.integers(0, 9).map(str), st.sampled_from(["len", "'a b'", "math"])),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda t: f"({t[0]}, {t[1]})"),
        st.tuples(inner, name, inner).map(lambda t: f"[{t[0]} for {t[1]} in ({t[2]},)]"),
        st.tuples(name, inner, inner).map(lambda t: f"(lambda {t[0]}={t[1]}: {t[2]})()"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]} if {t[1]} else 0)"),
        inner.filter(lambda e: not set(e) & set("'\"\\{}") and "lambda" not in e).map(lambda e: f"f'{{{e}!r}} a'"),
        st.tuples(name, inner).map(lambda t: f"({t[0]} := {t[1]})"),
    ),
    max_leaves=4,
)
simple = st.one_of(
    st.tuples(name, expression).map(lambda t: f"{t[0]} = {t[1]}"),
    st.tuples(name, expression).map(lambda t: f"{t[0]}: {t[0]} = {t[1]}"),
    name.map(lambda n: f"del {n}"),
    st.tuples(name, name).map(lambda t: f"for {t[0]} in ({t[1]}, 1): pass"),
    name.map(lambda n: f"import math as {n}"),
    st.just("import math"),
    expression,
)
statement = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.tuples(name, name, expression, st.lists(inner, max_size=3), expression).map(
            lambda t: f"def {t[0]}({t[1]}={t[2]}):\n{block([*t[3], f'return {t[4]}'])}"
        ),
        st.tuples(name, st.sampled_from(NAMES), st.lists(inner, max_size=2)).map(
            lambda t: f"def {t[0]}():\n{block([f'global {t[1]}', *t[2]])}"
        ),
        st.tuples(name, st.lists(simple, max_size=3)).map(lambda t: f"class {t[0]}:\n{block(t[1])}"),
        st.tuples(st.lists(inner, min_size=1, max_size=2), name).map(
            lambda t: f"try:\n{block(t[0])}\nexcept Exception as {t[1]}:\n    {t[1]} = None"
        ),
    ),
    max_leaves=6,
)
programs = st.lists(statement, min_size=1, max_size=6).map("\n".join)


def outcome(body: str, wrap) -> object:
    """The plain values that a program leaves behind, or the kind of error that ends it."""
    try:
        space = wrap(body)
    except (Exception, RecursionError) as error:
        return type(error)
    return {key: shape(value) for key, value in space.items() if key in NAMES}


def shape(value: object) -> object:
    if isinstance(value, tuple | list):
        return [shape(item) for item in value]
    if isinstance(value, int | str | None):
        text = value if isinstance(value, str) else repr(value)
        return text if " at 0x" not in text and "p0_" not in text and "p1_" not in text and "<" not in text else "text"
    return type(value).__name__


def valid(source: str) -> bool:
    try:
        compile(source, "x", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


@settings(max_examples=300, deadline=None)
@given(programs.filter(valid), programs.filter(valid))
def test_generated_programs_leave_the_same_values_behind(one, two):
    try:
        whole = merge([Part("0.py", one, "p0_"), Part("1.py", two, "p1_")])
    except MergeError:
        return  # refused is right, different is not
    alone = outcome(two, run)
    if alone is NameError:
        return  # what a class body misses may be an import of another part; functions are tested by example
    tables = whole.renamed

    def together(_: str) -> dict:
        space = run("\n".join([whole.imports, whole.bodies[1]]))
        back = {new: old for old, new in tables[1].items()}
        found = {back.get(key, key): value for key, value in space.items() if key in back}
        imports = [n for n in ast.parse(two).body if isinstance(n, ast.Import)]
        names = {alias.asname or alias.name for n in imports for alias in n.names}
        return found | {key: space[key] for key in names if key in space and key not in found}

    ast.parse("\n".join([whole.imports, *whole.bodies]))
    assert outcome(two, together) == alone
