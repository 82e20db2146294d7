"""Which occurrences in a module mean a name of the module itself, by Python's own rules of scope.

Locals, parameters, comprehension variables, class attributes, keywords and attributes are told apart from globals.
Reads a syntax tree; renames nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
CAPTURES = (ast.MatchAs, ast.MatchStar, ast.MatchMapping)


class ScopeError(ValueError):
    """Source whose names cannot be told apart with certainty. `line` counts from 1."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line, self.what = line, what


@dataclass(frozen=True, eq=False)
class Use:
    """One occurrence of a module-level name. `node` carries it; `host` is the literal (f-string or quoted annotation)
    or annotation that has to be written anew as a whole, None where the name itself can be replaced in place."""

    name: str
    node: ast.AST
    host: ast.expr | None
    statement: int  # index of the top-level statement


@dataclass
class Names:
    """What a module binds at its top level and every occurrence of a name that its functions and classes do not bind.

    `imported`: name → the targets of the plain top-level imports that bind it; `otherwise`: names that are (also) bound
    in another way; `early`: names read at top level, outside functions; `hosts`: expressions to be written as text."""

    uses: list[Use] = field(default_factory=list)
    imported: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    otherwise: set[str] = field(default_factory=set)
    early: set[str] = field(default_factory=set)
    hosts: list[ast.expr] = field(default_factory=list)

    @property
    def bound(self) -> set[str]:
        return set(self.imported) | self.otherwise


def names(tree: ast.Module, quote_annotations: bool = False) -> Names:
    """The names of `tree`. `quote_annotations`: it says `from __future__ import annotations`, so that what it annotates
    outside function bodies becomes text. Raises ScopeError."""
    reader = _Reader(quote_annotations)
    for index, statement in enumerate(tree.body):
        reader.statement = index
        reader.module_bindings(statement)
    for index, statement in enumerate(tree.body):
        reader.statement = index
        reader.visit(statement, reader.module)
    return reader.found


def target(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> tuple[str, tuple[str, str]]:
    """(name that an import binds, what it binds to): ("torch", ("torch", "")), ("nn", ("torch", "nn"))."""
    if isinstance(node, ast.ImportFrom):
        return alias.asname or alias.name, (node.module or "", alias.name)
    if alias.asname:
        return alias.asname, (alias.name, "")
    root = alias.name.split(".")[0]
    return root, (root, "")


@dataclass
class _Scope:
    kind: str  # module · class · function (comprehensions and lambdas too)
    parent: _Scope | None = None
    bound: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)  # declared global
    outer: set[str] = field(default_factory=set)  # declared nonlocal
    sure: set[str] = field(default_factory=set)  # of a class body: bound by now
    maybe: set[str] = field(default_factory=set)


