"""The static policy: reads a candidate's or a peer's source as a syntax tree and says what is refused, and what to do.

Knows the contract's `prohibited` lists and the rules every file keeps (docstring, build, literal SCHEDULES, what may be
imported). It runs nothing, and it is no boundary: isolation and the gates are. It spares GPU time and names lines.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from gfast_pipeline.generation.names import Reader

MAX_BYTES = 200_000
ARITIES = {"build": 3, "supports": 1, "admissible": 2, "kernels": 2}
SIGNATURES = {
    "build": "build(reference, case, schedule)",
    "supports": "supports(case)",
    "admissible": "admissible(case, schedule)",
    "kernels": "kernels(case, schedule)",
}


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that is refused: `line` counts from 1 (0: the file as a whole). `str()` is the whole message."""

    line: int
    what: str
    remedy: str
    file: str = field(default="", compare=False)

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.what}. {self.remedy}"


def check(source: str, prohibited: Mapping[str, Sequence[str]], filename: str, peer: bool = False) -> list[Finding]:
    """What the policy refuses in `source`, by line; empty where the file may run.

    `prohibited`: the contract's lists. `imports`: modules, each with everything below it. `calls`: a bare name is the
    built-in, a dotted one a path from an imported module. `attributes`: a bare name on anything, a dotted one a path.
    `filename` decides which version the docstring must name; a `peer` has no number and says "peer:".
    """
    name = PurePath(filename).name
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        what = f"the file has {size} bytes, more than {MAX_BYTES}"
        return [Finding(0, what, "Generate repeated code in build() instead of writing it out", name)]
    try:
        tree = ast.parse(source, name)
    except SyntaxError as error:
        return [Finding(error.lineno or 0, f"does not parse: {error.msg}", "Correct the syntax at this line", name)]
    except (ValueError, RecursionError, MemoryError) as error:
        return [Finding(0, f"does not parse: {error}", "Write plain UTF-8 Python without such deep nesting", name)]
    found: list[Finding] = []

    def refuse(line: int, what: str, remedy: str) -> None:
        found.append(Finding(line, what, remedy, name))

    _docstring(tree, name, peer, refuse)
    _functions(tree, refuse)
    _literals(tree, refuse)
    try:
        Reader(tree, prohibited, refuse).read()
    except RecursionError:
        refuse(0, "is nested too deeply to be read", "Flatten the expression")
    return sorted(set(found))


def _docstring(tree: ast.Module, name: str, peer: bool, refuse) -> None:
    text = ast.get_docstring(tree)
    first = text.splitlines()[0].strip() if text else ""
    if peer:
        wanted, example = "peer", '"""peer: what it is, in one line."""'
    else:
        number = re.fullmatch(r"(v\d{3,})_[a-z0-9_]+\.py", name)
        if number is None:
            refuse(0, f"the file name {name} is not vNNN_slug.py", "Rename it: the next free number and a short slug")
            return
        wanted, example = number[1], f'"""{number[1]}: one-line hypothesis."""'
    if re.fullmatch(rf"{wanted}: *\S.*", first) is None:
        said = f"begins {first[:40]!r}" if first else "is missing"
        refuse(1, f'the docstring {said}, it has to begin with "{wanted}:"', f"Open the file with {example}")


def _functions(tree: ast.Module, refuse) -> None:
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if "build" not in defined:
        remedy = f"Define it at the top level: def {SIGNATURES['build']} -> forward"
        refuse(0, "has no function build", remedy)
    for name, arity in ARITIES.items():
        node = defined.get(name)
        if node is None:
            continue
        positional = [*node.args.posonlyargs, *node.args.args]
        needed = len(positional) - len(node.args.defaults)
        named_only = [a for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is None]
        accepts = needed <= arity <= len(positional) or (node.args.vararg is not None and needed <= arity)
        if not accepts or named_only:
            what = f"{name} takes {len(positional)} arguments, it is called with {arity}"
            refuse(node.lineno, what, f"Write def {SIGNATURES[name]}")


def _literals(tree: ast.Module, refuse) -> None:
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if not isinstance(target, ast.Name) or target.id not in ("SCHEDULES", "CUDA"):
                continue
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            try:
                literal = ast.literal_eval(value) if value is not None else None
            except ValueError:
                refuse(node.lineno, f"{target.id} is computed", "Write it out as a literal: it is read without running")
                continue
            if target.id == "SCHEDULES" and not _is_grid(literal):
                remedy = 'Write a dict from names to non-empty lists, say {"num_warps": [4, 8]}'
                refuse(node.lineno, "SCHEDULES is no grid of values", remedy)
            if target.id == "CUDA" and not _is_sources(literal):
                refuse(node.lineno, "CUDA is no dict of sources", "Write a dict from names to source texts")


def _is_grid(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(k, str) and isinstance(v, list | tuple) and len(v) > 0 for k, v in value.items()
    )


def _is_sources(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())
