"""`perfc.sweep`: many configurations of a model, priced in parallel."""

from __future__ import annotations

import functools
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, Unpack, cast

import attrs

from perfc.costmodels import Target
from perfc.ir import Diagnostic, PerfcError, UsageError
from perfc.ir.support import Json, Level, brief, path_text
from perfc.tools.given import read_target
from perfc.tools.models import Model, OnnxModel
from perfc.tools.reports import VerbResult
from perfc.tools.request import AnalyzeOptions, Request
from perfc.tools.signatures import shows
from perfc.tools.sweeping.axes import TARGET
from perfc.tools.sweeping.condition import read_condition
from perfc.tools.sweeping.executor import Executor, Part
from perfc.tools.sweeping.executors import find_executor
from perfc.tools.sweeping.pricing import forget
from perfc.tools.sweeping.result_file import SWEEP, ResultFile, rows_csv
from perfc.tools.sweeping.selection import best, front, lead
from perfc.tools.sweeping.space import (
    ERROR,
    METRICS,
    SCHEMA,
    USUAL,
    Configuration,
    Row,
    Space,
)
from perfc.tools.sweeping.sweep_table import sweep_text
from perfc.tools.sweeping.varied import Value, Varied, read_values, varied_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from perfc.frontends.torch import Source

Values: TypeAlias = str | Sequence[Value]

_FEWEST_AT_ONCE, _MOST_AT_ONCE = 8, 100
"""Configurations of a part: what a kill of a worker, or of all, may lose."""

_OF_WATTS = frozenset({"samples_per_j", "energy_j"})

_PARTS = 64
"""Parts of a sweep, or more, so that workers end at the same time."""


@attrs.frozen
class Progress:
    """How far a sweep is.

    Attributes:
        done: Configurations that have a row, those of an earlier run too.
        total: All of them.
        failed: Those that cannot be.
        new: Those that this run has priced.

    """

    done: int
    total: int
    failed: int
    new: int


def _silent(progress: Progress) -> None:
    """Say nothing."""


