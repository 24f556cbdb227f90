"""What the convolutional networks share: a convolution and its batch norm."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.frontends.workloads.builder import Builder
from perfc.ir import AttrValue, Value

BATCH_NORM_CHOICES: Mapping[str, tuple[str, ...]] = {
    "batch_norm": ("folded", "folded-bias", "separate")
}
"""What becomes of the batch norm after a convolution.

`folded`: it scales the weights. `folded-bias`: it also leaves a bias, as it does in
a trained network; exporters drop the bias of an untrained one, which is zero.
`separate`: a kernel of its own, as eager PyTorch runs a module that is not fused.
"""

MAX_IMAGE = 16_384
"""Pixels of a side; a feature map of more is a typing error."""


@attrs.frozen(kw_only=True)
class Window:
    """Channels and window of a convolution.

    Attributes:
        channels: In and out.
        size: Height and width of the window.
        stride: Of both axes.
        padding: Rows above and below, columns left and right.
        groups: Parts of the channels that are convolved apart.

    """

    channels: tuple[int, int]
    size: tuple[int, int]
    stride: int = 1
    padding: tuple[int, int] = (0, 0)
    groups: int = 1


def square(
    channels_in: int, channels_out: int, size: int, stride: int = 1, padding: int = 0
) -> Window:
    """Return a square window."""
    return Window(
        channels=(channels_in, channels_out),
        size=(size, size),
        stride=stride,
        padding=(padding, padding),
    )


def depthwise(channels: int, size: int, stride: int = 1) -> Window:
    """Return a square window over each channel alone, padded to keep the size."""
    return Window(
        channels=(channels, channels),
        size=(size, size),
        stride=stride,
        padding=(size // 2, size // 2),
        groups=channels,
    )


@attrs.define(eq=False)
class ConvBuilder(Builder):
    """Builds convolutional networks in the layout NCHW.

    Attributes:
        batch_norm: One of `BATCH_NORM_CHOICES`.
        epsilon: Of every batch norm.

    """

    batch_norm: str = "folded"
    epsilon: float = 1e-5

    def conv(self, x: Value, path: str, norm: str, window: Window) -> Value:
        """Convolve, and normalise; *norm* is the path of the batch norm."""
        bias = self.batch_norm == "folded-bias"
        y = self.plain_conv(x, path, window, bias=bias)
        if self.batch_norm != "separate":
            return y
        channels = window.channels[1]
        names = ("weight", "bias", "running_mean", "running_var")
        statistics = [self.parameter(f"{norm}.{name}", channels) for name in names]
        return self.op(
            "batch_norm", f"{norm}.batch_norm", y, *statistics, epsilon=self.epsilon
        )

    def plain_conv(
        self, x: Value, path: str, window: Window, *, bias: bool = True
    ) -> Value:
        """Convolve, without a batch norm."""
        channels_in, channels = window.channels
        sizes = (channels, channels_in // window.groups, *window.size)
        operands = [self.parameter(f"{path}.weight", *sizes)]
        if bias:
            operands.append(self.parameter(f"{path}.bias", channels))
        return self.op(
            "conv",
            f"{path}.conv",
            x,
            *operands,
            dilation=(1, 1),
            groups=window.groups,
            **_strides(window.stride, window.padding),
        )

    def pool(
        self,
        x: Value,
        name: str,
        kind: str,
        window: tuple[int, ...],
        *,
        ceil: bool = False,
    ) -> Value:
        """Take the maximum (`max`) or the mean (`average`) over square windows.

        *window* is its side, the stride and the padding, 0 if left out. With *ceil* a
        window that hangs over the edge counts, too.
        """
        size, stride, *padding = window
        attributes: dict[str, AttrValue] = {
            **_strides(stride, (sum(padding), sum(padding))),
            **({"ceil_mode": True} if ceil else {}),
        }
        sides = (size, size)
        return self.op(
            "pool", name, x, kind=kind, window=sides, dilation=(1, 1), **attributes
        )

    def mean(self, x: Value, path: str, channels: int) -> Value:
        """Average each channel over the image: [batch, channels]."""
        mean = self.op(
            "reduce", f"{path}.mean", x, kind="mean", axes=(-1, -2), keepdims=True
        )
        return self.reshape(mean, "flatten", -1, channels)

    def classify(
        self, x: Value, paths: tuple[str, str], sizes: tuple[int, int]
    ) -> Value:
        """Average each channel and apply a linear layer; *paths* are of both."""
        return self.linear(self.mean(x, paths[0], sizes[0]), paths[1], sizes)


def _strides(stride: int, padding: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    return {"stride": (stride, stride), "padding": padding * 2}
