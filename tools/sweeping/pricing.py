"""Configurations to rows: what is shared is loaded once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import attrs

import perfc
from perfc.costmodels import Target, load_target
from perfc.ir import Diagnostic, PerfcError
from perfc.ir.support import paused_collector
from perfc.tools.analysis import report_on
from perfc.tools.models import Model, load_request
from perfc.tools.plugin_modules import import_plugin
from perfc.tools.reports import Report
from perfc.tools.request import Request
from perfc.tools.sweeping.space import (
    ERROR,
    INTERVAL,
    METRICS,
    Configuration,
    Row,
    Space,
)
from perfc.tools.sweeping.varied import Value

_TARGETS = 256
"""Targets that a process keeps."""

_Fields = tuple[tuple[str, str], ...]


@attrs.frozen
class Priced:
    """What a process has found of some configurations.

    Attributes:
        rows: One for each configuration.
        remarks: What analyses said of them, each once.

    """

    rows: tuple[Row, ...]
    remarks: tuple[Diagnostic, ...]


def price(space: Space, configurations: Sequence[Configuration]) -> Priced:
    """Price some configurations, in this process.

    Raises:
        PerfcError: this process is none that could: it has another version of perfc,
            lacks the model's file or a plugin.

    """
    pricer = _pricer(space)
    rows: list[Row] = []
    remarks: dict[tuple[str, str], Diagnostic] = {}
    with paused_collector():
        for _, alike in itertools.groupby(configurations, space.structure):
            for one, report in pricer.reports(list(alike)):
                if isinstance(report, str):
                    rows.append(space.row_of(one, **{ERROR: report}))
                    continue
                rows.append(space.row_of(one, **_numbers(report, space.metrics)))
                for remark in report.analysis.diagnostics:
                    remarks.setdefault((remark.code, remark.where), remark)
    return Priced(tuple(rows), tuple(remarks.values()))


def _numbers(report: Report, metrics: Sequence[str]) -> dict[str, object]:
    """Return the cells of a report; numbers are of their columns' types."""
    summary, memory = report.summary, report.target.device.memory
    fits = summary["peak_memory_bytes"] <= memory.usable_bytes
    found = {**summary, "fits": fits}
    cells = {name: found[name] for name in (*metrics, *INTERVAL, "bound")}
    for name, cell in cells.items():
        if cell is not None and METRICS.get(name) == "float":
            cells[name] = float(cell)
    return cells


_KEPT: list[_Pricer] = []
"""The last one: a process is sent one part of a sweep after another."""


def _pricer(space: Space) -> _Pricer:
    """Return the pricer of a space, with all that earlier parts have loaded."""
    if not (space.digest and _KEPT and _KEPT[0].space.digest == space.digest):
        _check_process(space)
        _KEPT[:] = [_Pricer(space)]
    return _KEPT[0]


def forget() -> None:
    """Give back what the last sweep of this process has loaded."""
    _KEPT.clear()


def _check_process(space: Space) -> None:
    """Refuse a space that another process has made, and that this one cannot price."""
    if space.version != perfc.__version__:
        msg = f"a worker has perfc {perfc.__version__}, expected {space.version}"
        raise PerfcError(msg)
    for text in space.plugins:
        import_plugin(text)
    if space.file and not Path(space.file).is_file():
        msg = f"a worker finds no file {space.file}: give a path that all of them have"
        raise PerfcError(msg)


@attrs.define(eq=False)
class _Pricer:
    """A space, and what has been loaded of it.

    Attributes:
        space: The space.

    """

    space: Space
    _structure: tuple[Value, ...] | None = None
    _sizes: tuple[Value, ...] | None = None
    _request: Request | None = None
    _bound: Model | None = None
    _targets: dict[tuple[int, _Fields], Target] = attrs.field(
        factory=dict[tuple[int, _Fields], Target]
    )

    def reports(
        self, configurations: Sequence[Configuration]
    ) -> Iterator[tuple[Configuration, Report | str]]:
        """Yield a report of each configuration, or why it cannot be.

        Args:
            configurations: They are of one structure; those of the same sizes, one
                after another, share the bound model.

        """
        for one in configurations:
            try:
                yield one, self._report(one)
            except PerfcError as error:
                yield one, " ".join(str(error).split())

    def _report(self, one: Configuration) -> Report:
        asked = self.space.request_of(one)
        target = self._target(one.target, tuple(self.space.overrides(one).items()))
        if isinstance(asked.model, Model):
            return report_on(attrs.evolve(asked, target=target))
        request, model = self._loaded(one, asked)
        return report_on(
            attrs.evolve(
                request,
                model=model,
                target=target,
                runtime=asked.runtime,
                inputs=asked.inputs,
                attention=asked.attention,
                overheads=asked.overheads,
            )
        )

    def _loaded(self, one: Configuration, asked: Request) -> tuple[Request, Model]:
        """Return the rest of a request once its model is loaded, and the model.

        A model is loaded with the sizes of the first configuration that it can have,
        and bound to those of the others.
        """
        structure, sizes = self.space.structure(one), self.space.sizes(one)
        if self._request is None or structure != self._structure:
            self._request = None
            self._request = load_request(asked)
            self._structure, self._sizes = structure, sizes
            self._bound = self._request.model
        elif sizes != self._sizes or self._bound is None:
            self._sizes, self._bound = sizes, None
            loaded: Model = self._request.model
            self._bound = loaded.bind(
                asked.batch, pooling=asked.pooling, dims=asked.dims
            )
        return self._request, cast("Model", self._bound)

    def _target(self, number: int, overrides: _Fields) -> Target:
        named = self.space.targets[number]
        if isinstance(named, Target):
            return named
        key = (number, overrides)
        if key not in self._targets:
            if len(self._targets) >= _TARGETS:
                self._targets.pop(next(iter(self._targets)))
            self._targets[key] = load_target(named, dict(overrides))
        return self._targets[key]