@attrs.frozen(eq=False)
class Sweep(VerbResult):
    """What was found of some configurations; data, which can be pickled.

    Attributes:
        space: What was swept.
        found: The rows.
        remarks: What analyses said, each once.

    """

    __repr__ = brief

    schema: ClassVar[str] = SCHEMA
    space: Space
    found: Sequence[Row]
    remarks: Sequence[Diagnostic] = ()

    @property
    def rows(self) -> Sequence[Row]:
        """A row a configuration.

        What varied, the target, metrics, the interval of the time, what bounds it, and
        why the configuration cannot be, empty if it can. What is unknown is None.
        """
        return self.found

    @property
    def diagnostics(self) -> Sequence[Diagnostic]:
        """What analyses said, each once, and whose watts are wanted but not known."""
        return tuple(dict.fromkeys((*self.remarks, *self._without_watts())))

    def _without_watts(self) -> Iterator[Diagnostic]:
        wanted = [name for name in self.space.metrics if name in _OF_WATTS]
        if not wanted or self.space.metrics == USUAL:
            return
        for name in self.space.names:
            own = [r for r in self.rows if r[TARGET] == name and not r[ERROR]]
            if own and all(row[wanted[0]] is None for row in own):
                msg = (
                    f"{name}: watts are not known, so that {', '.join(wanted)} is "
                    "empty; add power.node_w to its sheet, or name a target that has it"
                )
                yield Diagnostic(Level.WARNING, "no-watts", msg, name)

    def where(self, condition: str) -> Sweep:
        """Return the rows that a condition holds of, as `--where` takes it.

        Raises:
            UsageError: it is no condition, or names a column that there is not.

        """
        columns = [column.name for column in self.space.columns]
        holds = read_condition(condition, columns)
        return attrs.evolve(self, found=[row for row in self.rows if holds(row)])

    def best(self, count: int = 1, metric: str | None = None) -> Sweep:
        """Return the best rows, the best first.

        Args:
            count: How many.
            metric: By what: one of the metrics, the first known one if none is given.

        Raises:
            UsageError: it is none of the metrics.

        """
        by = lead(self.rows, self.space.metrics) if metric is None else metric
        self._check((by,))
        return attrs.evolve(self, found=best(self.rows, by, count))

    def pareto(self, *metrics: str) -> Sweep:
        """Return the rows that no other row beats in all of some metrics.

        Raises:
            UsageError: there are less than two, or one is none of the metrics.

        """
        self._check(metrics)
        if len(set(metrics)) < 2:  # noqa: PLR2004 - a front is between two
            msg = f"a Pareto front is of two metrics or more, found {len(set(metrics))}"
            raise UsageError(msg)
        return attrs.evolve(self, found=front(self.rows, metrics))

    def _check(self, metrics: Sequence[str]) -> None:
        for metric in metrics:
            if metric not in self.space.metrics:
                wanted = ", ".join(self.space.metrics)
                advice = "; --metric adds it" if metric in METRICS else ""
                msg = f"metric {metric!r} is none of {wanted}{advice}"
                raise UsageError(msg)

    @property
    def errors(self) -> Counter[str]:
        """Why configurations cannot be, with how many there are for each reason."""
        return Counter(row[ERROR] for row in self.rows if row[ERROR])

    def to_pandas(self) -> DataFrame:
        """Return the rows as a data frame.

        Raises:
            PerfcError: pandas is not installed.

        """
        try:
            import pandas as pd
        except ImportError:
            msg = "to_pandas needs pandas: pip install 'perfc[pandas]'"
            raise PerfcError(msg) from None
        names = [column.name for column in self.space.columns]
        return pd.DataFrame(self.rows, columns=names)

    def to_html(self) -> str:
        """Return the rows as a page of their own, which loads nothing."""
        from perfc.tools.sweeping.page import sweep_page

        return sweep_page(self.space, self.rows, self.diagnostics, self.to_json())

    def to_csv(self) -> str:
        """Return the rows as a `.csv` file of the sweep has them."""
        return rows_csv(self.space, self.rows)

    def _document(self) -> Json:
        space = self.space
        return {
            "model": _name(space.request.model),
            "targets": list(space.names),
            "varied": {axis.column: list(axis.values) for axis in space.axes},
            "metrics": list(space.metrics),
            SWEEP: space.digest,
            "rows": list(self.rows),
        }

    def _text(self) -> str:
        return sweep_text(self.space, self.rows, self.errors, self.diagnostics)


def _name(model: object) -> str:
    return model.name if isinstance(model, Model) else str(model)


@shows(AnalyzeOptions)
def sweep(  # noqa: PLR0913 - as many as a sweep has
    model: Model | Source | OnnxModel | str | os.PathLike[str],
    target: Target | str | os.PathLike[str] | Sequence[Target | str | os.PathLike[str]],
    vary: Mapping[str, Values],
    *,
    metric: str | Sequence[str] = USUAL,
    executor: str = "local:1",
    output: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: Callable[[Progress], None] = _silent,
    **options: Unpack[AnalyzeOptions],
) -> Sweep:
    """Price many configurations of *model*, in parallel.

    Args:
        model: A loaded model, or what `load` takes.
        target: A target, its name, or the path of its sheet; or several of them.
        vary: What varies, as `--vary` names it, and its values: a list, or text as
            `1024,2048` or `256:4096:x2`.
        metric: What is wanted of each configuration: keys of a report's summary, and
            `fits`.
        executor: `local:1` for this process, `local:N` for N processes of this machine,
            `local` for one a processor (guard scripts by `if __name__ == "__main__":`,
            for their processes import them), `dask://HOST:PORT` for a Dask cluster.
        output: File that rows are kept in while they come: `.csv`, `.parquet`, `.json`
            or `.html`.
        resume: Whether to go on with the rows of an earlier run that *output* has.
        progress: Is told how far it is, each time rows have come.
        options: What is the same in all configurations, as `perfc.analyze` takes it.

    Raises:
        UsageError: an argument names something perfc does not have, or *output* has the
            rows of another sweep.
        PerfcError: the model or a sheet is at fault, a file cannot be written, or the
            workers are gone. What cannot be of one configuration is in its row.

    """
    request = Request.of("perfc.sweep", AnalyzeOptions, options, model=model)
    one = not isinstance(target, Sequence) or isinstance(target, str)
    several = cast("Sequence[Any]", [target] if one else target)
    targets = [read_target("target", each) for each in several]
    metrics = (metric,) if isinstance(metric, str) else tuple(metric)
    varied = [_varied(name, values) for name, values in vary.items()]
    space = Space.of(request, targets, varied, metrics)
    path = None if output is None else Path(path_text("output", output))
    return run_sweep(space, find_executor(executor), path, resume, progress)


