"""The largest batch that fits in the memory of a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np

from perfc.ir import UsageError
from perfc.tools.given import MAX_DIM
from perfc.tools.oracle import Oracle
from perfc.tools.reports import Report
from perfc.tools.request import AnalyzeOptions, Request

_ROUNDS = 60
"""More than halving all batches takes."""

_OWN = frozenset({"transforms", "instruments", "preset"})


def largest_batch(request: Request, report: Report) -> int | None:
    """Return the samples of a rank above which it needs more memory than it has.

    Args:
        request: What was asked.
        report: Its report.

    Returns:
        The batch, 0 if not even one sample fits, the largest that there is if all do;
        None of a model whose batch cannot be changed.

    """
    room = report.target.device.memory.usable_bytes
    names = AnalyzeOptions.__optional_keys__ & attrs.fields_dict(Request).keys()
    options = {name: getattr(request, name) for name in names - _OWN}
    oracle = Oracle(request.model, request.target, **options)

    def peaks(batches: Sequence[int]) -> list[float]:
        columns = {"batch": np.array(batches)}
        found = oracle.batch(columns, want=("peak_memory_bytes",))
        return [float(peak) for peak in found["peak_memory_bytes"]]

    try:
        return most_below(room, peaks, int(report.model.batch or 1))
    except UsageError:  # the batch is no column: it is fixed
        return None


def most_below(
    room: float,
    of: Callable[[Sequence[int]], Sequence[float]],
    first: int,
    most: int = MAX_DIM,
) -> int:
    """Return the largest number up to *most* of which a growing amount is in a room.

    Amounts are nearly straight lines, so that a chord tells where the end is.

    Args:
        room: What an amount may be.
        of: Returns the amounts of some numbers.
        first: A number to begin with.
        most: The largest number.

    """
    known: dict[int, float] = {}
    low, high = 0, most + 1
    guess = min(first, most)
    for turn in range(_ROUNDS):
        asked = [n for n in (guess, guess + 1) if low < n < high and n not in known]
        known |= zip(asked, of(asked), strict=True)
        fitting = [n for n in known if known[n] <= room]
        low = max(fitting, default=0)
        high = min((n for n in known if known[n] > room), default=most + 1)
        if high <= low + 1:
            break
        # Where the chord of the two numbers nearest to the room meets it.
        if turn == 0:
            one, two = min(known), max(known)
        else:
            one, two = sorted(sorted(known, key=lambda n: abs(known[n] - room))[:2])
        slope = (known[two] - known[one]) / max(two - one, 1)
        guess = 2 * two if slope <= 0 else int(one + (room - known[one]) / slope)
        if not low < guess < high or turn % 4 == 3:  # noqa: PLR2004 - every fourth
            guess = (low + high) // 2 if high <= most else min(2 * low, most)
    return low
