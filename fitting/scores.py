"""How far the cost models are off measured rows, group by group."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs
import numpy as np

from perfc import costmodels, measurements
from perfc.costmodels import kernels, pricing
from perfc.costmodels.collectives import joins_nodes
from perfc.costmodels.streaming import IDLE, REPEATED
from perfc.fitting.errors import Errors, errors_of
from perfc.fitting.observations import LEAST_US
from perfc.ir import UsageError
from perfc.ir.support import count_done

Z90 = 1.6448536269514722
"""Half of a 90 % interval, in standard deviations."""


OWN_SOURCE = "perfc measure"
"""How the source of rows begins that perfc measured."""

HELD = "measured: in the profile's own table"
"""Why rows are not scored whose kernels a profile does not predict."""


@attrs.frozen(order=True)
class GroupKey:
    """Rows that are scored together."""

    target: str
    op: str
    dtype: str
    timing: str


@attrs.frozen(eq=False)
class Predicted:
    """Rows of a group that were priced.

    Attributes:
        timed: What the cost models say that they would measure.
        measured_s: What they measured, shape (rows,).

    """

    timed: pricing.TimedEstimate
    measured_s: kernels.Floats


@attrs.frozen
class GroupScore:
    """What came of one group.

    Attributes:
        key: Which.
        errors: Of the scored rows; None where there are none.
        coverage90: Share of them inside the stated 90 % interval.
        width90: Median of the interval's width over the prediction.
        skipped: Rows that were not scored, by reason.

    """

    key: GroupKey
    errors: Errors | None
    coverage90: float | None
    width90: float | None
    skipped: Mapping[str, int]

    @property
    def rows(self) -> int:
        """How many rows were scored."""
        return 0 if self.errors is None else self.errors.rows


def score(
    tables: Iterable[measurements.MeasuredColumns],
    targets: Mapping[str, costmodels.Target] | None = None,
    models: Sequence[kernels.CostModel] | None = None,
) -> list[GroupScore]:
    """Score every row, by target, op, dtype and timing.

    Args:
        tables: The rows; what one says changes nothing for another.
        targets: What to price rows of a target with, by its name; rows of others are
            left out. All that perfc knows if not given.
        models: Those that are installed if not given.

    """
    chosen = costmodels.cost_models() if models is None else models
    found: dict[GroupKey, list[Predicted]] = {}
    skipped: dict[GroupKey, Counter[str]] = {}
    target_of = functools.cache(known_target)  # of this call: sheets may change
    done, total = 0, sum(map(len, tables))
    for rows in tables:
        pricer = TablePricer(rows)
        for key, at in groups_of(rows):
            count_done("rows scored", done, total)
            done += len(at)
            # The target to price rows of a name with: a GPU's rows are a system's, too.
            # None where perfc knows none, or none of *targets* is meant.
            known = target_of(key.target)
            target: costmodels.Target | None
            if targets is None:
                target = known
            elif known is None:
                target = targets.get(key.target)
            else:
                systems = {target.device.name: target for target in targets.values()}
                target = targets.get(known.name) or systems.get(known.name)
            if target is None and targets is not None:
                continue
            parts = found.setdefault(key, [])
            why = skipped.setdefault(key, Counter())
            parts += pricer.predict(key, at, target, chosen, why)
    return [_scored(key, found[key], skipped[key]) for key in sorted(found)]


def known_target(name: str) -> costmodels.Target | None:
    """Return the target of a name or alias, None if perfc knows none."""
    if costmodels.is_path(name):
        return None  # a table does not say which files are read
    try:
        return costmodels.load_target(name)
    except UsageError:
        return None


def why_not(key: GroupKey, target: costmodels.Target | None) -> str:
    """Return why no row of a group can be scored; empty if some can."""
    timings = (
        pricing.COLLECTIVE_TIMINGS
        if key.op in costmodels.COLLECTIVES
        else pricing.KERNEL_TIMINGS
    )
    what = "collective" if key.op in costmodels.COLLECTIVES else "kernel"
    reasons = (
        (target is None, f"unknown target {key.target}"),
        (key.op not in measurements.KERNEL_OPS, f"unknown op {key.op}"),
        (key.dtype not in measurements.BYTES, f"unknown dtype {key.dtype}"),
        (key.timing not in measurements.TIMINGS, f"unknown timing {key.timing}"),
        (key.timing not in timings, f"timing {key.timing} is of no {what}"),
    )
    return next((reason for applies, reason in reasons if applies), "")


def groups_of(
    rows: measurements.MeasuredColumns,
) -> list[tuple[GroupKey, kernels.Indices]]:
    """Return the rows of each group that is there."""
    columns = (rows.target, rows.op, rows.dtype, rows.timing)
    shape = [len(column.values) for column in columns]
    if not len(rows):
        return []
    code = np.ravel_multi_index([column.at for column in columns], shape)
    order = np.argsort(code, kind="stable")
    codes, starts = np.unique(code[order], return_index=True)
    parts = np.split(order, starts[1:])
    places = zip(*np.unravel_index(codes, shape), strict=True)
    return [
        (GroupKey(*(c.values[int(i)] for c, i in zip(columns, p, strict=True))), part)
        for p, part in zip(places, parts, strict=True)
    ]


@attrs.frozen(eq=False)
class _Signatures:
    """What the different parameters of one op and dtype are as kernels.

    Attributes:
        parts: Tables of signatures.
        part: Which table each cell of `params` is in, -1 for none.
        row: Which row of it.
        faults: Why a cell is no kernel.

    """

    parts: Sequence[costmodels.KernelTable]
    part: kernels.Indices
    row: kernels.Indices
    faults: Mapping[int, str]


@attrs.define(eq=False)
class TablePricer:
    """Signatures of the rows of one table, made once for all targets and timings."""

    rows: measurements.MeasuredColumns
    known: dict[tuple[str, str], _Signatures] = attrs.field(
        factory=dict[tuple[str, str], _Signatures], init=False
    )

    def predict(
        self,
        key: GroupKey,
        at: kernels.Indices,
        target: costmodels.Target | None,
        models: Sequence[kernels.CostModel],
        skipped: Counter[str],
    ) -> list[Predicted]:
        """Price some rows of one group; count those that cannot be in *skipped*."""
        found: list[Predicted] = []
        if target is None:
            skipped[why_not(key, target)] += len(at)
            return found
        for usable, signatures in self.usable_tables(key, at, target, skipped):
            rows, table = _not_held(usable, signatures, target, skipped)
            if not len(rows):
                continue
            source = self.rows.source
            sources = np.array(source.values)[source.at[rows]]
            estimate = priced(table, target, models, sources)
            timed = pricing.as_timed(
                estimate.seconds, estimate.sigma, table, target, key.timing
            )
            found.append(Predicted(timed, self.rows.latency_us[rows] * 1e-6))
        return found

    def usable_tables(
        self,
        key: GroupKey,
        at: kernels.Indices,
        target: costmodels.Target,
        skipped: Counter[str] | None = None,
    ) -> Iterator[tuple[kernels.Indices, costmodels.KernelTable]]:
        """Yield those of some rows of one group that can be priced, with signatures."""
        left_out: Counter[str] = Counter() if skipped is None else skipped
        if why := why_not(key, target):
            left_out[why] += len(at)
            return
        signatures = self._signatures(key.op, key.dtype)
        cells = self.rows.params.at[at]
        left_out.update(
            signatures.faults[cell]
            for cell in cells[signatures.part[cells] < 0].tolist()
        )
        for number, whole in enumerate(signatures.parts):
            mine = at[signatures.part[cells] == number]
            if not len(mine):
                continue
            table = whole.take(signatures.row[self.rows.params.at[mine]])
            usable, reasons = usable_rows(table, self.rows.latency_us[mine], target)
            left_out.update(reasons)
            if len(usable):
                rows = mine[usable]
                yield rows, self._as_timed(key, at, rows, table.take(usable))

    def _as_timed(
        self,
        key: GroupKey,
        at: kernels.Indices,
        rows: kernels.Indices,
        table: costmodels.KernelTable,
    ) -> costmodels.KernelTable:
        """Say how the kernels were timed.

        Again and again on the same operands, and between events on an idle GPU; after
        how many others of the group, whose rows *at* are in the order of measurement;
        with whose replay of graphs. perfc's own rows were not: they go through more
        operands than L2 holds, in processes of their own.
        """
        own = [source.startswith(OWN_SOURCE) for source in self.rows.source.values]
        foreign = ~np.array(own)[self.rows.source.at[rows]]
        table = table.with_param(REPEATED, foreign)
        table = table.with_param(IDLE, foreign & (key.timing == "event"))
        replayed = key.timing == "graph" and key.op in pricing.SOFTWARE_OPS
        if replayed or key.op in costmodels.COLLECTIVES:
            software = np.array(self.rows.source.values)[self.rows.source.at[rows]]
            return table.with_param(kernels.SOFTWARE, software)
        if (
            key.timing != "event"
            or key.op not in pricing.MEETING_OPS | pricing.SESSION_OPS
        ):
            return table
        met = np.searchsorted(np.sort(at), rows) * foreign
        return table.with_param(pricing.MET, met.astype(np.float64))

    def _signatures(self, op: str, dtype: str) -> _Signatures:
        if (op, dtype) not in self.known:
            rows = self.rows
            mine = rows.op.at == rows.op.values.index(op)
            mine &= rows.dtype.at == rows.dtype.values.index(dtype)
            used: list[int] = np.unique(rows.params.at[mine]).tolist()
            listed = [cell for cell in used if cell not in rows.faults]
            cells = np.array(listed, dtype=np.intp)
            params = [rows.parsed[cell] for cell in listed]
            tables, faults = measurements.kernel_tables(op, dtype, params)
            part = np.full(len(rows.parsed), -1)
            row = np.zeros(len(rows.parsed), dtype=np.intp)
            for number, (places, table) in enumerate(tables):
                part[cells[places]] = number
                row[cells[places]] = np.arange(len(table))
            named = {cell: rows.faults[cell] for cell in used if cell in rows.faults}
            named |= {listed[place]: why for place, why in faults.items()}
            self.known[op, dtype] = _Signatures(
                [table for _, table in tables], part, row, named
            )
        return self.known[op, dtype]


def _not_held(
    rows: kernels.Indices,
    table: costmodels.KernelTable,
    target: costmodels.Target,
    skipped: Counter[str],
) -> tuple[kernels.Indices, costmodels.KernelTable]:
    """Leave out what a profile has measured: it would be compared with itself."""
    if not target.measured:
        return rows, table
    found = [pricing.measured_kernel(kernel, target) for kernel in table.kernels]
    others = np.array([kernel is None for kernel in found])
    if held := len(rows) - int(others.sum()):
        skipped[HELD] += held
    return rows[others], table.take(np.flatnonzero(others))


def priced(
    table: costmodels.KernelTable,
    target: costmodels.Target,
    models: Sequence[kernels.CostModel],
    sources: kernels.Texts | None = None,
) -> kernels.Estimate:
    """Return prices of rows, and how sure they are of the times that rows measured.

    Rows of a session whose other rows set the interval are not off by what sessions and
    boards differ by.

    Args:
        table: What was measured.
        target: The machine.
        models: Those that price it.
        sources: Who measured each row; None: those who measured the fitted ones.

    """
    estimate = pricing.price_table(table, target, models)
    if target.fits:
        return estimate
    return pricing.as_fitted(estimate, table, target, sources)


def usable_rows(
    table: costmodels.KernelTable, latency_us: kernels.Floats, target: costmodels.Target
) -> tuple[kernels.Indices, Counter[str]]:
    """Return which rows can be scored, and how many cannot, by reason."""
    modes = np.array(["", *sorted(target.device.flops_per_s)])
    apart = (table.param("nodes", 1.0) > 1) & np.isin(
        table.op, list(costmodels.COLLECTIVES)
    )
    checks = (
        (np.isnan(latency_us), "latency_us is no time"),
        (latency_us < LEAST_US, "took no time"),
        (table.bytes_written <= 0, "computes nothing: a size is 0"),
        (~np.isin(table.math, modes), f"{target.name} has no {table.math[0]}"),
        (
            apart if not joins_nodes(target) else np.zeros_like(apart),
            f"{target.name} has no network: name a system",
        ),
    )
    left_out: Counter[str] = Counter()
    usable = np.ones(len(table), dtype=np.bool_)
    for bad, reason in checks:
        if count := int((bad & usable).sum()):
            left_out[reason] += count
        usable &= ~bad
    return np.flatnonzero(usable), left_out


def _scored(
    key: GroupKey, parts: Sequence[Predicted], skipped: Mapping[str, int]
) -> GroupScore:
    if not parts:
        return GroupScore(key, None, None, None, skipped)
    seconds = np.concatenate([part.timed.seconds for part in parts])
    sigma = np.concatenate([part.timed.sigma for part in parts])
    measured_s = np.concatenate([part.measured_s for part in parts])
    inside, width = coverage(seconds, sigma, measured_s)
    errors, covered = errors_of(seconds, measured_s), float(inside.mean())
    return GroupScore(key, errors, covered, width, skipped)


def coverage(
    seconds: kernels.Floats, sigma: kernels.Floats, measured_s: kernels.Floats
) -> tuple[kernels.Flags, float]:
    """Return which rows are inside the 90 % interval, and its median width.

    The width is that of the interval over the prediction.
    """
    inside: kernels.Flags = np.abs(np.log(measured_s / seconds)) <= Z90 * sigma
    width = 2 * np.sinh(Z90 * sigma)
    return inside, float(np.median(width))
