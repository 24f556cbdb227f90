"""Elementwise kernels, by kind and by number of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from perfc.ir import Record
from perfc.measure.case import DTYPES, Call, Case, Family, Tensors, without
from perfc.measure.design import Choice, Point, Size, Space
from perfc.measure.device import Device
from perfc.measurements import bytes_of

_ATEN: Any = torch.ops.aten

_KINDS: Mapping[str, tuple[int, Callable[..., object]]] = MappingProxyType(
    {
        "fill": (0, torch.zeros_like),
        "copy": (1, torch.clone),
        "add_scalar": (1, lambda x: torch.add(x, 2.0)),
        "mul_scalar": (1, lambda x: torch.mul(x, 2.0)),
        "relu": (1, torch.relu),
        "sigmoid": (1, torch.sigmoid),
        "tanh": (1, torch.tanh),
        "exp": (1, torch.exp),
        "gelu": (1, F.gelu),
        "add": (2, torch.add),
        "mul": (2, torch.mul),
        "div": (2, torch.div),
        "relu_backward": (2, lambda g, y: _ATEN.threshold_backward(g, y, 0)),
        "sigmoid_backward": (2, _ATEN.sigmoid_backward),
        "gelu_backward": (2, _ATEN.gelu_backward),
        "addcmul": (3, torch.addcmul),
    }
)
"""Number of tensors that are read, and the function."""

_ROW, _CAST = "add_row", "cast"
"""A bias that is added to every row; a change of the element type."""


class Elementwise(Family):
    """One result of rows * cols elements from none to three tensors of that size."""

    op = "elementwise"
    turns = 8

    def space(self, device: Device) -> Space:
        """Return all kinds, in 16 and 32 bits."""
        dtypes = without(device.dtypes, "tf32", "fp8")
        casts = (_CAST,) if len(dtypes) > 1 else ()
        return {
            "rows": Size(1, 65536),
            "cols": Size(1, 65536),
            "kind": Choice((*_KINDS, _ROW, *casts)),
            "dtype": Choice(dtypes),
        }

    def case(self, point: Point) -> Case | None:
        """Return the case; what moves other bytes than its full tensors says so."""
        sizes, dtype = Record(point), str(point["dtype"])
        kind = sizes.text("kind")
        rows, cols = sizes.integer("rows"), sizes.integer("cols")
        inputs, _ = _KINDS.get(kind, (1, None))
        params: Point = {
            "kind": kind.removesuffix("_scalar").removesuffix("_row"),
            "rows": rows,
            "cols": cols,
            "tensor_inputs": inputs,
        }
        size = int(bytes_of(dtype))
        if kind == _ROW:
            params["bytes"] = size * cols * (2 * rows + 1)
        if kind == _CAST:
            if dtype == "fp32":
                return None
            params["bytes"] = (4 + size) * rows * cols
        return Case(self.op, dtype, Record(params))

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call the function of the kind."""
        rows, cols = case.params.integer("rows"), case.params.integer("cols")
        kind, inputs = case.params.text("kind"), case.params.integer("tensor_inputs")
        if kind == _CAST:
            x = tensors.random("fp32", rows, cols)
            return lambda: x.to(DTYPES[case.dtype])
        operands = [tensors.random(case.dtype, rows, cols) for _ in range(inputs)]
        if "bytes" in case.params:
            operands.append(tensors.random(case.dtype, cols))
            return lambda: torch.add(*operands)
        if kind == "fill":
            result = tensors.random(case.dtype, rows, cols)
            return result.zero_
        named = kind if _KINDS.get(kind, (0,))[0] == inputs else f"{kind}_scalar"
        function = _KINDS[named][1]
        return lambda: function(*operands)
