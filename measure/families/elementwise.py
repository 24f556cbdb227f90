"""Elementwise kernels, by kind and by number of tensors."""

from __future__ import annotations

import functools
import math
import mmap
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from perfc.costmodels import NEW, NEW_BYTES
from perfc.ir import Record
from perfc.measure.case import Call, Case, Family, Tensors, without
from perfc.measure.design import Choice, Point, Size, Space
from perfc.measure.device import Device
from perfc.measure.families import elementwise_calls
from perfc.measurements import bytes_of

_ATEN: Any = torch.ops.aten

_NONE: Mapping[str, Callable[[torch.Tensor], object]] = {"fill": torch.Tensor.zero_}
_ONE: Mapping[str, Callable[[torch.Tensor], object]] = {
    "copy": torch.clone,
    "add": lambda x: torch.add(x, 2),
    "mul": lambda x: torch.mul(x, 2),
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "gelu": F.gelu,
}
_TWO: Mapping[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "add": torch.add,
    "mul": torch.mul,
    "div": torch.div,
    "relu_backward": lambda g, y: _ATEN.threshold_backward(g, y, 0),
    "sigmoid_backward": _ATEN.sigmoid_backward,
    "gelu_backward": _ATEN.gelu_backward,
}
_THREE: Mapping[str, Callable[..., object]] = {"addcmul": torch.addcmul}
_FUNCTIONS: Sequence[Mapping[str, Callable[..., object]]] = (_NONE, _ONE, _TWO, _THREE)
"""Functions that suites choose from, by the number of tensors read, and by kind."""

_OTHER_ONE: Mapping[str, Callable[[torch.Tensor], object]] = {
    "sqrt": torch.sqrt,
    "pow": lambda x: torch.pow(x, 2.0),
}
_OTHER_TWO: Mapping[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "sub": torch.sub,
    "threshold_backward": lambda g, y: _ATEN.threshold_backward(g, y, 0),
    "tanh_backward": _ATEN.tanh_backward,
    "binary_cross_entropy": lambda x, y: _ATEN.binary_cross_entropy(x, y, None, 0),
    "binary_cross_entropy_backward": lambda x, y: _ATEN.binary_cross_entropy_backward(
        x, x, y, None, 0
    ),
    "mse": lambda x, y: _ATEN.mse_loss(x, y, 0),
    "mse_backward": lambda x, y: _ATEN.mse_loss_backward(x, x, y, 0),
}
_OTHER_THREE: Mapping[str, Callable[..., object]] = {"addcdiv": torch.addcdiv}
_OTHERS: Sequence[Mapping[str, Callable[..., object]]] = (
    {},
    _OTHER_ONE,
    _OTHER_TWO,
    _OTHER_THREE,
)
"""What models call besides, by the same; losses are a number for each element (0)."""

_SHARES = frozenset({"binary_cross_entropy", "binary_cross_entropy_backward"})
"""Kinds whose operands lie between 0 and 1."""

_ROW, _CAST, _NEW = "add_row", "cast", "copy_to_new"
"""A bias that is added to every row; a change of the element type; a copy to pages that
a CPU's system clears first."""

_KINDS: Mapping[str, str] = MappingProxyType({_ROW: "add", _NEW: "copy"})
"""What they are in rows."""


def _copy_to_new_pages(x: torch.Tensor) -> None:
    """Copy to memory that the system gives, clears page by page and takes back.

    Raises:
        MemoryError: the system has no more.

    """
    try:
        pages = mmap.mmap(-1, x.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(error.strerror) from None
    torch.frombuffer(pages, dtype=x.dtype).view_as(x).copy_(x)


class Elementwise(Family):
    """One result of rows * cols elements from none to three tensors of that size."""

    op = "elementwise"
    turns = 8

    def space(self, device: Device) -> Space:
        """Return all kinds, in 16 and 32 bits."""
        dtypes = without(device.dtypes, "tf32", "fp8")
        casts = ((_CAST, 1),) if len(dtypes) > 1 else ()
        news = ((_NEW, 1),) if device.kind == "cpu" and sys.platform == "linux" else ()
        kinds = [
            (kind, inputs) for inputs, named in enumerate(_FUNCTIONS) for kind in named
        ]
        return {
            "rows": Size(1, 65536),
            "cols": Size(1, 65536),
            "kind": Choice((*kinds, (_ROW, 1), *casts, *news)),
            "dtype": Choice(dtypes),
        }

    def case(self, point: Point) -> Case | None:
        """Return the case; what moves other bytes than its full tensors says so."""
        dtype, sizes = str(point["dtype"]), Record(point)
        rows, cols = sizes.integer("rows"), sizes.integer("cols")
        kind, inputs = point["kind"] if isinstance(point["kind"], tuple) else ("", 0)
        params: Point = {
            "kind": _KINDS.get(str(kind), kind),
            "rows": rows,
            "cols": cols,
            "tensor_inputs": inputs,
        }
        size = int(bytes_of(dtype))
        if kind == _ROW:
            params["bytes"] = size * cols * (2 * rows + 1)
        if kind == _NEW:
            if size * rows * cols < NEW_BYTES // 4:
                return None
            params["rows"] = max(rows, math.ceil(NEW_BYTES / (size * cols)))
            params[NEW] = True
        if kind == _CAST:
            if dtype == "fp32":
                return None
            params["bytes"] = (4 + size) * rows * cols
        return Case(self.op, dtype, Record(params))

    def takes(self, case: Case) -> bool:
        """Whether it knows the kind for so many tensors."""
        kind, inputs = case.params.text("kind"), case.params.integer("tensor_inputs")
        if elementwise_calls.is_special(case) or "bytes" in case.params:
            return elementwise_calls.knows(case)
        return kind in _OTHERS[inputs] or kind in _FUNCTIONS[inputs]

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call the function of the kind."""
        if elementwise_calls.is_special(case):
            return elementwise_calls.special_call(case, tensors)
        if (call := elementwise_calls.with_number(case, tensors)) is not None:
            return call
        rows, cols = case.params.integer("rows"), case.params.integer("cols")
        kind, inputs = case.params.text("kind"), case.params.integer("tensor_inputs")
        operands = [tensors.random(case.dtype, rows, cols) for _ in range(inputs)]
        if NEW in case.params:
            return functools.partial(_copy_to_new_pages, *operands)
        if "bytes" in case.params:
            operands.append(tensors.random(case.dtype, cols))
            return lambda: torch.add(*operands)
        if not inputs:
            operands.append(tensors.random(case.dtype, rows, cols))
        if kind in _SHARES:
            operands = [x.sigmoid_() for x in operands]
        function = _OTHERS[inputs].get(kind) or _FUNCTIONS[inputs][kind]
        return lambda: function(*operands)
