"""Rows that are marked `split=test` reach no fit: whatever they say, it is the same."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import attrs
import numpy as np
import pytest
import training
from tests.fitting.rows import copies, gemms, noisy
from training.collectives import collective_samples
from training.cpu_rows import family_logs
from training.samples import TEST as REPORTED
from training.samples import held_out_samples, part_of, samples_of

import perfc.fitting
from perfc.costmodels import load_profile, load_target
from perfc.fitting.collective_profile import fit_collectives
from perfc.fitting.device import fit_device
from perfc.fitting.host import fit_host
from perfc.fitting.machine import machine_fields, measured_rates
from perfc.fitting.measured import measured_table
from perfc.fitting.observations import Observations, observe
from perfc.ir import AttrValue, PerfcError, Record
from perfc.measurements import (
    FIT,
    MEASUREMENTS,
    TEST,
    Measurement,
    MeasurementError,
    read_columns,
    write_rows,
)
from perfc.tools.calibration.calibration import calibrate_rows, profile_of, summary

Rows = Sequence[Measurement]

WILD = (1e-3, 1e3)
"""By what the times of rows that are held out are wrong."""

V100, CPU = "v100-sxm2-16g", "cpu"


def _row(target: str, op: str, us: float, /, **params: AttrValue) -> Measurement:
    timing = "host" if op == "host_overhead" else "nccl"
    return Measurement(
        target=target,
        op=op,
        dtype="fp16",
        params=Record(params),
        latency_us=us,
        timing=timing,
        source="perfc measure, 6 threads",
    )


def _others(target: str) -> list[Measurement]:
    """Return host times, and on a GPU collectives."""
    host = [
        _row(target, "host_overhead", us, type=type_, op=op)
        for type_, op, us in (("T1", "", 4.0), ("T2", "aten::relu", 9.0))
    ]
    if target == CPU:
        return host
    return host + [
        _row(target, "all_reduce", us, bytes=size, ranks=4, nodes=1)
        for size, us in ((2**9, 14.0), (2**13, 15.0), (2**21, 40.0), (2**27, 1200.0))
    ]


def _machine(target: str) -> list[Measurement]:
    """Return rows of all that is measured of a machine, half of them marked `fit`."""
    law = noisy(lambda _, seconds: 3e-6 + 2 * seconds)
    timings = ("event",) if target == CPU else ("event", "kernel")
    kernels = [row for timing in timings for row in gemms(target, law, timing)]
    kernels += copies(target, law)[::3]
    rows = [row for row in kernels if row.split == FIT] + _others(target)
    return [
        attrs.evolve(row, source=f"perfc measure {row.timing}, 6 threads")
        for row in rows
    ]


def _held_out(rows: Rows) -> Iterator[Measurement]:
    """Yield rows of the same shapes that are held out, and far from true."""
    factors = itertools.cycle(WILD)
    for row, factor in zip(rows, factors, strict=False):
        yield attrs.evolve(
            row, latency_us=row.latency_us * factor, split=TEST, source="9 threads"
        )


MACHINES = {target: _machine(target) for target in (V100, CPU)}


def _seen(rows: Rows) -> Observations:
    kernels = [r for r in rows if r.op not in {"host_overhead", "all_reduce"}]
    return observe(kernels, load_target(rows[0].target))[0]


def _told(part: Observations) -> object:
    return part.rows, part.measured_s.tolist(), part.offset_s.tolist()


def _table(rows: Rows, folder: Path) -> Path:
    path = folder / "rows.csv"
    write_rows(path, rows, MEASUREMENTS)
    return path


def _logs(rows: Rows) -> object:
    seen, target = _seen(rows), load_target(rows[0].target)
    found = family_logs(seen, target, fit_device(seen, target).fits)
    return {
        family: (one.kernels, one.logs.tolist(), one.noise.tolist())
        for family, one in found.items()
    }


def _samples(rows: Rows, folder: Path) -> object:
    return [
        (s.key, s.measured_s.tolist(), s.part.tolist(), s.table.kernels)
        for s in samples_of(read_columns(_table(rows, folder)))
    ]


def _collectives(rows: Rows, folder: Path) -> object:
    found = collective_samples([read_columns(_table(rows, folder))])
    return [(s.software, s.collectives.bytes.tolist(), s.measured_s) for s in found]


ENTRIES: Mapping[str, Callable[[Rows, Path], object]] = {
    "collective_samples": lambda rows, folder: repr(_collectives(rows, folder)),
    "family_logs": lambda rows, _: _logs(rows),
    "fit_collectives": lambda rows, _: fit_collectives(rows, load_target("v100")),
    "fit_device": lambda rows, _: (
        fit_device(_seen(rows), load_target(rows[0].target)).fits
    ),
    "fit_host": lambda rows, _: fit_host(rows, load_profile("shared")),
    "machine_fields": lambda rows, _: machine_fields(rows),
    "measured_rates": lambda rows, _: measured_rates(
        _seen(rows), load_target(rows[0].target)
    ),
    "measured_table": lambda rows, _: measured_table(
        _seen(rows), load_target(rows[0].target)
    ),
    "observe": lambda rows, _: _told(_seen(rows).part(fitted=True)),
    "samples_of": _samples,
}
"""What takes rows, and what it makes of them."""

OTHERS = {
    "groups_of": "sorts rows",
    "held_out_samples": "returns what is held out, for reports",
    "is_collective": "asks for the op",
    "is_fitted": "asks for the mark",
    "logs_of": "compares the rows that it is given with a model",
    "score": "reports",
}
"""What takes rows and fits nothing."""

_TAKES_ROWS = re.compile(r"\b(Measurement|MeasuredColumns|Observations)\b")


def _modules(package: ModuleType) -> Iterator[str]:
    for module in pkgutil.iter_modules(package.__path__):
        yield f"{package.__name__}.{module.name}"


def _functions() -> Iterator[str]:
    """Yield the public functions that take measured rows, of all that fits."""
    for name in [*_modules(perfc.fitting), *_modules(training)]:
        found = inspect.getmembers(importlib.import_module(name), inspect.isfunction)
        for function, value in found:
            hints = {**value.__annotations__, "return": ""}
            own = value.__module__ == name and not function.startswith("_")
            if own and any(_TAKES_ROWS.search(str(hint)) for hint in hints.values()):
                yield function


def test_every_entry_point_is_known() -> None:
    """Whoever adds a function that takes rows says here what it makes of them."""
    assert sorted([*ENTRIES, *OTHERS]) == sorted(_functions())


CASES = [*itertools.product(ENTRIES, MACHINES)]
CASES.remove(("fit_collectives", CPU))  # which has none


@pytest.mark.parametrize(("entry", "target"), CASES)
def test_no_entry_point_looks_at_them(entry: str, target: str, tmp_path: Path) -> None:
    """Rows a thousand times too long and too short change no bit of what is fitted."""
    rows = MACHINES[target]
    fit = ENTRIES[entry]

    assert repr(fit(rows, tmp_path)) == repr(fit([*rows, *_held_out(rows)], tmp_path))


@pytest.mark.parametrize("entry", ENTRIES)
def test_others_are_looked_at(entry: str, tmp_path: Path) -> None:
    """The same rows without the mark do change what is fitted."""
    target = CPU if entry == "machine_fields" else V100
    rows = MACHINES[target]
    unmarked = [attrs.evolve(row, split=FIT) for row in _held_out(rows)]
    if entry == "fit_collectives":  # it refuses what no link carries
        unmarked = [row for row in unmarked if row.latency_us > 1e3]
    fit = ENTRIES[entry]

    assert repr(fit(rows, tmp_path)) != repr(fit([*rows, *unmarked], tmp_path))


@pytest.mark.parametrize("target", MACHINES)
def test_a_profile_is_the_same_without_them(target: str) -> None:
    """Byte for byte: coefficients, intervals, measured kernels, host, collectives."""
    rows = MACHINES[target]
    both = [*rows, *_held_out(rows)]
    one, other = calibrate_rows(rows), calibrate_rows(both)
    path = Path("mine.toml")

    assert profile_of(one, path, rows) == profile_of(other, path, both)
    assert one.fields == other.fields
    lines = list(summary(other))
    others = len(_others(target))
    assert f"left out: {others} rows, split=test, which is never fitted" in lines
    assert not any("split=test" in line for line in summary(one))


def test_rows_that_are_all_held_out_make_no_profile() -> None:
    """The error says why."""
    held = list(_held_out(MACHINES[V100]))

    with pytest.raises(PerfcError, match=rf"no row to fit: {len(held)} rows, split=te"):
        calibrate_rows(held)


OPS: Mapping[str, Sequence[Record]] = {
    "gemm": [
        Record({"b": 1, "m": m, "n": 64 * n, "k": 512})
        for m in (16, 96, 333)
        for n in range(1, 21)
    ],
    "elementwise": [
        Record({"kind": "add", "rows": 64, "cols": 100 * n, "tensor_inputs": 2})
        for n in range(1, 61)
    ],
}


def _marked(splits: Sequence[str]) -> list[Measurement]:
    """Return rows with the marks in turn, of two types."""
    rows = [
        attrs.evolve(_row("a100", op, 100.0 + n), params=record, dtype=dtype)
        for op, records in OPS.items()
        for dtype in ("fp32", "bf16")
        for n, record in enumerate(records)
    ]
    marks = itertools.cycle(splits)
    return [
        attrs.evolve(row, split=mark, timing="kernel")
        for row, mark in zip(rows, marks, strict=False)
    ]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_mark_decides_whatever_the_hash_says(suffix: str, tmp_path: Path) -> None:
    """Rows marked `test` are in no sample; the parts of others are as without marks."""
    path = tmp_path / f"rows.{suffix}"
    rows = _marked((FIT, "", TEST))
    write_rows(path, rows, MEASUREMENTS)
    table = read_columns(path)
    fitted, held = list(samples_of(table)), list(held_out_samples(table))
    write_rows(path, [attrs.evolve(row, split="") for row in rows], MEASUREMENTS)
    unmarked = list(samples_of(read_columns(path)))

    expected = Counter(row.latency_us for row in rows if row.split == TEST)
    found = [us for s in held for us in (s.measured_s * 1e6).round(6).tolist()]
    assert expected == Counter(found)
    assert {REPORTED} == {int(part) for s in held for part in s.part}
    for one, whole in zip(fitted, unmarked, strict=True):
        at = np.flatnonzero(np.isin(whole.measured_s, one.measured_s))
        assert 40 == len(one)
        assert whole.part[at].tolist() == one.part.tolist()
        assert {0, 1, 2} == set(one.part.tolist())


def test_tables_without_the_column_are_split_as_ever(tmp_path: Path) -> None:
    """As those that are public: by a hash of the text of their sizes."""
    path = _table(_marked(("",)), tmp_path)
    lines = path.read_text(encoding="utf-8").replace(",split,", ",other,", 1)
    path.write_text(lines, encoding="utf-8")
    table = read_columns(path)

    assert not table.held_out.any()
    assert [] == list(held_out_samples(table))
    (sample, *_) = (s for s in samples_of(table) if s.key.op == "elementwise")
    texts = [json.dumps(dict(record)) for record in OPS["elementwise"]]
    assert [part_of(text) for text in texts] == sample.part.tolist()


@pytest.mark.parametrize("mark", ["Test", "holdout", " test"])
def test_another_mark_is_an_error(mark: str, tmp_path: Path) -> None:
    """A row that nobody knows what it is for is not fitted by mistake."""
    path = _table(_marked(("",)), tmp_path)
    rows = path.read_text(encoding="utf-8").splitlines()
    rows[1] = rows[1].replace('perfc measure, 6 threads",,', f'x",,{mark}', 1)
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")

    with pytest.raises(MeasurementError, match="split"):
        list(samples_of(read_columns(path)))


_OF_USERS = "network_calibration.py"
"""What calibrates a board from whole networks that its user has measured."""


def test_nothing_that_fits_reads_whole_workloads() -> None:
    """Neither a fit of perfc nor a script of `make fit` knows their format."""
    root = Path(__file__).parents[2]
    folders = (
        "fitting/*",
        "benchmarks/training/*",
        "benchmarks/fits/*",
        "benchmarks/fit*",
        "tools/calibration/*",
    )
    found = {folder: [*root.glob(f"{folder}.py")] for folder in folders}
    files = [f for some in found.values() for f in some if f.name != _OF_USERS]
    known = re.compile(r"\bWORKLOADS\b|WorkloadMeasurement|perfc\.workloads")

    assert [] == [folder for folder, some in found.items() if not some]
    assert [] == [file for file in files if known.search(file.read_text("utf-8"))]
