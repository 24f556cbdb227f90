"""The timeline of the HTML page: threads and streams as an inline picture."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from perfc.exporters.kineto import Lane, RankTrace, rank_traces
from perfc.ir.launch import BUSY_KINDS
from perfc.tools import Report, format_us

_WIDTH = 1200
_LEFT = 150
_LANE_HEIGHT = 22
_TICKS = 6
_COLORS = ("#4878a8", "#6a9f58", "#d1615d", "#e7ca60", "#a87c9f", "#85b6b2", "#967662")


class _Slice(NamedTuple):
    name: str
    start_ns: int
    end_ns: int


def timeline(report: Report) -> Iterator[str]:
    """Return an SVG picture: a lane per thread and stream, a box per op or kernel.

    Boxes that would be narrower than a pixel are drawn as one, so that a model of
    any size makes a picture of a bounded one.
    """
    ranks = list(rank_traces(report.results))
    total_ns = max(int(rank.end_ns.max(initial=1)) for rank in ranks)
    lanes = [(rank, lane) for rank in ranks for lane in rank.lanes]
    height = _LANE_HEIGHT * (len(lanes) + 1)
    yield f'<svg viewBox="0 0 {_LEFT + _WIDTH} {height}" role="img">'
    for row, (rank, lane) in enumerate(lanes):
        y = row * _LANE_HEIGHT
        label = f"rank {rank.rank}: {lane.label.partition('(')[2].rstrip(')')}"
        yield f'<text x="4" y="{y + 15}">{escape(label[:24])}</text>'
        for name, x, width, note in _boxes(_slices(rank, lane), total_ns):
            yield (
                f'<rect x="{_LEFT + x:.2f}" y="{y + 3}" width="{width:.2f}" '
                f'height="{_LANE_HEIGHT - 6}" fill="{_color(name)}">'
                f"<title>{escape(note)}</title></rect>"
            )
    for tick in range(_TICKS):
        time_us = total_ns / 1e3 * tick / _TICKS
        x = _LEFT + _WIDTH * tick / _TICKS
        yield f'<text x="{x:.0f}" y="{height - 6}">{format_us(time_us)}</text>'
    yield "</svg>"


def _slices(rank: RankTrace, lane: Lane) -> list[_Slice]:
    """Return the slices of a lane, in order: ops of the host, or tasks of a stream."""
    graph, resource = rank.graph, rank.lanes.index(lane)
    if lane.device < 0:
        ops: list[list[int]] = np.stack(rank.op_slices, axis=1).tolist()
        return [
            _Slice(graph.ops[op].name, start_ns, end_ns)
            for op, place, start_ns, end_ns in ops
            if place == resource
        ]
    return [
        _Slice(_name(rank, task), int(rank.start_ns[task]), int(rank.end_ns[task]))
        for task, kind in enumerate(graph.kind)
        if kind in BUSY_KINDS and graph.resource[task] == resource
    ]


def _name(rank: RankTrace, task: int) -> str:
    graph = rank.graph
    op, kernel = graph.op[task], graph.kernel[task]
    names = [graph.ops[op].name] if op >= 0 else []
    if kernel >= 0:
        names.append(graph.kernels[kernel].op)
    return " ".join(names) or graph.detail[task] or graph.kind[task].value


def _boxes(
    slices: Sequence[_Slice], total_ns: int
) -> Iterator[tuple[str, float, float, str]]:
    """Return name, place, width and tooltip of each box, in pixels."""
    pixel_ns = total_ns / _WIDTH
    index = 0
    while index < len(slices):
        first, last = slices[index], slices[index]
        count, busy_ns = 1, first.end_ns - first.start_ns
        while index + count < len(slices):
            following = slices[index + count]
            if following.end_ns - first.start_ns > pixel_ns:
                break
            last, count = following, count + 1
            busy_ns += following.end_ns - following.start_ns
        index += count
        more = f" and {count - 1} more" if count > 1 else ""
        note = f"{first.name}{more}: {format_us(busy_ns / 1e3)}"
        note += f", from {format_us(first.start_ns / 1e3)}"
        width = max(0.5, (last.end_ns - first.start_ns) / pixel_ns)
        yield first.name, first.start_ns / pixel_ns, width, note


def _color(name: str) -> str:
    """Return the colour of a name, which is alike on every run."""
    return _COLORS[zlib.crc32(name.encode()) % len(_COLORS)]
