"""Several Python files as one: every top-level name of a part gets the part's prefix, imports move to the top.

The text is edited where the names stand, so that comments, kernels and source strings stay as they were written. Knows
syntax only: not what the parts compute, nor who calls them.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.submission.scopes import Names, ScopeError, Use, names, target

BUILTINS = frozenset(dir(builtins))
TOKEN = re.compile(r"[A-Za-z_]\w*")


class MergeError(GfastError):
    """A part that cannot be merged: file, line and remedy."""


@dataclass(frozen=True)
class Part:
    """One file to merge. `prefix` goes before its top-level names ("" leaves them), `roots` are those that are needed
    (None: everything), `links` maps names that other parts define to the file of that part."""

    file: str
    source: str
    prefix: str
    roots: Collection[str] | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    title: str = ""  # a heading, as comment lines


@dataclass(frozen=True)
class Merged:
    """`imports`: the lines for the top of the file. `bodies`: a text a part, in order. `renamed`: by part, original
    top-level name → name in the merged file."""

    imports: str
    bodies: list[str]
    renamed: list[dict[str, str]]


def merge(parts: Sequence[Part]) -> Merged:
    """The parts as one module's text; equal input gives equal text. Of two parts that bind one alias to different
    things, or one that hides a built-in or a name of an unprefixed part, the later keeps it under its own prefix.

    Docstrings and `if __name__ == "__main__":` and `if TYPE_CHECKING:` blocks are left out. Raises MergeError.
    """
    reads = [_Part(part) for part in parts]
    tokens = [set(TOKEN.findall(part.source)) for part in parts]
    unprefixed = {name for read in reads if not read.part.prefix for name in read.found.otherwise}
    taken: dict[str, tuple[str, str]] = {}
    used: set[str] = set()
    lines: set[str] = set()
    bodies, renamed = [], []
    prefixes: dict[str, str] = {}
    for read in reads:
        prefixes[read.part.file] = _free(read.part.prefix, tokens, used)
        used.add(prefixes[read.part.file])
    for read in reads:
        read.choose(prefixes, taken, unprefixed)
        bodies.append(read.text())
        lines |= read.hoisted
        renamed.append(dict(read.new))
    order = sorted(lines, key=lambda line: (line.startswith("from "), line))
    return Merged("\n".join(order), bodies, renamed)


def _free(prefix: str, tokens: Sequence[set[str]], used: set[str]) -> str:
    """`prefix`, changed where some name already begins with it: a local of that name would hide a global."""
    if not prefix:
        return prefix
    for number in count():
        tried = prefix if not number else f"{prefix}{number}_"
        if tried not in used and not any(token.startswith(tried) for some in tokens for token in some):
            return tried
    raise AssertionError


class _Part:
    def __init__(self, part: Part) -> None:
        self.part = part
        try:
            self.tree = ast.parse(part.source)
            future = [n for n in self.tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
            deferred = any(alias.name == "annotations" for node in future for alias in node.names)
            self.found: Names = names(self.tree, deferred)
        except SyntaxError as error:
            raise MergeError(f"{part.file}:{error.lineno}: does not parse: {error.msg}. Correct this line.") from None
        except ScopeError as error:
            raise MergeError(
                f"{part.file}:{error.line}: {error.what}. Write it so that every name has one meaning."
            ) from None
        self.lines = part.source.encode().splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self.new: dict[str, str] = {}
        self.prefix = ""
        self.hoisted: set[str] = set()
        self.hoistable: set[str] = set()
        self.kept = self._reachable()

    # --- what stays

    def _dropped(self, index: int, node: ast.stmt) -> bool:
        if index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return isinstance(node.value.value, str)
        if isinstance(node, ast.If):
            test = ast.unparse(node.test)
            return test in ("__name__ == '__main__'", "TYPE_CHECKING", "typing.TYPE_CHECKING") and not node.orelse
        return False

    def _reachable(self) -> set[int]:
        """Indices of the statements that are kept; with `roots`, those that the roots need."""
        every = {i for i, node in enumerate(self.tree.body) if not self._dropped(i, node)}
        if self.part.roots is None:
            return every
        binds: dict[str, set[int]] = {}
        needs: dict[int, set[str]] = {}
        for use in self.found.uses:
            needs.setdefault(use.statement, set()).add(use.name)
        for index in every:
            for name in names(ast.Module([self.tree.body[index]], [])).bound:
                binds.setdefault(name, set()).add(index)
        missing = sorted(set(self.part.roots) - set(binds))
        if missing:
            raise MergeError(f"{self.part.file}: defines no {missing[0]}. Name it so, the submission is built on it.")
        kept: set[int] = set()
        todo = [index for root in self.part.roots for index in binds[root]]
        while todo:
            index = todo.pop()
            if index not in kept:
                kept.add(index)
                todo += [i for name in needs.get(index, ()) for i in binds.get(name, ())]
        return kept

    # --- what things are called

    def choose(self, prefixes: Mapping[str, str], taken: dict[str, tuple[str, str]], unprefixed: set[str]) -> None:
        """Decide new names. `prefixes`: by file; `taken`: aliases of the merged file so far, extended; `unprefixed`:
        names that are not to be hidden."""
        self.prefix = prefix = prefixes[self.part.file]
        for alias, targets in sorted(self.found.imported.items()):
            clear = len(targets) == 1 and alias not in self.found.otherwise and alias not in self.part.links
            what = next(iter(targets))
            if clear and (not prefix or (alias not in BUILTINS and alias not in unprefixed)):
                if taken.setdefault(alias, what) == what:
                    self.hoistable.add(alias)
                elif not prefix:
                    raise MergeError(f"{self.part.file}: imports {alias} as another part imports something else.")
        for use in self.found.uses:
            name = use.name
            if name in self.part.links:
                self.new[name] = prefixes[self.part.links[name]] + name
            elif name in self.hoistable or (name.startswith("__") and name.endswith("__")):
                continue
            elif prefix and (name in self.found.bound or name not in BUILTINS):
                self.new[name] = prefix + name
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and re.match(r"_[A-Za-z]\w*?__\w*[^_]$", node.attr):
                owner = next((n for n in self.new if node.attr.startswith(f"_{n.lstrip('_')}__")), None)
                if owner is not None and prefix:
                    what = f"{node.attr} is a private name of {owner}, which is renamed"
                    raise MergeError(f"{self.part.file}:{node.lineno}: {what}. Use a single underscore.")

    # --- the text

    def text(self) -> str:
        edits = self._edits()
        out: list[str] = []
        if self.part.title:
            out.append("\n".join(f"# {line}".rstrip() for line in self.part.title.splitlines()) + "\n\n")
        if self.prefix:  # read at top level before it is bound: the built-in it hides
            hidden = sorted(name for name in self.found.early & self.found.bound if name in BUILTINS)
            out += [f"{self.new[name]} = {name}\n" for name in hidden if name in self.new]
        last = 0  # end of the statement before, as a line
        for group in self._groups():
            nodes = [self.tree.body[i] for i in group]
            first, end = last, max(node.end_lineno or node.lineno for node in nodes)
            last = end
            kept = [i for i in group if i in self.kept]
            imports = [i for i in kept if isinstance(self.tree.body[i], ast.Import | ast.ImportFrom)]
            for index in imports:
                out += self._import(self.tree.body[index])  # type: ignore[arg-type]
            rest = [i for i in kept if i not in imports]
            if not rest:
                continue
            if len(rest) != len(group):
                place = f"{self.part.file}:{nodes[0].lineno}"
                raise MergeError(f"{place}: several statements share a line. Write each on a line of its own.")
            out.append(self._edited(self.starts[first], self.starts[end], edits))
        if self.part.roots is not None:
            self.hoisted = set()
            needed = {use.name for use in self.found.uses if use.statement in self.kept}
            for node in self.tree.body:
                if isinstance(node, ast.Import | ast.ImportFrom):
                    self._hoist(node, needed)
        return re.sub(r"\n{4,}", "\n\n\n", "".join(out)).strip("\n") + "\n"

    def _groups(self) -> list[list[int]]:
        """Statements by the lines they share."""
        groups: list[list[int]] = []
        end = 0
        for index, node in enumerate(self.tree.body):
            decorators = getattr(node, "decorator_list", [])
            start = min([node.lineno, *(d.lineno for d in decorators)])
            if groups and start <= end:
                groups[-1].append(index)
            else:
                groups.append([index])
            end = max(end, node.end_lineno or node.lineno)
        return groups

    def _hoist(self, node: ast.Import | ast.ImportFrom, needed: set[str] | None = None) -> None:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            return
        for alias in node.names:
            bound = target(node, alias)[0]
            if bound in self.hoistable and (needed is None or bound in needed):
                written = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
                where = f"from {node.module} import " if isinstance(node, ast.ImportFrom) else "import "
                self.hoisted.add(where + written)

    def _import(self, node: ast.Import | ast.ImportFrom) -> list[str]:
        """What stays of a top-level import where it stood: aliases that got the prefix."""
        self._hoist(node)
        lines = []
        for alias in node.names:
            if target(node, alias)[0] in self.new:
                where = f"from {node.module} import " if isinstance(node, ast.ImportFrom) else "import "
                lines.append(f"{where}{self._alias(node, alias)}\n")
        return lines

    def _alias(self, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
        bound, (module, _) = target(node, alias)
        new = self.new[bound]
        if isinstance(node, ast.Import) and not alias.asname and alias.name != module:
            deeper = new + alias.name[len(module) :].replace(".", "__")  # only `import a.b` itself loads a.b
            return f"{alias.name} as {deeper}, {module} as {new}"
        return f"{alias.name} as {new}"

    def _edits(self) -> list[tuple[int, int, str]]:
        """(start, end, text) in bytes, in order, not overlapping."""
        edits: dict[tuple[int, int], str] = {}
        hosts: dict[int, ast.expr] = {id(host): host for host in self.found.hosts}
        imports = {
            id(alias): node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        for use in self.found.uses:
            new = self.new.get(use.name)
            if new is None:
                continue
            if use.host is not None:
                if isinstance(use.node, ast.Name):
                    use.node.id = new
                hosts[id(use.host)] = use.host
            elif isinstance(use.node, ast.alias):
                node = imports[id(use.node)]
                edits[self._span(use.node)] = self._alias(node, use.node)
            elif isinstance(use.node, ast.Global):
                said = ", ".join(self.new.get(name, name) for name in use.node.names)
                edits[self._span(use.node)] = f"global {said}"
            else:
                edits[self._where(use)] = new
        quoted = {id(host) for host in self.found.hosts}
        for host in hosts.values():
            inner = getattr(host, "parsed", None)
            try:
                text = ast.unparse(inner or host)
            except ValueError as error:
                raise MergeError(f"{self.part.file}:{host.lineno}: {error}. Take it out of the f-string.") from None
            edits[self._span(host)] = repr(text) if inner is not None or id(host) in quoted else text
        return [(start, end, text) for (start, end), text in sorted(edits.items())]

    def _edited(self, start: int, end: int, edits: list[tuple[int, int, str]]) -> str:
        whole = b"".join(self.lines)
        out, at = [], start
        for first, last, text in edits:
            if first >= at and last <= end and first >= start:
                out += [whole[at:first], text.encode()]
                at = last
        return b"".join([*out, whole[at:end]]).decode()

    def _span(self, node: ast.AST) -> tuple[int, int]:
        at: ast.expr = node  # type: ignore[assignment]
        end_line, end_column = at.end_lineno or at.lineno, at.end_col_offset or at.col_offset
        return self.starts[at.lineno - 1] + at.col_offset, self.starts[end_line - 1] + end_column

    def _where(self, use: Use) -> tuple[int, int]:
        """Where the name itself stands in a Name, a def, a class or an except clause."""
        start, end = self._span(use.node)
        if isinstance(use.node, ast.Name):
            return start, end
        name = re.escape(use.name.encode())
        gap = rb"(?:\s|\\\r?\n)+"
        if isinstance(use.node, ast.ExceptHandler):
            start = self._span(use.node.type)[1] if use.node.type else start
            pattern = rb"[\s)]*as" + gap + rb"(" + name + rb")\b"
        else:
            pattern = rb"(?:async" + gap + rb")?(?:def|class)" + gap + rb"(" + name + rb")\b"
        match = re.compile(pattern).match(b"".join(self.lines), start, end)
        if match is None:
            line = getattr(use.node, "lineno", 0)
            raise MergeError(f"{self.part.file}:{line}: {use.name} is not found where it is bound. Simplify the line.")
        return match.span(1)
