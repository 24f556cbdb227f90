"""What gradients tell of calls whose numbers a trace does not have.

Traces of before 2023 have shapes and no numbers: the stride of a convolution is not in
them. The shape of its result is, as that of the gradient; any stride and padding that
lead there cost the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.traces import RecordedArgument, RecordedTensor
from perfc.traces.inputs import UNRECORDED

Shape = tuple[int, ...]
_INPUTS = ("input", "self")
_FIRST_AXIS = 2


@attrs.define(eq=False)
class Windows:
    """What gradients tell of convolutions and of batch norms.

    Attributes:
        results: Shapes of results, by those of image and weight.
        trains: Whether a batch norm has a gradient.

    """

    results: dict[tuple[Shape, Shape], Shape] = attrs.field(
        factory=dict[tuple[Shape, Shape], Shape]
    )
    trains: bool = False

    def learn(self, target: str, given: Mapping[str, RecordedArgument]) -> None:
        """Note what a call tells of others, if it is a gradient."""
        if "batch_norm_backward" in target:
            self.trains = True
        if "convolution_backward" not in target:
            return
        found = [_shape(given, name) for name in ("weight", "grad_output")]
        image, (weight, gradient) = _image(given), found
        if image and weight and gradient:
            self.results[image, weight] = gradient

    def fill(self, target: str, given: dict[str, RecordedArgument]) -> None:
        """Put in what follows for a call, in the place of what is not recorded."""
        if "batch_norm" in target and given.get("training") is UNRECORDED:
            given["training"] = self.trains or UNRECORDED
        if "convolution" not in target or given.get("stride") is not UNRECORDED:
            return
        image, weight = _image(given), _shape(given, "weight")
        result = self.results.get((image, weight))
        if result is None or len(result) != len(image):
            return
        axes = range(_FIRST_AXIS, len(image))
        windows = [_window(image[i], weight[i], result[i]) for i in axes]
        if all(windows):
            strides, paddings = zip(*filter(None, windows), strict=True)
            given |= {"stride": strides, "padding": paddings}
            given["dilation"] = (1,) * len(windows)
            given["groups"] = image[1] // weight[1]
            given["transposed"] = False


def _image(given: Mapping[str, RecordedArgument]) -> Shape:
    return next(filter(None, (_shape(given, name) for name in _INPUTS)), ())


def _shape(given: Mapping[str, RecordedArgument], name: str) -> Shape:
    found = given.get(name)
    return found.shape if isinstance(found, RecordedTensor) else ()


def _window(size: int, kernel: int, result: int) -> tuple[int, int] | None:
    for stride in range(1, size + 1):
        for padding in range(kernel):
            if (size + 2 * padding - kernel) // stride + 1 == result:
                return stride, padding
    return None
