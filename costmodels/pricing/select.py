"""Choice of the model that prices each kernel, and checks of its answer."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import pricing
from perfc.costmodels.kernels import (
    OF_TARGET,
    CostModel,
    Estimate,
    Floats,
    Indices,
    KernelTable,
    OneSignature,
    Provenance,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.pricing.bound import (
    at_least_bound,
    at_least_own_bound,
    brings_bound,
)
from perfc.costmodels.pricing.intervals import with_intervals
from perfc.costmodels.pricing.listed import MEASURED_NAME, ListedModel
from perfc.ir import Kernel, PerfcError
from perfc.ir.support import is_built_in, plugin_at_work

FEW, FEW_OF_COLUMNS = 32, 10
"""Kernels of one op that are priced one by one, which takes them less than arrays; and
of those that have to be made of columns first."""

_NO_ROWS: Indices = np.empty(0, dtype=np.intp)


def price(
    kernels: Sequence[Kernel], target: Target, models: Sequence[CostModel]
) -> Estimate:
    """Price every kernel; see `price_table`."""
    if len(kernels) == 1 and (found := pricing.price_one(kernels[0], target, models)):
        return found
    return price_table(KernelTable(kernels), target, models)


def price_table(
    table: KernelTable, target: Target, models: Sequence[CostModel]
) -> Estimate:
    """Price every row with the first model, by falling priority, that claims it.

    A kernel of an unknown op is offered only to models that take any op. No
    estimate is below the kernel's lower bound, or the one that its model brings.
    """
    if len(table) == 1 <= _most_alone(table):
        found = pricing.price_one(table.kernels[0], target, models)
        if found is not None:
            return found
    todo = _Todo.of(table)
    result = _Result.of(len(table))
    _price_one_by_one(table, target, models, todo, result)
    if todo.pending.any():
        _price_in_arrays(table, target, models, todo, result)
    return result.estimate()


def _price_one_by_one(
    table: KernelTable,
    target: Target,
    models: Sequence[CostModel],
    todo: _Todo,
    result: _Result,
) -> None:
    """Price the rows of ops that have few, as far as models know them alone."""
    if target.is_calibrated or not (few := todo.few(_most_alone(table))):
        return
    say_one, ones = pricing.say_one, table.once(_ones)
    for row in few:
        if row not in ones:
            ones[row] = OneSignature(table.kernels[row])
    said = [say_one(ones[row], target, models) for row in few]
    priced = [each for each in said if each is not None]
    if not priced:
        return
    rows = np.array([row for row, each in zip(few, said, strict=True) if each])
    result.put(rows, pricing.estimate_of(priced))
    todo.done(rows)


def _most_alone(table: KernelTable) -> int:
    """Return how many kernels of one op are few."""
    return FEW_OF_COLUMNS if table.has_columns_only else FEW


def _ones(_: KernelTable) -> dict[int, OneSignature]:
    return {}


def _price_in_arrays(
    table: KernelTable,
    target: Target,
    models: Sequence[CostModel],
    todo: _Todo,
    result: _Result,
) -> None:
    """Price the rows that are left, all that a model claims at once."""
    bounded = ~todo.pending  # those that were priced one by one
    before = _NO_ROWS, table
    # Names break ties, so that the price of a kernel does not depend on the order in
    # which plugins are found.
    for model in sorted(models, key=lambda m: (-m.priority, m.name)):
        if isinstance(model, ListedModel) and not model.applies(target):
            continue
        rows = todo.for_ops(model.ops)
        if not len(rows):
            continue
        offered = _offered(table, rows, before)
        before = rows, offered
        claimed = _checked_claims(model, offered, target)
        if not claimed.all():
            chosen = np.flatnonzero(claimed)
            rows, offered = rows[chosen], offered.take(chosen)
        if len(rows):
            result.put(rows, _estimate(model, offered, target))
            bounded[rows] = brings_bound(model)
            todo.done(rows)
    if len(rest := todo.for_ops(None)):
        kernel = table.kernels[int(rest[0])]
        message = (
            f"no cost model prices kernel {kernel.op!r} {kernel.params}; "
            f"asked: {', '.join(model.name for model in models) or 'none'}"
        )
        raise PerfcError(message)
    # The bound of flops and bytes is applied to all rows at once, except those whose
    # plugin brings a bound of its own, which may well be lower.
    if not bounded.any():
        result.seconds = at_least_bound(result.seconds, table, target)
    elif len(rows := np.flatnonzero(~bounded)):
        seconds = result.seconds[rows]
        result.seconds[rows] = at_least_bound(seconds, table.take(rows), target)


def _estimate(model: CostModel, offered: KernelTable, target: Target) -> Estimate:
    """Return a model's estimate of its rows, with interval and correction."""
    with plugin_at_work(f"cost model {model.name!r}", model):
        estimate = model.estimate(offered, target)
    # A plugin may return NaN or too few rows, which has to be reported by its name
    # before anything is computed from it. Intervals and calibration describe the errors
    # of models, so measured rows are exempt.
    _check(model, offered, estimate)
    if model.name != MEASURED_NAME:
        if is_built_in(model):
            estimate = with_intervals(estimate, offered, target)
        if target.fits:
            estimate = pricing.as_calibrated(estimate, offered, target)
    if brings_bound(model):
        estimate = at_least_own_bound(estimate, offered, target, model)
    return estimate


