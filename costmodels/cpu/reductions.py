"""What reductions on a CPU do: along rows, and down the columns.

Down the columns PyTorch goes by 32 columns at once, if the kind has a loop over vectors
(`vectorized_outer_reduction` in `aten/src/ATen/native/cpu/Reduce.h`), and splits them
between cores in pieces of as many (`round_columns` in `TensorIteratorReduce.cpp`). What
is left of them is taken element by element, but in sums. Kinds that hold more than a
number for each result, an index or a variance, go from result to result, each with an
iterator of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import Floats, KernelTable
from perfc.costmodels.machine import is_down

BLOCK = 32
"""Columns that are taken at once: 128 bytes of fp32."""

FAR = 64
"""Results from which on the elements of one lie too far apart to be fetched ahead."""

SINGLY = frozenset(
    {"arg_max", "arg_min", "l1", "l2", "var", "var_mean", "std", "std_mean"}
)
"""Kinds that go from result to result (`binary_kernel_reduce`)."""

INDICES = frozenset({"arg_max", "arg_min"})
"""Kinds that hold an index, for which each row has an iterator of its own, too."""

DIVIDED = frozenset({"mean"})
"""Sums that another op divides: `mean_out` in `ReduceOps.cpp`."""

SUMS = frozenset({"sum", "mean"})
"""Kinds whose loop takes fewer columns by vectors, too (`SumKernel.cpp`)."""


def reduction_amounts(kernels: KernelTable, cores: Floats) -> dict[str, Floats]:
    """Return the elements, results and lines of reductions down the columns.

    Seconds at coefficient 1, shape (kernels,) each; 0 of other kernels.

    Args:
        kernels: Of any op.
        cores: That work on each, shape (kernels,).

    """
    down, alone = goes_down(kernels), singly(kernels)
    results, lines = kernels.param("rows"), kernels.param("cols")
    indexed = _are(kernels, INDICES) & ~down
    least = np.where(alone, cores, BLOCK * cores)
    each_s = np.where(down, 1e-9, 0.0)
    own_s = each_s / np.where(results >= least, cores, 1)
    single_s, block_s = np.where(alone, own_s, 0.0), np.where(alone, 0.0, own_s)
    return {
        "divided_us": np.where(_are(kernels, DIVIDED), 1e-6, 0.0),
        "indexed_row_ns": np.where(indexed, results * 1e-9, 0.0) / cores,
        "singly_row_ns": single_s * results,
        "singly_item_ns": single_s * results * lines,
        "singly_split_ns": np.where(alone & (cores > 1), each_s, 0.0) * results,
        "singly_jump_ns": np.where(results >= FAR, single_s, 0.0) * results * lines,
        "down_item_ns": block_s * results * lines,
        "down_line_ns": np.where(alone, 0.0, each_s) * lines,
        "down_tail_ns": np.where(sums(kernels), 0.0, block_s)
        * (results % BLOCK)
        * lines,
    }


def singly(kernels: KernelTable) -> NDArray[np.bool_]:
    """Whether it goes from result to result."""
    return _are(kernels, SINGLY)


def sums(kernels: KernelTable) -> NDArray[np.bool_]:
    """Whether it adds numbers up."""
    return _are(kernels, SUMS)


def _are(kernels: KernelTable, kinds: frozenset[str]) -> NDArray[np.bool_]:
    found = [
        k.op == "reduction" and k.params.get("kind") in kinds for k in kernels.kernels
    ]
    return np.array(found, dtype=np.bool_)


def goes_down(kernels: KernelTable) -> NDArray[np.bool_]:
    """Whether the elements of a result lie a row apart."""
    return np.array([is_down(kernel) for kernel in kernels.kernels], dtype=np.bool_)
