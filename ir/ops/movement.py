"""Ops that move, view or join elements without arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations

import attrs

from perfc.ir.dims import Dim, Expr, ceil_div, product, total
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, Trait, named
from perfc.ir.ops import rules
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType


def _view(x: Abstract, shape: tuple[Dim, ...]) -> Sequence[Abstract]:
    type_ = TensorType(x.type.dtype, shape, x.type.space)
    count = None if x.elements is None else len(x.elements)
    fits = isinstance(type_.numel, Expr) or type_.numel == count
    return [Abstract(type_, x.elements if fits else None)]


def _infer_reshape(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x = operands[0]
    wanted = operands[1].elements
    if wanted is None:
        return _view(x, _solve_reshape(x.type, rules.unknown_shape(operands[1].type)))
    shape: list[Dim] = []
    for axis, dim in enumerate(wanted):
        copied = isinstance(dim, int) and dim == 0 and not attributes.flag("allowzero")
        shape.append(x.type.shape[axis] if copied and axis < x.type.rank else dim)
    return _view(x, _solve_reshape(x.type, shape))


def _solve_reshape(type_: TensorType, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Compute the one dimension given as -1; check the number of elements."""
    free = [axis for axis, dim in enumerate(shape) if isinstance(dim, int) and dim < 0]
    rest = product(dim for axis, dim in enumerate(shape) if axis not in free)
    numel: Dim = type_.numel
    target = f"[{','.join(map(str, shape))}]"
    if len(free) > 1:
        msg = f"cannot reshape {type_} to {target}: more than one -1"
        raise VerifyError(msg)
    if not free:
        if isinstance(numel, int) and isinstance(rest, int) and numel != rest:
            msg = f"cannot reshape {type_} to {target}: {numel} and {rest} elements"
            raise VerifyError(msg)
        return tuple(shape)
    known = isinstance(rest, int) and isinstance(numel, int)
    if rest == 0 or (known and numel % rest):
        msg = f"cannot reshape {type_} to {target}: {numel} elements"
        raise VerifyError(msg)
    result = list(shape)
    result[free[0]] = numel // rest
    return tuple(result)


RESHAPE = OpDef(
    name="reshape",
    arity=(2, 2),
    infer=_infer_reshape,
    work=rules.no_work,
    attributes={
        "allowzero": rules.OPTIONAL_BOOL,
        "view": rules.OPTIONAL_BOOL,  # the source knows that nothing has to be copied
    },
    view=0,
    traits=frozenset({Trait.KEEPS_ORDER}),
    summary="the same elements in another shape (operand 1; -1 solves, 0 copies)",
)


