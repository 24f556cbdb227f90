"""ResNet-50: He et al., "Deep Residual Learning for Image Recognition".

arXiv 1512.03385; as torchvision builds it, that is with the stride in the 3x3
convolution of a block ("v1.5"). 25,557,032 parameters with batch norms.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.workloads.convnets import (
    BATCH_NORM_CHOICES,
    MAX_IMAGE,
    ConvBuilder,
    square,
)
from perfc.frontends.workloads.protocol import Workload, by_name
from perfc.ir import Graph, Program, Value, single

_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Width of the 3x3 convolution and number of blocks."""

_EXPANSION = 4
_STEM = 64


def build_resnet50(values: Mapping[str, int | str]) -> Program:
    """Build the forward pass over `image` x `image` pixels to `classes` logits."""
    builder = ConvBuilder(Graph("resnet50"), batch_norm=str(values["batch_norm"]))
    size = int(values["image"])
    image = builder.input("x", 3, size, size)
    x = builder.conv(image, "conv1", "bn1", square(3, _STEM, 7, stride=2, padding=3))
    x = builder.op("relu", "relu.relu", x)
    x = builder.pool(x, "maxpool.max_pool", "max", (3, 2, 1))
    channels = _STEM
    for stage, (width, blocks) in enumerate(_STAGES, start=1):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 1 else 1
            x = _bottleneck(
                builder, x, f"layer{stage}.{block}", (channels, width, stride)
            )
            channels = width * _EXPANSION
    classes = int(values["classes"])
    logits = builder.classify(x, ("avgpool", "fc"), (channels, classes))
    builder.graph.outputs.append(logits)
    return single(builder.graph)


def _bottleneck(
    builder: ConvBuilder, x: Value, path: str, sizes: tuple[int, int, int]
) -> Value:
    """1x1, 3x3, 1x1, and the input again; *sizes*: channels in, width, stride."""
    channels, width, stride = sizes
    wide = width * _EXPANSION
    windows = (
        square(channels, width, 1),
        square(width, width, 3, stride=stride, padding=1),
        square(width, wide, 1),
    )
    y = x
    for number, window in enumerate(windows, start=1):
        y = builder.conv(y, f"{path}.conv{number}", f"{path}.bn{number}", window)
        if number < len(windows):
            y = builder.op("relu", f"{path}.relu.relu", y)
    if channels != wide:
        paths = (f"{path}.downsample.0", f"{path}.downsample.1")
        x = builder.conv(x, *paths, square(channels, wide, 1, stride=stride))
    total = builder.op("add", f"{path}.add", y, x)
    return builder.op("relu", f"{path}.relu.relu", total)


RESNET_WORKLOADS = by_name(
    Workload(
        name="resnet50",
        summary="50 layers, images of 224 x 224",
        source="arXiv 1512.03385, torchvision",
        parameters={"image": 224, "classes": 1000, "batch_norm": "folded"},
        choices=BATCH_NORM_CHOICES,
        limits={"image": MAX_IMAGE},
        make=build_resnet50,
    ),
)
