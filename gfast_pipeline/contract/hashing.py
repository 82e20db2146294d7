"""By what a contract is known: a hash over its meaning and over the code of the reference it refers to.

Neither comments, key order nor docstrings move it. Knows no files.
"""

from __future__ import annotations

import ast
import hashlib
from typing import Any

from gfast_pipeline.bench.messages import canonical


def contract_hash(contract: dict[str, Any], reference_source: str) -> str:
    """sha256 (hex) of the contract's canonical JSON followed by the reference's `reference_digest`."""
    return hash_of(contract, reference_digest(reference_source))


def hash_of(contract: dict[str, Any], reference: str) -> str:
    """As `contract_hash`, from the reference's digest."""
    return hashlib.sha256(canonical(contract) + reference.encode()).hexdigest()


def reference_digest(source: str) -> str:
    """sha256 (hex) of the syntax tree of a Python source without docstrings. Raises SyntaxError."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and _documented(node):
            del node.body[0]
    return hashlib.sha256(_dump(tree).encode()).hexdigest()


def _documented(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    first = node.body[0] if node.body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def _dump(node: Any) -> str:
    """As `ast.dump`, less what is empty: that differs between Python versions, and an approval must not."""
    if isinstance(node, ast.AST):
        fields = ((name, getattr(node, name, None)) for name in node._fields)
        return f"{type(node).__name__}({', '.join(f'{name}={_dump(v)}' for name, v in fields if v not in (None, []))})"
    if isinstance(node, list):
        return f"[{', '.join(map(_dump, node))}]"
    return repr(node)
