"""Where in the model the time of a replayed trace goes: by module, by line."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs

from perfc.ir import BUSY_KINDS, TaskKind
from perfc.tools.replay import Replayed
from perfc.tools.texts import columns_text

MODULE, SOURCE = "module", "source"

_HOST = frozenset({TaskKind.HOST, TaskKind.CALL})
_COUNTED = re.compile(r"_\d+(?=\.|$)")
"""How a profiler tells modules of one class apart."""

_NUMBERED = re.compile(r"(?<=\.)\d+(?=\.|$)")
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


def place_times(one: Replayed, key: str) -> dict[str, PlaceTime]:
    """Return what each place takes, the longest on the device first.

    Args:
        one: A trace, run again.
        key: `module` or `source`.

    """
    graph = one.recorded.graph
    found: dict[str, PlaceTime] = defaultdict(PlaceTime)
    for task, kind in enumerate(graph.kind):
        op = graph.op[task]
        place = graph.ops[op].attributes.text(key, "") if op >= 0 else ""
        if not place:
            continue
        us = one.end_us[task] - one.start_us[task]
        if kind in BUSY_KINDS:
            found[place].add(PlaceTime(1, us))
        elif kind in _HOST:
            found[place].add(PlaceTime(0, 0.0, us))
    return _longest_first(found)


def places_json(one: Replayed) -> dict[str, Any]:
    """Return all modules and lines of a trace."""
    return {
        f"{key}s": [
            {key: place, **attrs.asdict(time)}
            for place, time in place_times(one, key).items()
        ]
        for key in (MODULE, SOURCE)
    }


def places_text(replayed: Sequence[Replayed]) -> str:
    """Return a table of the longest modules, those alike together; else of lines."""
    for key in (MODULE, SOURCE):
        alike: dict[str, PlaceTime] = defaultdict(PlaceTime)
        counts: dict[str, set[str]] = defaultdict(set)
        for one in replayed:
            for place, time in place_times(one, key).items():
                name = _alike(place) if key == MODULE else place
                alike[name].add(time)
                counts[name].add(place)
        if alike:
            return _table(key, _longest_first(alike), counts)
    return ""


def _table(
    key: str, times: Mapping[str, PlaceTime], counts: Mapping[str, Collection[str]]
) -> str:
    total_us = sum(time.device_us for time in times.values())
    several = ("n",) if key == MODULE else ()
    rows = [(key, *several, "launches", "device", "share", "host")]
    for name in [*times][:_ROWS]:
        time = times[name]
        rows.append(
            (
                name if len(name) <= _SHOWN else f"…{name[1 - _SHOWN :]}",
                *(f"{len(counts[name]):,}" for _ in several),
                f"{time.launches:,}",
                f"{time.device_us / 1e3:,.2f} ms",
                f"{time.device_us / total_us:.1%}" if total_us else "-",
                f"{time.host_us / 1e3:,.2f} ms",
            )
        )
    return columns_text(rows)


def _alike(module: str) -> str:
    """Return a module's name without what tells it from others like it."""
    return _NUMBERED.sub("*", _COUNTED.sub("", module))


def _longest_first(times: Mapping[str, PlaceTime]) -> dict[str, PlaceTime]:
    order = sorted(times, key=lambda name: (-times[name].device_us, name))
    return {name: times[name] for name in order}
