"""What a streaming kernel takes, of one or of many at once (`maths`).

The formula of `streaming`: bytes, what is read again, and what SMs do besides.
"""

from __future__ import annotations

from typing import Generic, NamedTuple

from perfc.costmodels.kernels import Maths, Number
from perfc.costmodels.machine import Target
from perfc.costmodels.sheets import as_known
from perfc.costmodels.streaming.noncontiguous import late_start_s, places_seconds
from perfc.costmodels.streaming.traffic import MemoryRates, streamed_seconds

LOAD_COLUMNS = 512
"""Elements that the 128 threads of PyTorch's layer norm load at once, four each."""

LOADS = 4
"""What its loop is unrolled to."""

_RISE_SQUARINGS = 2
"""How sharply the clock rises with a kernel's duration: with its fourth power."""


class Stream(NamedTuple, Generic[Number]):
    """What a kernel moves, and how; what is true or false is 1 or 0."""

    bytes: Number
    bytes_read: Number
    rows: Number
    cols: Number
    held: Number
    """Whether it reads a row once and keeps it in registers."""
    scattered: Number
    """Whether its elements lie unlike each other."""
    joined: Number
    """Whether it joins tensors with holes."""
    over_columns: Number
    """Whether it sums over columns."""
    repeated: Number
    """Whether it is timed again and again on the same operands."""
    idle: Number
    """Whether it begins on a GPU without other work."""


class Kind(NamedTuple, Generic[Number]):
    """What belongs to the kind of a kernel: as in `StreamKind`."""

    start_s: Number
    share: Number
    rereads: Number
    rows_in_flight: Number
    row_cycles: Number
    element_cycles: Number
    full_loops: Number
    pascal_cycles: Number
    level_s: Number
    idle_s: Number
    idle_slowdown: Number


def streaming_seconds(
    stream: Stream[Number],
    kind: Kind[Number],
    target: Target,
    memory: MemoryRates,
    maths: Maths[Number],
) -> Number:
    """Return the duration of each kernel, in seconds."""
    moved = stream.bytes
    if maths.any(kind.rereads):
        # The bytes of rows that are read again, where L2 has lost them.
        device = target.device
        rows = maths.most(stream.rows, 1.0)
        row_bytes = stream.bytes_read / rows
        # Of more SMs than the GPU has, none need take rows that L2 cannot hold.
        most_rows = kind.rows_in_flight * as_known(target).device.sm_count
        in_flight = row_bytes * maths.least(rows, most_rows)
        pressure = in_flight / device.l2.capacity_bytes
        pressure = pressure * pressure  # how sharply reads move from L2 to memory
        missed = pressure / (1 + pressure)
        reread_bytes = (kind.rereads * stream.bytes_read * missed) * (1.0 - stream.held)
        moved = moved + reread_bytes
    moved_s = streamed_seconds(moved, stream.repeated, target, memory, maths)
    moved_s = moved_s / kind.share
    started_s = target.device.kernel_floor_s + kind.start_s
    if maths.any(kind.level_s):
        levels = maths.log2(1.0 + stream.cols) * (1.0 - stream.over_columns)
        started_s = started_s + kind.level_s * levels
    placed = stream.scattered + stream.joined + stream.over_columns
    if maths.any(placed):
        # Of a sum only its results have places of their own.
        cols = maths.where(stream.over_columns > 0, 1.0, stream.cols)
        places_s = places_seconds(stream.rows, cols, stream.joined, target)
        moved_s = maths.most(moved_s, places_s * placed)
        started_s = started_s + late_start_s(stream.scattered, stream.over_columns)
    if not (maths.any(kind.row_cycles) or maths.any(kind.element_cycles)):
        return started_s + moved_s
    # The seconds of the SMs for rows and elements, at the boost clock.
    full = maths.flag(maths.ceil(stream.cols / LOAD_COLUMNS) % LOADS == 0)
    element_cycles = kind.element_cycles * (1 + kind.full_loops * full)
    cycles = stream.rows * (kind.row_cycles + element_cycles * stream.cols)
    if target.device.architecture == "Pascal":
        cycles = cycles * kind.pascal_cycles
    sm_clocks_per_s = target.device.sm_count * target.device.sm_clock_hz
    busy_s = (cycles / sm_clocks_per_s) * (1.0 - stream.held)
    if maths.any(busy_s) and maths.any(stream.idle):
        at_boost_s = started_s + _hypotenuse(moved_s, busy_s, maths)
        busy_s = busy_s * _idle_factor(at_boost_s, stream, kind, target, maths)
    return started_s + _hypotenuse(moved_s, busy_s, maths)


def _hypotenuse(one: Number, other: Number, maths: Maths[Number]) -> Number:
    """Return the seconds of two that overlap in part, by exact operations."""
    return maths.sqrt(one * one + other * other)


def _idle_factor(
    seconds: Number,
    stream: Stream[Number],
    kind: Kind[Number],
    target: Target,
    maths: Maths[Number],
) -> Number:
    """Return how much longer SMs take whose clock has still to rise.

    Args:
        seconds: What each kernel takes at the boost clock.
        stream: Which of them begin on an idle GPU, among other things.
        kind: Of each.
        target: Where its maker publishes no base clock, nothing is known of it.
        maths: Of one kernel or of many.

    """
    device = target.device
    base_hz = device.base_clock_hz or device.sm_clock_hz
    risen = seconds / kind.idle_s
    for _ in range(_RISE_SQUARINGS):
        risen = risen * risen
    low = 1 / (1 + risen)
    above = device.sm_clock_hz / base_hz - 1
    return 1 + kind.idle_slowdown * above * low * stream.idle
