"""Which kernels on a CPU all cores work on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.cpu_products import GRAIN, by_vectors
from perfc.costmodels.protocol import Floats, KernelTable
from perfc.ir import Kernel

PARALLEL_FLOPS = 2e4
"""The same of convolutions and attention, in flops."""

MKL_PARALLEL_FLOPS = 2e3
"""The same of plain products: what MKL 2024.2 does on two cores."""

ENOUGH_FLOPS: Mapping[str, float] = MappingProxyType(
    {"gemm": MKL_PARALLEL_FLOPS, "optimizer_step": math.inf}
)
"""The same by op: tensors of a step are many kernels."""

SOFTMAX_GRAIN = GRAIN // 16
"""Elements from which on softmax takes all cores (`vec_softmax_lastdim_kernel`)."""


def works_on_all_cores(kernels: KernelTable, items: Floats) -> NDArray[np.bool_]:
    """Whether a kernel is shared between cores.

    Args:
        kernels: Of any op.
        items: What each goes over, shape (kernels,).

    """
    enough = np.array([ENOUGH_FLOPS.get(k.op, PARALLEL_FLOPS) for k in kernels.kernels])
    by_size = (items >= GRAIN) | (kernels.flops >= enough)
    by_rule = np.array(
        [
            _RULES[kernel.op](kernel) if kernel.op in _RULES else bool(large)
            for kernel, large in zip(kernels.kernels, by_size, strict=True)
        ],
        dtype=np.bool_,
    )
    turned = np.array([k.params.get("perm") == (1, 0) for k in kernels.kernels])
    found: NDArray[np.bool_] = by_rule & ~turned & ~by_vectors(kernels)
    return found


def _rows_and_columns(kernel: Kernel) -> tuple[int, int]:
    return kernel.params.integer("rows", 0), kernel.params.integer("cols", 0)


def _softmax(kernel: Kernel) -> bool:
    rows, columns = _rows_and_columns(kernel)
    return rows > max(1, SOFTMAX_GRAIN // max(columns, 1))


def _layer_norm(kernel: Kernel) -> bool:
    """Row by row (`layer_norm_kernel.cpp`)."""
    return _rows_and_columns(kernel)[0] > 1


def _batch_norm(kernel: Kernel) -> bool:
    """Channel by channel (`batch_norm_kernel.cpp`)."""
    return _rows_and_columns(kernel)[1] > 1


def _concat(kernel: Kernel) -> bool:
    """Tensor by tensor, each of which all cores share if it is large."""
    return kernel.work.bytes_written / 4 >= GRAIN * _joined_tensors(kernel)


def _joined_tensors(kernel: Kernel) -> int:
    shapes = kernel.params.get("shapes")
    return max(len(shapes), 1) if isinstance(shapes, tuple) else 1


_RULES: Mapping[str, Callable[[Kernel], bool]] = {
    "concat": _concat,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
}
