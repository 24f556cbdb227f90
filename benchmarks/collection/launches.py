"""What the device did in the profiled iterations of each workload, launch by launch.

The rows of `launches.parquet` (`perfc.launches/1`): kernels, copies and memsets of a
Kineto trace, with the op that launched each.
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from collection.tables import Column, Field, Format, read_table, write_table
from perfc.ir import Record, record_of
from perfc.ir.text import json_of
from perfc.measurements import WorkloadMeasurement

Event: TypeAlias = Mapping[str, Any]
Thread: TypeAlias = tuple[object, object]

LONGEST_NAME = 200
"""Characters of a kernel's name: templates of templates take thousands."""

_STEP = "ProfilerStep#"
_MARKS = frozenset({"user_annotation", "cpu_op"})
_CALLS = frozenset({"cuda_runtime", "cuda_driver"})
_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})


@attrs.frozen(kw_only=True)
class Workload:
    """What was run: as the row in `workloads.parquet` has it.

    Attributes:
        model: Name of the built-in workload.
        params: Its parameters.
        batch: Samples in the batch.
        mode: inference or training.
        runtime: eager or cudagraph.
        dtype: What it computes in.
        optimizer: Of a training step; empty in inference.
        attention: `auto`, or the only algorithm that PyTorch could choose.

    """

    model: str
    params: Record
    batch: int
    mode: str
    runtime: str
    dtype: str
    optimizer: str
    attention: str = "auto"

    @classmethod
    def of(cls, row: WorkloadMeasurement) -> Workload:
        """Return the workload that a row is of."""
        return cls(
            model=row.model,
            params=row.params,
            batch=row.batch,
            mode=row.mode,
            runtime=row.runtime,
            dtype=row.dtype,
            optimizer=row.optimizer,
            attention=row.attention or "auto",
        )


@attrs.frozen(kw_only=True)
class Launch:
    """One kernel, copy or memset. Times are as traced: clocks may differ by some us.

    Attributes:
        iteration: Number of the iteration that launched it.
        stream: Where it ran.
        start_us: When it began, since the iteration's mark did on the host.
        duration_us: How long it took.
        kernel: Its name, or what was copied whither.
        op: The outermost op around the launch, `aten::linear`; empty for a graph's.
        correlation: Number of the call that launched it: one for all of a graph.
        launched_us: When that call began; None where the trace has no such call.
        category: kernel, gpu_memcpy or gpu_memset.

    """

    iteration: int
    stream: int
    start_us: float
    duration_us: float
    kernel: str
    op: str
    correlation: int | None
    launched_us: float | None
    category: str


_OF_WORKLOAD = (
    Field("model", "text"),
    Field("params", "text"),
    Field("batch", "int"),
    Field("mode", "text"),
    Field("runtime", "text"),
    Field("dtype", "text"),
    Field("optimizer", "text"),
    Field("attention", "text"),
)
_OF_LAUNCH = Format(
    "perfc.launches/1",
    (
        Field("iteration", "int"),
        Field("stream", "int"),
        Field("start_us", "float"),
        Field("duration_us", "float"),
        Field("kernel", "text"),
        Field("op", "text"),
        Field("correlation", "int"),
        Field("launched_us", "float"),
        Field("category", "text"),
    ),
)
LAUNCHES = Format(_OF_LAUNCH.name, (*_OF_WORKLOAD, *_OF_LAUNCH.fields))


def launches_of(events: Iterable[Event]) -> list[Launch]:
    """Return the launches of the marked iterations, by iteration and start.

    Args:
        events: Of a Kineto trace, in which `ProfilerStep#n` marks iterations. What
            was launched outside of all of them is left out.

    """
    spans = [event for event in events if event.get("ph") == "X"]
    calls = _calls(spans)
    ops = _OutermostOps(spans)
    steps = _Steps(spans)
    found: list[Launch] = []
    for event in spans:
        if event.get("cat") not in _WORK:
            continue
        call = calls.get(event.get("args", {}).get("correlation"))
        at_us = float(event["ts"]) if call is None else call[0]
        step = steps.at(at_us)
        if step is not None:
            op = "" if call is None else ops.around(*call)
            found.append(_launch(event, step, op, call))
    return sorted(found, key=lambda launch: (launch.iteration, launch.start_us))


