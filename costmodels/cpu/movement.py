"""What kernels on a CPU that move data do: rows looked up, tensors joined, axes turned.

Joined tensors of fewer than `GRAIN` elements are copied piece by piece in one loop; of
more, each is a copy of its own, which all cores share if it is large enough itself
(`cat_out_cpu` in `aten/src/ATen/native/TensorShape.cpp`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import attrs
import numpy as np

from perfc.costmodels.cpu.gemm import GRAIN
from perfc.costmodels.kernels import Floats, KernelTable
from perfc.costmodels.locality import distinct_rows
from perfc.ir import Kernel, Record

LINE_BYTES = 64
"""Bytes of a cache line: a row that is looked up comes in whole lines."""


def joined_amounts(kernels: KernelTable) -> dict[str, Floats]:
    """Return tensors that are joined, and those that are a copy of their own.

    Seconds at coefficient 1, shape (kernels,) each; 0 of other kernels.
    """
    joined = [_Joined.of(kernel) for kernel in kernels.kernels]
    tensors = np.array([each.tensors for each in joined], dtype=np.float64)
    copied = np.array([each.elements >= GRAIN for each in joined])
    return {
        "tensor_us": tensors * 1e-6,
        "copied_us": np.where(copied, tensors, 0.0) * 1e-6,
    }


def pieces_of(kernels: KernelTable) -> Floats:
    """Return the pieces that lie in one and are copied; 0 of kernels that move none."""
    return _by_op(kernels, _PIECES)


def rows_fetched(kernels: KernelTable) -> Floats:
    """Return the different rows that are gathered: each is waited for once."""
    return _by_op(kernels, {"gather": _fetched})


def rows_turned(kernels: KernelTable) -> Floats:
    """Return the rows that stay whole in a transposition; 0 if the last axis moves."""
    return _by_op(kernels, {"transpose": _turned})


def gathered_bytes(kernels: KernelTable) -> Floats:
    """Return the bytes of the lines that gathered pieces lie in, and of the result."""
    return _by_op(kernels, {"gather": _gathered_bytes})


def _by_op(
    kernels: KernelTable, rules: Mapping[str, Callable[[Kernel], float]]
) -> Floats:
    """Return a number of each kernel by the rule of its op, 0 where there is none."""
    return np.array([rules[k.op](k) if k.op in rules else 0.0 for k in kernels.kernels])


@attrs.frozen
class _Joined:
    """Tensors that one kernel joins.

    Attributes:
        tensors: How many; 0 of other kernels.
        elements: Of all.
        pieces: That lie in one: a piece of each tensor for every row.

    """

    tensors: int
    elements: float
    pieces: float

    @classmethod
    def of(cls, kernel: Kernel) -> _Joined:
        """Return the tensors that *kernel* joins, as far as it says."""
        shapes = kernel.params.get("shapes") if kernel.op == "concat" else None
        if not isinstance(shapes, tuple) or not shapes:
            return cls(0, 0.0, 0.0)
        axis = kernel.params.integer("axis", 0)
        sizes = [Record({"shape": shape}).integers("shape") for shape in shapes]
        pieces = float(len(shapes) * math.prod(sizes[0][:axis]))
        return cls(len(shapes), float(sum(map(math.prod, sizes))), pieces)


def _joined_pieces(kernel: Kernel) -> float:
    return _Joined.of(kernel).pieces


def _gathered(kernel: Kernel) -> float:
    """Return the pieces that lie in one: rows, or elements that are named one by one.

    An index of several axes, `x[:, i, j]`, has more numbers than there are pieces.
    """
    params = kernel.params
    if "indices" not in params:
        return 0.0
    outer = math.prod(params.integers("shape")[: params.integer("axis", 0)])
    named = outer * math.prod(params.integers("indices"))
    return float(min(named, kernel.work.bytes_written // 4))


def _fetched(kernel: Kernel) -> float:
    """Return the different rows that are looked up: each is waited for once."""
    pieces = _gathered(kernel)
    if not pieces:
        return 0.0
    shape, axis = kernel.params.integers("shape"), kernel.params.integer("axis", 0)
    rows = np.array([math.prod(shape[: axis + 1])], dtype=np.float64)
    return float(distinct_rows(rows, np.array([pieces]))[0])


def _gathered_bytes(kernel: Kernel) -> float:
    """Return the bytes of the lines that the pieces lie in, and of the result."""
    pieces = _gathered(kernel)
    if not pieces:
        return 0.0
    piece_bytes = kernel.work.bytes_written / pieces
    lines = math.ceil(piece_bytes / LINE_BYTES) * LINE_BYTES
    return pieces * (lines + piece_bytes)


def _turned(kernel: Kernel) -> float:
    """Return the rows that stay whole in a transposition; 0 if the last axis moves."""
    params = kernel.params
    if "perm" not in params or "shape" not in params:
        return 0.0
    shape, perm = params.integers("shape"), params.integers("perm")
    whole = perm[-1] == len(perm) - 1
    return float(math.prod(shape[:-1]) if whole else 0)


_PIECES: Mapping[str, Callable[[Kernel], float]] = {
    "gather": _gathered,
    "concat": _joined_pieces,
    "transpose": _turned,
}
