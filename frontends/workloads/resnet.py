"""ResNet-18, -50 and -101: He et al., "Deep Residual Learning for Image Recognition".

arXiv 1512.03385; as torchvision builds them, that is with the stride in the 3x3
convolution of a block of ResNet-50 and -101 ("v1.5"). 11,689,512, 25,557,032 and
44,549,160 parameters with batch norms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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

_STEM = 64

Block = Callable[[ConvBuilder, Value, str, tuple[int, int, int]], Value]
"""Adds a block: builder, its input, its path, and channels in, width and stride."""


@attrs.frozen(kw_only=True)
class _Depth:
    """A ResNet of some depth.

    Attributes:
        name: Of the workload.
        stages: Width of the 3x3 convolutions, and number of blocks.
        expansion: Channels out of a block over its width.
        block: Adds one.
        batch_norm: What becomes of batch norms where nobody says.

    """

    name: str
    stages: tuple[tuple[int, int], ...]
    expansion: int
    block: Block
    batch_norm: str

    def build(self, values: Mapping[str, int | str]) -> Program:
        """Build the forward pass over `image` x `image` pixels to `classes` logits."""
        builder = ConvBuilder(Graph(self.name), batch_norm=str(values["batch_norm"]))
        size = int(values["image"])
        x = builder.input("x", 3, size, size)
        x = builder.conv(x, "conv1", "bn1", square(3, _STEM, 7, stride=2, padding=3))
        x = builder.op("relu", "relu.relu", x)
        x = builder.pool(x, "maxpool.max_pool", "max", (3, 2, 1))
        channels = _STEM
        for stage, (width, blocks) in enumerate(self.stages, start=1):
            for block in range(blocks):
                stride = 2 if block == 0 and stage > 1 else 1
                path = f"layer{stage}.{block}"
                x = self.block(builder, x, path, (channels, width, stride))
                channels = width * self.expansion
        classes = int(values["classes"])
        logits = builder.classify(x, ("avgpool", "fc"), (channels, classes))
        builder.graph.outputs.append(logits)
        return single(builder.graph)


def _basic(
    builder: ConvBuilder, x: Value, path: str, sizes: tuple[int, int, int]
) -> Value:
    """Two 3x3, and the input again."""
    channels, width, stride = sizes
    windows = (
        square(channels, width, 3, stride=stride, padding=1),
        square(width, width, 3, padding=1),
    )
    return _residual(builder, x, path, windows)


def _bottleneck(
    builder: ConvBuilder, x: Value, path: str, sizes: tuple[int, int, int]
) -> Value:
    """1x1, 3x3, 1x1 to four times the width, and the input again."""
    channels, width, stride = sizes
    windows = (
        square(channels, width, 1),
        square(width, width, 3, stride=stride, padding=1),
        square(width, 4 * width, 1),
    )
    return _residual(builder, x, path, windows)


def _residual(
    builder: ConvBuilder, x: Value, path: str, windows: Sequence[Window]
) -> Value:
    """Apply convolutions in a row, and add the input, brought to their shape."""
    y = x
    for number, window in enumerate(windows, start=1):
        y = builder.conv(y, f"{path}.conv{number}", f"{path}.bn{number}", window)
        if number < len(windows):
            y = builder.op("relu", f"{path}.relu.relu", y)
    channels, wide = windows[0].channels[0], windows[-1].channels[1]
    stride = max(window.stride for window in windows)
    if channels != wide or stride > 1:
        paths = (f"{path}.downsample.0", f"{path}.downsample.1")
        x = builder.conv(x, *paths, square(channels, wide, 1, stride=stride))
    total = builder.op("add", f"{path}.add", y, x)
    return builder.op("relu", f"{path}.relu.relu", total)


_DEPTHS = (
    _Depth(
        name="resnet18",
        stages=((64, 2), (128, 2), (256, 2), (512, 2)),
        expansion=1,
        block=_basic,
        batch_norm="separate",
    ),
    _Depth(
        name="resnet50",
        stages=((64, 3), (128, 4), (256, 6), (512, 3)),
        expansion=4,
        block=_bottleneck,
        batch_norm="folded",
    ),
    _Depth(
        name="resnet101",
        stages=((64, 3), (128, 4), (256, 23), (512, 3)),
        expansion=4,
        block=_bottleneck,
        batch_norm="separate",
    ),
)

RESNET_WORKLOADS = by_name(
    *(
        Workload(
            name=depth.name,
            summary=f"{depth.name.removeprefix('resnet')} layers, images of 224 x 224",
            source="arXiv 1512.03385, torchvision",
            parameters={"image": 224, "classes": 1000, "batch_norm": depth.batch_norm},
            choices=BATCH_NORM_CHOICES,
            limits={"image": MAX_IMAGE},
            make=depth.build,
        )
        for depth in _DEPTHS
    )
)