class _Reader:
    def __init__(self, quote_annotations: bool) -> None:
        self.quote = quote_annotations
        self.found = Names()
        self.module = _Scope("module")
        self.statement = 0
        self.host: ast.expr | None = None
        self.classes: list[str] = []

    # --- what is bound where

    def module_bindings(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                name, what = target(statement, alias)
                self.found.imported.setdefault(name, set()).add(what)
        else:
            self.found.otherwise |= _bindings([statement])[0]
        for node in ast.walk(statement):
            if isinstance(node, ast.Global):
                self.found.otherwise |= set(node.names)

    def is_global(self, name: str, scope: _Scope, node: ast.AST, loads: bool) -> bool:
        """Whether `name` in `scope` means the module's."""
        at: _Scope | None = scope
        while at is not None and at.kind != "module":
            if name in at.shared:
                return True
            if at.kind == "class":
                if at is scope and name in at.bound:
                    if not loads or name in at.sure:
                        return False
                    if name in at.maybe and name in self.found.bound:
                        what = f"{name} means the class's or the module's, depending on what ran before"
                        raise ScopeError(getattr(node, "lineno", 0), what)
                    return name not in at.maybe
            elif name in at.bound and name not in at.outer:
                return False
            at = at.parent
        return True

    def use(self, name: str, node: ast.AST, scope: _Scope, loads: bool = True) -> None:
        if not self.is_global(name, scope, node, loads):
            return
        if self.classes and name.startswith("__") and not name.endswith("__"):
            raise ScopeError(getattr(node, "lineno", 0), f"{name} inside a class is mangled and means another global")
        if scope.kind == "module" and loads:
            self.found.early.add(name)
        self.found.uses.append(Use(name, node, self.host, self.statement))

    # --- the walk

    def visit(self, node: ast.AST | None, scope: _Scope) -> None:
        if node is None:
            return
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is not None:
            method(node, scope)
        elif isinstance(node, COMPREHENSIONS):
            self._comprehension(node, scope)
        elif type(node).__name__ in ("TypeAlias", "TypeVar", "ParamSpec", "TypeVarTuple", "TemplateStr"):
            raise ScopeError(getattr(node, "lineno", 0), f"{type(node).__name__} needs a newer Python than 3.10")
        else:
            self.all(ast.iter_child_nodes(node), scope)

    def all(self, nodes: Iterable[ast.AST | None], scope: _Scope) -> None:
        for node in nodes:
            self.visit(node, scope)

    def _name(self, node: ast.Name, scope: _Scope) -> None:
        self.use(node.id, node, scope, isinstance(node.ctx, ast.Load))

    def _global(self, node: ast.Global, scope: _Scope) -> None:
        for name in node.names:
            self.found.uses.append(Use(name, node, None, self.statement))

    def _nonlocal(self, node: ast.Nonlocal, scope: _Scope) -> None:
        return

    def _import(self, node: ast.Import | ast.ImportFrom, scope: _Scope) -> None:
        for alias in node.names:
            if alias.name == "*":
                raise ScopeError(node.lineno, "imports everything from a module")
            self.use(target(node, alias)[0], alias, scope, loads=False)

    def _importfrom(self, node: ast.ImportFrom, scope: _Scope) -> None:
        if node.level:
            raise ScopeError(node.lineno, "imports relatively")
        self._import(node, scope)

    def _excepthandler(self, node: ast.ExceptHandler, scope: _Scope) -> None:
        self.visit(node.type, scope)
        if node.name:
            self.use(node.name, node, scope, loads=False)
        self.all(node.body, scope)

    def _capture(self, node: ast.AST, name: str | None, scope: _Scope) -> None:
        if name and self.is_global(name, scope, node, False):
            raise ScopeError(getattr(node, "lineno", 0), f"a match pattern binds {name} at module level")
        self.all(ast.iter_child_nodes(node), scope)

    def _matchas(self, node: ast.MatchAs, scope: _Scope) -> None:
        self._capture(node, node.name, scope)

    def _matchstar(self, node: ast.MatchStar, scope: _Scope) -> None:
        self._capture(node, node.name, scope)

    def _matchmapping(self, node: ast.MatchMapping, scope: _Scope) -> None:
        self._capture(node, node.rest, scope)

    def _joinedstr(self, node: ast.JoinedStr, scope: _Scope) -> None:
        before, self.host = self.host, self.host or node
        self.all(ast.iter_child_nodes(node), scope)
        self.host = before

    def _annassign(self, node: ast.AnnAssign, scope: _Scope) -> None:
        self.visit(node.value, scope)
        self.visit(node.target, scope)
        if node.value is not None and isinstance(node.target, ast.Name):
            scope.sure.add(node.target.id)  # bound before the annotation is evaluated
        self.annotation(node.annotation, scope, self.quote and scope.kind != "function")

    def annotation(self, node: ast.expr | None, scope: _Scope, quote: bool) -> None:
        """An annotation: text where the module defers its annotations; a quoted one is read as what it quotes."""
        if node is None:
            return
        before = self.host
        inner: ast.AST = node
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                inner = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return
            node.parsed = inner  # type: ignore[attr-defined]
            quote = False
            self.host = before or node
        elif quote and before is None:
            self.host = node
            self.found.hosts.append(node)
        try:
            self.visit(inner, scope)
        finally:
            self.host = before

    def _arguments(self, node: ast.arguments, scope: _Scope, quote: bool) -> None:
        self.all([*node.defaults, *node.kw_defaults], scope)
        for arg in _arguments(node):
            self.annotation(arg.annotation, scope, quote)

    def _functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: _Scope) -> None:
        if getattr(node, "type_params", None):
            raise ScopeError(node.lineno, "type parameters need a newer Python than 3.10")
        self.all(node.decorator_list, scope)
        # A kernel's compiler reads annotations from the source: they stay as they are written.
        quote = self.quote and not any("jit" in ast.unparse(d) for d in node.decorator_list)
        self._arguments(node.args, scope, quote)
        self.annotation(node.returns, scope, quote)
        self.use(node.name, node, scope, loads=False)
        self._body(node.args, node.body, scope)

    _asyncfunctiondef = _functiondef

    def _lambda(self, node: ast.Lambda, scope: _Scope) -> None:
        self._arguments(node.args, scope, False)
        self._body(node.args, [node.body], scope)

    def _body(self, arguments: ast.arguments, body: list, scope: _Scope) -> None:
        bound, shared, outer = _bindings(body)
        inner = _Scope("function", scope, bound | {arg.arg for arg in _arguments(arguments)}, shared, outer)
        self.all(body, inner)

    def _classdef(self, node: ast.ClassDef, scope: _Scope) -> None:
        if getattr(node, "type_params", None):
            raise ScopeError(node.lineno, "type parameters need a newer Python than 3.10")
        self.all([*node.decorator_list, *node.bases, *node.keywords], scope)
        self.use(node.name, node, scope, loads=False)
        bound, shared, outer = _bindings(node.body)
        inner = _Scope("class", scope, bound, shared, outer)
        self.classes.append(node.name)
        for statement in node.body:
            here = _bindings([statement])[0]
            simple = isinstance(statement, (*FUNCTIONS, ast.ClassDef, ast.Assign, ast.AugAssign, ast.AnnAssign))
            # What a walrus binds is bound in the midst of its statement.
            midst = {n.target.id for n in ast.walk(statement) if isinstance(n, ast.NamedExpr)}
            inner.maybe |= here & midst if simple else here
            self.visit(statement, inner)
            declared = isinstance(statement, ast.AnnAssign) and statement.value is None
            if (simple and not declared) or isinstance(statement, ast.Import | ast.ImportFrom):
                inner.sure |= here
            elif isinstance(statement, ast.Delete):
                inner.sure -= here
        self.classes.pop()

    def _comprehension(self, node: ast.AST, scope: _Scope) -> None:
        generators = node.generators  # type: ignore[attr-defined]
        self.visit(generators[0].iter, scope)
        bound = {n.id for g in generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        inner = _Scope("function", scope, bound)
        for index, generator in enumerate(generators):
            self.visit(generator.target, inner)
            if index:
                self.visit(generator.iter, inner)
            self.all(generator.ifs, inner)
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]  # type: ignore[attr-defined]
        self.all(results, inner)


