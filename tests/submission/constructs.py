"""Little programs, each with a `go()`, that say in how many ways Python gives a name a meaning."""

TEXT = r"""
=== locals
X = 1
def go():
    X = 2
    return X, helper()
def helper():
    return X
=== parameters
X = 1
def go(X=X, *, k=X + 1):
    return X, k
=== keywords
X = 3
def f(X):
    return X * 2
def go():
    return f(X=X)
=== attributes
class K:
    X = 1
    def get(self):
        return self.X, X
X = 5
def go():
    return K().get(), K.X
=== class body reads before it binds
X = 1
class K:
    X = X + 1
    Y = X
def go():
    return K.X, K.Y, X
=== class comprehension
X = 9
class K:
    X = [1, 2]
    Y = [v + n for n in X for v in (1,)]
def go():
    return K.Y
=== method skips the class
X = 1
class K:
    X = 2
    def get(self):
        return X
def go():
    return K().get()
=== global
X = 1
def bump():
    global X, Z
    X += 1
    Z = X
def go():
    bump()
    return X, Z
=== nonlocal
X = 1
def go():
    X = 2
    def inner():
        nonlocal X
        X += 5
        return X
    return inner(), X
=== comprehensions
X = 4
def go():
    return [X for X in range(3)], {X: X for _ in 'a'}, {x for x in [X]}, X
=== walrus
X = [1, 2]
def go():
    a = [(last := v) for v in X]
    return a, last
=== walrus at the top
X = [(last := v) for v in (1, 2)]
def go():
    return X, last
=== f-strings
X = 7
def helper(v):
    return v + 1
def go():
    v = 2
    return f'{X=} {helper(X)!r:>{v}}' 'X' f"{v}"
=== nested f-strings
X = {'a': 3}
def go():
    return f"{X['a']} {f'{X}'} {[X for X in 'ab']}"
=== decorators
def double(f):
    return lambda *a: 2 * f(*a)
X = 3
@double
def go():
    return X
=== lambda
X = 2
go = lambda X=X: (lambda Y: X + Y)(X)
=== annotations
import typing
class K: pass
def f(a: 'K', b: K = None) -> 'typing.List[K]':
    c: K = 1
    return c
def go():
    return [t is K for t in list(typing.get_type_hints(f).values())[:2]]
=== deferred annotations
from __future__ import annotations
import typing
class K:
    a: K
def f(a: K | None) -> K: ...
def go():
    return typing.get_type_hints(f)['return'] is K
=== import in a try
try:
    import no_such_module as m
except ImportError as error:
    m = str(error)[:9]
def go():
    return m
=== conflicting alias
import math
def go():
    return math.sqrt(4.0)
=== deep import
import xml.dom.minidom
X = xml.dom.minidom.Node.ELEMENT_NODE
def go():
    return X, xml.dom.__name__
=== deep import in a try
try:
    import xml.dom.minidom
finally:
    X = 1
def go():
    return xml.dom.minidom.Node.TEXT_NODE
=== import in a function
def go():
    import math
    return math.pi
=== global import
def load():
    global math
    import math
def go():
    load()
    return math.floor(2.5)
=== hidden built-in
length = len
len = len('abc')
def go():
    return len, length('ab'), max(1, 2)
=== strings
X = 'X helper K'
CUDA = {'X': '''// X
  int X = "helper";
'''}
def go():
    return X, CUDA
=== comments and continuations
X = (  # X
    1 +\
    2)
def \
  go():
    # X
    return X
=== unicode
µ = 'é'  # ü
X = 'é'; Y = X + µ
def go():
    return Y + X
=== delete
X = 1
Y = X
del X
def go():
    return Y
=== except
X = 1
def go():
    try:
        raise KeyError(1)
    except KeyError as X:
        return repr(X)
=== with, for
import contextlib
with contextlib.nullcontext(3) as X:
    pass
for Y in (X, 4):
    pass
def go():
    return X, Y
=== match
X = 1
class K: pass
def go(v=(1, 2)):
    match v:
        case (X, y):
            return X, y
        case K():
            return 0
=== main block
X = 1
def go():
    return X
if __name__ == '__main__':
    raise SystemExit(1)
=== dataclass
from dataclasses import dataclass, field
X = [1]
@dataclass(frozen=True)
class K:
    X: int = 2
    Y: list = field(default_factory=lambda: X)
def go():
    return K().X, K(X=3).X, K().Y
=== super
class A:
    def f(self):
        return 1
class K(A):
    def f(self):
        return super().f() + 1
def go():
    return K().f()
=== private
class K:
    def __init__(self):
        self.__v = 4
    def get(self):
        __w = self.__v
        return __w
def go():
    return K().get()
=== prefix in use
p0_X = 1
p1_X = 2
X = 3
def go():
    p0_X = 5
    p1_X = 6
    return X + p0_X + p1_X
=== undefined
def go():
    try:
        return Tensor
    except NameError:
        return 'none'
=== alias rebound
from math import floor as f
g = f
f = 3
def go():
    return f, g(1.5)
"""

CONSTRUCTS = {
    part.split("\n", 1)[0]: part.split("\n", 1)[1]
    for part in TEXT.removeprefix("\n=== ").split("\n=== ")
    if part.strip()
}
