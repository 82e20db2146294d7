"""Which names a source uses: imports, built-ins, dotted paths through any alias, and what it assigns to.

The half of the static policy that walks the tree. A path is resolved from the imports and from plain assignments
(`c = torch.cuda`), whatever the order; a function's own parameters and variables hide built-ins, as in Python.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence

ALLOWED_IMPORTS = (
    "__future__", "abc", "collections", "contextlib", "copy", "dataclasses", "enum", "functools", "itertools", "math",
    "torch", "triton", "typing",
)  # fmt: skip

# Modules that others carry as attributes (torch.os …): an import by another name.
CARRIED = (
    "os", "sys", "io", "subprocess", "ctypes", "inspect", "builtins", "importlib", "gc", "threading", "socket",
    "pickle", "shutil", "tempfile", "multiprocessing",
)  # fmt: skip

FLAG_SETTERS = (
    "torch.set_float32_matmul_precision", "torch.set_num_threads", "torch.set_num_interop_threads",
    "torch.use_deterministic_algorithms", "torch.set_default_dtype", "torch.set_default_device",
    "torch.set_default_tensor_type", "torch.set_grad_enabled", "torch.set_flush_denormal",
    "torch.set_deterministic_debug_mode", "torch.manual_seed", "torch.seed",
)  # fmt: skip

READERS = ("is_", "can_", "has_", "get_", "version", "preferred")

LEAVE_FLAGS = "Leave global flags as the contract sets them; choose precision by the operands' dtype"
NO_PATCHING = "Keep state in local variables or objects of your own; modules belong to everybody"
NOT_HERE = "Take it out: a candidate computes on the tensors it is given"


class Reader:
    """One reading of `tree`; every refusal goes to `refuse(line, what, remedy)`."""

    def __init__(
        self, tree: ast.Module, prohibited: Mapping[str, Sequence[str]], refuse: Callable[[int, str, str], None]
    ) -> None:
        self.tree, self.refuse = tree, refuse
        self.imports = tuple(prohibited.get("imports", ()))
        calls, attributes = prohibited.get("calls", ()), prohibited.get("attributes", ())
        self.builtins = {name for name in calls if "." not in name}
        self.paths = {name for name in (*calls, *attributes) if "." in name}
        self.attributes = {name for name in attributes if "." not in name}
        self.aliases = _aliases(tree)
        self.scopes: list[set[str]] = []
        self.reference = next(
            (
                n.args.args[0].arg
                for n in tree.body
                if isinstance(n, ast.FunctionDef) and n.name == "build" and n.args.args
            ),
            None,
        )

    def read(self) -> None:
        """Read the whole tree."""
        self._visit(self.tree)

    def _visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node)
        elif isinstance(node, ast.Attribute):
            if self._attribute(node):
                return
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            path = self._path(node.value)
            if path:
                self.refuse(node.lineno, f"changes {path}", NO_PATCHING)
        elif isinstance(node, ast.Name):
            self._name(node)
        elif isinstance(node, ast.Call):
            self._call(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name in self.attributes:
            self.refuse(node.lineno, f"defines {node.name}", NOT_HERE)
        scope = _scope(node)
        if scope is None:
            for child in ast.iter_child_nodes(node):
                self._visit(child)
            return
        outside, inside = _parts(node)
        for child in outside:
            self._visit(child)
        self.scopes.append(scope)
        for child in inside:
            self._visit(child)
        self.scopes.pop()

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom):
            if node.level:
                self.refuse(node.lineno, "imports relatively", "A candidate is one file: put the code into it")
                return
            module = node.module or ""
            paths = [f"{module}.{alias.name}" for alias in node.names]
            if any(alias.name == "*" for alias in node.names):
                self.refuse(node.lineno, f"imports everything from {module}", "Name what you import")
        else:
            module, paths = "", [alias.name for alias in node.names]
        for path in paths:
            banned = self._banned(path)
            if banned or path.split(".")[0] not in ALLOWED_IMPORTS:
                remedy = f"A candidate may import {', '.join(ALLOWED_IMPORTS[1:])} and what lies below them"
                self.refuse(node.lineno, f"imports {banned or path}", remedy)
            elif module and path.rsplit(".", 1)[1] in self.attributes:
                self.refuse(node.lineno, f"imports {path}", NOT_HERE)
            else:
                self._use(node.lineno, path)

    def _attribute(self, node: ast.Attribute) -> bool:
        """Judge one dotted access; True where it was refused, so that its inner parts are not refused again."""
        path = self._path(node)
        if not isinstance(node.ctx, ast.Load):
            if path and path.startswith("torch.backends."):
                self.refuse(node.lineno, f"sets the global flag {path}", LEAVE_FLAGS)
                return True
            if path:
                self.refuse(node.lineno, f"assigns to {path}, an attribute of an imported module", NO_PATCHING)
                return True
            root = _root(node)
            if self.reference is not None and root == self.reference:
                what = f"assigns to {ast.unparse(node)}: the reference is not to be changed"
                self.refuse(node.lineno, what, "Copy what you need into tensors of your own")
                return True
        if node.attr in self.attributes and path not in FLAG_SETTERS:
            self.refuse(node.lineno, f"uses {path or '.' + node.attr}", NOT_HERE)
            return True
        return bool(path) and self._use(node.lineno, path)

    def _use(self, line: int, path: str) -> bool:
        """Judge the use of a resolved path."""
        if path in FLAG_SETTERS:
            self.refuse(line, f"uses {path}, which sets a global flag", LEAVE_FLAGS)
        elif any(path == p or path.startswith(f"{p}.") for p in self.paths):
            self.refuse(line, f"uses {path}", NOT_HERE)
        elif path.split(".")[0] not in ALLOWED_IMPORTS:
            return False  # refused where it is imported
        elif self._banned(path):
            self.refuse(line, f"reaches the module {self._banned(path)}", NOT_HERE)
        elif any(part in CARRIED for part in path.split(".")[1:]):
            self.refuse(line, f"reaches another module through {path}", NOT_HERE)
        else:
            return False
        return True

    def _name(self, node: ast.Name) -> None:
        hidden = any(node.id in scope for scope in self.scopes)
        if node.id in self.builtins and not hidden:
            if isinstance(node.ctx, ast.Load):
                self.refuse(node.lineno, f"uses the built-in {node.id}", NOT_HERE)
            else:
                self.refuse(node.lineno, f"gives a new meaning to the built-in {node.id}", "Choose another name")
        elif node.id.startswith("__") and node.id in self.attributes:
            self.refuse(node.lineno, f"uses {node.id}", NOT_HERE)

    def _call(self, node: ast.Call) -> None:
        path = self._path(node.func)
        if path and path.startswith("torch.backends.") and not path.rsplit(".", 1)[1].startswith(READERS):
            self.refuse(node.lineno, f"calls {path}, which sets a global flag", LEAVE_FLAGS)
        if not isinstance(node.func, ast.Name) or node.func.id not in ("getattr", "setattr", "delattr"):
            return
        verb = node.func.id
        if verb in self.builtins or any(verb in scope for scope in self.scopes):
            return
        name = node.args[1] if len(node.args) > 1 else None
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            self.refuse(node.lineno, f"{verb} with a computed name", "Write the attribute's name out")
        elif name.value in self.attributes:
            self.refuse(node.lineno, f"uses .{name.value}", NOT_HERE)
        elif verb != "getattr" and self._path(node.args[0]):
            self.refuse(node.lineno, f"{verb} on {self._path(node.args[0])}, an imported module", NO_PATCHING)
        elif verb == "getattr" and self._path(node.args[0]):
            self._use(node.lineno, f"{self._path(node.args[0])}.{name.value}")

    def _banned(self, path: str) -> str:
        return next((m for m in self.imports if path == m or path.startswith(f"{m}.")), "")

    def _path(self, node: ast.AST) -> str:
        """The dotted path of an access rooted in an import, "" for anything else."""
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id, "")
        if isinstance(node, ast.Attribute):
            base = self._path(node.value)
            return f"{base}.{node.attr}" if base else ""
        return ""


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Name → dotted path, from imports and from assignments of such paths to plain names."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def path(node: ast.AST) -> str:
        if isinstance(node, ast.Attribute):
            base = path(node.value)
            return f"{base}.{node.attr}" if base else ""
        return known.get(node.id, "") if isinstance(node, ast.Name) else ""

    for _ in range(4):  # chains of aliases longer than this are not worth a loop to the end
        before = dict(known)
        for node in ast.walk(tree):
            for target, value in _assignments(node):
                if isinstance(target, ast.Name) and path(value):
                    known[target.id] = path(value)
        if known == before:
            break
    return known


def _assignments(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield target, node.value
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=False)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield node.target, node.value


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _scope(node: ast.AST) -> set[str] | None:
    """The names bound in a function or a comprehension; None for anything that opens no such scope."""
    if isinstance(node, _COMPREHENSIONS):
        return {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    if not isinstance(node, _FUNCTIONS):
        return None
    a = node.args
    bound = {arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if arg}
    shared: set[str] = set()
    pending: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
    while pending:
        part = pending.pop()
        if isinstance(part, ast.Global):
            shared.update(part.names)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            bound.add(part.id)
        if isinstance(part, (*_FUNCTIONS, ast.ClassDef)):
            if not isinstance(part, ast.Lambda):
                bound.add(part.name)
        elif not isinstance(part, _COMPREHENSIONS):
            pending += ast.iter_child_nodes(part)
    return bound - shared


def _parts(node: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    """Children evaluated outside the scope that `node` opens (defaults, decorators) and inside it."""
    if isinstance(node, ast.Lambda):
        return [node.args], [node.body]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        outside = [*node.decorator_list, node.args, *([node.returns] if node.returns else [])]
        return outside, list(node.body)
    return [], list(ast.iter_child_nodes(node))
