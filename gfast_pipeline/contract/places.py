"""Where each key of a TOML text stands: line and extent of its value. Only for text that tomllib has accepted.

It finds places, not values: tomllib parses. Knows nothing of contracts.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_right
from dataclasses import dataclass

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Place:
    """`line` (from 1) where a key, table header or list item stands; `start`, `end`: extent of its value in the text
    (of the header itself for tables)."""

    line: int
    start: int
    end: int


def places(text: str) -> dict[Path, Place]:
    """The place of every key, table and list item of a valid TOML text, by its path from the root."""
    return _Scanner(text).scan()


def line_of(found: dict[Path, Place], path: Path) -> int:
    """The line of `path`, or of its nearest ancestor that the text has; 1 where there is none."""
    while path and path not in found:
        path = path[:-1]
    return found[path].line if path else 1


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.breaks = [i for i, letter in enumerate(text) if letter == "\n"]
        self.found: dict[Path, Place] = {}
        self.lengths: dict[Path, int] = {}  # arrays of tables: how many so far

    def scan(self) -> dict[Path, Place]:
        table: Path = ()
        while self._skip(" \t\r\n"):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)
        return self.found

    def _header(self) -> Path:
        start = self.at
        many = self.text.startswith("[[", self.at)
        self.at += 2 if many else 1
        keys = self._keys()
        self.at = self.text.index("]", self.at) + (2 if many else 1)
        path: Path = ()
        for key in keys[:-1]:
            path = self._last((*path, key))
            self._note(path, start, self.at)
        path = (*path, keys[-1])
        if many:
            self._note(path, start, self.at)
            self.lengths[path] = self.lengths.get(path, 0) + 1
            path = self._last(path)
        else:
            self.found[path] = Place(self._line(start), start, self.at)  # the header itself, not a deeper one before it
        self._note(path, start, self.at)
        return path

    def _pair(self, table: Path) -> None:
        start = self.at
        path = table
        for key in self._keys():
            if path != table:
                self._note(path, start, self.at)
            path = (*path, key)
        self.at += 1  # the equals sign that _keys stopped at
        self._skip(" \t")
        self._value(path, self._line(start))

    def _value(self, path: Path, line: int) -> None:
        start = self.at
        opening = self.text[self.at]
        if opening in "[{":
            self.at += 1
            closing = "]" if opening == "[" else "}"
            item = 0
            while self._skip(" \t\r\n,") and self.text[self.at] != closing:
                if opening == "[":
                    self._value((*path, item), self._line(self.at))
                    item += 1
                else:
                    self._pair(path)
            self.at += 1
        elif opening in "\"'":
            self._string()
        else:
            while self.at < len(self.text) and self.text[self.at] not in ",]}\r\n#":
                self.at += 1
        extent = self.text[start : self.at].rstrip(" \t")
        self.found[path] = Place(line, start, start + len(extent))

    def _keys(self) -> list[str]:
        """A dotted key, quoted parts unquoted; stops at the sign after it."""
        keys: list[str] = []
        while True:
            self._skip(" \t")
            start = self.at
            if self.text[self.at] in "\"'":
                self._string()
                keys.append(tomllib.loads(f"key = {self.text[start : self.at]}")["key"])
            else:
                while self.text[self.at] not in " \t.=]":
                    self.at += 1
                keys.append(self.text[start : self.at])
            self._skip(" \t")
            if self.text[self.at] != ".":
                return keys
            self.at += 1

    def _string(self) -> None:
        quote = self.text[self.at]
        fence = quote * 3 if self.text.startswith(quote * 3, self.at) else quote
        self.at += len(fence)
        while not self.text.startswith(fence, self.at):
            self.at += 2 if quote == '"' and self.text[self.at] == "\\" else 1
        self.at += len(fence)
        while len(fence) == 3 and self.text.startswith(quote, self.at):  # quotes that belong to the content
            self.at += 1

    def _skip(self, blanks: str) -> bool:
        """Past blanks and, where lines may end, comments. False at the end of the text."""
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in blanks:
                self.at += 1
            elif letter == "#" and "\n" in blanks:
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return True
        return False

    def _last(self, path: Path) -> Path:
        return (*path, self.lengths[path] - 1) if path in self.lengths else path

    def _note(self, path: Path, start: int, end: int) -> None:
        self.found.setdefault(path, Place(self._line(start), start, end))

    def _line(self, at: int) -> int:
        return bisect_right(self.breaks, at - 1) + 1
