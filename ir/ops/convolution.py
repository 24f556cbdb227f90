"""Convolutions over images in NCHW order."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.dims import Dim, product
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops import rules
from perfc.ir.ops.window import WINDOW, auto_padded, strides_of, window_dims
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType


def _checked_images(attributes: Record, x: TensorType, weight: TensorType) -> int:
    """Refuse what cannot be convolved; return the number of groups."""
    if x.rank != weight.rank or x.rank < 3:
        msg = f"cannot convolve {x} with {weight}"
        raise VerifyError(msg)
    groups = attributes.integer("groups", 1)
    if groups < 1:
        msg = f"{groups} groups"
        raise VerifyError(msg)
    return groups


def _kernel(weight: TensorType) -> tuple[int, ...]:
    kernel = tuple(d for d in weight.shape[2:] if isinstance(d, int))
    if len(kernel) != weight.rank - 2:
        msg = f"the window of {weight} is not known"
        raise VerifyError(msg)
    return kernel


def _infer_conv(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    x, weight = operands[0].type, operands[1].type
    groups = _checked_images(attributes, x, weight)
    rules.require_equal("input channels", x.shape[1], weight.shape[1] * groups)
    dims = window_dims(attributes, x.shape[2:], _kernel(weight))
    dtype = x.dtype
    if attributes.get("dtype") is not None:
        dtype = attributes.dtype("dtype")
    return [Abstract(TensorType(dtype, (x.shape[0], weight.shape[0], *dims)))]


def _work_conv(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    out, weight = results[0], operands[1]
    moved = rules.touch_all(attributes, operands, results)
    flops = 2 * out.numel * product(weight.shape[1:])
    return Work(flops, moved.bytes_read, moved.bytes_written)


CONV = OpDef(
    name="conv",
    arity=(2, None),
    infer=_infer_conv,
    work=_work_conv,
    attributes={**WINDOW, "groups": rules.OPTIONAL_INT, "dtype": rules.OPTIONAL_DTYPE},
    summary="x[n, c, ...] by weight[o, c / groups, ...], bias; integers into `dtype`",
)


def _infer_transposed(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, weight = operands[0].type, operands[1].type
    groups = _checked_images(attributes, x, weight)
    rules.require_equal("input channels", x.shape[1], weight.shape[0])
    dims = _transposed_dims(attributes, x.shape[2:], _kernel(weight))
    shape = (x.shape[0], weight.shape[1] * groups, *dims)
    return [Abstract(TensorType(x.dtype, shape))]


def _transposed_dims(
    attributes: Record, image: Sequence[Dim], kernel: tuple[int, ...]
) -> tuple[Dim, ...]:
    """Output size per axis: (n - 1) stride + span + extra - pads."""
    axes = len(kernel)
    stride, dilation, padding = strides_of(attributes, axes)
    extra = attributes.integers("output_padding") or (0,) * axes
    stated = attributes.integers("output_shape")
    if len(extra) != axes or len(stated or extra) < axes:
        msg = f"output padding or shape does not fit a {axes}-d window"
        raise VerifyError(msg)
    if stated:
        return stated[-axes:]
    if auto_padded(attributes):
        return tuple(n * s for n, s in zip(image, stride, strict=True))
    return tuple(
        (size - 1) * stride[i]
        + (dilation[i] * (kernel[i] - 1) + 1 + extra[i])
        - (padding[i] + padding[i + axes])
        for i, size in enumerate(image)
    )


def _work_transposed(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Every input element is multiplied with a window of every output channel."""
    x, weight = operands[:2]
    moved = rules.touch_all(attributes, operands, results)
    flops = 2 * x.numel * product(weight.shape[1:])
    return Work(flops, moved.bytes_read, moved.bytes_written)


CONV_TRANSPOSE = OpDef(
    name="conv_transpose",
    arity=(2, 3),
    infer=_infer_transposed,
    work=_work_transposed,
    attributes={
        **WINDOW,
        "groups": rules.OPTIONAL_INT,
        "output_padding": rules.OPTIONAL_INTS,
        "output_shape": rules.OPTIONAL_INTS,
    },
    summary="the gradient of a convolution: x[n, c, ...] by weight[c, o / groups, ...]",
)
DEFORM_CONV = OpDef(
    name="deform_conv",
    arity=(3, 5),
    infer=_infer_conv,
    work=_work_conv,
    attributes={**WINDOW, "groups": rules.OPTIONAL_INT},
    summary="x, weight, offsets: a convolution whose window's points are moved",
)


def _infer_col2im(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, size, window = operands[0].type, operands[1], operands[2].elements
    if x.rank != 3:
        msg = f"expected [batch, channels * window, positions], got {x}"
        raise VerifyError(msg)
    points = None if window is None else product(window)
    if points == 0:
        msg = f"expected a window with points, got {window}"
        raise VerifyError(msg)
    image = size.elements or rules.unknown_shape(size.type)
    channels = rules.UNKNOWN_DIM if points is None else x.shape[1] // points
    return [Abstract(TensorType(x.dtype, (x.shape[0], channels, *image)))]


def _work_col2im(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    x = operands[0]
    return Work(x.numel, x.nbytes, results[0].nbytes)


COL2IM = OpDef(
    name="col2im",
    arity=(3, 3),
    infer=_infer_col2im,
    work=_work_col2im,
    attributes=WINDOW,
    summary="columns, image size, window: overlapping blocks added up to images",
)


def _infer_conv_tbc(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, weight = operands[0].type, operands[1].type
    if x.rank != 3 or weight.rank != 3:
        msg = f"expected [steps, batch, channels], got {x} with {weight}"
        raise VerifyError(msg)
    rules.require_equal("input channels", x.shape[2], weight.shape[1])
    steps = x.shape[0] + 2 * attributes.integer("padding", 0) - weight.shape[0] + 1
    shape: tuple[Dim, ...] = (steps, x.shape[1], weight.shape[2])
    return [Abstract(TensorType(x.dtype, shape).checked())]


def _work_conv_tbc(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Count padding as the other convolutions do: as if it were there."""
    x, weight = operands[:2]
    moved = rules.touch_all(attributes, operands, results)
    flops = 2 * results[0].numel * weight.shape[0] * x.shape[2]
    return Work(flops, moved.bytes_read, moved.bytes_written)


CONV_TBC = OpDef(
    name="conv_tbc",
    arity=(3, 3),
    infer=_infer_conv_tbc,
    work=_work_conv_tbc,
    attributes={"padding": rules.OPTIONAL_INT},
    summary="x[steps, batch, c] by weight[taps, c, o], bias: padded at both ends",
)

OPS = named(CONV, CONV_TRANSPOSE, CONV_TBC, DEFORM_CONV, COL2IM)
