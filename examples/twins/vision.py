"""Convolutional networks in plain PyTorch, as torchvision builds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from perfc.twins.twin import Made, Twin, Values


class Bottleneck(nn.Module):
    """A block of ResNet-50 and -101: relu works in place."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        """Make three convolutions, and one for the shortcut if shapes differ."""
        super().__init__()
        wide = 4 * width
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, wide, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(wide)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if channels != wide:
            shortcut = nn.Conv2d(channels, wide, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(wide))

    def forward(self, x: Tensor) -> Tensor:
        """Add the shortcut."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        out: Tensor = self.relu(y)
        return out


class ResNet50(nn.Module):
    """ResNet-50 v1.5; deeper ones have more blocks of the third width."""

    def __init__(self, classes: int = 1000, third: int = 6) -> None:
        """Stack 3, 4, 6 (or *third*) and 3 blocks."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        blocks: list[nn.Module] = []
        channels = 64
        widths = ((64, 3), (128, 4), (256, third), (512, 3))
        for stage, (width, count) in enumerate(widths):
            for block in range(count):
                stride = 2 if block == 0 and stage else 1
                blocks.append(Bottleneck(channels, width, stride))
                channels = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(2048, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Classify images [batch, 3, height, width]."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        logits: Tensor = self.fc(torch.flatten(self.avgpool(self.blocks(x)), 1))
        return logits


class BasicConv(nn.Module):
    """Convolution, batch norm and relu."""

    def __init__(
        self,
        channels: tuple[int, int],
        size: int | tuple[int, int],
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
    ) -> None:
        """Make both layers."""
        super().__init__()
        self.conv = nn.Conv2d(*channels, size, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(channels[1], eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        """Run them."""
        return functional.relu(self.bn(self.conv(x)), inplace=True)


def _wide(channels: int, out: int) -> BasicConv:
    return BasicConv((channels, out), (1, 7), 1, (0, 3))


def _high(channels: int, out: int) -> BasicConv:
    return BasicConv((channels, out), (7, 1), 1, (3, 0))


class Branches(nn.Module):
    """Branches of one input, joined along the channels."""

    def __init__(self, branches: Sequence[nn.Module]) -> None:
        """Keep them."""
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """Run one after another."""
        return torch.cat([branch(x) for branch in self.branches], 1)


def _smoothed(channels: int, out: int) -> nn.Module:
    pool = nn.AvgPool2d(3, stride=1, padding=1)
    return nn.Sequential(pool, BasicConv((channels, out), 1))


def _block_a(channels: int, pooled: int) -> nn.Module:
    fives = (BasicConv((channels, 48), 1), BasicConv((48, 64), 5, 1, 2))
    threes = (
        BasicConv((channels, 64), 1),
        BasicConv((64, 96), 3, 1, 1),
        BasicConv((96, 96), 3, 1, 1),
    )
    one = BasicConv((channels, 64), 1)
    branches = (one, nn.Sequential(*fives), nn.Sequential(*threes))
    return Branches([*branches, _smoothed(channels, pooled)])


def _block_b(channels: int) -> nn.Module:
    threes = (
        BasicConv((channels, 64), 1),
        BasicConv((64, 96), 3, 1, 1),
        BasicConv((96, 96), 3, 2),
    )
    halved = BasicConv((channels, 384), 3, 2)
    return Branches([halved, nn.Sequential(*threes), nn.MaxPool2d(3, 2)])


def _block_c(channels: int, inner: int) -> nn.Module:
    once = (BasicConv((channels, inner), 1), _wide(inner, inner), _high(inner, 192))
    twice = (
        *(BasicConv((channels, inner), 1), _high(inner, inner), _wide(inner, inner)),
        *(_high(inner, inner), _wide(inner, 192)),
    )
    one = BasicConv((channels, 192), 1)
    branches = (one, nn.Sequential(*once), nn.Sequential(*twice))
    return Branches([*branches, _smoothed(channels, 192)])


def _block_d(channels: int) -> nn.Module:
    threes = (BasicConv((channels, 192), 1), BasicConv((192, 320), 3, 2))
    sevens = (
        *(BasicConv((channels, 192), 1), _wide(192, 192), _high(192, 192)),
        BasicConv((192, 192), 3, 2),
    )
    branches = (nn.Sequential(*threes), nn.Sequential(*sevens))
    return Branches([*branches, nn.MaxPool2d(3, 2)])


def _block_e(channels: int) -> nn.Module:
    def both_ways() -> nn.Module:
        wide = BasicConv((384, 384), (1, 3), 1, (0, 1))
        return Branches([wide, BasicConv((384, 384), (3, 1), 1, (1, 0))])

    once = (BasicConv((channels, 384), 1), both_ways())
    twice = (
        BasicConv((channels, 448), 1),
        BasicConv((448, 384), 3, 1, 1),
        both_ways(),
    )
    one = BasicConv((channels, 320), 1)
    branches = (one, nn.Sequential(*once), nn.Sequential(*twice))
    return Branches([*branches, _smoothed(channels, 192)])


class InceptionV3(nn.Module):
    """Inception-v3 without the auxiliary classifier."""

    def __init__(self, classes: int = 1000, dropout: float = 0.5) -> None:
        """Stack the stem and the blocks A to E."""
        super().__init__()
        self.features = nn.Sequential(
            BasicConv((3, 32), 3, 2),
            BasicConv((32, 32), 3),
            BasicConv((32, 64), 3, 1, 1),
            nn.MaxPool2d(3, 2),
            BasicConv((64, 80), 1),
            BasicConv((80, 192), 3),
            nn.MaxPool2d(3, 2),
            *(_block_a(192, 32), _block_a(256, 64), _block_a(288, 64)),
            _block_b(288),
            *(_block_c(768, inner) for inner in (128, 160, 160, 192)),
            _block_d(768),
            *(_block_e(1280), _block_e(2048)),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(2048, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Classify images [batch, 3, 299, 299]."""
        pooled = self.dropout(self.avgpool(self.features(x)))
        logits: Tensor = self.fc(torch.flatten(pooled, 1))
        return logits


_AS_EAGER_RUNS_IT: Mapping[str, int | str] = {"batch_norm": "separate"}


def image_twin(
    name: str,
    net: Callable[[Values], nn.Module],
    fixed: Mapping[str, int | str] = _AS_EAGER_RUNS_IT,
) -> Twin:
    """Return the twin of a workload over images of `image` x `image` pixels."""

    def make(values: Values, batch: int) -> Made:
        size = int(values["image"])
        return net(values), (torch.rand(batch, 3, size, size),)

    return Twin(name=name, batch=32, make=make, fixed=fixed)


def _resnet50(values: Values) -> nn.Module:
    return ResNet50(int(values["classes"]))


def _resnet101(values: Values) -> nn.Module:
    return ResNet50(int(values["classes"]), third=23)


def _inception_v3(values: Values) -> nn.Module:
    """Make the network as the workload has it: also in training without dropout."""
    return InceptionV3(int(values["classes"]), dropout=0.0)


resnet50 = image_twin("resnet50", _resnet50)
resnet101 = image_twin("resnet101", _resnet101)
inception_v3 = image_twin(
    "inception-v3", _inception_v3, {**_AS_EAGER_RUNS_IT, "aux": "off"}
)

VISION_TWINS = (resnet50, resnet101, inception_v3)
