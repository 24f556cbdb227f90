"""MobileNetV2 and MnasNet: inverted residuals around depthwise convolutions.

arXiv 1801.04381 and 1807.11626, as torchvision builds `mobilenet_v2` and `mnasnet1_0`:
3,504,872 and 4,383,312 parameters with batch norms.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.frontends.workloads.convnets import (
    BATCH_NORM_CHOICES,
    MAX_IMAGE,
    ConvBuilder,
    Window,
    depthwise,
    square,
)
from perfc.frontends.workloads.protocol import Workload, by_name
from perfc.ir import Graph, Program, Value, single

_FEATURES = 1280

_MOBILENET_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, number of blocks, and the stride of the first."""

_MNASNET = (
    (3, 24, 3, 2, 3),
    (3, 40, 3, 2, 5),
    (6, 80, 3, 2, 5),
    (6, 96, 2, 1, 3),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
"""Likewise, and the side of the depthwise window."""


@attrs.define(eq=False)
class _MobileNetV2(ConvBuilder):
    """Blocks in the names of torchvision, with ReLU6 after convolutions."""

    def active(self, x: Value, path: str) -> Value:
        """Limit activations to 0 and 6."""
        return self.op("clip", f"{path}.clip", x, min=0.0, max=6.0)

    def block(
        self, x: Value, path: str, expansion: int, sizes: tuple[int, int, int]
    ) -> Value:
        """1x1 to more channels, depthwise 3x3, 1x1 to fewer, and perhaps the input.

        *sizes* are the channels in and out, and the stride.
        """
        channels, channels_out, stride = sizes
        inner, y, at = channels * expansion, x, 0
        if expansion > 1:
            y = self.conv(y, f"{path}.0.0", f"{path}.0.1", square(channels, inner, 1))
            y, at = self.active(y, f"{path}.0.2"), 1
        window = depthwise(inner, 3, stride)
        y = self.conv(y, f"{path}.{at}.0", f"{path}.{at}.1", window)
        y = self.active(y, f"{path}.{at}.2")
        paths = (f"{path}.{at + 1}", f"{path}.{at + 2}")
        y = self.conv(y, *paths, square(inner, channels_out, 1))
        if stride > 1 or channels != channels_out:
            return y
        return self.op("add", f"{path.rpartition('.')[0]}.add", x, y)


def _build_mobilenet_v2(values: Mapping[str, int | str]) -> Program:
    """Build the forward pass over `image` x `image` pixels to `classes` logits."""
    net = _MobileNetV2(Graph("mobilenet-v2"), batch_norm=str(values["batch_norm"]))
    size, channels = int(values["image"]), 32
    x = net.input("x", 3, size, size)
    stem = square(3, channels, 3, stride=2, padding=1)
    x = net.active(net.conv(x, "features.0.0", "features.0.1", stem), "features.0.2")
    at = 1
    for expansion, wide, blocks, first in _MOBILENET_V2:
        for stride in (first, *(1,) * (blocks - 1)):
            sizes = (channels, wide, stride)
            x = net.block(x, f"features.{at}.conv", expansion, sizes)
            channels, at = wide, at + 1
    last, path = square(channels, _FEATURES, 1), f"features.{at}"
    x = net.active(net.conv(x, f"{path}.0", f"{path}.1", last), f"{path}.2")
    return _classified(net, x, values)


@attrs.define(eq=False)
class _MnasNet(ConvBuilder):
    """Blocks in the names of torchvision: layers by number, ReLU after convolutions."""

    def layers(self, x: Value, path: str, at: int, *windows: Window) -> Value:
        """Convolve and normalise in a row, from layer *at*; activate between them."""
        for window in windows:
            x = self.conv(x, f"{path}.{at}", f"{path}.{at + 1}", window)
            if window is not windows[-1]:
                x = self.op("relu", f"{path}.{at + 2}.relu", x)
            at += 3
        return x

    def block(
        self, x: Value, path: str, kind: tuple[int, int], sizes: tuple[int, int, int]
    ) -> Value:
        """1x1 to more channels, depthwise, 1x1 to fewer, and perhaps the input again.

        *kind* is the expansion and the side of the depthwise window; *sizes* are the
        channels in and out, and the stride.
        """
        (expansion, side), (channels, channels_out, stride) = kind, sizes
        inner = channels * expansion
        windows = (
            square(channels, inner, 1),
            depthwise(inner, side, stride),
            square(inner, channels_out, 1),
        )
        y = self.layers(x, f"{path}.layers", 0, *windows)
        if stride > 1 or channels != channels_out:
            return y
        return self.op("add", f"{path}.add", y, x)


def _build_mnasnet(values: Mapping[str, int | str]) -> Program:
    """Build the forward pass over `image` x `image` pixels to `classes` logits."""
    net = _MnasNet(Graph("mnasnet"), batch_norm=str(values["batch_norm"]))
    size, channels = int(values["image"]), 16
    x = net.input("x", 3, size, size)
    stem = square(3, 32, 3, stride=2, padding=1)
    x = net.layers(x, "layers", 0, stem, depthwise(32, 3), square(32, channels, 1))
    for at, (expansion, wide, blocks, first, side) in enumerate(_MNASNET, start=8):
        for number, stride in enumerate((first, *(1,) * (blocks - 1))):
            path, sizes = f"layers.{at}.{number}", (channels, wide, stride)
            x = net.block(x, path, (expansion, side), sizes)
            channels = wide
    x = net.layers(x, "layers", 14, square(channels, _FEATURES, 1))
    return _classified(net, net.op("relu", "layers.16.relu", x), values)


def _classified(net: ConvBuilder, x: Value, values: Mapping[str, int | str]) -> Program:
    """Average each channel; dropout and a linear layer."""
    flat = net.mean(x, "mean", _FEATURES)
    flat = net.dropout(flat, "classifier.0", float(values["dropout"]))
    sizes = (_FEATURES, int(values["classes"]))
    net.graph.outputs.append(net.linear(flat, "classifier.1", sizes))
    return single(net.graph)


MOBILE_WORKLOADS = by_name(
    *(
        Workload(
            name=name,
            summary=f"{layers} layers, images of 224 x 224; depthwise convolutions",
            source=f"arXiv {paper}, torchvision",
            parameters={
                "image": 224,
                "classes": 1000,
                "batch_norm": "separate",
                "dropout": "0",
            },
            choices=BATCH_NORM_CHOICES,
            limits={"image": MAX_IMAGE},
            shares=frozenset({"dropout"}),
            make=make,
        )
        for name, layers, paper, make in (
            ("mobilenet-v2", 53, "1801.04381", _build_mobilenet_v2),
            ("mnasnet", 53, "1807.11626", _build_mnasnet),
        )
    )
)
