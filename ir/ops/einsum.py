"""Sums of products in Einstein's notation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from perfc.ir.dims import Dim, product
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops.rules import broadcast, touch_all
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType

Labels: TypeAlias = tuple[str, ...]
"""Labels of axes, in order."""

_ELLIPSIS = "."
"""Stands for the axes that `...` covers, counted from the last: `.0`, `.1`, ..."""


def einsum_labels(
    equation: str, ranks: Sequence[int]
) -> tuple[tuple[Labels, ...], Labels]:
    """Return the labels of each operand's axes, and of the result's.

    Without `->` the result has the axes of `...`, then the letters that occur
    once, in order.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        msg = f"{equation!r} has {len(terms)} terms for {len(ranks)} operands"
        raise VerifyError(msg)
    operands = tuple(
        _term_labels(term, rank, equation)
        for term, rank in zip(terms, ranks, strict=True)
    )
    covered = max((_covered(labels) for labels in operands), default=0)
    dots = tuple(f"{_ELLIPSIS}{i}" for i in reversed(range(covered)))
    if arrow:
        letters = right.replace("...", _ELLIPSIS)
        result = tuple(
            label for c in letters for label in (dots if c == _ELLIPSIS else (c,))
        )
    else:
        once = sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1)
        result = (*dots, *once)
    known = {label for labels in operands for label in labels}
    if len(set(result)) < len(result) or not known.issuperset(result):
        msg = f"{equation!r}: the result names an axis twice, or one that no term has"
        raise VerifyError(msg)
    return operands, result


def einsum_pairs(
    terms: Sequence[Labels], result: Labels
) -> Iterator[tuple[Labels, Labels, Labels]]:
    """Yield the labels of both operands of each product of two, and what it keeps.

    From left to right, as `einsum` of `aten/src/ATen/native/Linear.cpp`: what no later
    term and no result has is summed at once.
    """
    left = terms[0]
    for index, right in enumerate(terms[1:], start=2):
        later = {*result, *(label for term in terms[index:] for label in term)}
        kept = tuple(n for n in dict.fromkeys((*left, *right)) if n in later)
        kept = result if index == len(terms) else kept
        yield left, right, kept
        left = kept


def _term_labels(term: str, rank: int, equation: str) -> tuple[str, ...]:
    before, dots, after = term.partition("...")
    covered = rank - len(before) - len(after)
    fits = covered >= 0 if dots else not covered
    if not fits or not (before + after + "a").isalpha():
        msg = f"{equation!r}: the term {term!r} does not fit {rank} axes"
        raise VerifyError(msg)
    middle = (f"{_ELLIPSIS}{i}" for i in reversed(range(covered if dots else 0)))
    return (*before, *middle, *after)


def _covered(labels: tuple[str, ...]) -> int:
    return sum(label.startswith(_ELLIPSIS) for label in labels)


def einsum_sizes(
    labels: Sequence[tuple[str, ...]], shapes: Sequence[tuple[Dim, ...]]
) -> dict[str, Dim]:
    """Return the size of each label; one that is 1 somewhere is broadcast."""
    sizes: dict[str, Dim] = {}
    for names, shape in zip(labels, shapes, strict=True):
        for name, dim in zip(names, shape, strict=True):
            if isinstance(sizes.setdefault(name, dim), int) and sizes[name] == 1:
                sizes[name] = dim
    return sizes


def _infer_einsum(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    types = [operand.type for operand in operands]
    labels, result = einsum_labels(
        attributes.text("equation"), [type_.rank for type_ in types]
    )
    sizes = einsum_sizes(labels, [type_.shape for type_ in types])
    for names, type_ in zip(labels, types, strict=True):
        for name, dim in zip(names, type_.shape, strict=True):
            broadcast([(sizes[name],), (dim,)])
    shape = tuple(sizes[label] for label in result)
    return [Abstract(TensorType(types[0].dtype, shape))]


def _work_einsum(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Multiply pair after pair, left to right; what no later term reads is summed."""
    labels, result = einsum_labels(
        attributes.text("equation"), [type_.rank for type_ in operands]
    )
    sizes = einsum_sizes(labels, [type_.shape for type_ in operands])
    flops: Any = 0
    current = labels[0]
    for index, right in enumerate(labels[1:], start=2):
        joined = dict.fromkeys((*current, *right))
        later = {*result, *(name for rest in labels[index:] for name in rest)}
        flops = flops + 2 * product(sizes[name] for name in joined)
        current = tuple(name for name in joined if name in later)
    if len(labels) == 1:
        flops = operands[0].numel
    moved = touch_all(attributes, operands, results)
    return Work(flops, moved.bytes_read, moved.bytes_written)


EINSUM = OpDef(
    name="einsum",
    arity=(1, None),
    infer=_infer_einsum,
    work=_work_einsum,
    attributes={"equation": (str,)},
    summary="sums of products, by the letters of the axes",
)

OPS = named(EINSUM)
