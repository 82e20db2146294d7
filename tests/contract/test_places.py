from __future__ import annotations

import json
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gfast_pipeline.contract.places import line_of, places

BARE = st.text("abcxyz019_-", min_size=1, max_size=4)
KEYS = st.one_of(BARE, st.sampled_from(["a.b", "sp ace", "quo'te", "#", "[x]", "", "é="]))
SCALARS = st.one_of(
    st.integers(-99, 99),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "x", "# no comment", "[no", "]", 'a"b', "it's", "back\\", "two\nlines", "{=,}", '"""', "'''"]),
)


def written_key(key: str) -> str:
    return key if key and all(c in "abcxyz019_-" for c in key) else json.dumps(key, ensure_ascii=False)


class Writer:
    """Writes nested values as TOML in many styles and keeps the line on which each path came to stand."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.text = ""
        self.lines: dict[tuple[str | int, ...], int] = {}

    def line(self) -> int:
        return self.text.count("\n") + 1

    def filler(self) -> None:
        self.text += self.draw(st.sampled_from(["", "\n", "# [c] = 'x\n", "   \n\t# {\n"]))

    def table(self, path: tuple[str | int, ...], values: dict[str, Any]) -> None:
        plain = {k: v for k, v in values.items() if not isinstance(v, dict)}
        for key, value in plain.items():
            self.filler()
            self.text += self.draw(st.sampled_from(["", "  "]))
            self.lines[(*path, key)] = self.line()
            self.text += written_key(key) + self.draw(st.sampled_from([" = ", "="]))
            self.value((*path, key), value)
            self.text += self.draw(st.sampled_from(["\n", " # done = 1\n", "\t\r\n"]))
        for key, value in values.items():
            if isinstance(value, dict):
                self.filler()
                self.lines[(*path, key)] = self.line()
                self.text += f"[{'.'.join(written_key(str(part)) for part in (*path, key))}]\n"
                self.table((*path, key), value)

    def value(self, path: tuple[str | int, ...], value: Any) -> None:
        if isinstance(value, list):
            self.text += "["
            for i, item in enumerate(value):
                self.text += self.draw(st.sampled_from(["", "\n", " # ],\n  "]))
                self.lines[(*path, i)] = self.line()
                self.value((*path, i), item)
                self.text += ", "
            self.text += "]"
        elif isinstance(value, dict):
            self.text += "{ "
            for i, (key, item) in enumerate(value.items()):
                self.text += ", " if i else ""
                self.lines[(*path, key)] = self.line()
                self.text += f"{written_key(key)} = "
                self.value((*path, key), item)
            self.text += " }"
        elif isinstance(value, str):
            self.text += self.string(value)
        else:
            self.text += json.dumps(value)

    def string(self, value: str) -> str:
        ways = [json.dumps(value, ensure_ascii=False)]
        if "'" not in value and "\n" not in value:
            ways.append(f"'{value}'")
        if "'''" not in value and not value.startswith("\n"):
            ways.append(f"'''{value}'''")
        if '"""' not in value and "\\" not in value:
            ways.append(f'"""\n{value}"""')
        return self.draw(st.sampled_from(ways))


NESTED = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
INLINE = st.lists(st.dictionaries(KEYS, SCALARS, min_size=1, max_size=3), min_size=1, max_size=3)
TABLES = st.recursive(
    st.dictionaries(KEYS, NESTED | INLINE, max_size=4), lambda inner: st.dictionaries(KEYS, NESTED | inner, max_size=4)
)


@given(st.data())
def test_every_key_and_item_is_found_on_the_line_where_it_was_written(data):
    values = data.draw(TABLES)
    writer = Writer(data.draw)
    writer.table((), values)
    assert tomllib.loads(writer.text) == values
    found = places(writer.text)
    assert {path: place.line for path, place in found.items()} == writer.lines


@given(st.data())
def test_the_extent_of_a_value_is_the_value(data):
    values = {key: value for key, value in data.draw(TABLES).items() if not isinstance(value, dict)}
    writer = Writer(data.draw)
    writer.table((), values)
    found = places(writer.text)
    for key, value in values.items():
        place = found[(key,)]
        assert tomllib.loads(f"v = {writer.text[place.start : place.end]}\n")["v"] == value


def test_arrays_of_tables_are_counted_and_nested():
    text = '[[a]]\nx = 1\n[[a.b]]\ny = 1\n[[a.b]]\ny = 2\n[[a]]\n[[a.b]]\nz."q.r".s = 3\n[a.c]\n'
    found = {path: place.line for path, place in places(text).items()}
    assert found[("a",)] == 1
    assert found[("a", 0, "x")] == 2
    assert found[("a", 0, "b", 0, "y")] == 4
    assert found[("a", 0, "b", 1, "y")] == 6
    assert found[("a", 1)] == 7
    assert found[("a", 1, "b", 0, "z", "q.r", "s")] == 9
    assert found[("a", 1, "c")] == 10


def test_a_header_outranks_the_deeper_header_before_it():
    assert places("[a.b]\nx = 1\n[a]\ny = 2\n")[("a",)].line == 3


def test_a_path_that_is_not_there_falls_back_to_its_nearest_ancestor():
    found = places("x = 1\n[a]\ny = 2\n")
    assert line_of(found, ("a", "missing", 3)) == 2
    assert line_of(found, ("b",)) == 1
