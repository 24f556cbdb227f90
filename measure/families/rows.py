"""Softmax, norms and reductions: kernels over the rows of a matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from perfc.ir import Record
from perfc.measure.case import DTYPES_OF_TENSORS, Call, Case, Family, Tensors, without
from perfc.measure.design import Choice, Point, Size, Space
from perfc.measure.device import Device

_ATEN: Any = torch.ops.aten
_FORWARD, _BACKWARD = "forward", "backward"
_LOG = "log"


def _matrix(device: Device, most_columns: int = 65536) -> Space:
    return {
        "rows": Size(1, 1 << 20),
        "cols": Size(2, most_columns),
        "dtype": Choice(without(device.dtypes, "tf32", "fp8")),
    }


def _forward_left_out(point: Point) -> Point:
    return {k: v for k, v in point.items() if (k, v) != ("phase", _FORWARD)}


def _is_backward(case: Case) -> bool:
    return case.params.get("phase") == _BACKWARD


def _operand(case: Case, tensors: Tensors) -> torch.Tensor:
    sizes = case.params
    return tensors.random(case.dtype, sizes.integer("rows"), sizes.integer("cols"))


class Softmax(Family):
    """Along the last axis."""

    op = "softmax"
    turns = 4

    def space(self, device: Device) -> Space:
        """Return both phases."""
        return {**_matrix(device), "phase": Choice((_FORWARD, _BACKWARD))}

    def case(self, point: Point) -> Case | None:
        """Return the case."""
        return super().case(_forward_left_out(point))

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `softmax` or `_softmax_backward_data`; of the kind `log` its own."""
        x = _operand(case, tensors)
        if case.params.get("kind") == _LOG:
            return _log_softmax(x, backward=_is_backward(case))
        if not _is_backward(case):
            return lambda: torch.softmax(x, -1)
        y, dtype = torch.softmax(x, -1), DTYPES_OF_TENSORS[case.dtype]
        return lambda: _ATEN._softmax_backward_data(x, y, -1, dtype)


def _log_softmax(x: torch.Tensor, *, backward: bool) -> Call:
    if not backward:
        return lambda: torch.log_softmax(x, -1)
    y, dtype = torch.log_softmax(x, -1), x.dtype
    return lambda: _ATEN._log_softmax_backward_data(x, y, -1, dtype)


class LayerNorm(Family):
    """Over the last axis, with weight and bias; backward makes all three gradients."""

    op = "layer_norm"
    turns = 4

    def space(self, device: Device) -> Space:
        """Return both phases."""
        return {**_matrix(device, 16384), "phase": Choice((_FORWARD, _BACKWARD))}

    def case(self, point: Point) -> Case | None:
        """Return the case."""
        return super().case(_forward_left_out(point))

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `layer_norm` or `native_layer_norm_backward`."""
        x, columns = _operand(case, tensors), case.params.integer("cols")
        w, b = (tensors.random(case.dtype, columns) for _ in range(2))
        if not _is_backward(case):
            return lambda: F.layer_norm(x, (columns,), w, b)
        y, mean, rstd = _ATEN.native_layer_norm(x, [columns], w, b, 1e-5)
        wanted = [True, True, True]
        return lambda: _ATEN.native_layer_norm_backward(
            y, x, [columns], mean, rstd, w, b, wanted
        )


class BatchNorm(Family):
    """Batch normalisation: a column is a channel, a row a pixel of one of the images.

    `kind = training` takes the statistics of the batch.
    """

    op = "batch_norm"
    turns = 5

    def space(self, device: Device) -> Space:
        """Return training forward and backward, and inference."""
        return {
            "batch": Size(1, 256),
            "size": Size(1, 112, (1, 4, 7, 8, 14, 16, 28, 32, 56, 64, 112)),
            "cols": Size(8, 4096),
            "way": Choice(("training", _BACKWARD, "inference")),
            "dtype": Choice(without(device.dtypes, "tf32", "fp8")),
        }

    def case(self, point: Point) -> Case | None:
        """Return the case; one value has no variance."""
        sizes, way = Record(point), point["way"]
        batch, pixels = sizes.integer("batch"), sizes.integer("size") ** 2
        if batch * pixels < 2:  # noqa: PLR2004 - more than one
            return None
        params: Point = {
            "rows": batch * pixels,
            "cols": point["cols"],
            "batch": batch,
            "dtype": point["dtype"],
        }
        if way != "inference":
            params["kind"] = "training"
        if way == _BACKWARD:
            params["phase"] = _BACKWARD
        return super().case(params)

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call what `F.batch_norm` calls: cuDNN where it takes the sizes, else ATen."""
        sizes, training = case.params, case.params.get("kind") == "training"
        batch, columns = sizes.integer("batch"), sizes.integer("cols")
        side = round((sizes.integer("rows") // batch) ** 0.5)
        x = tensors.random(case.dtype, batch, columns, side, side)
        w, b, mean, variance = (tensors.random("fp32", columns) for _ in range(4))
        variance.abs_()
        if tensors.kind == "cpu":
            w, b, mean, variance = (t.to(x.dtype) for t in (w, b, mean, variance))
        cudnn = torch.backends.cudnn.enabled
        if not _is_backward(case):
            return lambda: torch.batch_norm(
                x, w, b, mean, variance, training, 0.1, 1e-5, cudnn
            )
        y, saved, inverse, reserve, which = _ATEN._batch_norm_impl_index(
            x, w, b, mean, variance, training, 0.1, 1e-5, cudnn
        )
        wanted = [True, True, True]
        return lambda: _ATEN._batch_norm_impl_index_backward(
            which,
            x,
            y,
            w,
            mean,
            variance,
            saved,
            inverse,
            training,
            1e-5,
            wanted,
            reserve,
        )


_REDUCTIONS: Mapping[str, Callable[[torch.Tensor, int], object]] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "max": torch.amax,
    "arg_max": torch.argmax,
    "l2": lambda x, axis: _ATEN.linalg_vector_norm(x, 2, [axis]),
}


class Reduction(Family):
    """`rows` results of `cols` elements each.

    With `axis = 0` the elements of a result lie a row apart: the gradient of a bias.
    """

    op = "reduction"
    turns = 8

    def space(self, device: Device) -> Space:
        """Return every kind over both axes."""
        kinds, axes = Choice(tuple(_REDUCTIONS)), Choice((0, 1))
        return {**_matrix(device, 1 << 20), "kind": kinds, "axis": axes}

    def case(self, point: Point) -> Case | None:
        """Return the case; the last axis goes without saying."""
        kept = {k: v for k, v in point.items() if (k, v) != ("axis", 1)}
        return super().case(kept)

    def takes(self, case: Case) -> bool:
        """Whether it knows the kind."""
        return case.params.get("kind") in _REDUCTIONS

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call the function of the kind."""
        x, axis = _operand(case, tensors), case.params.integer("axis", 1)
        if axis == 0:
            x = x.view(x.shape[1], x.shape[0])
        function = _REDUCTIONS[case.params.text("kind")]
        return lambda: function(x, axis)
