"""Convolutions and their gradients in eager PyTorch, as cuDNN computes them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import attrs

from perfc.ir import AttrValue, TensorType, Work
from perfc.passes.eager import (
    SCRATCHES,
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    copy_launch,
    elementwise_launch,
    made_contiguous,
    scratch,
    scratch_bytes,
    vector_launch,
    wanted_gradients,
)
from perfc.passes.eager_cudnn import DATA, FORWARD, WEIGHT, Convolution, contiguous
from perfc.passes.eager_product import gemm_launch
from perfc.passes.eager_selection import kernel_launch

_BIAS = 2
"""Operand of a convolution."""


def _conv(site: Site) -> Eager:
    """Convolve; PyTorch adds the bias after. Of integers, all is one kernel.

    So it is in oneDNN, on a CPU, whose gradient of the filters sums up the bias's too.
    """
    x, weight = site.operands[:2]
    axes = x.type.rank - 2
    fused = site.attributes.get("dtype") is not None or site.settings.on_cpu
    conv = Convolution(site, contiguous(x), contiguous(weight), site.out)
    flops = int(site.work.flops)
    launches = [
        *made_contiguous((x, weight)),
        *_asymmetric_padding(conv),
        *conv.launches(FORWARD, flops, alone=fused),
    ]
    if len(site.operands) > _BIAS and not fused:
        launches.append(_add_bias(site))
    return Eager(f"aten::conv{axes}d", tuple(launches))


def _asymmetric_padding(conv: Convolution) -> tuple[Launch, ...]:
    """CuDNN pads both sides alike; PyTorch writes what is more in front of it."""
    before, behind = conv.sides()
    if before == behind:
        return ()
    x = conv.images
    sides = zip(x.shape[2:], before, behind, strict=True)
    shape = (*x.shape[:2], *(n + abs(b - a) for n, a, b in sides))
    padded = Tensor(TensorType(x.type.dtype, shape))
    return (scratch(elementwise_launch("fill", (), padded)), copy_launch(x))


def _add_bias(site: Site) -> Launch:
    inputs = (site.out, site.operands[_BIAS])
    return elementwise_launch("add", inputs, site.out, site.out.numel)


def _conv_transpose(site: Site) -> Eager:
    """The data gradient of the convolution that maps the result to the operand."""
    x, weight = site.operands[:2]
    axes = x.type.rank - 2
    conv = Convolution(site, site.out, contiguous(weight), contiguous(x))
    launches = [*made_contiguous((x, weight))]
    launches += conv.launches(DATA, int(site.work.flops))
    if len(site.operands) > _BIAS:
        launches.append(_add_bias(site))
    return Eager(f"aten::conv_transpose{axes}d", tuple(launches))


def _conv_backward(site: Site) -> Eager:
    """One call for each wanted gradient; that of the bias is a sum.

    `convolution_backward` in `Convolution.cpp` of ATen. Of a transposed convolution
    the gradient of the operand is a convolution.
    """
    grad, x, weight = site.operands
    maps, images = contiguous(grad), contiguous(x)
    transposed = site.attributes.flag("transposed")
    if transposed:
        maps, images = images, maps
    conv = Convolution(site, images, contiguous(weight), maps)
    wants = wanted_gradients(site)
    flops = 2 * maps.numel * math.prod(weight.shape[1:])
    calls: list[list[Launch]] = []
    if "x" in wants:
        calls.append(conv.launches(FORWARD if transposed else DATA, flops))
    if "weight" in wants:
        calls.append(conv.launches(WEIGHT, flops))
    launches = [*made_contiguous(site.operands), *_in_turn(calls)]
    if "bias" in wants and not ("weight" in wants and site.settings.on_cpu):
        launches.append(_sum_bias(grad))
    return Eager("aten::convolution_backward", tuple(launches))


def _in_turn(calls: list[list[Launch]]) -> Iterator[Launch]:
    """Yield calls each of which has freed its workspace before the next: one counts."""
    most = max(calls, key=_workspace_bytes, default=None)
    for call in calls:
        for launch in call:
            own = call is most or launch.detail not in SCRATCHES
            yield launch if own else attrs.evolve(launch, detail="")


def _workspace_bytes(call: list[Launch]) -> int:
    return sum(scratch_bytes(launch.detail, launch.kernel.work) for launch in call)


def _sum_bias(grad: Tensor) -> Launch:
    channels = grad.shape[1]
    params: dict[str, AttrValue] = {
        "rows": channels,
        "cols": grad.numel // max(channels, 1),
        "kind": "sum",
    }
    work = Work(grad.numel, grad.nbytes, channels * grad.type.dtype.bits // 8)
    return vector_launch("reduction", grad.type.dtype, params, work)


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
    "conv_backward": _conv_backward,
    "deform_conv": _deform_conv,
}
"""Rules of the convolutions, by op name."""
