"""Rows taken from a matrix, by the three kernels of PyTorch's `index_select`.

    up to 16 rows      a loop over them: one row waits for the one before
    rows of 16 bytes   a block for each row, which loads 16 bytes at a time
    other rows         a thread for each element, which divides for its place

(`Indexing.cu` and `IndexKernelUtils.cu` of ATen.) Rows that several indices take are
read from memory once:

    t = floor + start + |(bytes of memory, bytes of L2, rows one by one)|

Parameters: `fitted/constants/streaming.toml`, of H100; on other GPUs rows are priced as
streams.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Generic, NamedTuple

import numpy as np

from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import ARRAYS, FLOATS, PERFC_ROWS, Floats, Maths, Number
from perfc.costmodels.locality import touched_rows
from perfc.costmodels.machine import Target
from perfc.ir import Kernel

SECTOR_BYTES = 32
VECTOR_BYTES = 16
"""Bytes that a thread loads at once."""

FEW_ROWS = 16
"""Rows up to which they are taken one by one."""

INDEX_BYTES = 8

_KINDS = frozenset({"gather", "index_select"})


class _Rows(NamedTuple, Generic[Number]):
    """Rows that are taken: so many, of so many bytes each, out of so many.

    They are read with their scales, and written as `written_bytes`.
    """

    rows: Number
    row_bytes: Number
    written_bytes: Number
    held: Number


_CONSTANTS = constants("streaming")

START_S = _CONSTANTS.number("rows_start_s")
"""Added to the target's kernel floor."""

LATE_START_S = _CONSTANTS.number("rows_late_start_s")
"""Added to the target's kernel floor for kernels that divide."""

ONE_ROW_S = _CONSTANTS.number("rows_one_s")
"""A row after the other: an index is loaded, then the row."""

BLOCK_S = _CONSTANTS.number("rows_block_s")
"""A block on an SM, for a row."""

SHARE = _CONSTANTS.number("rows_share")
"""Share of the memory's rate that rows reach."""

L2_RATE = _CONSTANTS.number("rows_l2_rate")
"""Over the sheet's of L2: rows that many indices take are in L1, too."""


def takes_rows(kernel: Kernel, target: Target) -> bool:
    """Whether a kernel takes whole rows of the first axis, on a measured GPU."""
    params = kernel.params
    if kernel.op != "gather" or target.device.compute_capability not in PERFC_ROWS:
        return False
    if params.get("kind") not in _KINDS or params.get("axis") != 0:
        return False
    return all(
        min(_sizes(kernel, name), default=0) > 0 for name in ("shape", "indices")
    )


def all_rows_seconds(kernels: Sequence[Kernel], target: Target) -> Floats:
    """Return the seconds that kernels take for rows, shape (kernels,)."""
    columns = np.array([_rows_of(kernel) for kernel in kernels]).T
    return _seconds(_Rows(*columns), target, ARRAYS)


def rows_seconds(kernel: Kernel, target: Target) -> float:
    """Return the seconds that one kernel takes for rows."""
    return _seconds(_rows_of(kernel), target, FLOATS)


def _seconds(rows: _Rows[Number], target: Target, maths: Maths[Number]) -> Number:
    device, (count, row_bytes, written_bytes, held) = target.device, rows
    few, in_blocks = count <= FEW_ROWS, row_bytes % VECTOR_BYTES == 0
    alone = maths.flag(few | in_blocks)
    sectors = maths.ceil(row_bytes / SECTOR_BYTES) * SECTOR_BYTES
    written = count * (written_bytes + INDEX_BYTES)
    read = touched_rows(held, count, maths) * sectors
    memory_s = (read + written) / (device.memory.bytes_per_s * SHARE)
    l2_s = (count * sectors + written) / (device.l2.bytes_per_s * L2_RATE)
    row_s = maths.where(few, ONE_ROW_S, BLOCK_S / device.sm_count)
    rows_s = count * row_s * alone
    start_s = device.kernel_floor_s + START_S + LATE_START_S * (1.0 - alone)
    return start_s + together((memory_s, l2_s, rows_s), maths)


def together(parts: tuple[Number, Number, Number], maths: Maths[Number]) -> Number:
    """Return the time of overlapping parts: the longest, and a little of the others."""
    one, two, three = (part * part for part in parts)
    return maths.sqrt(maths.sqrt(one * one + two * two + three * three))


def _sizes(kernel: Kernel, name: str) -> tuple[int, ...]:
    params = kernel.params
    return params.integers(name) if isinstance(params.get(name), tuple) else ()


def _rows_of(kernel: Kernel) -> _Rows[float]:
    count = float(math.prod(_sizes(kernel, "indices")))
    held = float(_sizes(kernel, "shape")[0])
    written = kernel.work.bytes_written / count
    stored = float(kernel.params.integer("row_bytes", 0))
    return _Rows(count, stored or written, written, held)