def _offered(
    table: KernelTable, rows: Indices, before: tuple[Indices, KernelTable]
) -> KernelTable:
    """Return some rows: of what was offered *before* if it has them, as it is read.

    Args:
        table: All rows.
        rows: Which, ascending.
        before: Which rows the model before this one was offered, and their table.

    """
    if len(rows) == len(table):
        return table
    known, last = before
    if len(rows) <= len(known):
        at = np.searchsorted(known, rows)
        if (known[np.minimum(at, len(known) - 1)] == rows).all():
            return last if len(rows) == len(known) else last.take(at)
    return table.take(rows)


@attrs.define
class _Todo:
    """The rows that are not priced yet."""

    pending: NDArray[np.bool_]
    by_op: dict[str, Indices]

    @classmethod
    def of(cls, table: KernelTable) -> _Todo:
        by_op: dict[str, Indices] = {}
        if len(table):
            kinds, at = table.kinds
            names = [op for op, _, _ in kinds]
            listed = sorted({*names})
            place = np.array([listed.index(name) for name in names])[at]
            by_op = {
                op: np.flatnonzero((place == number) & table.known)
                for number, op in enumerate(listed)
            }
        return cls(np.ones(len(table), dtype=np.bool_), by_op)

    def few(self, most: int) -> list[int]:
        """Return the rows of ops that have so many at most, in their order."""
        short = [rows for rows in self.by_op.values() if len(rows) <= most]
        found: list[int] = np.sort(np.concatenate([_NO_ROWS, *short])).tolist()
        return found

    def for_ops(self, ops: frozenset[str] | None) -> Indices:
        if ops is None:
            return np.flatnonzero(self.pending)
        found = [rows for op, rows in self.by_op.items() if op in ops]
        if not found:
            return _NO_ROWS
        rows = found[0] if len(found) == 1 else np.sort(np.concatenate(found))
        return rows[self.pending[rows]]

    def done(self, rows: Indices) -> None:
        self.pending[rows] = False


@attrs.define
class _Result:
    """The estimate that is being put together."""

    seconds: Floats
    sigma_shared: Floats
    sigma_independent: Floats
    model: list[str]
    provenance: list[Provenance]
    sigma_target: Floats

    @classmethod
    def of(cls, rows: int) -> _Result:
        return cls(
            np.empty(rows),
            np.empty(rows),
            np.empty(rows),
            [""] * rows,
            [Provenance.ASSUMED] * rows,
            np.empty((len(OF_TARGET), rows)),
        )

    def put(self, rows: Indices, estimate: Estimate) -> None:
        self.seconds[rows] = estimate.seconds
        self.sigma_shared[rows] = estimate.sigma_shared
        self.sigma_independent[rows] = estimate.sigma_independent
        self.sigma_target[:, rows] = estimate.sigma_target
        if len(rows) == len(self.model):
            self.model, self.provenance = [*estimate.model], [*estimate.provenance]
            return
        named = zip(rows.tolist(), estimate.model, estimate.provenance, strict=True)
        for row, model, provenance in named:
            self.model[row] = model
            self.provenance[row] = provenance

    def estimate(self) -> Estimate:
        return Estimate(
            self.seconds,
            self.sigma_shared,
            self.sigma_independent,
            self.model,
            self.provenance,
            self.sigma_target,
        )


def _checked_claims(
    model: CostModel, table: KernelTable, target: Target
) -> NDArray[np.bool_]:
    with plugin_at_work(f"cost model {model.name!r}", model):
        claimed = np.asarray(model.claims(table, target))
    if claimed.shape != (len(table),) or claimed.dtype != np.bool_:
        message = (
            f"cost model {model.name!r} answers claims() with {claimed.dtype} of shape "
            f"{claimed.shape}, expected bool of shape ({len(table)},)"
        )
        raise PerfcError(message)
    return claimed


def _check(model: CostModel, table: KernelTable, estimate: object) -> None:
    if not isinstance(estimate, Estimate):
        message = (
            f"cost model {model.name!r} answers estimate() with "
            f"{type(estimate).__name__}, expected an Estimate (see uniform_estimate)"
        )
        raise PerfcError(message)
    columns = {
        "seconds": estimate.seconds,
        "sigma_shared": estimate.sigma_shared,
        "sigma_independent": estimate.sigma_independent,
        "model": estimate.model,
        "provenance": estimate.provenance,
    }
    for column, values in columns.items():
        if len(values) != len(table):
            message = (
                f"cost model {model.name!r} returns {len(values)} values of {column} "
                f"for {len(table)} kernels"
            )
            raise PerfcError(message)
    # One look at all three; which it was matters only if something is wrong.
    least = min(
        float(np.min(estimate.seconds)) or -1.0,
        float(np.min(estimate.sigma_shared)),
        float(np.min(estimate.sigma_independent)),
    )
    total = np.sum(estimate.seconds) + np.sum(estimate.sigma_shared)
    if least >= 0 and np.isfinite(total + np.sum(estimate.sigma_independent)):
        return
    _check_numbers(model, table, "seconds", estimate.seconds, above_zero=True)
    for column in ("sigma_shared", "sigma_independent"):
        values = np.asarray(columns[column], dtype=np.float64)
        _check_numbers(model, table, column, values, above_zero=False)


def _check_numbers(
    model: CostModel,
    table: KernelTable,
    column: str,
    values: Floats,
    *,
    above_zero: bool,
) -> None:
    good = np.isfinite(values) & ((values > 0) if above_zero else (values >= 0))
    if good.all():
        return
    row = int(np.flatnonzero(~good)[0])
    kernel = table.kernels[row]
    expected = "a finite number above 0" if above_zero else "a finite number >= 0"
    message = (
        f"cost model {model.name!r} says {column} = {values[row]} of kernel "
        f"{kernel.op!r} {kernel.params}, expected {expected}; remove or correct it"
    )
    raise PerfcError(message)
