"""Convolution and pooling over images in NCHW order."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.dims import Dim, ceil_div, product
from perfc.ir.errors import VerifyError
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef
from perfc.ir.ops.rules import (
    OPTIONAL_BOOL,
    OPTIONAL_INT,
    OPTIONAL_INTS,
    require_equal,
    touch_all,
)
from perfc.ir.record import Record
from perfc.ir.types import TensorType

_WINDOW = {
    "stride": OPTIONAL_INTS,
    "padding": OPTIONAL_INTS,
    "dilation": OPTIONAL_INTS,
}


def _window_dims(
    attributes: Record, image: Sequence[Dim], kernel: Sequence[int]
) -> tuple[Dim, ...]:
    """Output size per spatial axis: floor((n + pads - span) / stride) + 1."""
    axes = len(kernel)
    stride = attributes.integers("stride") or (1,) * axes
    padding = attributes.integers("padding") or (0,) * (2 * axes)
    dilation = attributes.integers("dilation") or (1,) * axes
    if len(stride) != axes or len(dilation) != axes or len(padding) != 2 * axes:
        msg = f"stride, padding and dilation do not fit a {axes}-d window"
        raise VerifyError(msg)
    if min((*stride, *dilation, *kernel), default=1) < 1 or min(padding, default=0) < 0:
        msg = "stride, dilation and window must be positive, padding not negative"
        raise VerifyError(msg)
    dims: list[Dim] = []
    for axis, size in enumerate(image):
        span = dilation[axis] * (kernel[axis] - 1) + 1
        room = size + padding[axis] + padding[axis + axes] - span
        if isinstance(room, int) and room < 0:
            msg = f"a window of {span} does not fit into {size} with its padding"
            raise VerifyError(msg)
        if not attributes.flag("ceil_mode"):
            dims.append(room // stride[axis] + 1)
            continue
        windows = ceil_div(room, stride[axis]) + 1
        beyond = (windows - 1) * stride[axis] - size - padding[axis]
        if isinstance(beyond, int) and beyond >= 0:
            windows = windows - 1  # it would begin in the padding behind the image
        dims.append(windows)
    return tuple(dims)


def _infer_conv(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    x, weight = operands[0].type, operands[1].type
    if x.rank != weight.rank or x.rank < 3:  # noqa: PLR2004 - N, C and one axis
        msg = f"cannot convolve {x} with {weight}"
        raise VerifyError(msg)
    groups = attributes.integer("groups", 1)
    if groups < 1:
        msg = f"{groups} groups"
        raise VerifyError(msg)
    require_equal("input channels", x.shape[1], weight.shape[1] * groups)
    kernel = tuple(d for d in weight.shape[2:] if isinstance(d, int))
    if len(kernel) != x.rank - 2:
        msg = f"the window of {weight} is not known"
        raise VerifyError(msg)
    dims = _window_dims(attributes, x.shape[2:], kernel)
    return [Abstract(TensorType(x.dtype, (x.shape[0], weight.shape[0], *dims)))]


def _work_conv(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    out, weight = results[0], operands[1]
    moved = touch_all(attributes, operands, results)
    flops = 2 * out.numel * product(weight.shape[1:])
    return Work(flops, moved.bytes_read, moved.bytes_written)


CONV = OpDef(
    name="conv",
    arity=(2, 3),
    infer=_infer_conv,
    work=_work_conv,
    attributes={**_WINDOW, "groups": OPTIONAL_INT},
    summary="convolution of x[n, c, ...] with weight[o, c / groups, ...] plus bias",
)


def _infer_pool(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    x = operands[0].type
    kernel = attributes.integers("window")
    if x.rank != len(kernel) + 2:
        msg = f"a {len(kernel)}-d window does not fit {x}"
        raise VerifyError(msg)
    dims = _window_dims(attributes, x.shape[2:], kernel)
    return [Abstract(TensorType(x.dtype, (*x.shape[:2], *dims)))]


def _work_pool(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    moved = touch_all(attributes, operands, results)
    flops = results[0].numel * product(attributes.integers("window"))
    return Work(flops, moved.bytes_read, moved.bytes_written)


POOL = OpDef(
    name="pool",
    arity=(1, 1),
    infer=_infer_pool,
    work=_work_pool,
    attributes={
        **_WINDOW,
        "kind": (str,),
        "window": (tuple,),
        "ceil_mode": OPTIONAL_BOOL,
    },
    summary="maximum or average over windows of x[n, c, ...]",
)

OPS = (CONV, POOL)
