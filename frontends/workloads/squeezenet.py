"""SqueezeNet: Iandola et al., "AlexNet-level accuracy with 50x fewer parameters".

arXiv 1602.07360, as torchvision builds `squeezenet1_0` and `squeezenet1_1`: 1,248,424
and 1,235,496 parameters; no batch norms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from perfc.frontends.workloads.convnets import MAX_IMAGE, ConvBuilder, square
from perfc.frontends.workloads.protocol import Workload, by_name
from perfc.ir import Graph, Program, Value, single

_POOL = 0
"""Stands for a pooling layer among fire modules."""

_FEATURES = 512

Layers = Sequence[int]
"""Channels of each squeeze layer; an expanding one has four times as many, twice."""


@attrs.frozen
class _Version:
    """Channels and window of the first convolution, and what comes after."""

    channels: int
    side: int
    layers: Layers


_VERSIONS = {
    "1.0": _Version(96, 7, (_POOL, 16, 16, 32, _POOL, 32, 48, 48, 64, _POOL, 64)),
    "1.1": _Version(64, 3, (_POOL, 16, 16, _POOL, 32, 32, _POOL, 48, 48, 64, 64)),
}

_MIN_IMAGE = 21
"""A smaller image is used up before the last pooling layer of version 1.0."""


@attrs.define(eq=False)
class _SqueezeNet(ConvBuilder):
    """Layers in the names of torchvision."""

    def fire(self, x: Value, path: str, channels: int, squeezed: int) -> Value:
        """1x1 to few channels; 1x1 and 3x3 side by side to many."""
        wide = 4 * squeezed
        x = self.active(x, f"{path}.squeeze", channels, squeezed, 1)
        sides = ((1, "expand1x1"), (3, "expand3x3"))
        branches = [
            self.active(x, f"{path}.{name}", squeezed, wide, side)
            for side, name in sides
        ]
        return self.op("concat", f"{path}.cat", *branches, axis=1)

    def active(
        self, x: Value, path: str, channels: int, channels_out: int, side: int
    ) -> Value:
        """Convolve, keeping the size, and activate."""
        window = square(channels, channels_out, side, padding=side // 2)
        y = self.plain_conv(x, path, window)
        return self.op("relu", f"{path}_activation.relu", y)


def _build(values: Mapping[str, int | str]) -> Program:
    """Build the forward pass over `image` x `image` pixels to `classes` logits."""
    net, version = _SqueezeNet(Graph("squeezenet")), _VERSIONS[str(values["version"])]
    size, classes = int(values["image"]), int(values["classes"])
    channels = version.channels
    x = net.input("x", 3, size, size)
    stem = square(3, channels, version.side, stride=2)
    x = net.op("relu", "features.1.relu", net.plain_conv(x, "features.0", stem))
    for at, squeezed in enumerate(version.layers, start=2):
        path = f"features.{at}"
        if squeezed == _POOL:
            x = net.pool(x, f"{path}.max_pool", "max", (3, 2), ceil=True)
        else:
            x = net.fire(x, path, channels, squeezed)
            channels = 8 * squeezed
    x = net.dropout(x, "classifier.0", float(values["dropout"]))
    x = net.plain_conv(x, "classifier.1", square(_FEATURES, classes, 1))
    x = net.op("relu", "classifier.2.relu", x)
    net.graph.outputs.append(net.mean(x, "classifier.3", classes))
    return single(net.graph)


SQUEEZENET_WORKLOADS = by_name(
    Workload(
        name="squeezenet",
        summary="18 layers, images of 224 x 224; few parameters",
        source="arXiv 1602.07360, torchvision",
        parameters={"image": 224, "classes": 1000, "version": "1.0", "dropout": "0"},
        choices={"version": tuple(_VERSIONS)},
        limits={"image": MAX_IMAGE},
        least={"image": _MIN_IMAGE},
        shares=frozenset({"dropout"}),
        make=_build,
    ),
)
