"""The kernels that cuDNN launches for one convolution or one of its gradients.

Which algorithm cuDNN takes, its heuristics decide, which are not public. The classes
here are what Kineto traces of ResNet-50 training show, taken for every model: fp32 on
V100 (PyTorch 1.9, profiler's tensorboard plugin; 2.3, HolisticTraceAnalysis), TF32 on
A100 (HolisticTraceAnalysis), bf16 of a ViT on H100 (TraceLens).

- Without tensor cores: 3x3 windows of stride 1 by Winograd's algorithm (Lavin and Gray,
  arXiv 1509.09308), with its transforms in kernels of their own from 128 channels on;
  1x1 windows as a GEMM, after a kernel of offsets for small images; all else as an
  implicit GEMM after its offsets. Sums over pixels are split, and joined by a
  kernel or by atomics.
- On tensor cores: channels last, between kernels that turn the layout of every tensor;
  1x1 windows of TF32 as a GEMM that needs none.

Depthwise convolutions are kernels of PyTorch's own (`DepthwiseConv2d.cu`).

What a kernel before the GEMM writes, and what one after it reads, lies in the
workspace: memory that PyTorch takes from its own allocator for one call of cuDNN, as
much as the plan that the heuristics put first asks for, up to all that is free
(`run_conv_plan` in `aten/src/ATen/native/cudnn/Conv_v8.cpp`; pytorch/pytorch#49207).
A buffer that no kernel beside the GEMM fills is not seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from perfc.costmodels.conv import launches_winograd
from perfc.costmodels.gemm import SIMT_MODES
from perfc.ir import AttrValue, Kernel, Record, Work
from perfc.passes.lowering.eager.convolution.choice import soonest
from perfc.passes.lowering.eager.site import (
    FROM_SCRATCH,
    MEMSET,
    SCRATCH,
    Launch,
    Site,
    Tensor,
    dtype_name,
    vector_launch,
)

FORWARD = "forward"
DATA = "backward_data"
WEIGHT = "backward_weight"

TRANSFORMED_CHANNELS = 128
"""Channels from which Winograd's transforms are kernels of their own."""

SMALL_IMAGE = 256
"""Pixels up to which a GEMM over pixels reads precomputed offsets."""

_OFFSETS_BYTES = 4096
"""What a kernel of offsets writes: of no account beside its launch."""


@attrs.frozen
class _Step:
    """A kernel beside the GEMM.

    Attributes:
        kind: What it does.
        tensor: Index of the tensor that it reads (first operand, second, result),
            or -1.
        read: Bytes read, over those of the tensor.
        written: Bytes written, over those of the tensor.
        workspace: Whether what it writes for the GEMM, or reads of the GEMM's,
            lies in the workspace.

    """

    kind: str
    tensor: int = -1
    read: float = 1.0
    written: float = 1.0
    workspace: bool = True


_OFFSETS = _Step("offsets")
_CLEAR = _Step("clear", 2, 0.0, workspace=False)  # the result
_COUNTERS = _Step("memset", workspace=False)  # a few bytes
_PARTS = _Step("join_parts", 2, 2.0)
_TURN_A, _TURN_B = _Step("nchw_to_nhwc", 0), _Step("nchw_to_nhwc", 1)
_TURN_BACK = _Step("nhwc_to_nchw", 2)
# F(4x4, 3x3): 6x6 tiles of data for 4x4 pixels, 6x6 numbers for 9 of a filter.
_TILES_A, _TILES_B = _Step("winograd", 0, 1.0, 2.25), _Step("winograd", 1, 1.0, 2.25)
_TILES_FILTER = _Step("winograd", 1, 1.0, 4.0)
_PIXELS = _Step("winograd", 2, 2.25, 1.0)
_FILTER = _Step("winograd", 2, 4.0, 1.0)

_Around = tuple[tuple[_Step, ...], tuple[_Step, ...]]
"""Kernels before the GEMM, and after it."""

_NOTHING: _Around = ((), ())
_TURNED: _Around = ((_TURN_A, _TURN_B), (_TURN_BACK,))
_TRANSFORMED: _Around = ((_TILES_A, _TILES_FILTER), (_PIXELS,))
_SUMMED: _Around = ((), (_PARTS,))

