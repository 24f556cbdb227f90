"""Kernels of measured tables: sizes, boards and architectures that fits lack."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs
import numpy as np
from training.baselines import lin_formula_s
from training.cross_fit import has_network, reported
from training.elsewhere import (
    OTHERS,
    Session,
    fit_errors,
    library_pairs,
    sessions_elsewhere,
)
from training.priced_rows import Misses, different, named
from training.samples import TEST, Sample, held_out_samples, samples_of
from training.shipped_gemms import with_few
from training.unseen import Unseen
from training.unseen_intervals import unseen_sigmas

from perfc.costmodels import COLLECTIVES, cost_models
from perfc.costmodels.kernels import CostModel, Floats, Indices
from perfc.costmodels.pricing import as_timed
from perfc.fitting.scores import Z90, priced
from perfc.measurements import MeasuredColumns, read_columns
from scoring.group import Group

ROOFLINE, LIN = "roofline/0.8 + 3 us", "formulas of Lin et al."
"""What is known of kernels without a model of theirs: see `training.baselines`."""

MARKED = ", split=test"
"""Suffix of the names of rows that their table holds out itself."""


def measured_tables(data: Path) -> list[MeasuredColumns]:
    """Return the tables of measured rows of a folder."""
    return [
        read_columns(file) for file in sorted((data / "measurements").glob("*.parquet"))
    ]


def kernel_samples(data: Path) -> list[Sample]:
    """Return the rows of kernels that can be priced, but for those held out."""
    return _of_kernels(s for rows in measured_tables(data) for s in samples_of(rows))


def held_out_kernels(data: Path) -> list[Sample]:
    """Return the rows of kernels that their tables hold out."""
    tables = measured_tables(data)
    return _of_kernels(s for rows in tables for s in held_out_samples(rows))


def _of_kernels(samples: Iterable[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.key.op not in COLLECTIVES]


def of_sizes(data: Path) -> Iterator[Group]:
    """Yield rows of known GPUs whose sizes are in no fit, but for `of_networks`."""
    found = [sample for sample in kernel_samples(data) if not has_network(sample)]
    yield from _of_sizes([sample.of(TEST) for sample in found])
    yield from _of_sizes(held_out_kernels(data), MARKED)


def of_networks(data: Path) -> Iterator[Group]:
    """Yield those that a network corrects, by networks that lack all of these rows.

    The networks that ship have seen them: others are fitted here, which takes long.
    """
    found = [sample for sample in kernel_samples(data) if has_network(sample)]
    yield from _of_sizes(reported(found))


def _of_sizes(samples: Iterable[Sample], mark: str = "") -> Iterator[Group]:
    models, parts = cost_models(), _Parts()
    for sample in samples:
        for name, at in named(sample) if len(sample) else ():
            parts.add(_sized(sample.take(at), f"{name}{mark}", models))
    yield from parts.groups()


def _sized(rows: Sample, what: str, models: Sequence[CostModel]) -> Group:
    estimate = priced(rows.table, rows.target, models)
    seconds = estimate.seconds if rows.apart_s is None else rows.apart_s
    around = (rows.table, rows.target, rows.key.timing)
    timed = as_timed(seconds, estimate.sigma, *around)
    lin_s = lin_formula_s(rows)
    others = {ROOFLINE: rows.roofline_s()} | ({} if lin_s is None else {LIN: lin_s})
    return Group.of(
        "size",
        f"{what}, {rows.key.target}",
        _logs(timed.seconds, rows),
        timed.sigma,
        units=different(rows),
        beside={name: _logs(seconds, rows) for name, seconds in others.items()},
        family=what,
    )


def of_boards(data: Path) -> Iterator[Group]:
    """Yield kernels of other boards and sessions, each board by what the others say."""
    by_kind: dict[str, list[Session]] = defaultdict(list)
    for session in sessions_elsewhere(data):
        by_kind[session.kind].append(session)
    for kind, sessions in by_kind.items():
        pairs = library_pairs(data) if kind == OTHERS else ()
        what = "kernels but GEMMs" if kind == OTHERS else "GEMMs"
        for board in sorted({session.board for session in sessions}):
            others = [one for one in sessions if one.board != board]
            errors = fit_errors(others, pairs)
            mine = [one for one in sessions if one.board == board]
            logs = np.concatenate([one.logs for one in mine])
            sigma = np.concatenate([errors.sigma(one) for one in mine])
            yield Group.of("board", f"{what}, {board}", logs, sigma, family=what)


def of_architectures(data: Path) -> Iterator[Group]:
    """Yield rows of GPUs that neither a fit nor an interval has seen."""
    samples, held_out = kernel_samples(data), held_out_kernels(data)
    unseen = Unseen(samples)
    gpus = sorted({sample.key.target for sample in (*samples, *held_out)})
    stated = {gpu: unseen_sigmas(unseen.calibrating(frozenset({gpu}))) for gpu in gpus}
    parts = _Parts()
    for these, mark in ((samples, ""), (held_out, MARKED)):
        for sample in these:
            parts.add(*_left_out(unseen, sample, stated[sample.key.target], mark))
    yield from parts.groups()
    yield from of_few_rows(samples, unseen)


def _left_out(
    unseen: Unseen, sample: Sample, stated: dict[str, list[float]], mark: str
) -> Iterator[Group]:
    found = unseen.priced(sample, {TEST})
    for name, rows in found.named() if found else ():
        group = Group(
            "architecture",
            f"{name}{mark}, {sample.target.name}",
            _logs(rows.sample.timed_s(rows.kernel_s), rows.sample),
            units=different(rows.sample),
            family=f"{name}{mark}",
        )
        if name in stated:
            shared, own, power = stated[name]
            sigma = Misses.of([rows]).sigma(float(np.hypot(shared, own)), power)
            group = attrs.evolve(group, low=Z90 * sigma, high=Z90 * sigma)
        yield group


def of_few_rows(samples: Sequence[Sample], unseen: Unseen) -> Iterator[Group]:
    """Yield GEMMs of GPUs left out, ten rows of which are known.

    Of five draws of the ten, the one with the median error.
    """
    for found in with_few(samples, unseen.gemms):
        kinds = f"gemm {found.dtype}, ten rows known"
        yield Group(
            "architecture",
            f"{kinds}, {found.target}",
            found.logs,
            units=found.units,
            family=kinds,
        )


def _logs(seconds: Floats, rows: Sample) -> Floats:
    found: Floats = np.log(seconds / rows.measured_s)
    return found


@attrs.define
class _Parts:
    """Groups of which those of one name become one: tables are read in parts."""

    found: dict[str, list[Group]] = attrs.field(factory=dict[str, "list[Group]"])

    def add(self, *groups: Group) -> None:
        """Take in some groups."""
        for group in groups:
            self.found.setdefault(group.name, []).append(group)

    def groups(self) -> Iterator[Group]:
        """Yield a group a name."""
        yield from map(_one, self.found.values())


def _one(parts: Sequence[Group]) -> Group:
    """Return parts of one name as one group, the units of each part its own."""
    first, *rest = parts
    if not rest:
        return first
    low, high = (
        np.concatenate(
            [each for part in parts if (each := getattr(part, end)) is not None]
        )
        if first.low is not None
        else None
        for end in ("low", "high")
    )
    units: list[Indices] = []
    for part in parts:
        begin = 1 + max((int(each.max()) for each in units), default=-1)
        own = np.arange(len(part)) if part.units is None else part.units
        units.append(own + begin)
    beside = {
        who: np.concatenate([part.beside[who] for part in parts])
        for who in first.beside
        if all(who in part.beside for part in parts)
    }
    logs = np.concatenate([part.logs for part in parts])
    return attrs.evolve(
        first, logs=logs, low=low, high=high, units=np.concatenate(units), beside=beside
    )
