"""Charts of the page of a report: its roofline, and its memory over time."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

import attrs
import numpy as np

from perfc.tools import charts, pages, reports

_MOST_POINTS = 1500
"""Points of a roofline: those that take longest."""

_SAME_DIGITS = 4
"""Ops of one kind whose intensities and rates are the same so far are one point."""

_MOST_MOMENTS = 500
"""Stretches of the step of each of which the moment with most memory is drawn."""

_LEAST_INTENSITY = 0.01
"""FLOP a byte from which on a kernel is drawn: it does arithmetic on what it moves."""

_ABOVE = 1.02
"""A point that is this often its roof lies above it, and not on it."""

_GROUPS = 6
"""Ops that a roofline tells apart by colour; the rest is one more."""

_WORTH_DRAWING = 0.35
"""Share of the device's memory from which on its end is drawn."""

_MEMORY_COLORS = {
    "parameters": 0,
    "optimizer": 3,
    "gradients": 1,
    "activations": 2,
    "library": 7,
}


def roofline_chart(report: reports.Report, of: int = 1) -> pages.Chart | None:
    """Return every kernel below what bounds it; None without any that computes.

    Args:
        report: The report.
        of: How many reports there are on the page.

    """
    found = charts.roofline_points(report)
    computing = [
        point
        for point in found.points
        if point.time_us and (point.flop_per_byte or 0.0) >= _LEAST_INTENSITY
    ]
    if not computing:
        return None
    # Ops by kind and place, those that take longest first.
    groups: defaultdict[tuple[str, str, str, str], list[charts.RooflinePoint]]
    groups = defaultdict(list)
    for one in computing:
        places = (one.flop_per_byte or 0.0, one.flop_per_s or 0.0)
        x, y = (f"{place:.{_SAME_DIGITS}g}" for place in places)
        groups[one.op, one.math, x, y].append(one)
    points = [
        _Point(op, float(x), float(y), own) for (op, _, x, y), own in groups.items()
    ]
    drawn = sorted(points, key=lambda point: -point.time_us)[: _MOST_POINTS // of]
    intensities = [one.flop_per_byte for one in drawn]
    low, high = min(*intensities, 1.0) / 2, max(intensities) * 2
    return pages.Chart(
        pages.Axis("arithmetic intensity, FLOP/byte", log=True),
        pages.Axis("rate, FLOP/s", "FLOP/s", log=True),
        [*_roofs(found, low, high), *_points(drawn)],
        _roofline_text(found, computing, drawn),
        height=420,
    )


def _roofs(found: charts.Roofline, low: float, high: float) -> Iterator[pages.Series]:
    """Yield a slope for each memory and a ceiling for each mode that is computed in."""
    top = max(found.flop_per_s.values())
    slowest = min(found.bytes_per_s.values())
    for name, rate in found.bytes_per_s.items():
        end = min(top / rate, high)
        label = f"{name} {reports.format_quantity(rate, 'B/s')}"
        drawn: Literal["line", "dashes"] = "line" if rate == slowest else "dashes"
        places = [low, max(end, low)]
        ups = [rate * place for place in places]
        yield pages.Series(label, places, ups, drawn, color=-1, label="start")
    for mode, rate in found.flop_per_s.items():
        ridge = rate / max(found.bytes_per_s.values())
        label = f"{mode} {reports.format_quantity(rate, 'FLOP/s')}"
        places = [min(ridge, high / 2), max(high, 2 * ridge)]
        yield pages.Series(label, places, [rate] * 2, "line", color=-1, label="end")


@attrs.frozen
class _Point:
    """Ops of one kind that are in the same place of a roofline."""

    op: str
    flop_per_byte: float
    flop_per_s: float
    found: Sequence[charts.RooflinePoint]

    @property
    def time_us(self) -> float:
        return math.fsum(one.time_us for one in self.found)

    @property
    def share(self) -> float:
        return math.fsum(one.share for one in self.found)

    @property
    def note(self) -> str:
        first, *others = self.found
        name = f"{first.node} and {len(others):,} alike" if others else first.node
        time = (
            f"{reports.format_us(self.time_us)} ({reports.format_percent(self.share)})"
        )
        return f"{name}: {time}, {first.math}, {first.provenance}"


def _points(drawn: Sequence[_Point]) -> Iterator[pages.Series]:
    times: defaultdict[str, float] = defaultdict(float)
    for one in drawn:
        times[one.op] += one.time_us
    ranked = sorted(times, key=lambda op: -times[op])
    named = ranked if len(ranked) <= _GROUPS + 1 else ranked[:_GROUPS]
    groups = {op: number for number, op in enumerate(named)}
    rest = len(ranked) - len(named)
    for number, name in enumerate([*named, f"{rest} more ops"]):
        own = [one for one in drawn if groups.get(one.op, len(named)) == number]
        if own:
            yield pages.Series(
                name,
                [one.flop_per_byte for one in own],
                [one.flop_per_s for one in own],
                notes=[one.note for one in own],
                color=number,
                sizes=[one.share for one in own],
            )


def _roofline_text(
    found: charts.Roofline,
    computing: Sequence[charts.RooflinePoint],
    drawn: Sequence[_Point],
) -> str:
    """Say what is drawn, how close to its roofs, and what has no place there."""
    text = "Each point is the kernels of an op, or of several alike, as large as their "
    text += "share of the time; lines are what the device can do."
    held = sum(len(point.found) for point in drawn)
    if held < len(computing):
        text += f" The {held:,} longest of {len(computing):,} are drawn."
    above = sum(_is_above(one, found) for one in computing)
    if above:
        text += (
            f" {above:,} are above the roofs: their kernels skip work that is counted, "
        )
        text += "as causal attention does, or compute in a faster mode."
    rest = len(found.points) - len(computing)
    if rest:
        all_us, own_us = (
            math.fsum(one.time_us for one in points)
            for points in (found.points, computing)
        )
        text += f" {rest:,} more do no arithmetic to speak of; they take "
        text += f"{reports.format_us(all_us - own_us)}."
    return text


def _is_above(one: charts.RooflinePoint, found: charts.Roofline) -> bool:
    slope = max(found.bytes_per_s.values()) * (one.flop_per_byte or 0.0)
    roof = min(found.flop_per_s[one.math], slope)
    return (one.flop_per_s or 0.0) > _ABOVE * roof


def memory_chart(report: reports.Report) -> pages.Chart | None:
    """Return memory that is held over the step; None if none is."""
    found = charts.memory_timeline(report)
    if not max(found.allocated_bytes, default=0):
        return None
    at = _moments(found)
    end_us = report.time_us
    places = [*(found.start_us[number] for number in at), end_us]
    series = [
        pages.Series(
            name,
            places,
            [sizes[number] for number in (*at, at[-1])],
            "area",
            color=_MEMORY_COLORS[name],
        )
        for name, sizes in reversed([*found.bytes_of.items()])
        if max(sizes)
    ]
    peak, usable = max(found.allocated_bytes), report.target.device.memory.usable_bytes
    if peak > _WORTH_DRAWING * usable:
        label = f"{report.target.name} has {reports.format_bytes(usable)}"
        line = pages.Series(
            label, [0.0, end_us], [usable] * 2, "dashes", color=-1, label="end"
        )
        series.append(line)
    return pages.Chart(
        pages.Axis("time", "us"),
        pages.Axis("allocated", "bytes"),
        series,
        _memory_text(report, found),
        height=260,
    )


def _memory_text(report: reports.Report, found: charts.MemoryOverTime) -> str:
    peak = found.allocated_bytes[found.peak]
    text = (
        "What tensors take of the device's memory, when the host allocates it, which "
    )
    text += f"may be ahead of the device; {reports.format_bytes(peak)} at most"
    text += f", at {found.at_node}" if found.at_node else ""
    if len(found.start_us) > _MOST_MOMENTS:
        text += f". Of {len(found.start_us):,} moments, the largest of each stretch"
    return f"{text}."


def _moments(found: charts.MemoryOverTime) -> list[int]:
    """Return which points are drawn: the first, the last, and peaks of stretches."""
    count = len(found.start_us)
    if count <= _MOST_MOMENTS:
        return [*range(count)]
    sizes = np.array(found.allocated_bytes)
    edges = np.linspace(0, count, _MOST_MOMENTS + 1).astype(int).tolist()
    stretches = itertools.pairwise(edges)
    peaks = [first + int(sizes[first:end].argmax()) for first, end in stretches]
    return sorted({0, *peaks, count - 1})