def _launch(
    event: Event, step: tuple[int, float], op: str, call: tuple[float, Thread] | None
) -> Launch:
    number, zero_us = step
    args: Event = event.get("args", {})
    return Launch(
        iteration=number,
        stream=int(args.get("stream", event.get("tid", 0))),
        start_us=float(event["ts"]) - zero_us,
        duration_us=float(event["dur"]),
        kernel=str(event["name"])[:LONGEST_NAME],
        op=op,
        correlation=args.get("correlation"),
        launched_us=None if call is None else call[0] - zero_us,
        category=str(event["cat"]),
    )


def _calls(spans: Sequence[Event]) -> dict[object, tuple[float, Thread]]:
    """Return when and where each call of runtime or driver began, by correlation."""
    found: dict[object, tuple[float, Thread]] = {}
    for event in spans:
        correlation = event.get("args", {}).get("correlation")
        if event.get("cat") not in _CALLS or correlation is None:
            continue
        call = float(event["ts"]), _thread(event)
        # The runtime's call is around that of the driver, which may have its number.
        found[correlation] = min(call, found.get(correlation, call), key=_start)
    return found


def _start(call: tuple[float, Thread]) -> float:
    return call[0]


def _thread(event: Event) -> Thread:
    return event.get("pid"), event.get("tid")


class _Steps:
    """The marked iterations."""

    def __init__(self, spans: Sequence[Event]) -> None:
        marks = [
            (float(e["ts"]), float(e["dur"]), int(e["name"].removeprefix(_STEP)))
            for e in spans
            if e.get("cat") in _MARKS and str(e["name"]).startswith(_STEP)
        ]
        self._marks = sorted(marks)
        self._starts = [start for start, _, _ in self._marks]

    def at(self, time_us: float) -> tuple[int, float] | None:
        """Return number and start of the iteration at a time; None between them."""
        place = bisect.bisect_right(self._starts, time_us) - 1
        if place < 0:
            return None
        start_us, length_us, number = self._marks[place]
        return (number, start_us) if time_us <= start_us + length_us else None


class _OutermostOps:
    """Ops that no other op is around, by thread.

    Autograd's own, `autograd::engine::evaluate_function: AddmmBackward0`, are no ops,
    and neither is `AddmmBackward0`: the outermost is then what it calls, `aten::mm`.
    """

    def __init__(self, spans: Sequence[Event]) -> None:
        self._starts: dict[Thread, list[float]] = {}
        self._ops: dict[Thread, list[tuple[float, str]]] = {}
        ops = [e for e in spans if e.get("cat") == "cpu_op" and _is_op(str(e["name"]))]
        for event in sorted(ops, key=lambda e: (float(e["ts"]), -float(e["dur"]))):
            thread, start_us = _thread(event), float(event["ts"])
            known = self._ops.setdefault(thread, [])
            if known and start_us < known[-1][0]:
                continue
            known.append((start_us + float(event["dur"]), str(event["name"])))
            self._starts.setdefault(thread, []).append(start_us)

    def around(self, time_us: float, thread: Thread) -> str:
        """Return the op around a time on a thread; empty if there is none."""
        place = bisect.bisect_right(self._starts.get(thread, []), time_us) - 1
        if place < 0:
            return ""
        end_us, name = self._ops[thread][place]
        return name if time_us <= end_us else ""


def _is_op(name: str) -> bool:
    return "::" in name and "autograd::" not in name


