"""Loads that run for seconds, with clock and power beside them: `sustained.parquet`.

A GPU computes faster for half a second than for ten. Each load runs back to back; how
long a chunk of some 30 ms took is one kind of row (`perfc.sustained/1`), what NVML said
every 50 ms is the other.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import attrs
import torch
from torch.profiler import ProfilerActivity, profile

from collection.launches import LONGEST_NAME
from collection.nvml import Nvml, open_nvml
from collection.sampler import FIELDS, SAMPLE_SECONDS, Sample, sampling
from collection.tables import Cell, Column, Field, Format, read_table, write_table
from perfc.ir.support import US
from perfc.measure.device import Device

Call: TypeAlias = Callable[[], object]
Say: TypeAlias = Callable[[str], None]
Row: TypeAlias = tuple[Cell, ...]
Labels: TypeAlias = tuple[str, str, str]
Chunk: TypeAlias = tuple[float, int, float]

CHUNK_US = 30e3

_AHEAD = 2
"""Chunks that the host is ahead of the GPU, which so never waits for it."""

_SETUP_SECONDS = 0.4
"""What making the operands of a load takes, and counting the calls of a chunk."""

_LEAST_SHARE = 0.3
"""Least share of the seconds that loads want: below it, the last ones are left out."""

_LEAST_SECONDS = 0.1
_END_SECONDS = 0.2

SUSTAINED = Format(
    "perfc.sustained/1",
    (
        Field("load", "text"),
        Field("dtype", "text"),
        Field("params", "text"),
        Field("kind", "text"),
        Field("t_s", "float"),
        Field("calls", "int"),
        Field("duration_us", "float"),
        *FIELDS,
    ),
)
_UNTOLD = (None,) * len(FIELDS)
"""What NVML says, in a row of a chunk."""


@attrs.frozen(kw_only=True)
class Load:
    """Something that a device does for some seconds.

    Attributes:
        name: Unique.
        dtype: What it computes in.
        params: Sizes.
        seconds: How long it runs if there is time.
        make: Allocates its operands and returns the call; None to idle.
        names_kernel: Whether a call is profiled first, and its longest kernel noted.

    """

    name: str
    dtype: str = ""
    params: Mapping[str, Cell] = attrs.field(factory=dict[str, Cell])
    seconds: float
    make: Callable[[], Call] | None = None
    names_kernel: bool = False


class Mark(Protocol):
    """A point in a device's work."""

    def wait(self) -> None:
        """Return when the device has come there."""

    def since_us(self, earlier: Any) -> float:
        """Return the time from an earlier one."""
        ...


class GpuMark:
    """An event."""

    def __init__(self) -> None:
        """Record it after what was launched."""
        cuda: Any = torch.cuda
        self.event = cuda.Event(enable_timing=True, blocking=True)
        self.event.record()

    def wait(self) -> None:
        """Return when it has come; the processor sleeps meanwhile."""
        self.event.synchronize()

    def since_us(self, earlier: GpuMark) -> float:
        """Return the time from an earlier one."""
        return float(earlier.event.elapsed_time(self.event)) * 1e3


class CpuMark:
    """A time: a CPU has done its work when a call returns."""

    def __init__(self) -> None:
        """Look at the clock."""
        self.seconds = time.perf_counter()

    def wait(self) -> None:
        """Return."""

    def since_us(self, earlier: CpuMark) -> float:
        """Return the time from an earlier one."""
        return (self.seconds - earlier.seconds) * US


