"""Configurations of one structure, priced together where their rows can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Target
from perfc.ir import Diagnostic, PerfcError
from perfc.ir.support import US
from perfc.tools.analysis import check_run, run_of
from perfc.tools.cost import gco2e_per_million, usd_per_million
from perfc.tools.models import Model
from perfc.tools.oracle import FEWEST, Found, Memory, Setting, found_together
from perfc.tools.request import Request
from perfc.tools.run import Run
from perfc.tools.sweeping.axes import Axis, Role
from perfc.tools.sweeping.space import INTERVAL, Configuration, Space

Cells: TypeAlias = dict[str, object]

TOGETHER = frozenset(
    {
        *("time_us", "peak_memory_bytes", "energy_j", "launches"),
        *("gpu_active_us", "gpu_idle_us", "samples_per_s", "samples_per_j", "fits"),
        *("usd_per_million_samples", "gco2e_per_million_samples"),
        *INTERVAL,
    }
)
"""Metrics that are found of many configurations at once."""


@attrs.frozen(eq=False)
class Alike:
    """Configurations that differ in targets, fields of those, and sizes alone.

    Attributes:
        space: The space.
        configurations: Some of it.
        request: The request of one of them, its model loaded.
        targets: The target of each.
        memory: What kernels cost that were priced before.

    """

    space: Space
    configurations: Sequence[Configuration]
    request: Request
    targets: Sequence[Target]
    memory: Memory

    @classmethod
    def of(
        cls,
        space: Space,
        configurations: Sequence[Configuration],
        request: Request,
        target: Callable[[Configuration], Target],
        memory: Memory,
    ) -> Alike:
        """Return those of some configurations that have a target."""
        pairs: list[tuple[Configuration, Target]] = []
        for one in configurations:
            with suppress(PerfcError):  # which the analysis says again
                pairs.append((one, target(one)))
        # Joules by the watts of nodes depend on where tables lie: an analysis has them.
        pairs = [
            (one, found)
            for one, found in pairs
            if found.power is not None or found.node_power is None
        ]
        own, targets = [one for one, _ in pairs], [found for _, found in pairs]
        return cls(space, own, request, targets, memory)

    def __iter__(self) -> Iterator[tuple[Configuration, Cells, Sequence[Diagnostic]]]:
        """Yield those whose rows are found here: cells, and what there is to say.

        Others have to be analyzed: those that cannot be say why.
        """
        bases, which = self._bases()
        chosen = np.flatnonzero(which >= 0)
        if len(chosen) < FEWEST or not self._has_samples(bases[0].run.model):
            return
        sizes = {name: column[chosen] for name, column in self._sizes().items()}
        for found in found_together(bases, which[chosen], sizes):
            own = chosen[found.members]
            numbers: list[int] = which[own].tolist()
            runs = [bases[number].run for number in numbers]
            cells = self._cells(found, own, runs)
            for number, one in zip(own.tolist(), cells, strict=True):
                yield self.configurations[number], one, found.diagnostics

    def _bases(self) -> tuple[list[Setting], NDArray[np.intp]]:
        """Return a setting on each target, and which one each configuration has."""
        bases: list[Setting] = []
        numbers: dict[int, int] = {}
        for target in self.targets:
            if id(target) in numbers:
                continue
            try:
                base = self._base(target, bases)
            except PerfcError:  # which the analysis of each says again
                numbers[id(target)] = -1
                continue
            numbers[id(target)] = len(bases)
            bases.append(base)
        return bases, np.array([numbers[id(target)] for target in self.targets])

    def _base(self, target: Target, known: Sequence[Setting]) -> Setting:
        request = attrs.evolve(self.request, target=target)
        # Tables of few bits lie otherwise on CPUs than on GPUs.
        if not known or _on_cpu(known[0].run.target) != _on_cpu(target):
            asked = self.space.request_of(self.configurations[0])
            sizes = attrs.evolve(request, pooling=asked.pooling, dims=asked.dims)
            base = Setting.of(run_of(request), sizes)
            return attrs.evolve(base, memory=self.memory)
        run: Run = known[0].run
        check_run(run.model, run.runtime, target)
        return attrs.evolve(known[0], run=attrs.evolve(run, target=target))

    def _sizes(self) -> dict[str, NDArray[np.int64]]:
        """Return the sizes of configurations, as columns of an oracle's batch."""
        found: dict[str, NDArray[np.int64]] = {}
        for at, axis in enumerate(self.space.axes):
            if is_column(axis):
                name = f"dim:{axis.name}" if axis.role is Role.DIM else axis.name
                found[name] = np.array([one.values[at] for one in self.configurations])
        return found

    def _has_samples(self, model: Model) -> bool:
        """Whether samples are the batch, or the same everywhere."""
        sizes = self._sizes()
        named = {axis.name for axis in self.space.axes if axis.role is Role.DIM}
        known = [symbols for symbols in model.symbols or () if symbols is not None]
        if any(symbols.batch & named for symbols in known):
            return False
        return "batch" not in sizes or model.batch in sizes["batch"]

    def _cells(
        self, found: Found, own: NDArray[np.intp], runs: Sequence[Run]
    ) -> Iterator[Cells]:
        """Yield the cells of configurations, numbers of their columns' types."""
        batches = self._sizes().get("batch")
        columns = {name: column.tolist() for name, column in found.numbers.items()}
        wanted = (*self.space.metrics, *INTERVAL)
        for at, (number, run) in enumerate(zip(own.tolist(), runs, strict=True)):
            batch = run.model.batch if batches is None else batches.item(number)
            samples = None if batch is None else batch * run.model.program.replicas
            time_s = columns["time_us"][at] / US
            joules = columns["energy_j"][at]
            energy_j = None if math.isnan(joules) else joules
            peak = columns["peak_memory_bytes"][at]
            target, ranks = run.target, run.model.ranks
            cells: Cells = {
                **{name: column[at] for name, column in columns.items()},
                "energy_j": energy_j,
                "samples_per_s": samples / time_s if samples and time_s else None,
                "samples_per_j": samples / joules if samples and joules > 0 else None,
                "usd_per_million_samples": usd_per_million(
                    target, ranks, time_s, samples
                ),
                "gco2e_per_million_samples": gco2e_per_million(
                    target, energy_j, samples
                ),
                "fits": peak <= run.target.device.memory.usable_bytes,
            }
            yield {name: cells[name] for name in wanted} | {"bound": found.bounds[at]}


def alike(
    space: Space, configurations: Sequence[Configuration]
) -> Iterator[list[Configuration]]:
    """Yield those of one structure that differ in targets and sizes alone.

    Of what cannot be found of many at once, or of few, nothing.
    """
    if not TOGETHER.issuperset(space.metrics):
        return
    groups: dict[Hashable, list[Configuration]] = {}
    for one in configurations:
        pairs = zip(space.axes, one.values, strict=True)
        others = [v for a, v in pairs if a.role is not Role.FIELD and not is_column(a)]
        groups.setdefault(tuple(others), []).append(one)
    yield from (several for several in groups.values() if len(several) >= FEWEST)


def is_column(axis: Axis) -> bool:
    """Whether an axis is a size that many configurations may differ in at once."""
    is_batch = axis.role is Role.SETTING and axis.name == "batch"
    return is_batch or axis.role is Role.DIM


def _on_cpu(target: Target) -> bool:
    return target.device.synchronous
