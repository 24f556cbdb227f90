"""Pooling: a window, or a region, of x[n, c, ...] to one element."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.dims import Dim, product
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops import rules
from perfc.ir.ops.window import WINDOW, window_dims
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import I64, TensorType


def _kernel(attributes: Record, x: TensorType) -> tuple[int, ...]:
    kernel = attributes.integers("window")
    if x.rank != len(kernel) + 2:
        msg = f"a {len(kernel)}-d window does not fit {x}"
        raise VerifyError(msg)
    return kernel


def _infer_pool(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    x = operands[0].type
    dims = window_dims(attributes, x.shape[2:], _kernel(attributes, x))
    shape = (*x.shape[:2], *dims)
    return [Abstract(TensorType(x.dtype, shape)), Abstract(TensorType(I64, shape))]


def _work_pool(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    moved = rules.touch_all(attributes, operands, results)
    flops = results[0].numel * product(attributes.integers("window"))
    return Work(flops, moved.bytes_read, moved.bytes_written)


POOL = OpDef(
    name="pool",
    arity=(1, 1),
    results=None,
    infer=_infer_pool,
    work=_work_pool,
    attributes={
        **WINDOW,
        "kind": (str,),
        "window": (tuple,),
        "ceil_mode": rules.OPTIONAL_BOOL,
    },
    summary="maximum (and its place), average or lp norm over windows of x[n, c, ...]",
)


def _infer_max_unpool(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """Invert the output size of a pool; operand 2 states the size outright."""
    x = operands[0].type
    if len(operands) > 2:
        shape = operands[2].elements or (rules.UNKNOWN_DIM,) * x.rank
        return [Abstract(TensorType(x.dtype, shape))]
    kernel = _kernel(attributes, x)
    axes = len(kernel)
    stride = attributes.integers("stride") or (1,) * axes
    padding = attributes.integers("padding") or (0,) * (2 * axes)
    if len(stride) != axes or len(padding) != 2 * axes:
        msg = f"stride and padding do not fit a {axes}-d window"
        raise VerifyError(msg)
    dims: list[Dim] = [
        (size - 1) * stride[i] + kernel[i] - padding[i] - padding[i + axes]
        for i, size in enumerate(x.shape[2:])
    ]
    return [Abstract(TensorType(x.dtype, (*x.shape[:2], *dims)))]


MAX_UNPOOL = OpDef(
    name="max_unpool",
    arity=(2, 3),
    infer=_infer_max_unpool,
    work=rules.touch_all,
    attributes={**WINDOW, "window": (tuple,)},
    summary="zeros, with each maximum back in its place (x, places, maybe the size)",
)


def _infer_roi_pool(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, rois = operands[0].type, operands[1].type
    size = attributes.integers("size")
    if x.rank != 4 or rois.rank != 2 or len(size) != 2:
        msg = f"expected images, boxes and a height and width, got {x}, {rois}, {size}"
        raise VerifyError(msg)
    return [Abstract(TensorType(x.dtype, (rois.shape[0], x.shape[1], *size)))]


ROI_POOL = OpDef(
    name="roi_pool",
    arity=(2, 3),
    infer=_infer_roi_pool,
    work=rules.per_result(
        16
    ),  # four samples of four interpolated pixels, two flops each
    attributes={"kind": (str,), "size": (tuple,)},
    summary="regions of images, each to one size: `max`, or `align` to sample them",
)

OPS = named(POOL, MAX_UNPOOL, ROI_POOL)