def run(
    loads: Sequence[Load], device: Device, deadline: float, table: Path, say: Say
) -> None:
    """Run loads, in their order, and write the table after each of them.

    They share the time that there is as they want it. Where it is too short for all of
    them, the last ones are left out; idling is not, but for where NVML is not there and
    nobody would look. A load that fails (a backend that the build lacks, no memory) is
    said and skipped. An interrupt leaves the table with what was measured.

    Args:
        loads: The most useful first.
        device: Where they run.
        deadline: When all must be over, by `time.monotonic`.
        table: Where rows go; other loads that it has are kept.
        say: Is told of each load.

    Raises:
        PerfcError: the table cannot be read or written.

    """
    kept = _Table(table)
    bench = _Bench(device, open_nvml())
    watched = [x for x in loads if x.make is not None or bench.nvml is not None]
    todo = _fitting(watched, deadline - time.monotonic())
    if left_out := [load.name for load in watched if load not in todo]:
        say(f"sustained: no time for {', '.join(left_out)}")
    try:
        with _plain_math():
            for place, load in enumerate(todo):
                rows: list[Row] = []
                seconds = _seconds(todo[place:], deadline)
                try:
                    said = bench.measure(load, seconds, deadline, rows)
                except Exception as error:  # noqa: BLE001 - others are measured
                    said = f"skipped: {(str(error).splitlines() or [repr(error)])[0]}"
                finally:
                    kept.put(load.name, rows)
                bench.free()  # an error would hold on to what the load has
                kept.write()
                say(f"sustained: {load.name}: {said}")
    finally:  # an interrupt has come
        kept.write()


def _fitting(loads: Sequence[Load], seconds: float) -> list[Load]:
    """Leave out the last loads where all would have too short a share."""
    kept = [*loads]
    while kept and _share(kept, seconds) < _LEAST_SHARE:
        last = next((x for x in reversed(kept) if x.make is not None), kept[-1])
        kept.remove(last)
    return kept


def _share(loads: Sequence[Load], seconds: float) -> float:
    """Return the part of their seconds that all of them can have."""
    left = seconds - _END_SECONDS - _SETUP_SECONDS * len(loads)
    return min(1.0, left / sum(load.seconds for load in loads))


def _seconds(loads: Sequence[Load], deadline: float) -> float:
    """Return the seconds that the first of some loads can have of the time left."""
    share = _share(loads, deadline - time.monotonic())
    return max(_LEAST_SECONDS, loads[0].seconds * share)


@attrs.frozen
class _Bench:
    """A device that loads run on, and what watches it."""

    device: Device
    nvml: Nvml | None

    def measure(
        self, load: Load, seconds: float, deadline: float, rows: list[Row]
    ) -> str:
        """Run a load, add its rows, and return what there is to say of it."""
        last = deadline - _END_SECONDS
        if time.monotonic() + _SETUP_SECONDS > last:
            return "skipped: no time"
        if load.make is None:
            with self._watched(_labels(load), rows):
                until = min(time.monotonic() + seconds, last)
                while (left := until - time.monotonic()) > 0:
                    time.sleep(min(left, SAMPLE_SECONDS))
            return f"{len(rows)} samples"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of backends that cannot be taken
            self._work(load, load.make(), seconds, last, rows)
        return _summary(rows)

    def free(self) -> None:
        """Give memory back; a device that has failed takes none."""
        if self.device.is_cuda:
            with contextlib.suppress(RuntimeError):
                torch.cuda.empty_cache()

    def _work(
        self, load: Load, call: Call, seconds: float, last: float, rows: list[Row]
    ) -> None:
        mark = GpuMark if self.device.is_cuda else CpuMark
        each = calls_of_a_chunk(call, mark)
        kernel = _longest_kernel(call, self.device) if load.names_kernel else ""
        labels = _labels(load, kernel)
        self.device.synchronize()
        until = min(time.monotonic() + seconds, last)
        with self._watched(labels, rows):
            for chunk in timed_chunks(call, each, mark, until):
                row = (*labels, "chunk", *chunk, *_UNTOLD)
                rows.append(row)  # an interrupt keeps those before it

    @contextmanager
    def _watched(self, labels: Labels, rows: list[Row]) -> Generator[None]:
        """Add what NVML says while the block runs."""
        samples: list[Sample] = []
        try:
            with sampling(self.nvml, samples):
                yield
        finally:
            rows += [(*labels, "sample", x[0], None, None, *x[1:]) for x in samples]


