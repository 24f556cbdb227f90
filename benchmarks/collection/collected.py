"""The rows that came back of one GPU, as far as they can be scored."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import attrs

from collection.launches import read_launches
from collection.predicted import (
    KernelKey,
    Key,
    kernel_key,
    read_manifest,
    setting_key,
    setting_text,
)
from collection.tables import table_path
from perfc.ir import PerfcError
from perfc.measurements import (
    MEASUREMENTS,
    WORKLOADS,
    Measurement,
    Schema,
    WorkloadMeasurement,
    read_usable_rows,
)

SCHEMA = "perfc.collection/2"
ALONE = ("kernel", "graph")
"""How rows are timed that hold no call of the host's."""

Row = TypeVar("Row", bound=attrs.AttrsInstance)
Timed = TypeVar("Timed", Measurement, WorkloadMeasurement)
K = TypeVar("K")
Name: TypeAlias = Callable[[Timed], str]
"""What a row is called in a note."""

_MEMSET = "gpu_memset"


@attrs.frozen
class Note:
    """What was left out, or what there is to know of some rows.

    Attributes:
        reason: Why, or what.
        count: Of how many rows or settings.
        names: Which, where they have names.

    """

    reason: str
    count: int
    names: tuple[str, ...] = ()


@attrs.frozen
class Collected:
    """Usable rows of a folder.

    Attributes:
        folder: The folder.
        manifest: Its `manifest.json`.
        steps: Whole iterations, by setting.
        kernels: Kernels alone, by timing and kernel.
        launches: Kernels and copies in a profiled iteration, by setting: the median.
        notes: What else there is in the folder, or is not.

    """

    folder: Path
    manifest: Mapping[str, Any]
    steps: Mapping[Key, WorkloadMeasurement]
    kernels: Mapping[tuple[str, KernelKey], Measurement]
    launches: Mapping[Key, float]
    notes: Sequence[Note]

    @property
    def target(self) -> str:
        """What was measured."""
        return str(self.manifest["target"])


def read_collected(folder: Path) -> Collected:
    """Read a folder that `benchmarks/collect.py` has filled, as far as it came.

    Raises:
        PerfcError: it is none, or a table is damaged.

    """
    manifest = read_manifest(folder, SCHEMA, "collected rows")
    target = manifest.get("target")
    if not isinstance(target, str):
        msg = f"{folder}: the manifest names no target"
        raise PerfcError(msg)
    reader = _Reader(folder, target)
    steps = reader.usable(
        reader.rows("workloads", WORKLOADS), lambda row: row.time_us, setting_text
    )
    kernels = reader.usable(
        reader.alone(reader.rows("kernels", MEASUREMENTS)),
        lambda row: row.latency_us,
        kernel_text,
    )
    return Collected(
        folder,
        manifest,
        reader.by_key(steps, setting_key, setting_text),
        reader.by_key(kernels, _timed_kernel, kernel_text),
        reader.launches(),
        reader.notes,
    )


def kernel_text(row: Measurement) -> str:
    """Return the op and dtype of a row."""
    return f"{row.op} {row.dtype}"


def _timed_kernel(row: Measurement) -> tuple[str, KernelKey]:
    return row.timing, kernel_key(row)


@attrs.define
class _Reader:
    """Reads tables, and notes what cannot be used of them."""

    folder: Path
    target: str
    notes: list[Note] = attrs.field(factory=list[Note], init=False)

    def rows(self, name: str, schema: Schema[Row]) -> list[Row]:
        """Return the rows of a table that can be read."""
        path = self._table(name)
        if path is None:
            return []
        found, unread = read_usable_rows(path, schema)
        for reason, count in sorted(unread.items()):
            self.notes.append(Note(f"rows of {path.name} left out: {reason}", count))
        return found

    def launches(self) -> dict[Key, float]:
        """Return how many kernels and copies the median iteration of each launches."""
        path = self._table("launches")
        if path is None:
            return {}
        table = read_launches(path)
        found: dict[Key, float] = {}
        for workload in table.workloads:
            launched = table.launches(workload)
            counts = Counter(x.iteration for x in launched if x.category != _MEMSET)
            found[setting_key(workload)] = statistics.median(counts.values() or [0])
        return found

    def _table(self, name: str) -> Path | None:
        """Return where a table is, as far as the run came."""
        path = table_path(self.folder, name)
        if path.exists():
            return path
        self.notes.append(Note(f"there is no {path.name}", 0))
        return None

    def alone(self, rows: Sequence[Measurement]) -> list[Measurement]:
        """Return the rows that say what a kernel takes without the host's call."""
        others = Counter(row.timing for row in rows if row.timing not in ALONE)
        for timing, count in sorted(others.items()):
            self.notes.append(
                Note(f"rows of kernels left out: timed as {timing}", count)
            )
        return [row for row in rows if row.timing in ALONE]

    def usable(
        self, rows: Sequence[Timed], us: Callable[[Timed], float], name: Name[Timed]
    ) -> list[Timed]:
        """Return the rows of the target that took some time; say which throttled."""
        others = [row for row in rows if row.target != self.target]
        mine = [row for row in rows if row.target == self.target]
        for target in sorted({row.target for row in others}):
            chosen = [row for row in others if row.target == target]
            self._note(f"left out: rows of {target}, not {self.target}", chosen, name)
        self._note("left out: took no time", [r for r in mine if us(r) <= 0], name)
        found = [row for row in mine if us(row) > 0]
        throttled = [row for row in found if row.throttled]
        self._note("the GPU slowed down meanwhile, yet scored", throttled, name)
        return found

    def by_key(
        self, rows: Iterable[Timed], key: Callable[[Timed], K], name: Name[Timed]
    ) -> dict[K, Timed]:
        """Return the first row of each key."""
        found: dict[K, Timed] = {}
        again = [row for row in rows if found.setdefault(key(row), row) is not row]
        self._note("left out: measured before in the same folder", again, name)
        return found

    def _note(self, reason: str, rows: Sequence[Timed], name: Name[Timed]) -> None:
        if rows:
            names = tuple(dict.fromkeys(map(name, rows)))
            self.notes.append(Note(reason, len(rows), names))
