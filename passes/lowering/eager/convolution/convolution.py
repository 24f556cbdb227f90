"""Convolutions and their gradients in eager PyTorch, as cuDNN computes them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import attrs

from perfc.ir import AttrValue, TensorType, Work, spend
from perfc.passes.lowering.eager.convolution import cudnn
from perfc.passes.lowering.eager.gemm import gemm_launch
from perfc.passes.lowering.eager.movement import same_copy_launch
from perfc.passes.lowering.eager.reductions import kernel_launch
from perfc.passes.lowering.eager.site import (
    MAX_LAUNCHES,
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
    unmodelled_launch,
    vector_launch,
    wanted_gradients,
)

_BIAS = 2
"""Operand of a convolution."""


def _conv(site: Site) -> Eager:
    """Convolve; PyTorch adds the bias after. Of integers, all is one kernel.

    So it is in oneDNN, on a CPU, whose gradient of the filters sums up the bias's too.
    """
    x, weight = site.operands[:2]
    axes = x.type.rank - 2
    fused = site.attributes.get("dtype") is not None or site.settings.on_cpu
    conv = cudnn.Convolution(
        site, cudnn.contiguous(x), cudnn.contiguous(weight), site.out
    )
    flops = math.trunc(site.work.flops)
    launches = [
        *made_contiguous((x, weight)),
        *_asymmetric_padding(conv),
        *conv.launches(cudnn.FORWARD, flops, alone=fused),
    ]
    if len(site.operands) > _BIAS and not fused:
        launches.append(_add_bias(site))
    return Eager(f"aten::conv{axes}d", tuple(launches))


def _asymmetric_padding(conv: cudnn.Convolution) -> tuple[Launch, ...]:
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
    conv = cudnn.Convolution(
        site, site.out, cudnn.contiguous(weight), cudnn.contiguous(x)
    )
    launches = [*made_contiguous((x, weight))]
    launches += conv.launches(cudnn.DATA, math.trunc(site.work.flops))
    if len(site.operands) > _BIAS:
        launches.append(_add_bias(site))
    return Eager(f"aten::conv_transpose{axes}d", tuple(launches))


def _conv_backward(site: Site) -> Eager:
    """One call for each wanted gradient; that of the bias is a sum.

    `convolution_backward` in `Convolution.cpp` of ATen. Of a transposed convolution
    the gradient of the operand is a convolution.
    """
    grad, x, weight = site.operands
    maps, images = cudnn.contiguous(grad), cudnn.contiguous(x)
    transposed = site.attributes.flag("transposed")
    if transposed:
        maps, images = images, maps
    conv = cudnn.Convolution(site, images, cudnn.contiguous(weight), maps)
    wants = wanted_gradients(site)
    flops = 2 * maps.numel * math.prod(weight.shape[1:])
    calls: list[list[Launch]] = []
    if "x" in wants:
        calls.append(conv.launches(cudnn.FORWARD if transposed else cudnn.DATA, flops))
    if "weight" in wants:
        calls.append(conv.launches(cudnn.WEIGHT, flops))
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


def _conv_tbc(site: Site) -> Eager:
    """The bias is copied, then the GEMM of each tap adds to it.

    `ConvolutionTBC.cpp` of ATen, as for the gradients.
    """
    x, weight, bias = site.operands
    if weight.shape[0] > MAX_LAUNCHES:
        return Eager("aten::conv_tbc", (unmodelled_launch(site.op, site),))
    gemms = [
        gemm_launch(site, (1, rows, weight.shape[2], x.shape[2]), "nn")
        for rows in _rows_of_taps(site, x, site.out.shape[0])
    ]
    copied = elementwise_launch("copy", (bias,), site.out)
    return Eager("aten::conv_tbc", (copied, *gemms))


def _rows_of_taps(site: Site, x: Tensor, made: int) -> list[int]:
    """Return how many rows each tap multiplies: not those that it sees as padding."""
    padding = site.attributes.integer("padding", 0)
    steps, batch = x.shape[:2]
    taps = range(site.operands[1 + (site.op != "conv_tbc")].shape[0])
    seen = (
        min(steps - max(0, tap - padding), made - max(0, padding - tap)) for tap in taps
    )
    return [rows * batch for rows in seen if rows > 0]


def _conv_tbc_backward(site: Site) -> Eager:
    """Zeros and a GEMM a tap for each gradient; the bias is summed up twice."""
    grad, x, weight = site.operands
    if weight.shape[0] > MAX_LAUNCHES:
        return Eager("aten::conv_tbc_backward", (unmodelled_launch(site.op, site),))
    inputs, outputs = weight.shape[1:]
    taps = _rows_of_taps(site, x, grad.shape[0])
    wants = wanted_gradients(site)
    launches = [*made_contiguous((grad, x))]
    if "x" in wants:
        launches.append(elementwise_launch("fill", (), Tensor(x.type)))
        sizes = [(1, rows, inputs, outputs) for rows in taps]
        launches += [gemm_launch(site, size, "nt") for size in sizes]
    if "weight" in wants:
        launches.append(elementwise_launch("fill", (), Tensor(weight.type)))
        sizes = [(1, inputs, outputs, rows) for rows in taps]
        launches += [gemm_launch(site, size, "tn") for size in sizes]
    if "bias" in wants:
        # Over steps, then over the batch; the result is copied over zeros.
        dtype = grad.type.dtype
        steps, batch, channels = grad.shape
        bias = Tensor(TensorType(dtype, (channels,)))
        per_step = batch * bias.nbytes
        first: dict[str, AttrValue] = {"rows": batch * channels, "cols": steps}
        second: dict[str, AttrValue] = {"rows": channels, "cols": batch}
        works = (
            (first, Work(grad.numel, grad.nbytes, per_step)),
            (second, Work(batch * channels, per_step, bias.nbytes)),
        )
        launches += [
            elementwise_launch("fill", (), bias),
            *(
                vector_launch("reduction", dtype, {**params, "kind": "sum"}, work)
                for params, work in works
            ),
            same_copy_launch(site, bias),
        ]
    return Eager("aten::conv_tbc_backward", tuple(launches))


_PARALLEL_IMAGES = 32
"""Images whose columns torchvision makes at a time (kMaxParallelImgs)."""


def _deform_conv(site: Site) -> Eager:
    """Columns of sampled pixels, then a GEMM per group, for some images at a time.

    As `torchvision.ops.deform_conv2d` does.
    """
    x, weight = site.operands[:2]
    images = x.shape[0]
    divisors = (d for d in range(min(images, _PARALLEL_IMAGES), 0, -1))
    together = next((d for d in divisors if images % d == 0), 1)
    groups = site.attributes.integer("groups", 1)
    if (1 + groups) * (images // together) > MAX_LAUNCHES:
        name = "torchvision::deform_conv2d"
        return Eager(name, (unmodelled_launch(site.op, site),))
    pixels = math.prod(site.out.shape[2:]) * together
    depth = math.prod(weight.shape[1:])
    columns = depth * groups * pixels
    moved = columns * (x.type.dtype.bits // 8)
    sample = Work(8 * columns, sum(t.nbytes for t in (x, site.operands[2])), moved)
    sampled = kernel_launch(site, "deformable_im2col", sample)
    gemm = gemm_launch(site, (1, weight.shape[0] // groups, pixels, depth), "nn")
    spend("launches", 2 * (1 + groups) * (images // together), "deform_conv")
    chunk = (sampled, *(gemm,) * groups)
    launches = [*chunk * (images // together)]
    if len(site.operands) > 3:  # x, weight, offsets, bias
        launches.append(elementwise_launch("add", (site.out,), site.out))
    return Eager("torchvision::deform_conv2d", tuple(launches))


RULES: Mapping[str, Rule] = {
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "conv_backward": _conv_backward,
    "conv_tbc": _conv_tbc,
    "conv_tbc_backward": _conv_tbc_backward,
    "deform_conv": _deform_conv,
}
"""Rules of the convolutions, by op name."""