def _labels(load: Load, kernel: str = "") -> Labels:
    told = {**load.params, **({"kernel": kernel} if kernel else {})}
    return load.name, load.dtype, json.dumps(told)


def _summary(rows: Sequence[Row]) -> str:
    """Say how long a call took at first and at last."""
    chunks = [row for row in rows if row[3] == "chunk"]
    if not chunks:
        return "no time for a chunk"
    first, last = (row[6] for row in (chunks[0], chunks[-1]))
    return f"{len(chunks)} chunks, a call {first:,.1f} us at first, {last:,.1f} at last"


def calls_of_a_chunk(call: Call, mark: Callable[[], Mark]) -> int:
    """Return how many calls take some 30 ms; at least one."""
    call()  # loads libraries and kernels
    mark().wait()
    calls = 1
    while True:
        begin = mark()
        for _ in range(calls):
            call()
        end = mark()
        end.wait()
        took_us = end.since_us(begin)
        if took_us > CHUNK_US / 8:
            return max(1, round(calls * CHUNK_US / took_us))
        calls *= 4


def timed_chunks(
    call: Call, each: int, mark: Callable[[], Mark], until: float
) -> Generator[Chunk]:
    """Run chunks of *each* calls back to back until a time of `time.monotonic`.

    Yields:
        For each chunk, seconds from the first one's begin to its own, how many calls it
        was, and what one of them took, in microseconds.

    """
    first = last = mark()
    ahead: deque[tuple[int, Mark]] = deque()

    def settled() -> Chunk:
        nonlocal last
        begin, (calls, last) = last, ahead.popleft()
        last.wait()
        return begin.since_us(first) / US, calls, last.since_us(begin) / calls

    while time.monotonic() < until:
        ahead.append((_called(call, each, until), mark()))
        if len(ahead) == _AHEAD:
            yield settled()
    while ahead:
        yield settled()


def _called(call: Call, most: int, until: float) -> int:
    """Call until there were enough or time is over; return how often."""
    for number in range(1, most + 1):
        call()
        if time.monotonic() >= until:
            return number
    return most


def _longest_kernel(call: Call, device: Device) -> str:
    """Return the name of the kernel that takes longest; empty if no profiler runs."""
    cuda = device.is_cuda
    activity = ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU
    profiler: Any = profile(activities=[activity])
    try:
        with profiler:
            call()
            device.synchronize()
        events = [e for e in profiler.events() if not cuda or _is_of_gpu(e)]
    except RuntimeError:
        return ""
    longest = max(events, key=lambda e: e.time_range.elapsed_us(), default=None)
    return "" if longest is None else str(longest.name)[:LONGEST_NAME]


def _is_of_gpu(event: Any) -> bool:
    return str(event.device_type).endswith("CUDA")


@contextmanager
def _plain_math() -> Generator[None]:
    """Compute fp32 GEMMs in fp32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class _Table:
    """The file, by load."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._columns: dict[str, dict[str, Column]] = {}
        if path.exists():
            self._columns = _by_load(read_table(path, SUSTAINED))

    def put(self, load: str, rows: Sequence[Row]) -> None:
        """Take the rows of a load, in place of those that it had."""
        if rows:
            self._columns[load] = SUSTAINED.pack(rows)

    def write(self) -> None:
        """Write the file, in one step; nothing if nothing was measured."""
        if not self._columns:
            return
        parts = self._columns.values()
        joined = {
            field.name: field.joined([part[field.name] for part in parts])
            for field in SUSTAINED.fields
        }
        write_table(self._path, SUSTAINED, joined)


def _by_load(columns: Mapping[str, Column]) -> dict[str, dict[str, Column]]:
    found: dict[str, dict[str, Column]] = {}
    end = 0
    for name, group in itertools.groupby(columns["load"]):
        start, end = end, end + sum(1 for _ in group)
        found[str(name)] = {key: cells[start:end] for key, cells in columns.items()}
    return found
