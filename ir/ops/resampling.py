"""Images at other sizes and places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from perfc.ir.dims import Dim
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops import rules
from perfc.ir.ops.gradient import infer_wanted, like
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType

TAPS: Mapping[str, int] = {"nearest": 1, "linear": 2, "cubic": 4}
"""Modes of interpolation, and the input elements that each reads along an axis."""

_MAX_DENOMINATOR = 2**16
"""Largest denominator of a scale, which fp32 rounds: 0.6999999 is 7/10 again."""


def _infer_resize(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x = operands[0].type
    axes = attributes.integers("axes") or tuple(range(x.rank))
    scales = attributes.get("scales")
    if len(operands) > 1:
        sizes = _stated(attributes, operands, axes)
    elif isinstance(scales, tuple) and len(scales) == len(axes):
        sizes = tuple(
            _scaled(x.shape[rules.normalize_axis(axis, x.rank)], scale)
            for axis, scale in zip(axes, scales, strict=True)
        )
    else:
        sizes = (rules.UNKNOWN_DIM,) * len(axes)
    shape = list(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[rules.normalize_axis(axis, x.rank)] = size
    return [Abstract(TensorType(x.dtype, tuple(shape)))]


def _scaled(size: Dim, scale: object) -> Dim:
    if not isinstance(scale, int | float) or not 0 <= scale < 2**31:
        msg = f"cannot scale by {scale}"
        raise VerifyError(msg)
    ratio = Fraction(scale).limit_denominator(_MAX_DENOMINATOR)
    return size * ratio.numerator // ratio.denominator


def _stated(
    attributes: Record, operands: Sequence[Abstract], axes: tuple[int, ...]
) -> Sequence[Dim]:
    """Return the sizes of operand 1, or the nearest that keep the aspect ratio."""
    x, sizes = operands[0].type, operands[1].elements
    if sizes is None:
        return (rules.UNKNOWN_DIM,) * len(axes)
    if len(sizes) != len(axes):
        msg = f"{len(sizes)} sizes for {len(axes)} axes"
        raise VerifyError(msg)
    policy = attributes.text("keep_aspect_ratio", "")
    if not policy:
        return sizes
    old = [x.shape[rules.normalize_axis(axis, x.rank)] for axis in axes]
    numbers = [(s, n) for s, n in zip(sizes, old, strict=True) if isinstance(s, int)]
    ratios = [Fraction(s, n) for s, n in numbers if isinstance(n, int) and n]
    if not ratios or len(ratios) < len(axes):
        return (rules.UNKNOWN_DIM,) * len(axes)
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [int((n * ratio) + Fraction(1, 2)) for n in old if isinstance(n, int)]


def _work_resize(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """A multiply-add per tap; the axes that keep their size need none."""
    x, out = operands[0], results[0]
    taps = TAPS.get(attributes.text("mode"), 1)
    changed = sum(a != b for a, b in zip(x.shape, out.shape, strict=True))
    flops = 2 * taps**changed * out.numel if taps > 1 else 0
    return Work(flops, x.nbytes, out.nbytes)


RESIZE = OpDef(
    name="resize",
    arity=(1, 2),
    infer=_infer_resize,
    work=_work_resize,
    attributes={
        "mode": (str,),
        "scales": rules.OPTIONAL_INTS,
        "axes": rules.OPTIONAL_INTS,
        "keep_aspect_ratio": rules.OPTIONAL_TEXT,
    },
    summary="x interpolated to other sizes: by scales, or to those of operand 1",
)


def _infer_resize_backward(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    grad, shape = operands[0].type, attributes.dims("shape")
    if len(shape) != grad.rank:
        msg = f"an image of {len(shape)} axes does not fit {grad}"
        raise VerifyError(msg)
    return [Abstract(TensorType(grad.dtype, shape).checked())]


def _work_resize_backward(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Return the work: multiply-adds as forward, which add each to its sources."""
    grad, x = operands[0], results[0]
    work = _work_resize(attributes, (x,), (grad,))
    return Work(work.flops, grad.nbytes, x.nbytes)


RESIZE_BACKWARD = OpDef(
    name="resize_backward",
    arity=(1, 1),
    infer=_infer_resize_backward,
    work=_work_resize_backward,
    attributes={"mode": (str,), "shape": (tuple,)},
    summary="gradient of resize: of its result, in the shape of the image",
)


def _infer_grid_sample(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, grid = operands[0].type, operands[1].type
    if x.rank < 3 or grid.rank != x.rank:
        msg = f"cannot sample {x} at {grid}"
        raise VerifyError(msg)
    shape = (*x.shape[:2], *grid.shape[1:-1])
    return [Abstract(TensorType(x.dtype, shape))]


def _work_grid_sample(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Read image and grid once each, whole; two flops a tap and output element."""
    x, grid = operands
    out = results[0]
    taps = TAPS.get(attributes.text("mode"), 1) ** (x.rank - 2)
    return Work(2 * taps * out.numel, x.nbytes + grid.nbytes, out.nbytes)


GRID_SAMPLE = OpDef(
    name="grid_sample",
    arity=(2, 2),
    infer=_infer_grid_sample,
    work=_work_grid_sample,
    attributes={"mode": (str,)},
    summary="x, grid: x interpolated at the places that the grid holds",
)


_gradients = infer_wanted({"x": like(1), "grid": like(2)})


def _infer_grid_sample_backward(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract | None]:
    _infer_grid_sample(attributes, operands[1:])
    return _gradients(attributes, operands)


def _work_grid_sample_backward(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Twice forward's flops: for the image's gradient, and for the grid's."""
    grad, x, grid = operands
    forward = _work_grid_sample(attributes, (x, grid), (grad,))
    moved = rules.touch_all(attributes, operands, results)
    return Work(2 * forward.flops, moved.bytes_read, moved.bytes_written)


GRID_SAMPLE_BACKWARD = OpDef(
    name="grid_sample_backward",
    arity=(3, 3),
    results=None,
    infer=_infer_grid_sample_backward,
    work=_work_grid_sample_backward,
    attributes={"wants": (tuple,), "mode": (str,)},
    summary="gradients of grid_sample: of its result, x, and the grid",
)


def _infer_affine_grid(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    theta, size = operands[0].type, operands[1].elements
    axes = theta.shape[1] if theta.rank == 3 else None
    if not isinstance(axes, int) or axes not in (2, 3):
        msg = f"expected affine maps [batch, axes, axes + 1], got {theta}"
        raise VerifyError(msg)
    image = (rules.UNKNOWN_DIM,) * axes if size is None else size[2:]
    return [Abstract(TensorType(theta.dtype, (theta.shape[0], *image, axes)))]


def _work_affine_grid(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    theta, out = operands[0], results[0]
    return Work(2 * out.numel * theta.shape[-1], theta.nbytes, out.nbytes)


AFFINE_GRID = OpDef(
    name="affine_grid",
    arity=(2, 2),
    infer=_infer_affine_grid,
    work=_work_affine_grid,
    summary="maps, size: the place in the input for each pixel of the output",
)

OPS = named(RESIZE, RESIZE_BACKWARD, GRID_SAMPLE, GRID_SAMPLE_BACKWARD, AFFINE_GRID)
