"""Places in the model where the time of a replayed trace goes: by module, by line."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs

from perfc.ir import TaskKind
from perfc.ir.launch import BUSY_KINDS
from perfc.tools.replay.replay import Replayed

MODULE, SOURCE = "module", "source"

_HOST = frozenset({TaskKind.HOST, TaskKind.CALL})
_COUNTED_KINDS = BUSY_KINDS | _HOST
_COUNTED = re.compile(r"_\d+(?=\.|$)")
"""How a profiler tells modules of one class apart."""

_NUMBERED = re.compile(r"(?<=\.)\d+(?=[.(]|$)")
"""How a model does: those of a list."""

_ROWS = 8
_SHOWN = 72
"""Characters of a place in a table; of longer ones the end says more."""


@attrs.define
class PlaceTime:
    """What one place takes, as simulated.

    Attributes:
        launches: Pieces of device work.
        device_us: How long they run, all together.
        host_us: How long the host works for them, waits left out.

    """

    launches: int = 0
    device_us: float = 0.0
    host_us: float = 0.0

    def add(self, other: PlaceTime) -> None:
        """Count another's as well."""
        self.launches += other.launches
        self.device_us += other.device_us
        self.host_us += other.host_us


ELSEWHERE = ""
"""What no module, or no line, has called."""


def place_times(one: Replayed, key: str) -> dict[str, PlaceTime]:
    """Return the time of each place in the steps reported, the longest first.

    Args:
        one: A trace, run again.
        key: `module` or `source`.

    """
    found: dict[str, PlaceTime] = defaultdict(PlaceTime)
    for task, kind in enumerate(one.recorded.graph.kind):
        if kind not in _COUNTED_KINDS:
            continue
        start_us, end_us = one.start_us[task], one.end_us[task]
        us = math.fsum(
            max(0.0, min(end_us, high) - max(start_us, low))
            for low, high in one.windows_us
        )
        if us <= 0:
            continue
        place = found[_place(one, task, key)]
        if kind in _HOST:
            place.add(PlaceTime(0, 0.0, us))
        else:
            place.add(PlaceTime(1, us))
    return _longest_first(found)


def _place(one: Replayed, task: int, key: str) -> str:
    """Return where a task was called: as told of it, else of its op."""
    recorded = one.recorded
    told = recorded.places.get(task)
    if told is not None:
        return told.module if key == MODULE else told.source
    op = recorded.graph.op[task]
    return recorded.graph.ops[op].attributes.text(key, "") if op >= 0 else ELSEWHERE


def places_json(one: Replayed) -> dict[str, Any]:
    """Return all modules and lines of a trace."""
    return {
        f"{key}s": [
            {key: place, **attrs.asdict(time)}
            for place, time in place_times(one, key).items()
            if place != ELSEWHERE
        ]
        for key in (MODULE, SOURCE)
    }


def places_lines(replayed: Sequence[Replayed]) -> list[tuple[str, ...]]:
    """Return a heading, and the longest modules, those alike together; else lines."""
    for key in (MODULE, SOURCE):
        alike: dict[str, PlaceTime] = defaultdict(PlaceTime)
        counts: dict[str, set[str]] = defaultdict(set)
        for one in replayed:
            for place, time in place_times(one, key).items():
                name = (
                    _NUMBERED.sub("*", _COUNTED.sub("", place))
                    if key == MODULE
                    else place
                )
                alike[name].add(time)
                counts[name].add(place)
        if {*alike} - {ELSEWHERE}:
            return _table(key, _longest_first(alike), counts)
    return []


def _table(
    key: str, times: Mapping[str, PlaceTime], counts: Mapping[str, Collection[str]]
) -> list[tuple[str, ...]]:
    total_us = math.fsum(time.device_us for time in times.values())
    several = key == MODULE
    header = (key, *(("n",) if several else ()), "launches", "device", "share", "host")
    named = [name for name in times if name != ELSEWHERE]
    groups = [(name, [name]) for name in named[:_ROWS]]
    if rest := named[_ROWS:]:
        groups.append((f"{len(rest):,} more", rest))
    if ELSEWHERE in times:
        groups.append((f"no {key}", [ELSEWHERE]))
    rows: list[tuple[str, ...]] = [header]
    for name, members in groups:
        time, count = PlaceTime(), sum(len(counts[member]) for member in members)
        for member in members:
            time.add(times[member])
        number = "-" if members == [ELSEWHERE] else f"{count:,}"
        rows.append(
            (
                name if len(name) <= _SHOWN else f"…{name[1 - _SHOWN :]}",
                *((number,) if several else ()),
                f"{time.launches:,}",
                f"{time.device_us / 1e3:,.2f} ms",
                f"{100 * time.device_us / total_us:.1f} %" if total_us else "-",
                f"{time.host_us / 1e3:,.2f} ms",
            )
        )
    return rows


def _longest_first(times: Mapping[str, PlaceTime]) -> dict[str, PlaceTime]:
    order = sorted(times, key=lambda name: (-times[name].device_us, name))
    return {name: times[name] for name in order}
