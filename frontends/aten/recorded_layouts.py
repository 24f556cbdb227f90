"""Operands of a trace that do not lie in row-major order: views of tensors that do.

Only where it matters: matmuls read transposed matrices by other kernels, elementwise
kernels move one element at a time where their operands lie differently, and so do those
that join tensors which are not all of one memory format.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from perfc.frontends.aten.builder import AtenBuilder
from perfc.frontends.aten.call import Argument, AtenCall, AtenTensor, Ref
from perfc.frontends.aten.op_map import ELEMENTWISE_HANDLERS
from perfc.ir import TensorType
from perfc.traces import RecordedArgument, RecordedTensor

_MATMULS = frozenset({"mm", "addmm", "bmm", "baddbmm", "_addmm_activation"})
_ELEMENTWISE = frozenset(name.split(".")[1] for name in ELEMENTWISE_HANDLERS) | {"copy"}
_JOIN = "cat"
_PERMUTE, _AS_STRIDED = "aten.permute.default", "aten.as_strided.default"
_MATRIX = 2
_IMAGES = (4, 5)
"""Axes of images and of volumes, batch and channels among them."""


def declare(
    builder: AtenBuilder,
    name: str,
    type_: TensorType,
    tensor: RecordedTensor,
    call: tuple[str, Iterable[RecordedArgument]],
) -> Ref:
    """Declare an operand, as a view where its strides change what is launched.

    Args:
        builder: Of the graph.
        name: Of the operand.
        type_: Its type.
        tensor: What the trace says of it.
        call: The op, without namespace and overload, and all its arguments.

    """
    order = _order(tensor, *call)
    if order is None:
        return _strided(builder, name, type_, tensor)
    if order == _row_major(len(order)):
        builder.input(AtenTensor(name, type_))
        return Ref(name)
    base = attrs.evolve(type_, shape=tuple(type_.shape[axis] for axis in order))
    builder.input(AtenTensor(f"{name}.t", base))
    dims = tuple(order.index(axis) for axis in range(len(order)))
    arguments: dict[str, Argument] = {"self": Ref(f"{name}.t"), "dims": dims}
    builder.call(AtenCall(_PERMUTE, arguments, (AtenTensor(name, type_),)))
    return Ref(name)


def _order(
    tensor: RecordedTensor, op: str, arguments: Iterable[RecordedArgument]
) -> tuple[int, ...] | None:
    """Return the axes in the order of memory where it matters; None if it has holes."""
    if op in _MATMULS and _is_transposed(tensor):
        *batch, rows, columns = _row_major(len(tensor.shape))
        return (*batch, columns, rows)
    row_major = _row_major(len(tensor.shape))
    if not tensor.strides or 0 in tensor.strides:
        return row_major  # not told; or broadcast along an axis
    elementwise = op.removesuffix("_") in _ELEMENTWISE
    if elementwise and not _lie_alike(tensor, arguments):
        return memory_order(tensor)
    if op == _JOIN and not _join_alike(arguments):
        return memory_order(tensor)
    return row_major


def _row_major(rank: int) -> tuple[int, ...]:
    return tuple(range(rank))


def memory_order(tensor: RecordedTensor) -> tuple[int, ...] | None:
    """Return the axes from the slowest to the fastest in memory; None if it has holes.

    Axes of one element stay where they are.
    """
    strides, shape = tensor.strides or (), tensor.shape
    moving = [axis for axis, n in enumerate(shape) if n != 1]
    by_stride = sorted(moving, key=lambda axis: -strides[axis])
    step = 1
    for axis in reversed(by_stride):
        if strides[axis] != step:
            return None
        step *= shape[axis]
    rest = iter(by_stride)
    return tuple(axis if shape[axis] == 1 else next(rest) for axis in range(len(shape)))


def _lie_alike(tensor: RecordedTensor, arguments: Iterable[RecordedArgument]) -> bool:
    """Whether all that is as large as *tensor* has its strides, and none has holes."""
    others = [
        other.strides
        for other in arguments
        if isinstance(other, RecordedTensor) and other.shape == tensor.shape
    ]
    alike = all(strides in (None, tensor.strides) for strides in others)
    return alike and memory_order(tensor) is not None


def _strided(
    builder: AtenBuilder, name: str, type_: TensorType, tensor: RecordedTensor
) -> Ref:
    """Declare a view with holes."""
    builder.input(AtenTensor(f"{name}.t", type_))
    strides = tensor.strides or ()
    arguments: dict[str, Argument] = {
        "self": Ref(f"{name}.t"),
        "size": tensor.shape,
        "stride": strides,
    }
    builder.call(AtenCall(_AS_STRIDED, arguments, (AtenTensor(name, type_),)))
    return Ref(name)


def _join_alike(arguments: Iterable[RecordedArgument]) -> bool:
    """Whether all that is joined has one memory format: rows first, or channels last.

    Empty tensors have none.
    """
    lists = (listed for listed in arguments if isinstance(listed, tuple))
    orders = {
        memory_order(one) if one.strides else _row_major(len(one.shape))
        for listed in lists
        for one in listed
        if isinstance(one, RecordedTensor) and 0 not in one.shape
    }
    return len(orders) <= 1 and all(
        order is not None and order in (_row_major(len(order)), _channels_last(order))
        for order in orders
    )


def _channels_last(order: tuple[int, ...]) -> tuple[int, ...]:
    return (0, *range(2, len(order)), 1) if len(order) in _IMAGES else ()


def _is_transposed(tensor: RecordedTensor) -> bool:
    if tensor.strides is None or len(tensor.shape) < _MATRIX:
        return False
    return tensor.strides[-2] == 1 and tensor.strides[-1] >= max(tensor.shape[-2], 2)
