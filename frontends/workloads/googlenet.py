"""GoogLeNet: Szegedy et al., "Going Deeper with Convolutions".

arXiv 1409.4842, as torchvision builds it: with batch norms, and 3x3 in place of 5x5
windows; 6,624,904 parameters without the auxiliary classifiers.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.frontends.workloads import convnets
from perfc.frontends.workloads.protocol import Workload, by_name
from perfc.ir import Graph, Program, Value, single

_EPSILON = 1e-3
_MIN_IMAGE = 15
"""Torchvision's smallest; a smaller image is used up before the last window."""

_FEATURES = 1024

_STAGES = (
    (
        "3",
        (
            (64, 96, 128, 16, 32, 32),
            (128, 128, 192, 32, 96, 64),
        ),
    ),
    (
        "4",
        (
            (192, 96, 208, 16, 48, 64),
            (160, 112, 224, 24, 64, 64),
            (128, 128, 256, 24, 64, 64),
            (112, 144, 288, 32, 64, 64),
            (256, 160, 320, 32, 128, 128),
        ),
    ),
    (
        "5",
        (
            (256, 160, 320, 32, 128, 128),
            (384, 192, 384, 48, 128, 128),
        ),
    ),
)
"""Channels of each block: 1x1; 1x1 and 3x3; 1x1 and 3x3; 1x1 after the pooling."""

_POOL_SIDES = {"3": 3, "4": 2}
"""Side of the window of the pooling layer after each stage."""


@attrs.define(eq=False)
class _GoogLeNet(convnets.ConvBuilder):
    """Blocks in the names of torchvision."""

    def basic(self, x: Value, path: str, window: convnets.Window) -> Value:
        """Convolution, batch norm, relu."""
        y = self.conv(x, f"{path}.conv", f"{path}.bn", window)
        return self.op("relu", f"{path}.relu", y)

    def halved(self, x: Value, path: str, side: int) -> Value:
        """Take maxima of windows two apart, those over the edge, too."""
        return self.pool(x, f"{path}.max_pool", "max", (side, 2), ceil=True)

    def block(
        self, x: Value, path: str, channels: int, sizes: tuple[int, ...]
    ) -> Value:
        """Four branches side by side."""
        one, narrow, three, narrower, last, pooled = sizes
        branches = [self.basic(x, f"{path}.branch1", convnets.square(channels, one, 1))]
        for number, (inner, wide) in enumerate(((narrow, three), (narrower, last)), 2):
            branch = f"{path}.branch{number}"
            y = self.basic(x, f"{branch}.0", convnets.square(channels, inner, 1))
            wider = convnets.square(inner, wide, 3, padding=1)
            branches.append(self.basic(y, f"{branch}.1", wider))
        y = self.pool(x, f"{path}.branch4.0.max_pool", "max", (3, 1, 1), ceil=True)
        branches.append(
            self.basic(y, f"{path}.branch4.1", convnets.square(channels, pooled, 1))
        )
        return self.op("concat", f"{path}.cat", *branches, axis=1)


def _build(values: Mapping[str, int | str]) -> Program:
    """Build the forward pass over `image` x `image` pixels to `classes` logits."""
    batch_norm, size = str(values["batch_norm"]), int(values["image"])
    net = _GoogLeNet(Graph("googlenet"), batch_norm=batch_norm, epsilon=_EPSILON)
    x = net.input("x", 3, size, size)
    x = net.basic(x, "conv1", convnets.square(3, 64, 7, stride=2, padding=3))
    x = net.halved(x, "maxpool1", 3)
    x = net.basic(x, "conv2", convnets.square(64, 64, 1))
    x = net.basic(x, "conv3", convnets.square(64, 192, 3, padding=1))
    x, channels = net.halved(x, "maxpool2", 3), 192
    for stage, blocks in _STAGES:
        for letter, sizes in zip("abcde", blocks, strict=False):
            x = net.block(x, f"inception{stage}{letter}", channels, sizes)
            channels = sizes[0] + sizes[2] + sizes[4] + sizes[5]
        if stage in _POOL_SIDES:
            x = net.halved(x, f"maxpool{stage}", _POOL_SIDES[stage])
    flat = net.mean(x, "avgpool", _FEATURES)
    flat = net.dropout(flat, "dropout", float(values["dropout"]))
    logits = net.linear(flat, "fc", (_FEATURES, int(values["classes"])))
    net.graph.outputs.append(logits)
    return single(net.graph)


GOOGLENET_WORKLOADS = by_name(
    Workload(
        name="googlenet",
        summary="22 layers, images of 224 x 224",
        source="arXiv 1409.4842, torchvision",
        parameters={
            "image": 224,
            "classes": 1000,
            "batch_norm": "separate",
            "dropout": "0",
        },
        choices=convnets.BATCH_NORM_CHOICES,
        limits={"image": convnets.MAX_IMAGE},
        least={"image": _MIN_IMAGE},
        shares=frozenset({"dropout"}),
        make=_build,
    ),
)
