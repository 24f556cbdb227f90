"""What streaming kernels do besides moving bytes, where elements do not lie in line.

An elementwise kernel whose operands are broadcast, lie unlike each other, or are of
another type than it computes in works out where each element is and moves one at a
time; so does one that joins tensors with holes. Blocks that sum over columns share a
result, and have to meet.
"""

from __future__ import annotations

from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import Number
from perfc.costmodels.machine import Target

SCATTERED = "scattered"
"""Parameter of such a kernel."""

_CONSTANTS = constants("streaming")

SCATTERED_START_S = _CONSTANTS.number("scattered_start_s")
"""Longer than other elementwise kernels take to begin."""

SCATTERED_INSTRUCTIONS = _CONSTANTS.integer("scattered_instructions")
"""For each element: divisions by its axes, for each operand."""

JOINED_INSTRUCTIONS = _CONSTANTS.integer("joined_instructions")
"""Instructions for each element where tensors with holes are joined.

For their places, and for that of the result.
"""

COLUMNS_START_S = _CONSTANTS.number("columns_start_s")
"""Seconds that a sum over columns takes longer than of a row.

Blocks that share a result write their parts, count one another, and the last reads
them again.
"""

INTEGER_LANES = _CONSTANTS.integer("integer_lanes")
"""Integers that an SM works on at a time."""


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
