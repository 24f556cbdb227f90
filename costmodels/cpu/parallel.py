"""How many cores work on a kernel of a CPU.

`at::parallel_for` gives each thread a grain at least: of elements, rows or channels, as
the op has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from perfc.costmodels.constants import constants
from perfc.costmodels.cpu.gemm import GRAIN, by_vectors
from perfc.costmodels.cpu.reductions import singly
from perfc.costmodels.kernels import Floats, KernelTable
from perfc.ir import Kernel

PARALLEL_FLOPS = constants("cpu").table("parallel_flops")
"""Flops from which on libraries take all cores, by op. Others go by elements."""

SOFTMAX_GRAIN = GRAIN // 16
"""Elements of a thread of softmax (`vec_softmax_lastdim_kernel`)."""


def cores_at_work(kernels: KernelTable, items: Floats, cores: int) -> Floats:
    """Return how many cores share each kernel, shape (kernels,).

    Args:
        kernels: Of any op.
        items: What each goes over, shape (kernels,).
        cores: That there are.

    """
    enough = np.array([PARALLEL_FLOPS.get(k.op, np.inf) for k in kernels.kernels])
    shares = np.where(kernels.flops >= enough, np.inf, np.ceil(items / GRAIN))
    shares = np.array(
        [
            _RULES[kernel.op](kernel) if kernel.op in _RULES else share
            for kernel, share in zip(kernels.kernels, shares.tolist(), strict=True)
        ]
    )
    results = np.where(singly(kernels), kernels.param("rows"), np.inf)
    shares = np.minimum(shares, results)
    turned = np.array([k.params.get("perm") == (1, 0) for k in kernels.kernels])
    alone = turned | by_vectors(kernels)
    return np.where(alone, 1.0, np.clip(shares, 1.0, cores))


def _rows_and_columns(kernel: Kernel) -> tuple[int, int]:
    return kernel.params.integer("rows", 0), kernel.params.integer("cols", 0)


def _softmax(kernel: Kernel) -> float:
    rows, columns = _rows_and_columns(kernel)
    return math.ceil(rows / max(1, SOFTMAX_GRAIN // max(columns, 1)))


def _layer_norm(kernel: Kernel) -> float:
    """Row by row (`layer_norm_kernel.cpp`)."""
    return _rows_and_columns(kernel)[0]


def _batch_norm(kernel: Kernel) -> float:
    """Channel by channel (`batch_norm_kernel.cpp`)."""
    return _rows_and_columns(kernel)[1]


def _concat(kernel: Kernel) -> float:
    """Tensor by tensor."""
    shapes = kernel.params.get("shapes")
    tensors = max(len(shapes), 1) if isinstance(shapes, tuple) else 1
    return math.ceil(kernel.work.bytes_written / 4 / tensors / GRAIN)


_RULES: Mapping[str, Callable[[Kernel], float]] = {
    "concat": _concat,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
}
