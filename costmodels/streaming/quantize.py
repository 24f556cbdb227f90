"""What it takes to quantise a matrix of 16 bits to 8: the kernel `quantize`.

With a scale for each row a block goes over one row twice, for its largest number and
to cast it: how many rows an SM takes one after the other, not bytes, sets its time.
With a scale for each block of a row it reads and writes as elementwise kernels do.
"""

from __future__ import annotations

from perfc.costmodels.kernels import Maths, Number
from perfc.costmodels.machine import Target
from perfc.costmodels.streaming.stream_time import Kind, Stream, streaming_seconds
from perfc.costmodels.streaming.streaming import BLOCKS, KINDS
from perfc.costmodels.streaming.traffic import MEMORY_RATES

SCALED_BLOCK = 128
"""Elements of a row that share a scale (DeepSeek-V3, arXiv 2412.19437, 3.3.2)."""

_READ, _WRITTEN, _SCALE = 2.0, 1.0, 4.0
"""Bytes of an element, and of a scale."""


def quantize_seconds(
    rows: Number, cols: Number, scales: str, target: Target, maths: Maths[Number]
) -> Number:
    """Return the seconds to quantise matrices, with *scales* of `rows` or `blocks`.

    As the model of streaming kernels prices the kernel `quantize` of these sizes.
    """
    each = scales == BLOCKS.strip()
    count = rows * maths.ceil(cols / SCALED_BLOCK) if each else rows
    read = _READ * (rows * cols)
    moved = read + _WRITTEN * (rows * cols) + _SCALE * count
    none = 0.0 * moved
    of_kind = KINDS["quantize" + BLOCKS] if each else KINDS["quantize"]
    kind = Kind(*(none + number for number in of_kind.numbers))
    stream = Stream(moved, read, rows, cols, none, none, none, none, none, none)
    return streaming_seconds(stream, kind, target, MEMORY_RATES, maths)
