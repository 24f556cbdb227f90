"""What streaming kernels do besides moving bytes, where elements do not lie in line.

An elementwise kernel whose operands are broadcast, or lie unlike each other, works out
where each element is and moves one at a time. Blocks that sum over columns share a
result, and have to meet.
"""

from __future__ import annotations

import numpy as np

from perfc.costmodels.protocol import Flags, Floats, KernelTable
from perfc.costmodels.target import Target

SCATTERED = "scattered"
"""Parameter of such an elementwise kernel."""

SCATTERED_START_S = 1.1e-6
"""Longer than other elementwise kernels take to begin: small ones of PyTorch take 2.9
where those take 1.9 us (V100, HolisticTraceAnalysis, MIT), 2.6 and 1.5 (H100,
TraceLens, MIT)."""

SCATTERED_INSTRUCTIONS = 45
"""For each element: divisions by its axes, for each operand. Read off copies of biases
in a trace of DLRM on V100 (46; owensgroup/ml_perf_model, BSD-3)."""

COLUMNS_START_S = 2.9e-6
"""Of a sum over columns, longer than of a row: blocks that share a result write their
parts, count one another, and the last reads them again. One sum of 64 columns of 2048
in a trace of DLRM on V100."""

INTEGER_LANES = 64
"""Integers that an SM works on at a time, since Volta (CUDA C++ Programming Guide)."""


def late_start_s(kernels: KernelTable) -> Floats:
    """Return how much later than others each kernel begins to move bytes, seconds."""
    scattered = np.where(_scattered(kernels), SCATTERED_START_S, 0.0)
    over_columns = (kernels.op == "reduction") & (kernels.param("axis", -1.0) == 0)
    return scattered + np.where(over_columns, COLUMNS_START_S, 0.0)


def places_seconds(kernels: KernelTable, target: Target) -> Floats:
    """Return the time to work out where the elements of each kernel are, seconds."""
    instructions = (
        SCATTERED_INSTRUCTIONS * kernels.param("rows") * kernels.param("cols")
    )
    device = target.device
    rate = INTEGER_LANES * device.sm_count * device.sm_clock_hz
    return np.where(_scattered(kernels), instructions / rate, 0.0)


def _scattered(kernels: KernelTable) -> Flags:
    scattered: Flags = (kernels.op == "elementwise") & kernels.given(SCATTERED)
    return scattered
