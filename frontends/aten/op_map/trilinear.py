"""`aten::_trilinear`, which is what `nn.Bilinear` and its gradients are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.template import Operand
from perfc.ir import AttrValue
from perfc.ir.dims import Dim, product

_LETTERS = "abcdefgh"
_FACTORS = (1, 2, 3)
_MATRIX = 2


@attrs.frozen
class _Factor:
    """One of the three tensors, and the letters of its axes."""

    tensor: Operand
    letters: str

    def at(self, node: AtenNode, letter: str, place: int) -> _Factor:
        """View one place of an axis; an axis that is not there is the same anywhere."""
        axis = self.letters.find(letter)
        if axis < 0:
            return self
        bounds = [node.listed((n,)) for n in (place, place + 1, axis)]
        (cut,) = node.helper("slice", (self.tensor, *bounds))
        return attrs.evolve(self, tensor=cut)


def _trilinear(node: AtenNode) -> None:
    """Two products for each place of one axis, added to a tensor of zeros.

    `_trilinear` in `aten/src/ATen/native/Linear.cpp`, which goes over the output
    features of `nn.Bilinear` one by one; its `sumproduct_pair` is what a step of
    einsum launches.
    """
    factors = [_factor(node, number) for number in _FACTORS]
    summed = {_LETTERS[axis] for axis in node.integers("sumdim")}
    letter = _LETTERS[node.integer("unroll_dim", 1)]
    node.alias(0, _added(node, factors, summed, letter, node.result().shape))


def _bilinear(node: AtenNode) -> None:
    """`nn.Bilinear` of rows, as `bilinear` in the same file writes it."""
    x, y = (_rows(node, node.tensor(f"input{number}")) for number in (1, 2))
    factors = (
        _Factor(x, "ac"),
        _Factor(node.tensor("weight"), "bcd"),
        _Factor(y, "ad"),
    )
    out = node.result().shape
    made = _added(node, factors, {"c", "d"}, "b", (x.type.shape[0], out[-1]))
    if len(out) != _MATRIX:
        (made,) = node.helper("reshape", (made, node.listed(out)), {"view": True})
    if node.is_given("bias"):
        node.emit("add", (made, node.tensor("bias")))
    else:
        node.alias(0, made)


def _rows(node: AtenNode, x: Operand) -> Operand:
    """View all axes but the last as one."""
    if x.rank == _MATRIX:
        return x
    shape = (product(x.type.shape[:-1]), x.type.shape[-1])
    return node.helper("reshape", (x, node.listed(shape)), {"view": True})[0]


def _added(
    node: AtenNode,
    factors: Sequence[_Factor],
    summed: set[str],
    letter: str,
    shape: Sequence[Dim],
) -> Operand:
    """Add up the products of each place of the axis *letter*."""
    kept = "".join(c for c in _axes(factors) if c not in summed)
    attributes: dict[str, AttrValue] = {"dtype": node.result().dtype, "value": 0.0}
    (zeros,) = node.helper("fill", (node.listed(shape),), attributes)
    whole = _Factor(zeros, kept)
    for place in range(_size(factors, letter)):
        one, two, three = (factor.at(node, letter, place) for factor in factors)
        first = _product(node, (one, two), three, summed)
        part = _product(node, (first, three), None, summed)
        added = whole.at(node, letter, place).tensor
        node.helper("add", (added, part.tensor), {"in_place": True})
    return zeros


def _factor(node: AtenNode, number: int) -> _Factor:
    """Return a factor; axes that it is said to be expanded along are not there."""
    tensor = node.tensor(f"i{number}")
    absent = node.integers(f"expand{number}", ())
    axes = range(tensor.rank + len(absent))
    return _Factor(tensor, "".join(_LETTERS[a] for a in axes if a not in absent))


def _axes(factors: Sequence[_Factor]) -> str:
    return "".join(sorted({c for factor in factors for c in factor.letters}))


def _size(factors: Sequence[_Factor], letter: str) -> int:
    for factor in factors:
        if letter in factor.letters:
            size = factor.tensor.type.shape[factor.letters.index(letter)]
            if isinstance(size, int):
                return size
    msg = "an axis whose size is not known"
    raise Misfit(msg)


def _product(
    node: AtenNode,
    factors: tuple[_Factor, _Factor],
    later: _Factor | None,
    summed: set[str],
) -> _Factor:
    """Multiply two factors; sum over the axes that nobody needs *later*."""
    x, y = factors
    needed = later.letters if later else ""
    kept = "".join(c for c in _axes(factors) if c not in summed or c in needed)
    equation = f"{x.letters},{y.letters}->{kept}"
    (made,) = node.helper("einsum", (x.tensor, y.tensor), {"equation": equation})
    return _Factor(made, kept)


TRILINEAR_HANDLERS: Mapping[str, Handler] = {
    "aten._trilinear": _trilinear,
    "aten.bilinear": _bilinear,
}
"""ATen ops to the functions that write them."""