def _varied(name: str, values: Values) -> Varied:
    listed = read_values(values) if isinstance(values, str) else list(values)
    return varied_of(name, listed)


def run_sweep(
    space: Space,
    executor: Executor,
    output: Path | None = None,
    resume: bool = False,  # noqa: FBT001, FBT002 - as `--resume` is
    progress: Callable[[Progress], None] = _silent,
) -> Sweep:
    """Price the configurations of a space that have no row yet.

    What has come is written where the sweep ends, also where it is interrupted.
    """
    if output is None:
        return _priced(space, executor, None, progress)
    file = ResultFile.open(output, space, resume=resume)
    remarks: list[Diagnostic] = []
    try:
        swept = _priced(space, executor, file, progress)
        remarks += swept.diagnostics
    finally:
        file.finish(functools.partial(_written, space, output, remarks))
    return swept


def _written(
    space: Space, path: Path, remarks: Sequence[Diagnostic], rows: Sequence[Row]
) -> str:
    swept = Sweep(space, rows, tuple(remarks))
    return swept.to_html() if path.suffix == ".html" else swept.to_json()


def _priced(
    space: Space,
    executor: Executor,
    file: ResultFile | None,
    progress: Callable[[Progress], None],
) -> Sweep:
    """Price what has no row, and return all rows."""
    rows = [] if file is None else file.rows
    done = {space.key(row) for row in rows}
    before = len(rows)
    left = [
        part
        for part in _parts(space)
        if any(space.key_of(one) not in done for one in part)
    ]
    failed = sum(1 for row in rows if row[ERROR])
    remarks: dict[tuple[str, str], Diagnostic] = {}
    if left:
        progress(Progress(before, len(space), failed, 0))
    try:
        for priced in executor.run(space, left):
            new = [row for row in priced.rows if space.key(row) not in done]
            if file is None:
                rows += new
            else:
                file.append(new)
            for remark in priced.remarks:
                remarks.setdefault((remark.code, remark.where), remark)
            failed += sum(1 for row in new if row[ERROR])
            progress(Progress(len(rows), len(space), failed, len(rows) - before))
    finally:
        forget()
    found = sorted(remarks.values(), key=lambda one: (one.code, one.where))
    return Sweep(space, _ordered(space, rows), tuple(found))


def _ordered(space: Space, rows: Sequence[Row]) -> list[Row]:
    by_key = {space.key(row): row for row in rows}
    keys = map(space.key_of, space)
    return [by_key[key] for key in keys if key in by_key]


def _parts(space: Space) -> list[Part]:
    """Divide configurations into parts, those of one structure and size together.

    Parts are the same whoever prices them, and whatever has rows already: numbers that
    are found together may differ in their last digits from those that are not.
    """
    groups: dict[Any, dict[Any, list[Configuration]]] = {}
    for one in space:
        alike = groups.setdefault(space.structure(one), {})
        alike.setdefault(space.sizes(one), []).append(one)
    size = -(-len(space) // _PARTS)
    size = min(max(size, _FEWEST_AT_ONCE), _MOST_AT_ONCE)
    parts: list[Part] = []
    for by_size in groups.values():
        ordered = tuple(itertools.chain.from_iterable(by_size.values()))
        if parts and len(parts[-1]) + len(ordered) <= size:
            parts[-1] += ordered
            continue
        count = -(-len(ordered) // size)
        cuts = [len(ordered) * number // count for number in range(count + 1)]
        parts += [ordered[low:high] for low, high in itertools.pairwise(cuts)]
    return parts
