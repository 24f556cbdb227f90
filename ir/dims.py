"""Dimensions: integers, or integer expressions over named symbols.

An `Expr` is kept in one canonical form (a sum of integer multiples of products
of atoms), so that two dimensions are equal exactly when they print alike.
Arithmetic mixes freely with `int`; formulas written with plain operators, and
with `maximum`, `ceil_div` and `product` below, run on ints, on numpy arrays and
on expressions alike.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

import attrs

from perfc.ir.support import UnboundSymbolError, VerifyError, symbol_text

# Far beyond what a model needs: they keep a fuzzer, or a long chain of shape
# arithmetic, from eating the memory or the stack.
MAX_NUMBER = 2**200
MAX_SIZE = 10_000
MAX_DEPTH = 30


@attrs.frozen(cache_hash=True)
class Symbol:
    """A named, unknown, non-negative integer."""

    name: str
    depth: ClassVar[int] = 0
    size: ClassVar[int] = 1

    def __str__(self) -> str:
        return symbol_text(self.name)


@attrs.frozen(cache_hash=True)
class Quotient:
    """`floor(dividend / divisor)` that does not come out even."""

    dividend: Expr
    divisor: Expr
    depth: int = attrs.field(eq=False, kw_only=True)
    size: int = attrs.field(eq=False, kw_only=True)

    def __str__(self) -> str:
        return f"{_operand_text(self.dividend)}//{_operand_text(self.divisor)}"


@attrs.frozen(cache_hash=True)
class Maximum:
    """The larger of two expressions."""

    left: Expr
    right: Expr
    depth: int = attrs.field(eq=False, kw_only=True)
    size: int = attrs.field(eq=False, kw_only=True)

    def __str__(self) -> str:
        return f"max({self.left}, {self.right})"


Atom: TypeAlias = Symbol | Quotient | Maximum
Monomial: TypeAlias = tuple[Atom, ...]
"""A product of atoms, sorted by their text; a power is a repetition."""


@attrs.frozen(cache_hash=True, repr=False)
class Expr:
    """A polynomial with integer coefficients, terms sorted by their text."""

    terms: tuple[tuple[Monomial, int], ...]

    def __str__(self) -> str:
        first, *others = (_term_text(*term) for term in self.terms or (((), 0),))
        signed = (f" - {t[1:]}" if t.startswith("-") else f" + {t}" for t in others)
        return first + "".join(signed)

    __repr__ = __str__

    def __add__(self, other: Dim) -> Dim:
        return total((self, other))

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr(tuple((atoms, -c) for atoms, c in self.terms))

    def __sub__(self, other: Dim) -> Dim:
        return self + (-other)

    def __rsub__(self, other: Dim) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        if not isinstance(other, Expr):
            return _scaled(self, operator.index(other))
        bound = len(self.terms) * _size(other) + len(other.terms) * _size(self)
        _check(bound <= MAX_SIZE, "is too long")
        return _build(
            (_sorted(a + b), c * d) for a, c in self.terms for b, d in other.terms
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floor_div(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floor_div(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return self - (self // other) * other

    def symbols(self) -> frozenset[str]:
        """Names of all symbols in the expression."""
        found: set[str] = set()
        for atoms, _ in self.terms:
            for atom in atoms:
                found |= _atom_symbols(atom)
        return frozenset(found)

    def evaluate(self, bindings: Mapping[str, Any]) -> Any:
        """Put numbers (or numpy arrays) in place of the symbols."""
        result: Any = 0
        for atoms, coefficient in self.terms:
            value: Any = coefficient
            for atom in atoms:
                value = value * _evaluate_atom(atom, bindings)
            result = result + value
        return result


Dim: TypeAlias = int | Expr
"""A size: a number, or an expression of symbols."""


def symbol(name: str) -> Expr:
    """Return the symbol called *name* as an expression."""
    return Expr((((Symbol(name),), 1),))


def evaluate(dim: Dim, bindings: Mapping[str, Any]) -> Any:
    """Evaluate *dim*; an int is its own value."""
    return dim.evaluate(bindings) if isinstance(dim, Expr) else dim


def symbols_of(dims: Iterable[Dim]) -> frozenset[str]:
    """Names of all symbols in *dims*."""
    found: frozenset[str] = frozenset()
    for dim in dims:
        if isinstance(dim, Expr):
            found |= dim.symbols()
    return found


def product(dims: Iterable[Any]) -> Any:
    """Multiply ints, arrays or expressions; 1 for none."""
    return math.prod(dims)


def total(dims: Iterable[Dim]) -> Dim:
    """Add ints and expressions, in one step."""
    return _build(term for dim in dims for term in _terms(dim))


def ceil_div(dividend: Any, divisor: Any) -> Any:
    """Divide and round up, on ints, arrays or expressions."""
    return -(-dividend // divisor)


def maximum(left: Any, right: Any) -> Any:
    """Return the larger, elementwise on arrays, symbolic on expressions."""
    if isinstance(left, Expr) or isinstance(right, Expr):
        return _symbolic_maximum(left, right)
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right)
    first = left > right
    return left * first + right * (1 - first)


def floor_div(dividend: Dim, divisor: Dim) -> Dim:
    """Divide exactly where the polynomial allows it, else keep a quotient.

    Symbols in the divisor are taken to be positive.

    Raises:
        ZeroDivisionError: *divisor* is 0.

    """
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend // divisor
    if not _terms(divisor):
        raise ZeroDivisionError
    exact = _divide_exactly(_terms(dividend), _terms(divisor))
    if exact is not None:
        return exact
    left, right = _expr(dividend), _expr(divisor)
    depth, size = _nesting(left, right)
    return _atom(Quotient(left, right, depth=depth, size=size))


def _terms(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(dim, Expr):
        return dim.terms
    number = operator.index(dim)  # a float or an array is a mistake
    return (((), number),) if number else ()


def _expr(dim: Dim) -> Expr:
    return dim if isinstance(dim, Expr) else Expr(_terms(dim))


def _atom(atom: Atom) -> Expr:
    return Expr((((atom,), 1),))


def _scaled(expr: Expr, factor: int) -> Dim:
    if not factor:
        return 0
    _check(abs(factor) < MAX_NUMBER, "is too large")
    return _build((atoms, c * factor) for atoms, c in expr.terms)


def _size(expr: Expr) -> int:
    return sum(1 + sum(atom.size for atom in atoms) for atoms, _ in expr.terms)


def _nesting(left: Expr, right: Expr) -> tuple[int, int]:
    """Depth and size of an atom made of two expressions, both checked."""
    atoms = [a for side in (left, right) for term in side.terms for a in term[0]]
    depth = 1 + max((atom.depth for atom in atoms), default=0)
    size = 1 + _size(left) + _size(right)
    _check(depth <= MAX_DEPTH, "is nested too deep")
    _check(size <= MAX_SIZE, "is too long")
    return depth, size


def _check(holds: bool, problem: str) -> None:  # noqa: FBT001 - as in `assert`
    if not holds:
        msg = f"a dimension {problem}"
        raise VerifyError(msg)


def _sorted(atoms: Monomial) -> Monomial:
    return tuple(sorted(atoms, key=str)) if len(atoms) > 1 else atoms


def _build(terms: Iterable[tuple[Monomial, int]]) -> Dim:
    sums: dict[Monomial, int] = {}
    for atoms, coefficient in terms:
        sums[atoms] = sums.get(atoms, 0) + coefficient
    kept = [(atoms, c) for atoms, c in sums.items() if c]
    if not kept:
        return 0
    _check(len(kept) <= MAX_SIZE, "is too long")
    _check(max(abs(c) for _, c in kept) < MAX_NUMBER, "is too large")
    if len(kept) == 1:
        return Expr(tuple(kept)) if kept[0][0] else kept[0][1]
    # The constant comes last, as people write it.
    return Expr(tuple(sorted(kept, key=lambda t: (not t[0], "*".join(map(str, t[0]))))))


def _term_text(atoms: Monomial, coefficient: int) -> str:
    if not atoms:
        return str(coefficient)
    alone = len(atoms) == 1 and coefficient == 1
    # A quotient among factors needs parentheses: 2*B//3 is (2*B)//3.
    factors = "*".join(
        str(atom) if alone or not isinstance(atom, Quotient) else f"({atom})"
        for atom in atoms
    )
    if coefficient == 1:
        return factors
    return f"-{factors}" if coefficient == -1 else f"{coefficient}*{factors}"


def _operand_text(expr: Expr) -> str:
    """Write one side of a quotient."""
    match expr.terms:
        case () | (((Symbol() | Maximum(),), 1),):
            return str(expr)
        case (((), number),) if number > 0:
            return str(number)
        case _:
            return f"({expr})"


def _divide_exactly(
    dividend: tuple[tuple[Monomial, int], ...],
    divisor: tuple[tuple[Monomial, int], ...],
) -> Dim | None:
    """Divide by a single term, if every term of the dividend allows it.

    By several terms, if the dividend is a multiple of them.
    """
    if len(divisor) != 1:
        # By which integer the divisor was multiplied, if it was.
        if [atoms for atoms, _ in dividend] != [atoms for atoms, _ in divisor]:
            return None
        pairs = zip(dividend, divisor, strict=True)
        ratios = {divmod(c, d) for (_, c), (_, d) in pairs}
        ratio, rest = ratios.pop()
        return None if ratios or rest else ratio
    (atoms, coefficient) = divisor[0]
    quotient: list[tuple[Monomial, int]] = []
    for term_atoms, term_coefficient in dividend:
        left = list(term_atoms)
        for atom in atoms:
            if atom not in left:
                return None
            left.remove(atom)
        if term_coefficient % coefficient:
            return None
        quotient.append((tuple(left), term_coefficient // coefficient))
    return _build(quotient)


def _symbolic_maximum(left: Dim, right: Dim) -> Dim:
    difference = left - right
    if isinstance(difference, int):
        return left if difference >= 0 else right
    first, second = sorted((_expr(left), _expr(right)), key=str)
    depth, size = _nesting(first, second)
    return _atom(Maximum(first, second, depth=depth, size=size))


def _atom_symbols(atom: Atom) -> frozenset[str]:
    if isinstance(atom, Symbol):
        return frozenset({atom.name})
    if isinstance(atom, Quotient):
        return atom.dividend.symbols() | atom.divisor.symbols()
    return atom.left.symbols() | atom.right.symbols()


def _evaluate_atom(atom: Atom, bindings: Mapping[str, Any]) -> Any:
    if isinstance(atom, Symbol):
        try:
            return bindings[atom.name]
        except KeyError:
            msg = f"dimension {atom.name!r} has no value"
            raise UnboundSymbolError(msg) from None
    if isinstance(atom, Quotient):
        divisor = atom.divisor.evaluate(bindings)
        if isinstance(divisor, int) and not divisor:
            msg = f"dimension {atom} divides by zero"
            raise VerifyError(msg)
        return atom.dividend.evaluate(bindings) // divisor
    return maximum(atom.left.evaluate(bindings), atom.right.evaluate(bindings))