def _arguments(node: ast.arguments) -> list[ast.arg]:
    every = [*node.posonlyargs, *node.args, *node.kwonlyargs, node.vararg, node.kwarg]
    return [arg for arg in every if arg is not None]


def _bindings(body: Iterable[ast.AST]) -> tuple[set[str], set[str], set[str]]:
    """(bound, declared global, declared nonlocal) of a scope with this body; nested scopes keep their own."""
    bound: set[str] = set()
    shared: set[str] = set()
    outer: set[str] = set()

    def look(node: ast.AST | None, comprehension: bool = False) -> None:
        if node is None:
            return
        if isinstance(node, ast.Global):
            shared.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            outer.update(node.names)
        elif isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load) and not comprehension:
                bound.add(node.id)
        elif isinstance(node, ast.NamedExpr):  # binds outside the comprehension it stands in
            bound.add(node.target.id)
            look(node.value, comprehension)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound.update(target(node, alias)[0] for alias in node.names)
        elif isinstance(node, FUNCTIONS):
            bound.add(node.name)
            annotations = [arg.annotation for arg in _arguments(node.args)]
            for part in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults, *annotations, node.returns):
                look(part, comprehension)
        elif isinstance(node, ast.Lambda):
            for part in (*node.args.defaults, *node.args.kw_defaults):
                look(part, comprehension)
        elif isinstance(node, ast.ClassDef):
            bound.add(node.name)
            for part in (*node.decorator_list, *node.bases, *node.keywords):
                look(part, comprehension)
        else:
            if isinstance(node, ast.ExceptHandler) and node.name:
                bound.add(node.name)
            if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
                bound.add(node.name)
            if isinstance(node, ast.MatchMapping) and node.rest:
                bound.add(node.rest)
            inside = comprehension or isinstance(node, COMPREHENSIONS)
            for child in ast.iter_child_nodes(node):
                look(child, inside)

    for node in body:
        look(node)
    return bound - shared, shared, outer
