"""Inception-v3: Szegedy et al., "Rethinking the Inception Architecture".

arXiv 1512.00567, as torchvision builds it: 23,834,568 parameters with batch norms,
27,161,264 with the auxiliary classifier, which runs in training only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from perfc.frontends.workloads.convnets import (
    BATCH_NORM_CHOICES,
    MAX_IMAGE,
    ConvBuilder,
    Window,
    square,
)
from perfc.frontends.workloads.protocol import Workload, by_name
from perfc.ir import Graph, Program, Value, single

_EPSILON = 1e-3
_MIN_IMAGE = 75
"""A smaller image is used up before the last window."""

_AUX_CHANNELS = (128, 768)
_FEATURES = 2048

_A_POOLED = (32, 64, 64)
"""Channels after the pooling branch of each block of the first kind."""

_C_INNER = (128, 160, 160, 192)
"""Channels inside the 7x7 branches of each block of the third kind."""

_E_CHANNELS = (1280, 2048)
"""Channels into each block of the last kind."""


def _wide(channels_in: int, channels_out: int) -> Window:
    return Window(channels=(channels_in, channels_out), size=(1, 7), padding=(0, 3))


def _high(channels_in: int, channels_out: int) -> Window:
    return Window(channels=(channels_in, channels_out), size=(7, 1), padding=(3, 0))


def build_inception_v3(values: Mapping[str, int | str]) -> Program:
    """Build the forward pass over `image` x `image` pixels to `classes` logits."""
    graph = Graph("inception-v3")
    batch_norm, size = str(values["batch_norm"]), int(values["image"])
    net = _Inception(graph, batch_norm=batch_norm, epsilon=_EPSILON)
    x = net.stem(net.input("x", 3, size, size))
    channels = 192
    for name, pooled in zip("bcd", _A_POOLED, strict=True):
        x = net.block_a(x, f"Mixed_5{name}", channels, pooled)
        channels = 224 + pooled
    x = net.block_b(x, "Mixed_6a", channels)
    channels = 768
    for name, inner in zip("bcde", _C_INNER, strict=True):
        x = net.block_c(x, f"Mixed_6{name}", channels, inner)
    classes = int(values["classes"])
    auxiliary = [net.auxiliary(x, classes)] if values["aux"] == "on" else []
    x = net.block_d(x, "Mixed_7a", channels)
    for name, channels_in in zip("bc", _E_CHANNELS, strict=True):
        x = net.block_e(x, f"Mixed_7{name}", channels_in)
    logits = net.classify(x, ("avgpool", "fc"), (_FEATURES, classes))
    graph.outputs.extend([logits, *auxiliary])
    return single(graph)


@attrs.define(eq=False)
class _Inception(ConvBuilder):
    """Blocks A to E, in the names of torchvision."""

    def basic(self, x: Value, path: str, window: Window) -> Value:
        """Convolution, batch norm, relu."""
        y = self.conv(x, f"{path}.conv", f"{path}.bn", window)
        return self.op("relu", f"{path}.relu", y)

    def chain(self, x: Value, path: str, windows: Sequence[Window]) -> Value:
        """Apply convolutions in a row, numbered from 1."""
        for number, window in enumerate(windows, start=1):
            x = self.basic(x, f"{path}_{number}", window)
        return x

    def join(self, path: str, *branches: Value) -> Value:
        """Put the channels of all branches side by side."""
        return self.op("concat", f"{path}.cat", *branches, axis=1)

    def stem(self, x: Value) -> Value:
        """Bring the image to 192 channels at an eighth of its size."""
        x = self.basic(x, "Conv2d_1a_3x3", square(3, 32, 3, stride=2))
        x = self.basic(x, "Conv2d_2a_3x3", square(32, 32, 3))
        x = self.basic(x, "Conv2d_2b_3x3", square(32, 64, 3, padding=1))
        x = self.pool(x, "maxpool1.max_pool", "max", (3, 2))
        x = self.basic(x, "Conv2d_3b_1x1", square(64, 80, 1))
        x = self.basic(x, "Conv2d_4a_3x3", square(80, 192, 3))
        return self.pool(x, "maxpool2.max_pool", "max", (3, 2))

    def smoothed(self, x: Value, path: str, sizes: tuple[int, int]) -> Value:
        """Average over 3x3 pixels, then a 1x1 convolution."""
        pooled = self.pool(x, f"{path}.avg_pool", "average", (3, 1, 1))
        return self.basic(pooled, f"{path}.branch_pool", square(*sizes, 1))

    def block_a(self, x: Value, path: str, channels: int, pooled: int) -> Value:
        """1x1; 5x5; two 3x3; pooling."""
        y1 = self.basic(x, f"{path}.branch1x1", square(channels, 64, 1))
        fives = (square(channels, 48, 1), square(48, 64, 5, padding=2))
        y5 = self.chain(x, f"{path}.branch5x5", fives)
        threes = _double_3x3(channels, padding=1)
        y3 = self.chain(x, f"{path}.branch3x3dbl", threes)
        return self.join(path, y1, y5, y3, self.smoothed(x, path, (channels, pooled)))

    def block_b(self, x: Value, path: str, channels: int) -> Value:
        """Halve the size: 3x3; two 3x3; pooling."""
        y3 = self.basic(x, f"{path}.branch3x3", square(channels, 384, 3, stride=2))
        threes = _double_3x3(channels, stride=2)
        yd = self.chain(x, f"{path}.branch3x3dbl", threes)
        return self.join(path, y3, yd, self.pool(x, f"{path}.max_pool", "max", (3, 2)))

    def block_c(self, x: Value, path: str, channels: int, inner: int) -> Value:
        """1x1; 7x7 as 1x7 and 7x1; that twice; pooling."""
        y1 = self.basic(x, f"{path}.branch1x1", square(channels, 192, 1))
        sevens = (square(channels, inner, 1), _wide(inner, inner), _high(inner, 192))
        y7 = self.chain(x, f"{path}.branch7x7", sevens)
        twice = (
            *(square(channels, inner, 1), _high(inner, inner), _wide(inner, inner)),
            *(_high(inner, inner), _wide(inner, 192)),
        )
        yd = self.chain(x, f"{path}.branch7x7dbl", twice)
        return self.join(path, y1, y7, yd, self.smoothed(x, path, (channels, 192)))

    def block_d(self, x: Value, path: str, channels: int) -> Value:
        """Halve the size: 3x3; 7x7 and 3x3; pooling."""
        threes = (square(channels, 192, 1), square(192, 320, 3, stride=2))
        y3 = self.chain(x, f"{path}.branch3x3", threes)
        sevens = (
            *(square(channels, 192, 1), _wide(192, 192), _high(192, 192)),
            square(192, 192, 3, stride=2),
        )
        y7 = self.chain(x, f"{path}.branch7x7x3", sevens)
        return self.join(path, y3, y7, self.pool(x, f"{path}.max_pool", "max", (3, 2)))

    def block_e(self, x: Value, path: str, channels: int) -> Value:
        """1x1; 3x3 split in two; 3x3 and the same; pooling."""
        y1 = self.basic(x, f"{path}.branch1x1", square(channels, 320, 1))
        y3 = self.basic(x, f"{path}.branch3x3_1", square(channels, 384, 1))
        y3 = self.both_ways(y3, f"{path}.branch3x3_2")
        yd = self.basic(x, f"{path}.branch3x3dbl_1", square(channels, 448, 1))
        widened = square(448, 384, 3, padding=1)
        yd = self.basic(yd, f"{path}.branch3x3dbl_2", widened)
        yd = self.both_ways(yd, f"{path}.branch3x3dbl_3")
        return self.join(path, y1, y3, yd, self.smoothed(x, path, (channels, 192)))

    def both_ways(self, x: Value, path: str) -> Value:
        """1x3 and 3x1 side by side."""
        wide = Window(channels=(384, 384), size=(1, 3), padding=(0, 1))
        high = Window(channels=(384, 384), size=(3, 1), padding=(1, 0))
        branches = (self.basic(x, f"{path}a", wide), self.basic(x, f"{path}b", high))
        return self.op("concat", f"{path}.cat", *branches, axis=1)

    def auxiliary(self, x: Value, classes: int) -> Value:
        """Classify what the blocks of the third kind found."""
        narrow, features = _AUX_CHANNELS
        y = self.pool(x, "AuxLogits.avg_pool", "average", (5, 3))
        y = self.basic(y, "AuxLogits.conv0", square(768, narrow, 1))
        y = self.basic(y, "AuxLogits.conv1", square(narrow, features, 5))
        paths = ("AuxLogits.avgpool", "AuxLogits.fc")
        return self.classify(y, paths, (features, classes))


def _double_3x3(channels: int, stride: int = 1, padding: int = 0) -> tuple[Window, ...]:
    """1x1, 3x3, and 3x3 again, with this stride and padding."""
    return (
        square(channels, 64, 1),
        square(64, 96, 3, padding=1),
        square(96, 96, 3, stride=stride, padding=padding),
    )


INCEPTION_WORKLOADS = by_name(
    Workload(
        name="inception-v3",
        summary="48 layers, images of 299 x 299",
        source="arXiv 1512.00567, torchvision",
        parameters={
            "image": 299,
            "classes": 1000,
            "batch_norm": "folded",
            "aux": "off",
        },
        choices={**BATCH_NORM_CHOICES, "aux": ("off", "on")},
        limits={"image": MAX_IMAGE},
        least={"image": _MIN_IMAGE},
        make=build_inception_v3,
    ),
)