def _infer_flatten(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    shape = operands[0].type.shape
    axis = attributes.integer("axis")
    axis = axis + len(shape) if axis < 0 else axis
    if not 0 <= axis <= len(shape):
        msg = f"axis {axis} is out of range for rank {len(shape)}"
        raise VerifyError(msg)
    return _view(operands[0], (product(shape[:axis]), product(shape[axis:])))


FLATTEN = OpDef(
    name="flatten",
    arity=(1, 1),
    infer=_infer_flatten,
    work=rules.no_work,
    attributes={"axis": (int,)},
    view=0,
    traits=frozenset({Trait.KEEPS_ORDER}),
    summary="a matrix: the dimensions before the axis, and the others",
)


def _infer_transpose(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    type_ = operands[0].type
    perm = attributes.integers("perm")
    if sorted(perm) != list(range(type_.rank)):
        msg = f"{list(perm)} is not a permutation of the axes of {type_}"
        raise VerifyError(msg)
    shape = tuple(type_.shape[axis] for axis in perm)
    moved = TensorType(type_.dtype, shape, type_.space)
    return [Abstract(moved, _permuted(operands[0], perm))]


def _permuted(x: Abstract, perm: tuple[int, ...]) -> tuple[Dim, ...] | None:
    axes = rules.all_of(x)
    if x.elements is None or axes is None:
        return None
    strides = [product(map(len, axes[axis + 1 :])) for axis in range(len(axes))]
    places = [[i * strides[axis] for i in axes[axis]] for axis in perm]
    return tuple(x.elements[sum(place)] for place in combinations(*places))


TRANSPOSE = OpDef(
    name="transpose",
    arity=(1, 1),
    infer=_infer_transpose,
    work=rules.no_work,
    attributes={"perm": (tuple,)},
    view=0,
    summary="the axes in another order",
)


def _axes(
    attributes: Record, operands: Sequence[Abstract]
) -> tuple[int, ...] | TensorType | None:
    """Return the axes that attribute or operand 1 hold, or the type of unknown ones."""
    if len(operands) > 1:
        elements = operands[1].elements
        return (
            operands[1].type if elements is None else tuple(map(rules.as_int, elements))
        )
    given = attributes.get("axes") is not None
    return attributes.integers("axes") if given else None


def _infer_squeeze(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    shape = operands[0].type.shape
    given = _axes(attributes, operands)
    if isinstance(given, TensorType):
        return _view(operands[0], rules.unknown_shape(given, rank=len(shape), sign=-1))
    if given is None:
        axes = {i for i, dim in enumerate(shape) if isinstance(dim, int) and dim == 1}
    else:
        axes = {rules.normalize_axis(a, len(shape)) for a in given}
    for axis in axes:
        rules.require_equal("squeezed dimension and 1", shape[axis], 1)
    kept = tuple(dim for axis, dim in enumerate(shape) if axis not in axes)
    return _view(operands[0], kept)


def _infer_unsqueeze(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    shape = list(operands[0].type.shape)
    axes = _axes(attributes, operands)
    if isinstance(axes, TensorType):
        return _view(operands[0], rules.unknown_shape(axes, rank=len(shape), sign=1))
    rank = len(shape) + len(axes or ())
    places = {rules.normalize_axis(a, rank) for a in axes or ()}
    if len(places) != rank - len(shape):
        msg = f"axes {list(axes or ())} name one place twice"
        raise VerifyError(msg)
    for axis in sorted(places):
        shape.insert(axis, 1)
    return _view(operands[0], tuple(shape))


SQUEEZE = OpDef(
    name="squeeze",
    arity=(1, 2),
    infer=_infer_squeeze,
    work=rules.no_work,
    attributes={"axes": rules.OPTIONAL_INTS},
    view=0,
    traits=frozenset({Trait.KEEPS_ORDER}),
    summary="dimensions of size 1 removed (computed axes: operand 1)",
)
UNSQUEEZE = OpDef(
    name="unsqueeze",
    arity=(1, 2),
    infer=_infer_unsqueeze,
    work=rules.no_work,
    attributes={"axes": rules.OPTIONAL_INTS},
    view=0,
    traits=frozenset({Trait.KEEPS_ORDER}),
    summary="dimensions of size 1 put in (computed axes: operand 1)",
)
IDENTITY = OpDef(
    name="identity",
    arity=(1, 1),
    infer=lambda attributes, operands: [operands[0]],
    work=rules.no_work,
    attributes={"dropout": rules.OPTIONAL_FLOAT},  # the share that training zeroes here
    view=0,
    traits=frozenset({Trait.CONVERTS, Trait.KEEPS_ORDER, Trait.KEEPS_SHAPE}),
    summary="the same tensor",
)


def _infer_expand(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, wanted = operands[0].type, operands[1].elements
    if wanted is None:
        given = rules.unknown_shape(operands[1].type)
        rank = max(x.rank, len(given))
        return [Abstract(TensorType(x.dtype, (rules.UNKNOWN_DIM,) * rank, x.space))]
    type_ = TensorType(x.dtype, rules.broadcast([x.shape, wanted]), x.space)
    return [Abstract(type_, _expanded(operands[0], type_))]


def _expanded(x: Abstract, type_: TensorType) -> tuple[Dim, ...] | None:
    numel = type_.numel
    if x.elements is None or not isinstance(numel, int):
        return None
    if not 0 < numel <= rules.MAX_ELEMENTS:
        return None
    if x.type.numel == numel:
        return x.elements
    added = TensorType(x.type.dtype, (1,) * (type_.rank - x.type.rank) + x.type.shape)
    picks = [
        range(dim) if dim == wide else (0,) * wide
        for dim, wide in zip(added.shape, type_.shape, strict=True)
        if isinstance(dim, int) and isinstance(wide, int)
    ]
    return rules.picked(Abstract(added, x.elements), picks)


EXPAND = OpDef(
    name="expand",
    arity=(2, 2),
    infer=_infer_expand,
    work=rules.no_work,
    view=0,
    summary="dimensions of size 1 repeated, without copying",
)


def _infer_concat(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    first = operands[0].type
    axis = rules.normalize_axis(attributes.integer("axis"), first.rank)
    size: Dim = 0
    shape = list(first.shape)
    for operand in operands:
        other = operand.type
        if other.rank != first.rank:
            msg = f"cannot join {first} and {other}: ranks differ"
            raise VerifyError(msg)
        for i, (left, right) in enumerate(zip(shape, other.shape, strict=True)):
            if i == axis:
                continue
            rules.require_equal(f"dimensions {i} of {first} and {other}", left, right)
            shape[i] = right if isinstance(left, Expr) else left
        size = size + other.shape[axis]
    shape[axis] = size
    dtype = rules.promoted([operand.type for operand in operands])
    type_ = TensorType(dtype, tuple(shape))
    parts = [operand.elements for operand in operands if operand.elements is not None]
    if len(parts) < len(operands) or axis != 0:
        return [Abstract(type_)]
    return [Abstract(type_, tuple(dim for part in parts for dim in part))]


CONCAT = OpDef(
    name="concat",
    arity=(1, None),
    infer=_infer_concat,
    work=rules.touch_all,
    attributes={"axis": (int,)},
    summary="tensors joined along one axis",
)


def _infer_stack(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    first = operands[0].type
    axis = rules.normalize_axis(attributes.integer("axis"), first.rank + 1)
    for operand in operands:
        if operand.type.rank != first.rank:
            msg = f"cannot stack {first} and {operand.type}: ranks differ"
            raise VerifyError(msg)
        for left, right in zip(first.shape, operand.type.shape, strict=True):
            rules.require_equal(
                f"dimensions of {first} and {operand.type}", left, right
            )
    shape = (*first.shape[:axis], len(operands), *first.shape[axis:])
    return [Abstract(TensorType(first.dtype, shape))]


STACK = OpDef(
    name="stack",
    arity=(1, None),
    infer=_infer_stack,
    work=rules.touch_all,
    attributes={"axis": (int,)},
    summary="tensors of one shape joined along a new axis",
)


def _infer_split(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    type_ = operands[0].type
    axis = rules.normalize_axis(attributes.integer("axis"), type_.rank)
    sizes = _pieces(attributes, operands, type_.shape[axis])
    if rules.UNKNOWN_DIM not in sizes:
        whole = f"sizes {[*map(str, sizes)]} and {type_}"
        rules.require_equal(whole, total(sizes), type_.shape[axis])
    before, after = type_.shape[:axis], type_.shape[axis + 1 :]
    shapes = [(*before, size, *after) for size in sizes]
    return [Abstract(attrs.evolve(type_, shape=s).checked()) for s in shapes]


def _pieces(
    attributes: Record, operands: Sequence[Abstract], size: Dim
) -> Sequence[Dim]:
    """Return the sizes given, or those of equal parts, the last maybe smaller."""
    if attributes.get("sizes") is not None:
        return attributes.dims("sizes")
    parts = attributes.integer("parts")
    if not 0 < parts <= MAX_PARTS:
        msg = f"cannot cut into {parts} parts"
        raise VerifyError(msg)
    if len(operands) > 1:
        return operands[1].elements or (rules.UNKNOWN_DIM,) * parts
    piece: Dim = ceil_div(size, parts)
    if isinstance(size, Expr):
        return (*[piece] * (parts - 1), size - (parts - 1) * piece)
    most = rules.as_int(piece)
    return [max(0, min(most, size - i * most)) for i in range(parts)]


MAX_PARTS = 2**16
"""More parts than this are a mistake."""

SPLIT = OpDef(
    name="split",
    arity=(1, 2),
    results=None,
    infer=_infer_split,
    work=rules.no_work,
    attributes={
        "axis": (int,),
        "sizes": rules.OPTIONAL_INTS,
        "parts": rules.OPTIONAL_INT,
    },
    view=0,
    summary="consecutive pieces along one axis, uncopied (computed sizes: operand 1)",
)


def _work_copy(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    return Work(0, operands[0].nbytes, results[0].nbytes)


COPY = OpDef(
    name="copy",
    arity=(1, 1),
    infer=lambda attributes, operands: [None],
    work=_work_copy,
    attributes={"unless_contiguous": rules.OPTIONAL_BOOL, "input": rules.OPTIONAL_BOOL},
    summary="a copy into the result's memory space (input: of another batch's input)",
)

OPS = named(
    *(RESHAPE, FLATTEN, TRANSPOSE, SQUEEZE, UNSQUEEZE, IDENTITY, EXPAND),
    *(CONCAT, STACK, SPLIT, COPY),
)
