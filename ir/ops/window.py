"""How a window moves over an image: what convolutions and pools share."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.dims import Dim, ceil_div
from perfc.ir.ops.rules import OPTIONAL_INTS, OPTIONAL_TEXT
from perfc.ir.record import Record
from perfc.ir.support import VerifyError

WINDOW = {
    "stride": OPTIONAL_INTS,
    "padding": OPTIONAL_INTS,
    "dilation": OPTIONAL_INTS,
    "auto_pad": OPTIONAL_TEXT,
}
"""Attributes. `auto_pad` is `same_upper` or `same_lower`: as much padding as makes
the output ceil(n / stride), the odd one behind or in front; it replaces `padding`."""

AUTO_PADS = ("same_upper", "same_lower")


def auto_padded(attributes: Record) -> bool:
    """Whether the padding follows from the size."""
    way = attributes.get("auto_pad")
    if way is not None and way not in AUTO_PADS:
        msg = f"auto_pad {way!r} is none of {', '.join(AUTO_PADS)}"
        raise VerifyError(msg)
    return way is not None


def strides_of(attributes: Record, axes: int) -> tuple[tuple[int, ...], ...]:
    """Return stride, dilation and padding of a window of so many axes."""
    stride = attributes.integers("stride") or (1,) * axes
    dilation = attributes.integers("dilation") or (1,) * axes
    padding = attributes.integers("padding") or (0,) * (2 * axes)
    if len(stride) != axes or len(dilation) != axes or len(padding) != 2 * axes:
        msg = f"stride, padding and dilation do not fit a {axes}-d window"
        raise VerifyError(msg)
    if min((*stride, *dilation), default=1) < 1 or min(padding, default=0) < 0:
        msg = "stride, dilation and window must be positive, padding not negative"
        raise VerifyError(msg)
    return stride, dilation, padding


def window_dims(
    attributes: Record, image: Sequence[Dim], kernel: Sequence[int]
) -> tuple[Dim, ...]:
    """Output size per spatial axis: floor((n + pads - span) / stride) + 1."""
    axes = len(kernel)
    stride, dilation, padding = strides_of(attributes, axes)
    if min(kernel, default=1) < 1:
        msg = "stride, dilation and window must be positive, padding not negative"
        raise VerifyError(msg)
    if auto_padded(attributes):
        return tuple(ceil_div(n, s) for n, s in zip(image, stride, strict=True))
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
