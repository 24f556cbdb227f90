"""The part of a trace around some steps, found without decoding the rest of it.

A trace of gigabytes does not fit in memory as events, and its steps are few. One look
over the text finds where they are marked; then only what lies in and next to the steps
asked for is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import attrs

from perfc.traces.json_stream import EventFile

HOST_CATEGORIES = frozenset({"cpu_op", "operator", "user_annotation"})
"""Kinds of events that are ops or labels of the host."""

STEP = re.compile(r"ProfilerStep\s*#(\d{1,18})$")
"""How the profiler names a step."""

_MARK = re.compile(r'"name"\s*:\s*"ProfilerStep\s*#\d{1,18}"')
_BEFORE = 1 << 12
"""Characters that an event may have in front of its name."""

_LONGEST = 1 << 20
_OBJECTS = 8
"""Objects that may begin between the beginning of an event and its name."""

_EARLY_US = 1000.0
"""Device clocks run so far ahead of the host's, at most."""


@attrs.frozen
class Window:
    """A stretch of a trace, in its own clock.

    Attributes:
        start_us: When it begins.
        end_us: When it ends.

    """

    start_us: float
    end_us: float

    def has_host(self, start_us: float, end_us: float) -> bool:
        """Whether something of the host lies in it, in part at least."""
        return end_us >= self.start_us and start_us < self.end_us

    def may_have_work(self, start_us: float, end_us: float) -> bool:
        """Whether device work may have been launched in it.

        Work runs late; what is later than the window is long belongs to what follows,
        if no call that was read before it says otherwise.
        """
        latest_us = self.end_us + (self.end_us - self.start_us)
        return end_us >= self.start_us - _EARLY_US and start_us < latest_us


@attrs.frozen
class MarkedStep:
    """A step as the text of a trace marks it, in the trace's own clock."""

    number: int
    start_us: float
    end_us: float


def marked_steps(
    path: Path, progress: Callable[[float], None] | None = None
) -> list[MarkedStep]:
    """Return the steps that a trace marks on the host, in order.

    Args:
        path: A Kineto trace.
        progress: Is told from time to time which part of the file has been read.

    """
    found = (
        step
        for event in step_events(EventFile(path, progress=progress).chunks())
        for step in [_step(event)]
        if step is not None
    )
    return sorted(found, key=lambda step: step.start_us)


def window_of(marked: list[MarkedStep], steps: Collection[int]) -> Window:
    """Return the window of some steps and of their neighbours.

    The step before leaves the queues of the device as they were; the one after tells
    when the last one ended.

    Args:
        marked: The steps of the trace, in order.
        steps: Numbers of those asked for; each is marked.

    """
    places = [at for at, step in enumerate(marked) if step.number in steps]
    first, last = max(places[0] - 1, 0), min(places[-1] + 1, len(marked) - 1)
    return Window(marked[first].start_us, marked[last].end_us)


def step_events(chunks: Iterator[str]) -> Iterator[Mapping[str, object]]:
    """Yield the events that are named as steps are."""
    text = ""
    for chunk in chunks:
        text += chunk
        done = 0
        for mark in _MARK.finditer(text):
            if mark.start() < done:
                continue
            event, end = _around(text, mark.start(), mark.end())
            if event is None and len(text) - mark.start() < _LONGEST:
                break  # it goes on in what was not read yet
            done = max(end, mark.end())
            if event is not None:
                yield event
        else:
            done = max(done, len(text) - _BEFORE)
            text = text[done:]
            continue
        text = text[max(done, mark.start() - _BEFORE) :]


def _around(text: str, start: int, end: int) -> tuple[Mapping[str, object] | None, int]:
    """Return the object whose name stands at *start*, and where it ends."""
    decode = json.JSONDecoder().raw_decode
    at = start
    for _ in range(_OBJECTS):
        at = text.rfind("{", 0, at)
        if at < 0:
            break
        try:
            value, after = decode(text, at)
        except ValueError:
            continue
        if after > end and isinstance(value, dict) and "name" in value:
            return cast("Mapping[str, object]", value), after
    return None, 0


def _step(event: Mapping[str, Any]) -> MarkedStep | None:
    """Return a step of the host; the device has marks of its own."""
    name = STEP.match(str(event.get("name")))
    start_us, length_us = event.get("ts"), event.get("dur")
    category = str(event.get("cat", "")).lower()
    if name is None or event.get("ph") != "X" or category not in HOST_CATEGORIES:
        return None
    try:
        begin_us = float(cast("float", start_us))
        return MarkedStep(int(name[1]), begin_us, begin_us + float(length_us or 0))
    except (TypeError, ValueError, OverflowError):
        return None