@attrs.define
class LaunchTable:
    """`launches.parquet` or `.csv`, which grows; what it has is kept.

    Attributes:
        path: The file.

    Raises:
        MeasurementError: the file is there and is damaged, or of another format.

    """

    path: Path
    _columns: dict[Workload, dict[str, Column]] = attrs.field(
        factory=dict["Workload", "dict[str, Column]"], init=False
    )
    _names: dict[str, str] = attrs.field(factory=dict[str, str], init=False)

    def __attrs_post_init__(self) -> None:
        """Read what is there."""
        if self.path.exists():
            self._columns = _blocks(read_table(self.path, LAUNCHES))

    def __len__(self) -> int:
        """Return the number of launches."""
        return sum(len(columns["kernel"]) for columns in self._columns.values())

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """What it has launches of, in the order of the file."""
        return tuple(self._columns)

    def add(self, workload: Workload, events: Iterable[Event]) -> int:
        """Take over the launches of a trace, in place of those of an earlier one.

        Returns:
            How many there are: none on a CPU.

        """
        found = launches_of(events)
        rows = [attrs.astuple(launch, recurse=False) for launch in found]
        columns = _OF_LAUNCH.pack(rows)
        for name in ("kernel", "op", "category"):  # each text once
            texts = columns[name]
            columns[name] = [self._names.setdefault(str(t), str(t)) for t in texts]
        if rows:
            self._columns[workload] = columns
        return len(rows)

    def launches(self, workload: Workload) -> list[Launch]:
        """Return the launches of a workload, by iteration and start.

        Raises:
            KeyError: there are none.

        """
        columns = self._columns[workload]
        cells = {f.name: f.unpack(columns[f.name]) for f in _OF_LAUNCH.fields}
        rows = zip(*cells.values(), strict=True)
        return [Launch(**dict(zip(cells, row, strict=True))) for row in rows]

    def write(self) -> None:
        """Write all, in one step.

        Raises:
            PerfcError: pyarrow is missing, or the file cannot be written.

        """
        write_table(self.path, LAUNCHES, _joined(self._columns))


def read_launches(path: Path) -> LaunchTable:
    """Read a table that is there.

    Raises:
        MeasurementError: it is not, is damaged, or is of another format.

    """
    table = LaunchTable(path)
    if not path.exists():
        read_table(path, LAUNCHES)
    return table


def _cells(workload: Workload) -> dict[str, str | int]:
    """Return the cells that all launches of a workload share."""
    cells = {f.name: getattr(workload, f.name) for f in _OF_WORKLOAD}
    return {**cells, "params": json_of(workload.params)}


def _joined(blocks: Mapping[Workload, Mapping[str, Column]]) -> dict[str, Column]:
    """Return the columns of all workloads, one after the other."""
    rows = {workload: len(columns["kernel"]) for workload, columns in blocks.items()}
    shared = {w: _cells(w) for w in blocks}
    joined: dict[str, Column] = {}
    for field in _OF_WORKLOAD:
        cells = (itertools.repeat(shared[w][field.name], n) for w, n in rows.items())
        joined[field.name] = field.pack([*itertools.chain.from_iterable(cells)])
    for field in _OF_LAUNCH.fields:
        parts = (columns[field.name] for columns in blocks.values())
        joined[field.name] = field.joined([*parts])
    return joined


def _blocks(columns: Mapping[str, Column]) -> dict[Workload, dict[str, Column]]:
    """Take the columns of all workloads apart."""
    cells = [field.unpack(columns[field.name]) for field in _OF_WORKLOAD]
    rows = zip(*cells, strict=True)
    found: dict[Workload, dict[str, Column]] = {}
    end = 0
    for key, group in itertools.groupby(rows):
        start, end = end, end + sum(1 for _ in group)
        named = dict(zip((field.name for field in _OF_WORKLOAD), key, strict=True))
        named["params"] = record_of(json.loads(named["params"]))
        block = {f.name: columns[f.name][start:end] for f in _OF_LAUNCH.fields}
        found[Workload(**named)] = block
    return found
