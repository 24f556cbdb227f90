"""Convolutions of images and both of their gradients."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from perfc.ir import Record
from perfc.measure.call_work import pair_of
from perfc.measure.case import Call, Case, Family, Tensors, without
from perfc.measure.design import Choice, Point, Size, Space
from perfc.measure.device import Device

_ATEN: Any = torch.ops.aten
_PHASES = ("forward", "backward_data", "backward_weight")
_CHANNELS = (3, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
_SIZES = (4, 7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 224, 256)
_WORKSPACE = 4
"""Times the operands: what cuDNN and oneDNN may take beside them."""


class Conv2d(Family):
    """Square images and windows, NCHW; one in four depthwise."""

    op = "conv2d"
    turns = 6

    def space(self, device: Device) -> Space:
        """Return the sizes that convolutional networks are made of."""
        return {
            "n": Size(1, 256),
            "c_in": Size(1, 2048, _CHANNELS),
            "c_out": Size(8, 2048, _CHANNELS),
            "size": Size(4, 256, _SIZES),
            "kernel": Choice((1, 3, 5, 7)),
            "stride": Choice((1, 1, 2)),
            "padded": Choice((True, True, False)),
            "depthwise": Choice((False, False, False, True)),
            "phase": Choice(_PHASES),
            "dtype": Choice(without(device.dtypes, "fp8")),
        }

    def case(self, point: Point) -> Case | None:
        """Return the case; a window larger than the image makes none."""
        sizes = Record(point)
        window = sizes.integer("kernel")
        if window > sizes.integer("size"):
            return None
        padding = window // 2 if sizes.flag("padded") else 0
        named = ("n", "c_in", "c_out", "kernel", "size", "stride", "dtype")
        params: Point = {**{name: point[name] for name in named}, "padding": padding}
        if sizes.flag("depthwise"):
            params["c_out"] = params["groups"] = sizes.integer("c_in")
        if sizes.text("phase") != "forward":
            params["phase"] = sizes.text("phase")
        return super().case(params)

    def memory_bytes(self, case: Case) -> int:
        """Return all three tensors, and room for a workspace."""
        return _WORKSPACE * int(case.work.bytes)

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `conv2d` or `convolution_backward` with one of its results."""
        sizes, groups = case.params, case.params.integer("groups", 1)
        n, c_in, c_out, size, stride = map(
            sizes.integer, ("n", "c_in", "c_out", "size", "stride")
        )
        window, padding = pair_of(sizes, "kernel"), pair_of(sizes, "padding")
        x = tensors.random(case.dtype, n, c_in, size, size)
        w = tensors.random(case.dtype, c_out, c_in // groups, *window)
        phase = sizes.text("phase", "forward")
        if phase == "forward":
            return lambda: F.conv2d(x, w, None, stride, padding, 1, groups)
        out = (
            (size + 2 * beside - length) // stride + 1
            for length, beside in zip(window, padding, strict=True)
        )
        g = tensors.random(case.dtype, n, c_out, *out)
        mask = [phase == "backward_data", phase == "backward_weight", False]
        return lambda: _ATEN.convolution_backward(
            g,
            x,
            w,
            None,
            [stride, stride],
            padding,
            [1, 1],
            False,
            [0, 0],
            groups,
            mask,
        )
