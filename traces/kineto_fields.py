"""Fields of events of Kineto's traces, as profilers of several years write them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from perfc.costmodels.machine import Multiprocessors
from perfc.traces.clock import end_of
from perfc.traces.events import Shape, Stream, Thread
from perfc.traces.inputs import RawInputs

Event: TypeAlias = Mapping[str, Any]

_DIGITS = re.compile(r"-?\d{1,18}")
_LONGEST_US = 1e18
"""Bound of times: no clock counts further."""


def args_of(event: Event) -> Event:
    """Return the arguments of an event; none if it has none."""
    return record_of(event.get("args"))


def record_of(value: object) -> Event:
    """Return an object of JSON; an empty one in place of anything else."""
    return cast("Event", value) if isinstance(value, dict) else {}


def _listed(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def name_of(event: Event) -> str:
    """Return the name of an event."""
    return plain_text(str(event.get("name", "")))


def plain_text(text: str) -> str:
    """Return a text without halves of characters, which no file can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def thread_of(event: Event) -> Thread:
    """Return process and thread."""
    return _number(event.get("pid", 0)), _number(event.get("tid", 0))


def _number(value: object) -> int | str:
    """Return a number that old traces write as text."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    return value if isinstance(value, int | str) else str(value)


def span_of(event: Event) -> tuple[float, float] | None:
    """Return start and end, microseconds; None if either is no time."""
    start, length = event.get("ts"), event.get("dur")
    try:
        start_us, length_us = float(start or 0), float(length or 0)
    except (TypeError, ValueError, OverflowError):
        return None
    if (
        start is None
        or length is None
        or not abs(start_us) + abs(length_us) < _LONGEST_US
    ):
        return None
    return start_us, end_of(start_us, length_us)


def stream_of(event: Event, args: Event) -> Stream:
    """Return device and stream; old traces name the stream as the thread only."""
    device = args.get("device", event.get("pid"))
    stream = args.get("stream", event.get("tid"))
    return whole_number(device, 0), whole_number(stream, 0)


def whole_number(value: object, default: int) -> int:
    """Return a whole number, also one written into text, as `stream 7`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and (found := _DIGITS.search(value)):
        return int(found[0])
    return default


def optional_number(value: object) -> int | None:
    """Return a whole number; None in place of anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def identity_of(args: Event) -> str:
    """Return process group and number of a collective."""
    if "Process Group Name" not in args or "Seq" not in args:
        return ""
    return f"{args['Process Group Name']}/{args['Seq']}"


def inputs_of(args: Event) -> RawInputs | None:
    """Return the arguments of an op; None if no shape is recorded."""
    dims = _listed(args.get("Input Dims", args.get("Input dims")))
    if not dims:
        return None
    types = args.get("Input type")
    values, strides = args.get("Concrete Inputs"), args.get("Input Strides")
    return RawInputs(dims, *map(_or_none, (types, values, strides)))


def _or_none(value: object) -> list[object] | None:
    return _listed(value) or None


def shape_of(args: Event) -> Shape | None:
    """Return grid and block of a kernel."""
    blocks, threads = (_product(args.get(key)) for key in ("grid", "block"))
    if not blocks or not threads:
        return None
    registers = whole_number(args.get("registers per thread"), 0)
    return Shape(blocks, threads, registers, whole_number(args.get("shared memory"), 0))


def _product(sizes: object) -> int:
    """Return the number of a grid of three axes; 0 if it is none."""
    found = [whole_number(size, 0) for size in _listed(sizes)]
    return max(0, math.prod(found)) if found else 0


def base_us(header: Event) -> float:
    """Return the microseconds that newer traces take off every time."""
    base: object = header.get("baseTimeNanoseconds")
    return base / 1e3 if isinstance(base, int | float) else 0.0


_OF_MULTIPROCESSORS = {
    "sm_count": "numSms",
    "warp_size": "warpSize",
    "max_threads_per_sm": "maxThreadsPerMultiprocessor",
    "registers_per_sm": "regsPerMultiprocessor",
    "shared_memory_bytes_per_sm": "sharedMemPerMultiprocessor",
}
"""Fields of `cudaDeviceProp`, which Kineto writes."""


def multiprocessors_of(header: Event) -> Multiprocessors | None:
    """Return the multiprocessors of the first device, None if not all is told."""
    told = next(
        map(record_of, _listed(header.get("deviceProperties"))), record_of(None)
    )
    sizes = {
        field: whole_number(told.get(name), 0)
        for field, name in _OF_MULTIPROCESSORS.items()
    }
    if min(sizes.values()) <= 0:
        return None
    version = (whole_number(told.get(f"compute{n}"), 0) for n in ("Major", "Minor"))
    return Multiprocessors(".".join(map(str, version)), **sizes)


def devices_of(header: Event) -> dict[int, str]:
    """Return the names of the devices, by number."""
    properties = map(record_of, _listed(header.get("deviceProperties")))
    return {whole_number(p.get("id"), 0): str(p.get("name", "")) for p in properties}
