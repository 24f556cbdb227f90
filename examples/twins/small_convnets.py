"""Convolutional networks for small devices in plain PyTorch, as in torchvision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from perfc.twins.twin import Twin
from perfc.twins.vision import Branches, image_twin


class BasicBlock(nn.Module):
    """A block of ResNet-18: relu works in place."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        """Make two convolutions, and one for the shortcut if shapes differ."""
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if channels != width or stride > 1:
            shortcut = nn.Conv2d(channels, width, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """Add the shortcut."""
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.downsample is None else self.downsample(x)
        out: Tensor = self.relu(y)
        return out


class Residual(nn.Module):
    """Layers, and their input again."""

    def __init__(self, *layers: nn.Module) -> None:
        """Keep them."""
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Run them, and add the input."""
        out: Tensor = x + self.layers(x)
        return out


class Classifier(nn.Module):
    """Features, the mean of each channel, dropout, a linear layer."""

    def __init__(
        self, features: Sequence[nn.Module], sizes: tuple[int, int], dropout: float
    ) -> None:
        """Keep the features; *sizes* are their channels and the classes."""
        super().__init__()
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.fc = nn.Linear(*sizes)

    def forward(self, x: Tensor) -> Tensor:
        """Classify images [batch, 3, height, width]."""
        pooled = torch.flatten(self.avgpool(self.features(x)), 1)
        logits: Tensor = self.fc(self.dropout(pooled))
        return logits


def _conv(
    channels: int, out: int, size: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """Return a convolution that keeps the size, and its batch norm."""
    window = nn.Conv2d(
        channels, out, size, stride, size // 2, groups=groups, bias=False
    )
    return [window, nn.BatchNorm2d(out)]


def _inverted(
    sizes: tuple[int, int, int], kind: tuple[int, int], active: type[nn.Module]
) -> nn.Module:
    """Return an inverted residual.

    *sizes* are the channels in and out, and the stride; *kind* is the expansion and
    the side of the depthwise window.
    """
    (channels, out, stride), (expansion, side) = sizes, kind
    inner = channels * expansion
    layers: list[nn.Module] = []
    if expansion > 1:
        layers += [*_conv(channels, inner, 1), active(inplace=True)]
    layers += [*_conv(inner, inner, side, stride, inner), active(inplace=True)]
    layers += _conv(inner, out, 1)
    if stride > 1 or channels != out:
        return nn.Sequential(*layers)
    return Residual(*layers)


_MOBILENET_V2 = (
    *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3)),
    *((6, 96, 3, 1, 3), (6, 160, 3, 2, 3), (6, 320, 1, 1, 3)),
)
"""Expansion, channels, blocks, stride of the first, side of the depthwise window."""

