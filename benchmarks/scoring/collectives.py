"""Collectives: sizes and nodes that the fit lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from training.collectives import (
    CollectiveSample,
    collective_samples,
    corrected_s,
    fit_rows,
    fit_systems,
    fitted_systems,
    line_s,
    modelled_s,
    two_of_each,
    two_points,
    two_sums,
    untold,
)

from perfc.costmodels.collectives import (
    CollectiveParameters,
    CollectiveRows,
)
from perfc.costmodels.kernels import Floats, Indices
from perfc.measurements import read_columns
from scoring.group import Group, together

LINE = "alpha + bytes / beta of each curve"
"""Fitted to every curve of op, type and ranks on its own, with the same rows."""

_LARGE = 2**20
"""Bytes above which latency says little."""


def of_collectives(data: Path) -> Iterator[Group]:
    """Yield sizes held out of each installation, then nodes that were left out."""
    files = sorted((data / "measurements").glob("collectives_*.parquet"))
    samples = collective_samples(map(read_columns, files))
    told, p, rows = fitted_systems(samples)
    groups = [_sizes(*each, p) for each in zip(told, rows, strict=True)]
    yield from groups
    for sizes, part in (("up to 1 MB", 0), ("above 1 MB", 1)):
        small = [_sized(*each, p, part) for each in zip(told, rows, strict=True)]
        known = [each for each in small if each is not None]
        yield together(known, f"collectives {sizes}, all installations")
    nodes = [s for s in samples if s.software.startswith("aiconfigurator")]
    for name in sorted({s.target.device.name for s in nodes}):
        mine = [s for s in nodes if s.target.device.name == name]
        others = [s for s in nodes if s.target.device.name != name]
        _, elsewhere = fit_systems(untold(others, fitted=True))
        yield from _left_out(name, untold(mine), elsewhere)


def _name(sample: CollectiveSample) -> str:
    name = f"collectives, {sample.target.device.name}, {sample.software}"
    return f"{name}, several nodes" if sample.fabric else name


def _sizes(
    sample: CollectiveSample, rows: CollectiveRows, p: CollectiveParameters
) -> Group:
    asked = sample.of(~sample.fitted)
    logs = np.log(corrected_s(asked, p, rows) / asked.measured_s)
    line = np.log(line_s(sample.of(sample.fitted), asked) / asked.measured_s)
    beside = {LINE: line} if np.isfinite(line).all() else {}
    return Group(
        "size",
        _name(sample),
        logs,
        units=_curves(asked),
        beside=beside,
        family="collectives",
    )


def _sized(
    sample: CollectiveSample,
    rows: CollectiveRows,
    p: CollectiveParameters,
    part: int,
) -> Group | None:
    asked = sample.of(~sample.fitted)
    large = asked.collectives.bytes > _LARGE
    asked = asked.of(large if part else ~large)
    if not len(asked.measured_s):
        return None
    logs = np.log(corrected_s(asked, p, rows) / asked.measured_s)
    return Group("size", _name(sample), logs)


def _left_out(
    name: str, mine: Sequence[CollectiveSample], elsewhere: CollectiveParameters
) -> Iterator[Group]:
    """Yield a node that was left out: with none of its rows, and with two or a few."""
    asked = [sample.of(~sample.fitted) for sample in mine]
    points = next(found for s in mine if len((found := two_sums(s)).measured_s) > 1)
    sums = fit_rows(points, elsewhere)
    two = [fit_rows(two_points(sample), elsewhere) for sample in mine]
    each = [fit_rows(two_of_each(sample), elsewhere) for sample in mine]
    for what, seconds in (
        ("no row known", [modelled_s(s, elsewhere) for s in asked]),
        ("two all-reduces known", [corrected_s(s, elsewhere, sums) for s in asked]),
        ("two rows known", _told(asked, elsewhere, two)),
        ("two rows a curve known", _told(asked, elsewhere, each)),
    ):
        measured_s = np.concatenate([sample.measured_s for sample in asked])
        units = [_curves(sample) for sample in asked]
        begins = np.cumsum([0, *(len(each) for each in units)])
        yield Group(
            "architecture",
            f"collectives, {what}, node of {name}",
            np.log(np.concatenate(seconds) / measured_s),
            units=np.concatenate([u + b for u, b in zip(units, begins, strict=False)]),
            family=f"collectives, {what}",
        )


def _told(
    asked: Sequence[CollectiveSample],
    p: CollectiveParameters,
    rows: Sequence[CollectiveRows],
) -> list[Floats]:
    """Return the seconds of each installation as its own rows say."""
    return [corrected_s(s, p, own) for s, own in zip(asked, rows, strict=True)]


def _curves(sample: CollectiveSample) -> Indices:
    """Return a number for each row, the same for those of one curve."""
    c = sample.collectives
    columns = [np.unique(each, return_inverse=True)[1] for each in (c.op, c.dtype)]
    numbers = np.stack([*columns, c.ranks, c.nodes], axis=1)
    return np.unique(numbers, axis=0, return_inverse=True)[1].reshape(-1)
