"""Gradients of matmuls: two matmuls each, on transposed views."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.ir import Value
from perfc.ir.dims import Dim, product
from perfc.ir.node_kinds import (
    permutation,
)
from perfc.ir.ops.einsum import einsum_labels
from perfc.passes import graphs
from perfc.passes.autodiff.reverse_mode import Gradients, Rule, Site

_MATRIX = 2
_BIAS = 2


def _linear(site: Site) -> Gradients:
    """`AddmmBackward0` of the data, the weight, the bias, between views as rows."""
    x, weight = site.x, site.y
    out, rows = graphs.typed(site.out).shape, product(graphs.typed(site.out).shape[:-1])
    grad = site.viewed(site.grad, rows, out[-1])
    kn = site.node.attributes.flag("weight_is_kn")
    found: dict[int, Value] = {}
    if 0 in site.wanted:
        right = site.tape.turned(weight) if kn else weight
        found[0] = site.op("matmul", grad, right)
    if 1 in site.wanted:
        flat = site.tape.reshape(x, rows, graphs.typed(x).shape[-1])
        if kn:
            found[1] = _right(site, flat, weight, grad)
        else:
            found[1] = site.op("matmul", site.tape.turned(grad), flat)
    if _BIAS in site.wanted:
        bias = graphs.typed(site.node.operands[_BIAS]).shape
        found[_BIAS] = site.tape.summed(grad, bias)
    if 0 in found:
        found[0] = site.viewed(found[0], *graphs.typed(x).shape)
    return found


def _matmul(site: Site) -> Gradients:
    """`MmBackward0` and `BmmBackward0`: of the right operand, then of the left.

    A vector is a matrix of one row, or column. Rows of several batches times one
    matrix are rows of one.
    """
    left, right = _matrix(site, site.x, 0), _matrix(site, site.y, 1)
    shape = graphs.typed(site.out).shape
    if graphs.typed(site.y).rank == 1:
        shape = (*shape, 1)
    if graphs.typed(site.x).rank == 1:
        shape = (*shape[:-1], 1, shape[-1])
    grad = site.tape.reshape(site.grad, *shape)
    if graphs.typed(right).rank == _MATRIX < graphs.typed(left).rank:
        rows = product(shape[:-1])
        grad = site.tape.reshape(grad, rows, shape[-1])
        left = site.tape.reshape(left, rows, graphs.typed(left).shape[-1])
    found: dict[int, Value] = {}
    if 1 in site.wanted:
        found[1] = _back(site, _right(site, left, right, grad), right, site.y)
    if 0 in site.wanted:
        back = site.op("matmul", grad, site.tape.turned(right))
        found[0] = _back(site, back, left, site.x)
    return found


def _right(site: Site, left: Value, right: Value, grad: Value) -> Value:
    """Return the right operand's gradient, laid out as it lies in memory itself."""
    if graphs.typed(right).rank == _MATRIX and permutation(right.producer) is not None:
        back = site.op("matmul", site.tape.turned(grad), left)
        return site.tape.turned(back)
    return site.op("matmul", site.tape.turned(left), grad)


def _matrix(site: Site, value: Value, axis: int) -> Value:
    """View a vector as a matrix whose *axis* has one element."""
    shape = graphs.typed(value).shape
    if len(shape) != 1:
        return value
    wide: tuple[Dim, ...] = (1, *shape) if axis == 0 else (*shape, 1)
    return site.tape.reshape(value, *wide)


def _back(site: Site, grad: Value, like: Value, value: Value) -> Value:
    """Add up broadcast batches, and give the gradient the operand's own shape."""
    return site.tape.reshape(
        site.tape.summed(grad, graphs.typed(like).shape), *graphs.typed(value).shape
    )


def _einsum(site: Site) -> Gradients:
    """Another sum of products: the result's gradient with the other operands.

    An axis that only one operand has was summed: the gradient repeats along it.
    """
    operands = site.node.operands
    ranks = [graphs.typed(value).rank for value in operands]
    equation = site.node.attributes.text("equation")
    terms, out = einsum_labels(equation, ranks)
    names = graphs.letters_of(terms)
    found: dict[int, Value] = {}
    for index in sorted(site.wanted):
        others = [i for i in range(len(operands)) if i != index]
        known = set(out).union(*(terms[i] for i in others))
        kept = [label for label in terms[index] if label in known]
        inputs = ["".join(names[label] for label in out)]
        inputs += ["".join(names[label] for label in terms[i]) for i in others]
        back = f"{','.join(inputs)}->{''.join(names[label] for label in kept)}"
        values = [site.grad, *(operands[i] for i in others)]
        grad = site.op("einsum", *values, equation=back)
        found[index] = _repeated(site, grad, operands[index], terms[index], known)
    return found


def _repeated(
    site: Site, grad: Value, like: Value, labels: tuple[str, ...], known: set[str]
) -> Value:
    shape = graphs.typed(like).shape
    narrow = tuple(
        dim if label in known else 1 for label, dim in zip(labels, shape, strict=True)
    )
    if narrow == shape:
        return grad
    wide = site.tape.reshape(grad, *narrow)
    return site.op("expand", wide, site.tape.integers(*shape))


RULES: Mapping[str, Rule] = {
    "linear": _linear,
    "matmul": _matmul,
    "einsum": _einsum,
}
"""Rules of matmuls by op name."""