_MNASNET = (
    *((3, 24, 3, 2, 3), (3, 40, 3, 2, 5), (6, 80, 3, 2, 5)),
    *((6, 96, 2, 1, 3), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
)


def _stages(
    channels: int, stages: Sequence[tuple[int, ...]], active: type[nn.Module]
) -> list[nn.Module]:
    """Return the blocks of all stages, and the last convolution."""
    layers: list[nn.Module] = []
    for expansion, out, blocks, first, side in stages:
        for stride in (first, *(1,) * (blocks - 1)):
            sizes = (channels, out, stride)
            layers.append(_inverted(sizes, (expansion, side), active))
            channels = out
    return [*layers, *_conv(channels, 1280, 1), active(inplace=True)]


def _resnet18(values: Mapping[str, int | str]) -> nn.Module:
    relu = nn.ReLU(inplace=True)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False)]
    layers += [nn.BatchNorm2d(64), relu, nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width in (64, 128, 256, 512):
        stride = 1 if width == channels else 2
        layers += [BasicBlock(channels, width, stride), BasicBlock(width, width, 1)]
        channels = width
    return Classifier(layers, (512, int(values["classes"])), 0.0)


def _mobilenet_v2(values: Mapping[str, int | str]) -> nn.Module:
    stem = [*_conv(3, 32, 3, 2), nn.ReLU6(inplace=True)]
    layers = [*stem, *_stages(32, _MOBILENET_V2, nn.ReLU6)]
    sizes = (1280, int(values["classes"]))
    return Classifier(layers, sizes, float(values["dropout"]))


def _mnasnet(values: Mapping[str, int | str]) -> nn.Module:
    stem = [*_conv(3, 32, 3, 2), nn.ReLU(inplace=True)]
    stem += [*_conv(32, 32, 3, 1, 32), nn.ReLU(inplace=True), *_conv(32, 16, 1)]
    layers = [*stem, *_stages(16, _MNASNET, nn.ReLU)]
    sizes = (1280, int(values["classes"]))
    return Classifier(layers, sizes, float(values["dropout"]))


def _active(channels: int, out: int, size: int) -> nn.Module:
    window = nn.Conv2d(channels, out, size, padding=size // 2)
    return nn.Sequential(window, nn.ReLU(inplace=True))


def _fire(channels: int, squeezed: int) -> nn.Module:
    wide = 4 * squeezed
    both = Branches([_active(squeezed, wide, side) for side in (1, 3)])
    return nn.Sequential(_active(channels, squeezed, 1), both)


class SqueezeNet(nn.Module):
    """SqueezeNet of one of two versions."""

    def __init__(self, version: str, classes: int, dropout: float) -> None:
        """Stack fire modules; 0 is a pooling layer."""
        super().__init__()
        channels, side = (96, 7) if version == "1.0" else (64, 3)
        squeezed = (0, 16, 16, 32, 0, 32, 48, 48, 64, 0, 64)
        if version != "1.0":
            squeezed = (0, 16, 16, 0, 32, 32, 0, 48, 48, 64, 64)
        layers: list[nn.Module] = [nn.Conv2d(3, channels, side, 2), nn.ReLU(True)]
        for narrow in squeezed:
            if narrow:
                layers.append(_fire(channels, narrow))
                channels = 8 * narrow
            else:
                layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.classifier = _active(channels, classes, 1)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Classify images [batch, 3, height, width]."""
        y = self.classifier(self.dropout(self.features(x)))
        return torch.flatten(self.avgpool(y), 1)


def _squeezenet(values: Mapping[str, int | str]) -> nn.Module:
    classes, dropout = int(values["classes"]), float(values["dropout"])
    return SqueezeNet(str(values["version"]), classes, dropout)


def _basic(channels: int, out: int, size: int, stride: int = 1) -> nn.Module:
    window = nn.Conv2d(channels, out, size, stride, size // 2, bias=False)
    norm = nn.BatchNorm2d(out, eps=0.001)
    return nn.Sequential(window, norm, nn.ReLU(inplace=True))


def _inception(channels: int, *sizes: int) -> nn.Module:
    one, narrow, three, narrower, last, pooled = sizes
    pool = nn.MaxPool2d(3, 1, 1, ceil_mode=True)
    return Branches(
        [
            _basic(channels, one, 1),
            nn.Sequential(_basic(channels, narrow, 1), _basic(narrow, three, 3)),
            nn.Sequential(_basic(channels, narrower, 1), _basic(narrower, last, 3)),
            nn.Sequential(pool, _basic(channels, pooled, 1)),
        ]
    )


def _googlenet(values: Mapping[str, int | str]) -> nn.Module:
    def halved(side: int) -> nn.Module:
        return nn.MaxPool2d(side, 2, ceil_mode=True)

    layers = [
        *(_basic(3, 64, 7, 2), halved(3)),
        *(_basic(64, 64, 1), _basic(64, 192, 3), halved(3)),
        _inception(192, 64, 96, 128, 16, 32, 32),
        *(_inception(256, 128, 128, 192, 32, 96, 64), halved(3)),
        _inception(480, 192, 96, 208, 16, 48, 64),
        _inception(512, 160, 112, 224, 24, 64, 64),
        _inception(512, 128, 128, 256, 24, 64, 64),
        _inception(512, 112, 144, 288, 32, 64, 64),
        *(_inception(528, 256, 160, 320, 32, 128, 128), halved(2)),
        _inception(832, 256, 160, 320, 32, 128, 128),
        _inception(832, 384, 192, 384, 48, 128, 128),
    ]
    sizes = (1024, int(values["classes"]))
    return Classifier(layers, sizes, float(values["dropout"]))


resnet18 = image_twin("resnet18", _resnet18)
googlenet = image_twin("googlenet", _googlenet)
mobilenet_v2 = image_twin("mobilenet-v2", _mobilenet_v2)
mnasnet = image_twin("mnasnet", _mnasnet)
squeezenet = image_twin("squeezenet", _squeezenet, {})

SMALL_CONVNET_TWINS: Sequence[Twin] = (googlenet, mobilenet_v2, mnasnet, squeezenet)
