"""What GEMMs and convolutions of 8-bit integers gain on a CPU over those of fp32.

Neither bytes nor operations tell: sums in 32 bits take instructions of their own, and
sums in 16 bits are added to wider ones before they overflow. FBGEMM's kernels gain as
its own benchmark says with 64 rows, geometric means of two shapes; the fewer rows, the
more of the time is reading the right operand, which has a quarter of the bytes.
"""

from __future__ import annotations

import numpy as np

from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import Floats, KernelTable
from perfc.costmodels.machine import sizes_of_gemm

_CONSTANTS = constants("cpu")

GAINS = _CONSTANTS.table("int8_gains")
"""Measured, with `INT8_ROWS` rows, by the bits that sums are kept in."""

INT8_ROWS = _CONSTANTS.number("int8_rows")
"""Rows of the left operand that were measured."""

READ_ROWS = _CONSTANTS.number("int8_read_rows")
"""Rows for which reading the right operand takes half of the time."""

_BYTES_RATIO = 4.0
"""Bytes of fp32 over those of int8."""

_OPS = frozenset({"gemm", "conv2d", "conv3d"})
_TYPES = frozenset({"int8", "uint8"})


def int8_gains(kernels: KernelTable) -> Floats:
    """Return how many times faster each kernel is than in fp32, shape (kernels,).

    1 for kernels of other types and ops.
    """
    found = [
        number
        for number, kernel in enumerate(kernels.kernels)
        if kernel.op in _OPS and kernel.dtype in _TYPES
    ]
    gains = np.ones(len(kernels))
    if not found:
        return gains
    at = np.array(found, dtype=np.intp)
    chosen = [kernels.kernels[number] for number in found]
    rows = np.array([sizes_of_gemm(kernel)[1] for kernel in chosen], dtype=np.float64)
    bits = [kernel.params.get("sum_bits", 32) for kernel in chosen]
    measured = np.array([GAINS[f"bits_{number}"] for number in bits])
    read = _read_share(np.maximum(rows, 1.0)) / _BYTES_RATIO
    known = _read_share(np.array(INT8_ROWS)) / _BYTES_RATIO
    computed = (1 / measured - known) / (1 - _read_share(np.array(INT8_ROWS)))
    gains[at] = 1 / ((1 - _read_share(np.maximum(rows, 1.0))) * computed + read)
    return gains


def _read_share(rows: Floats) -> Floats:
    """Return the share of an fp32 GEMM's time that reading the right operand takes."""
    share: Floats = READ_ROWS / (rows + READ_ROWS)
    return share