_AROUND: Mapping[str, Mapping[str, _Around]] = {
    "direct": {FORWARD: _NOTHING, DATA: _NOTHING, WEIGHT: _NOTHING},
    "pixels": {FORWARD: _NOTHING, DATA: _NOTHING, WEIGHT: _SUMMED},
    "few_pixels": {
        FORWARD: ((_OFFSETS,), ()),
        DATA: ((_OFFSETS, _OFFSETS), ()),
        WEIGHT: _SUMMED,
    },
    "implicit": {
        FORWARD: ((_OFFSETS,), ()),
        DATA: ((_CLEAR,), ()),
        WEIGHT: ((_OFFSETS, _OFFSETS, _COUNTERS, _COUNTERS), ()),
    },
    "fused_winograd": {
        FORWARD: ((_OFFSETS,), ()),
        DATA: ((_OFFSETS,), ()),
        WEIGHT: ((_TILES_A, _TILES_B), (_FILTER,)),
    },
    "winograd": {
        FORWARD: _TRANSFORMED,
        DATA: _TRANSFORMED,
        WEIGHT: ((_TILES_A, _TILES_B), (_FILTER,)),
    },
    "channels_last": {
        FORWARD: _TURNED,
        DATA: _TURNED,
        WEIGHT: ((_TURN_A, _TURN_B, _COUNTERS), (_PARTS, _TURN_BACK)),
    },
}
"""Kernels beside the GEMM, by algorithm and phase."""

_IN_ORDER: Mapping[tuple[str, str], _Around] = {
    ("implicit", DATA): ((_OFFSETS,), ()),
    ("implicit", WEIGHT): ((_OFFSETS, _OFFSETS), (_PARTS,)),
}
"""Kernels of deterministic algorithms, where those are others: none but the first of
each gradient add by atomics, to a result that is cleared before (cuDNN's
`CUDNN_CONVOLUTION_BWD_DATA_ALGO_0` and `..._FILTER_ALGO_0` and `3`; "Reproducibility
(Determinism)" in its developer guide). Their places are of the second of each."""

_ALWAYS_IN_ORDER = ("winograd", "fused_winograd", "channels_last")
"""Algorithms that sum up in one order, so that they are taken in any case."""


