"""Convolutions in eager PyTorch, as cuDNN computes them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfc.ir import AttrValue, Kernel, Record, TensorType, Work
from perfc.passes.eager import (
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    copy_launch,
    dtype_name,
    elementwise_launch,
    made_contiguous,
    scratch,
)
from perfc.passes.eager_product import gemm_launch
from perfc.passes.eager_selection import kernel_launch

_BIAS = 2
"""Operand of a convolution."""


def _conv(site: Site) -> Eager:
    """Convolve; PyTorch adds the bias after. Of integers, all is one kernel."""
    x, weight = site.operands[:2]
    axes = x.type.rank - 2
    fused = site.attributes.get("dtype") is not None
    work = site.work if fused else _without_bias(site)
    params = _params(site, x.shape, (x.shape[1], weight.shape[0]))
    launches = [
        *made_contiguous((x, weight)),
        *_asymmetric_padding(site),
        _kernel(site, axes, params, work),
    ]
    if len(site.operands) > _BIAS and not fused:
        launches.append(_add_bias(site))
    return Eager(f"aten::conv{axes}d", tuple(launches))


def _kernel(site: Site, axes: int, params: dict[str, AttrValue], work: Work) -> Launch:
    dtype = site.operands[0].type.dtype
    op = "conv3d" if axes > 2 else "conv2d"  # noqa: PLR2004 - 1-d runs as 2-d
    mode = site.settings.product_math(dtype)
    return Launch(Kernel(op, dtype_name(dtype), mode, Record(params), work))


def _params(
    site: Site, image: tuple[int, ...], channels: tuple[int, int]
) -> dict[str, AttrValue]:
    """Describe a convolution from images of this shape, as measured rows do."""
    weight, attributes = site.operands[1], site.attributes
    axes = len(image) - 2
    params: dict[str, AttrValue] = {
        "n": image[0],
        "c_in": channels[0],
        "c_out": channels[1],
        "kernel": _per_axis(weight.shape[2:], 1),
        "size": _per_axis(image[2:], 1),
        "stride": _per_axis(attributes.integers("stride") or (1,) * axes, 1),
        "padding": _per_axis(_padding(site, image), 0),
    }
    if (groups := attributes.integer("groups", 1)) != 1:
        params["groups"] = groups
    if max(dilation := attributes.integers("dilation") or (1,)) > 1:
        params["dilation"] = _per_axis(dilation, 1)
    return params


def _per_axis(sizes: tuple[int, ...], missing: int) -> AttrValue:
    """One number where all axes agree, as in measured rows; a list is an image."""
    if len(sizes) == 1:
        sizes = (missing, *sizes)
    return sizes[0] if len(set(sizes)) == 1 else sizes


def _padding(site: Site, image: tuple[int, ...]) -> tuple[int, ...]:
    """Padding before each axis; where the sides differ, the larger one."""
    before, behind = _sides(site, image)
    return tuple(map(max, before, behind))


def _sides(
    site: Site, image: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    axes = len(image) - 2
    attributes = site.attributes
    if attributes.get("auto_pad") is None:
        padding = attributes.integers("padding") or (0,) * (2 * axes)
        return padding[:axes], padding[axes:]
    stride = attributes.integers("stride") or (1,) * axes
    dilation = attributes.integers("dilation") or (1,) * axes
    sizes = zip(image[2:], site.operands[1].shape[2:], stride, dilation, strict=True)
    total = [max(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n) for n, k, s, d in sizes]
    less = tuple(n // 2 for n in total)
    return less, tuple(n - half for n, half in zip(total, less, strict=True))


def _asymmetric_padding(site: Site) -> tuple[Launch, ...]:
    """CuDNN pads both sides alike; PyTorch writes what is more in front of it."""
    x = site.operands[0]
    before, behind = _sides(site, x.shape)
    if before == behind:
        return ()
    sides = zip(x.shape[2:], before, behind, strict=True)
    shape = (*x.shape[:2], *(n + abs(b - a) for n, a, b in sides))
    padded = Tensor(TensorType(x.type.dtype, shape))
    return (scratch(elementwise_launch("fill", (), padded)), copy_launch(x))


def _add_bias(site: Site) -> Launch:
    inputs = (site.out, site.operands[_BIAS])
    return elementwise_launch("add", inputs, site.out, site.out.numel)


def _without_bias(site: Site) -> Work:
    work = site.work
    bias = sum(tensor.nbytes for tensor in site.operands[_BIAS:])
    return Work(work.flops, work.bytes_read - bias, work.bytes_written)


def _conv_transpose(site: Site) -> Eager:
    """The data gradient of the convolution that maps the result to the operand."""
    x, weight = site.operands[:2]
    axes = x.type.rank - 2
    params = _params(site, site.out.shape, (site.out.shape[1], x.shape[1]))
    params["phase"] = "backward_data"
    launches = [*made_contiguous((x, weight))]
    launches.append(_kernel(site, axes, params, _without_bias(site)))
    if len(site.operands) > _BIAS:
        launches.append(_add_bias(site))
    return Eager(f"aten::conv_transpose{axes}d", tuple(launches))


_PARALLEL_IMAGES = 32
"""Images whose columns torchvision makes at a time (kMaxParallelImgs)."""


def _deform_conv(site: Site) -> Eager:
    """Columns of sampled pixels, then a product per group, for some images at a time.

    As `torchvision.ops.deform_conv2d` does.
    """
    x, weight = site.operands[:2]
    images = x.shape[0]
    divisors = (d for d in range(min(images, _PARALLEL_IMAGES), 0, -1))
    together = next((d for d in divisors if images % d == 0), 1)
    groups = site.attributes.integer("groups", 1)
    pixels = math.prod(site.out.shape[2:]) * together
    depth = math.prod(weight.shape[1:])
    columns = depth * groups * pixels
    moved = columns * (x.type.dtype.bits // 8)
    sample = Work(8 * columns, sum(t.nbytes for t in (x, site.operands[2])), moved)
    sampled = kernel_launch(site, "deformable_im2col", sample)
    product = gemm_launch(site, (1, weight.shape[0] // groups, pixels, depth), "nn")
    chunk = (sampled, *(product,) * groups)
    launches = [*chunk * (images // together)]
    if len(site.operands) > 3:  # noqa: PLR2004 - x, weight, offsets, bias
        launches.append(elementwise_launch("add", (site.out,), site.out))
    return Eager("torchvision::deform_conv2d", tuple(launches))


RULES: Mapping[str, Rule] = {
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "deform_conv": _deform_conv,
}
"""Rules of the convolutions, by op name."""
