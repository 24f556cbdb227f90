"""Kernels of DLRM training on a V100, as owensgroup/ml_perf_model traced them.

A row of `trace_kernels_v100_*.csv` names an op and a kernel; few name shapes. The
shapes follow from the models and from where an op stands (`dlrm_rules.py`).

Two things of the profiler are taken off, neither of which any model has a part in. It
counted whole microseconds, cut off (libkineto's `nsToUs(end - start)`): a kernel of 1.9
us reads 1, so that half a microsecond is added to each. And the one of 2021-05 and
2021-08 says 1.7 us more of every kernel, short or long, than the one of 2021-04 did of
the same kernels of the same model: the median of that difference over rows that may be
fitted is taken off each; copies from and to the host show none. Rows that do not say
what was computed (sorts of indices, memsets of a library's counters) are left out and
counted.
"""

from __future__ import annotations

import csv
import re
import statistics
import zlib
from collections.abc import Iterator
from pathlib import Path

import attrs
from dlrm_rules import MODELS, Model, Place, Row, what

from perfc.ir import Kernel, Record

CUT_OFF_US = 0.5
REFERENCE, REPEATED = "mlperf_2021-04", "mlperf_2021-05"
"""Traces of one model by two profilers."""
BIAS = "tensor_inputs = 1, bytes = "
"""In the name of a copy of a bias to all rows."""
FROM_HOST = frozenset({"copy h2d", "copy d2h"})


_WORDS = frozenset({"scattered", "axis"})
"""Parameters that are no sizes, which rows were not split by."""


def _name(kernel: Kernel) -> str:
    if kernel.op in {"concat", "gather"}:
        return f"{kernel.op} {kernel.params}"
    sizes = {key: kernel.params[key] for key in kernel.params if key not in _WORDS}
    return f"{kernel.op} {Record(sizes)}"


@attrs.frozen(eq=False)
class Traced:
    """Kernels that one call launched, and what they took together.

    Attributes:
        trace: File that they are from.
        family: What the table calls their kind; `fitted` hashes it, so it stays.
        op: ATen's or the library's op.
        kernels: What was computed.
        measured_us: As the profiler said.
        launches: How many there were.
        added_us: What this profiler says more of each than the first one.

    """

    trace: str
    family: str
    op: str
    kernels: tuple[Kernel, ...]
    measured_us: float
    launches: int
    added_us: float = 0.0

    @property
    def us(self) -> float:
        """What they took, with what the profiler cut off and without what it added."""
        return self.measured_us + (CUT_OFF_US - self.added_us) * self.launches

    @property
    def name(self) -> str:
        """What was computed, for all traces alike."""
        return f"{self.family} " + "|".join(map(_name, self.kernels))

    @property
    def fitted(self) -> bool:
        """Whether the row may be fitted: by a hash of what was computed.

        So was any that a constant was read off before it was hashed.
        """
        if self.family == "index add" or BIAS in self.name:
            return True
        return zlib.crc32(f"dlrm v100 {self.name}".encode()) % 2 == 0


def read(folder: Path) -> tuple[list[Traced], list[tuple[str, Row]]]:
    """Return the kernels of all traces of a folder, and the rows left out."""
    found: list[Traced] = []
    left: list[tuple[str, Row]] = []
    for path in sorted(folder.glob("trace_kernels_v100_dlrm_*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        trace = path.stem.removeprefix("trace_kernels_v100_dlrm_")
        for place in _places(rows, MODELS[trace.split("_")[0]]):
            computed = what(place)
            if computed is None:
                left.append((trace, place.row))
                continue
            family, kernels = computed
            if not kernels:
                found[-1] = _joined(found[-1], place.row)
                continue
            found.append(
                Traced(
                    trace,
                    family,
                    place.row["op"],
                    kernels,
                    float(place.row["mean_us"]),
                    int(place.row["kernel_launches"]),
                )
            )
    return _with_added(found), left


def _with_added(rows: list[Traced]) -> list[Traced]:
    added_us = profiler_us(rows)
    return [
        row
        if row.trace == REFERENCE or row.family in FROM_HOST
        else attrs.evolve(row, added_us=added_us)
        for row in rows
    ]


def profiler_us(rows: list[Traced]) -> float:
    """Return the time in us that later profilers add to a kernel beside the first."""
    took: dict[str, dict[str, list[float]]] = {REFERENCE: {}, REPEATED: {}}
    for row in rows:
        alone = row.launches == 1 and row.family not in FROM_HOST
        if alone and row.fitted and row.trace in took:
            took[row.trace].setdefault(row.name, []).append(row.us)
    first, again = took.values()
    return statistics.median(
        statistics.fmean(us) - statistics.fmean(first[name])
        for name, us in again.items()
        if name in first
    )


def _joined(gemm: Traced, row: Row) -> Traced:
    """Add the kernel that adds up the parts of a split GEMM to the GEMM."""
    return attrs.evolve(
        gemm,
        measured_us=gemm.measured_us + float(row["mean_us"]),
        launches=gemm.launches + 1,
    )


def _places(rows: list[Row], model: Model) -> Iterator[Place]:
    """Yield each row with its layer: an activation belongs to the layer before it.

    Backward, the activation's gradient comes before the layer's, and the sum for its
    bias and the handing over after it.
    """
    layers = [_layer(row) for row in rows]
    turns: dict[tuple[str, str], int] = {}
    for at, row in enumerate(rows):
        known = layers[: at + 1][::-1]
        if row["op"] == "ReluBackward0":
            known = layers[at:]
        layer = next((found for found in known if found), (0, 0, 0))
        key = (row["op"], row["kernel"])
        yield Place(model, row, layer, turns.get(key, 0))
        turns[key] = turns.get(key, 0) + 1


def _layer(row: Row) -> tuple[int, int, int] | None:
    sizes = re.search(r"M=(\d+) K=(\d+) N=(\d+)", row["layer_annotation"])
    if sizes is None:
        return None
    m, k, n = map(int, sizes.groups())
    return m, k, n
