from __future__ import annotations

import hashlib
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfast_pipeline.bench.messages import canonical
from gfast_pipeline.contract.hashing import contract_hash, reference_digest
from gfast_pipeline.contract.load import load_file, load_text

CODE = '''"""Doc."""
import math

LIMIT = 3


class Layer:
    """Doc."""

    def forward(self, x, *, scale=None):
        """Doc."""
        return x * 2.0 if scale is None else x * scale


async def later():
    """Only a docstring."""
'''


def test_the_hash_is_that_of_the_canonical_contract_followed_by_the_code_digest():
    contract = {"b": 1, "a": ["é"]}
    expected = hashlib.sha256(canonical(contract) + reference_digest(CODE).encode()).hexdigest()
    assert contract_hash(contract, CODE) == expected


def test_comments_key_order_and_the_way_numbers_are_written_do_not_move_the_hash(contract_file):
    before = load_file(contract_file).hash
    text = contract_file.read_text()
    lines = text.split("\n\n")[0].split("\n")
    moved = "\n".join(reversed(lines)) + "\n\n" + "\n\n".join(text.split("\n\n")[1:])
    moved = moved.replace("weight = 2.0", "weight = 2 # twice").replace("rows = 1, width = 8", "width = 0x8, rows = 1")
    assert tomllib.loads(moved) == tomllib.loads(text)
    assert moved != text
    assert load_text(moved, contract_file).hash == before


@pytest.mark.parametrize(
    ("old", "new"),
    [("margin = 0.01", "margin = 0.011"), ("Doubling, small.", "Doubling."), ('calls = ["eval"]', "calls = []")],
)
def test_every_edit_of_a_value_moves_the_hash(contract_file, old, new):
    before = load_file(contract_file).hash
    assert load_text(contract_file.read_text().replace(old, new), contract_file).hash != before


def test_docstrings_comments_and_layout_do_not_move_the_digest_of_code():
    edited = CODE.replace('"""Doc."""', '"""Other words."""').replace("LIMIT = 3", "LIMIT = (\n    3  # three\n)")
    assert edited != CODE
    assert reference_digest(edited) == reference_digest(CODE)
    bare = (
        CODE.replace('"""Doc."""\nimport', "import").replace('        """Doc."""\n', "").replace('    """Doc."""\n', "")
    )
    assert '"""Doc."""' not in bare
    assert reference_digest(bare) == reference_digest(CODE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2.0", "2"),
        ("2.0", "2.5"),
        ("x * scale", "scale * x"),
        ("scale=None", "scale=1"),
        ("*, scale", "scale"),
        ("LIMIT = 3", "LIMIT: int = 3"),
        ("import math", "import cmath"),
        ("async def", "def"),
        ("is None", "is not None"),
        ("        return", "        'a string that is no docstring'\n        return"),
    ],
)
def test_every_edit_of_code_moves_the_digest(old, new):
    assert old in CODE
    assert reference_digest(CODE.replace(old, new)) != reference_digest(CODE)


@given(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=5), st.randoms())
def test_the_order_of_keys_never_moves_the_hash(values, random):
    keys = list(values)
    random.shuffle(keys)
    assert contract_hash({key: values[key] for key in keys}, "") == contract_hash(values, "")


def test_the_digest_is_the_same_on_every_python():
    """Python 3.12 added fields to the tree and 3.13 another way to print it; a committed approval must outlive both."""
    tree = "Module(body=[FunctionDef(name='f', args=arguments(args=[arg(arg='x')]), body=[Return(value=Constant())])])"
    assert reference_digest("def f(x):\n    return None\n") == hashlib.sha256(tree.encode()).hexdigest()