@attrs.frozen
class Convolution:
    """A convolution of images with filters to maps.

    The forward of a transposed convolution is the gradient of the images.

    Attributes:
        site: Where it is; its attributes say how the window moves.
        images: What the window moves over, NCHW.
        filters: The weight, one filter for each channel of the maps.
        maps: What comes out.

    """

    site: Site
    images: Tensor
    filters: Tensor
    maps: Tensor

    def params(self) -> dict[str, AttrValue]:
        """Describe it as measured rows do."""
        attributes, image = self.site.attributes, self.images.shape
        axes = len(image) - 2
        params: dict[str, AttrValue] = {
            "n": image[0],
            "c_in": image[1],
            "c_out": self.maps.shape[1],
            "kernel": _per_axis(self.filters.shape[2:], 1),
            "size": _per_axis(image[2:], 1),
            "stride": _per_axis(attributes.integers("stride") or (1,) * axes, 1),
            "padding": _per_axis(tuple(map(max, *self.sides())), 0),
        }
        if (groups := attributes.integer("groups", 1)) != 1:
            params["groups"] = groups
        if max(dilation := attributes.integers("dilation") or (1,)) > 1:
            params["dilation"] = _per_axis(dilation, 1)
        return params

    def sides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the padding before each axis and behind it."""
        attributes, image = self.site.attributes, self.images.shape
        axes = len(image) - 2
        if attributes.get("auto_pad") is None:
            padding = attributes.integers("padding") or (0,) * (2 * axes)
            return padding[:axes], padding[axes:]
        stride = attributes.integers("stride") or (1,) * axes
        dilation = attributes.integers("dilation") or (1,) * axes
        sizes = zip(image[2:], self.filters.shape[2:], stride, dilation, strict=True)
        total = [
            max(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n) for n, k, s, d in sizes
        ]
        less = tuple(n // 2 for n in total)
        return less, tuple(n - half for n, half in zip(total, less, strict=True))

    def launches(self, phase: str, flops: int, *, alone: bool = False) -> list[Launch]:
        """Launch the GEMM and what is beside it; *alone*: the GEMM only.

        TF32 is allowed, not asked for: a convolution that fp32 does sooner is that.
        """
        found = self._launches(phase, flops, alone=alone)
        gpu = self.site.settings.gpu
        if gpu is None or self._math() != "tf32":
            return found
        settings = attrs.evolve(self.site.settings, fp32_cudnn=gpu.device.fp32_gemms)
        plain = attrs.evolve(self, site=attrs.evolve(self.site, settings=settings))
        return soonest((found, plain._launches(phase, flops, alone=alone)), gpu)  # noqa: SLF001 - its own class

    def _launches(self, phase: str, flops: int, *, alone: bool) -> list[Launch]:
        params = self.params()
        tensors = self._tensors(phase)
        read = tensors[0].nbytes + tensors[1].nbytes
        work = Work(flops, read, tensors[2].nbytes)
        if phase != FORWARD:
            params["phase"] = phase
        algorithm = "direct" if alone else self._algorithm(params)
        around = _AROUND[algorithm][phase]
        if self.site.settings.deterministic and phase != FORWARD and not alone:
            around = _IN_ORDER.get((algorithm, phase), around)
            if algorithm not in _ALWAYS_IN_ORDER:
                params["deterministic"] = True
        before, after = (
            tuple(self._beside(step, tensors, detail) for step in steps)
            for steps, detail in zip(around, (SCRATCH, FROM_SCRATCH), strict=True)
        )
        if beside := (*before, *after):
            params["algorithm"] = algorithm
            params["beside"] = len(beside)
            params["beside_bytes"] = sum(
                math.trunc(b.kernel.work.bytes) for b in beside
            )
        dtype = self.images.type.dtype
        deep = len(self.images.shape) > 4  # 1-d runs as 2-d
        op = "conv3d" if deep else "conv2d"
        kernel = Kernel(op, dtype_name(dtype), self._math(), Record(params), work)
        return [*before, Launch(kernel), *after]

    def _tensors(self, phase: str) -> tuple[Tensor, Tensor, Tensor]:
        if phase == FORWARD:
            return self.images, self.filters, self.maps
        if phase == DATA:
            return self.maps, self.filters, self.images
        return self.images, self.maps, self.filters

    def _math(self) -> str:
        return self.site.settings.cudnn_math(self.images.type.dtype)

    def _algorithm(self, params: dict[str, AttrValue]) -> str:
        groups, channels = params.get("groups", 1), params["c_in"]
        if self.site.settings.on_cpu:
            return "direct"
        if groups == channels != 1 or not self.images.type.dtype.is_float:
            return "direct"
        pointwise = (params["kernel"], params["stride"], groups) == (1, 1, 1)
        if self._math() not in SIMT_MODES:
            gemm = pointwise and self._math() == "tf32"
            return "pixels" if gemm else "channels_last"
        if launches_winograd(Record(params)):
            fewest = min(self.images.shape[1], self.maps.shape[1])
            large = fewest >= TRANSFORMED_CHANNELS
            return "winograd" if large else "fused_winograd"
        if not pointwise:
            return "implicit"
        image = self.images.numel // max(self.images.shape[0] * self.images.shape[1], 1)
        return "few_pixels" if image <= SMALL_IMAGE else "pixels"

    def _beside(self, step: _Step, tensors: tuple[Tensor, ...], detail: str) -> Launch:
        dtype = self.images.type.dtype
        read, written = 0, _OFFSETS_BYTES
        if step.tensor >= 0:
            moved = tensors[step.tensor].nbytes
            read = math.trunc(step.read * moved)
            written = math.trunc(step.written * moved)
        params: dict[str, AttrValue] = {
            "kind": step.kind,
            "rows": 1,
            "cols": written * 8 // dtype.bits,
            "tensor_inputs": int(read > 0),
            "bytes": read + written,
        }
        launch = vector_launch("elementwise", dtype, params, Work(0, read, written))
        if step is _COUNTERS:
            return attrs.evolve(launch, call=MEMSET)
        return attrs.evolve(launch, detail=detail) if step.workspace else launch


def _per_axis(sizes: tuple[int, ...], missing: int) -> AttrValue:
    """One number where all axes agree, as in measured rows; a list is an image."""
    if len(sizes) == 1:
        sizes = (missing, *sizes)
    return sizes[0] if len(set(sizes)) == 1 else sizes


def contiguous(tensor: Tensor) -> Tensor:
    """Return a tensor as cuDNN gets it: in row-major order."""
    return Tensor(tensor.type)
