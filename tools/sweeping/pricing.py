"""Configurations to rows: what is shared is loaded once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

import attrs

import perfc
from perfc.costmodels import Target, load_target
from perfc.ir import Diagnostic, PerfcError
from perfc.ir.support import paused_collector
from perfc.tools.analysis import report_on
from perfc.tools.models import Model, load_request
from perfc.tools.oracle import Memory
from perfc.tools.plugin_modules import import_plugin
from perfc.tools.reports import Report
from perfc.tools.request import Request
from perfc.tools.sweeping.axes import Role
from perfc.tools.sweeping.space import (
    ERROR,
    INTERVAL,
    METRICS,
    Configuration,
    Row,
    Space,
)
from perfc.tools.sweeping.together import Alike, Cells, alike, is_column
from perfc.tools.sweeping.varied import Value

_TARGETS = 256
"""Targets that a process keeps."""

_SAID_BY = (Role.SETTING, Role.FIELD, Role.PLACE, Role.POPULARITY)
"""What analyses have to say of targets depends on these, but not on sizes."""

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
    """Price some configurations, in this process."""
    pricer = _pricer(space)
    rows: dict[int, Row] = {}
    remarks: dict[tuple[str, str], Diagnostic] = {}

    def remember(said: Iterable[Diagnostic]) -> None:
        for remark in said:
            remarks.setdefault((remark.code, remark.where), remark)

    with paused_collector():
        for _, of_one in itertools.groupby(configurations, space.structure):
            own = list(of_one)
            for one, cells, said in pricer.together(own):
                rows[one.number] = space.row_of(one, **cells)
                remember(said)
            left = [one for one in own if one.number not in rows]
            for one, report in pricer.reports(left):
                if isinstance(report, str):
                    rows[one.number] = space.row_of(one, **{ERROR: report})
                    continue
                cells = _numbers(report, space.metrics)
                rows[one.number] = space.row_of(one, **cells)
                remember(report.analysis.diagnostics)
    found = tuple(rows[one.number] for one in configurations)
    return Priced(found, tuple(remarks.values()))


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
        # Refuse a space that another process has made, and that this one cannot price.
        if space.version != perfc.__version__:
            msg = f"a worker has perfc {perfc.__version__}, expected {space.version}"
            raise PerfcError(msg)
        for text in space.plugins:
            import_plugin(text)
        if space.file and not Path(space.file).is_file():
            msg = (
                f"a worker finds no file {space.file}: give a path that all of them "
                "have"
            )
            raise PerfcError(msg)
        _KEPT[:] = [_Pricer(space)]
    return _KEPT[0]


def forget() -> None:
    """Give back what the last sweep of this process has loaded."""
    _KEPT.clear()


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
    _memory: Memory = attrs.field(factory=Memory)
    _heard: set[tuple[Value, ...]] = attrs.field(factory=set[tuple[Value, ...]])
    _targets: dict[tuple[int, _Fields], Target] = attrs.field(
        factory=dict[tuple[int, _Fields], Target]
    )

    def together(
        self, configurations: Sequence[Configuration]
    ) -> Iterator[tuple[Configuration, Cells, Sequence[Diagnostic]]]:
        """Yield those whose rows are found together: cells, and what there is to say.

        What there is to say of a target is said by the analysis of one of them.
        """
        for several in alike(self.space, configurations):
            try:
                request = self._request_of(several[0])
            except PerfcError:  # which the analysis of each says again
                continue
            pair = self.target, self._memory
            for one, cells, said in Alike.of(self.space, several, request, *pair):
                yield one, cells, [*said, *self._said(one)]

    def _said(self, one: Configuration) -> Sequence[Diagnostic]:
        """Return the remarks of a configuration's analysis, once for its target."""
        pairs = zip(self.space.axes, one.values, strict=True)
        others = [
            v for axis, v in pairs if axis.role in _SAID_BY and not is_column(axis)
        ]
        key = (one.target, *others)
        if key in self._heard:
            return ()
        self._heard.add(key)
        return self._report(one).analysis.diagnostics

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
        target = self.target(one)
        return report_on(attrs.evolve(self._request_of(one), target=target))

    def _request_of(self, one: Configuration) -> Request:
        """Return the request of a configuration, its model loaded, but no target."""
        asked = self.space.request_of(one)
        if isinstance(asked.model, Model):
            return asked
        # The rest of a request once its model is loaded, and the model.
        # A model is loaded with the sizes of the first configuration that it can have,
        # and bound to those of the others.
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
        request, model = self._request, cast("Model", self._bound)
        return attrs.evolve(
            request,
            model=model,
            runtime=asked.runtime,
            inputs=asked.inputs,
            attention=asked.attention,
            overheads=asked.overheads,
        )

    def target(self, one: Configuration) -> Target:
        """Return the target of a configuration."""
        named = self.space.targets[one.target]
        if isinstance(named, Target):
            return named
        overrides = self.space.overrides(one)
        key = (one.target, tuple(overrides.items()))
        if key not in self._targets:
            if len(self._targets) >= _TARGETS:
                self._targets.pop(next(iter(self._targets)))
            self._targets[key] = load_target(named, overrides)
        return self._targets[key]
