"""What streaming kernels do besides moving bytes, where elements do not lie in line.

An elementwise kernel whose operands are broadcast, lie unlike each other, or are of
another type than it computes in works out where each element is and moves one at a
time; so does one that joins tensors with holes. Blocks that sum over columns share a
result, and have to meet.
"""

from __future__ import annotations

from perfc.costmodels.kernels import Number
from perfc.costmodels.machine import Target

SCATTERED = "scattered"
"""Parameter of such a kernel."""

SCATTERED_START_S = 1.1e-6
"""Longer than other elementwise kernels take to begin: small ones of PyTorch take 2.9
where those take 1.9 us (V100, HolisticTraceAnalysis, MIT), 2.6 and 1.5 (H100,
TraceLens, MIT)."""

SCATTERED_INSTRUCTIONS = 45
"""For each element: divisions by its axes, for each operand. Read off copies of biases
in a trace of DLRM on V100 (46; owensgroup/ml_perf_model, BSD-3). Copies of heads and of
16 bits to fp32 say 43 to 53 (A100, H100 and B200; traces of Megatron, TraceLens and
torchao, MIT and BSD-3)."""

JOINED_INSTRUCTIONS = 80
"""The same where tensors with holes are joined: their places and that of the result.
Read off the halves of rotary embeddings on H100 (77; TraceLens, MIT); on V100 memory
takes as long (85 at most; torchrec, BSD-3)."""

COLUMNS_START_S = 2.9e-6
"""Of a sum over columns, longer than of a row: blocks that share a result write their
parts, count one another, and the last reads them again. One sum of 64 columns of 2048
in a trace of DLRM on V100."""

INTEGER_LANES = 64
"""Integers that an SM works on at a time, since Volta (CUDA C++ Programming Guide)."""


def late_start_s(scattered: Number, over_columns: Number) -> Number:
    """Return how much later than others kernels begin to move bytes, seconds.

    Args:
        scattered: 1 for an elementwise kernel whose elements lie unlike each other.
        over_columns: 1 for a sum over columns.

    """
    return SCATTERED_START_S * scattered + COLUMNS_START_S * over_columns


def places_seconds(
    rows: Number, cols: Number, joined: Number, target: Target
) -> Number:
    """Return the time to work out where the elements of a matrix are, seconds.

    Args:
        rows: Rows of the result.
        cols: Its columns.
        joined: 1 for a kernel that joins tensors, else 0.
        target: The GPU.

    """
    more = JOINED_INSTRUCTIONS - SCATTERED_INSTRUCTIONS
    instructions = (SCATTERED_INSTRUCTIONS + more * joined) * rows * cols
    device = target.device
    return instructions / (INTEGER_LANES * device.sm_count * device.sm_clock_hz)
