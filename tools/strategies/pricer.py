"""What strategies take, by perfc's own pipeline."""

from __future__ import annotations

import gc
import math
from typing import Any

import attrs

from perfc.costmodels import Target, assumed_system
from perfc.ir import PerfcError
from perfc.ir.support import US, brief
from perfc.planning import strategies
from perfc.tools.analysis import report_on
from perfc.tools.models import Model
from perfc.tools.reports import Report, bubble_s
from perfc.tools.strategies.layers import layers_s
from perfc.tools.strategies.models import StrategyModels

_STEP = frozenset({"forward", "loss", "backward"})
_GARBAGE = 500_000
"""Objects that are made before those that refer to each other are looked for."""


@attrs.frozen(kw_only=True)
class _Part:
    """What one replica takes for one microbatch on its own, without communication.

    Attributes:
        device_s: What its kernels take in forward, loss and backward.
        host_s: What the host takes there.
        optimizer_s: What the optimizer's kernels take.
        lasting_bytes: Parameters and states of the optimizer.
        saved_bytes: What forward keeps for backward, of what lives at the peak.
        layers_s: Of each layer what its kernels take.

    """

    device_s: float = 0.0
    host_s: float = 0.0
    optimizer_s: float = 0.0
    lasting_bytes: float = 0.0
    saved_bytes: float = 0.0
    layers_s: tuple[float, ...] = ()


@attrs.define(eq=False)
class Pricer:
    """Prices strategies of one model on one machine (`planning.StrategyPricer`).

    Attributes:
        models: The model.
        target: The machine.
        batch: Samples of all GPUs together; None if each replica has `fixed`.
        fixed: Samples of a replica, where the model fixes them.
        limit_bytes: Memory that a GPU may need.

    """

    __repr__ = brief

    models: StrategyModels
    target: Target
    batch: int | None
    fixed: int | None
    limit_bytes: float
    _parts: dict[tuple[int, int], _Part] = attrs.field(
        factory=dict[tuple[int, int], _Part], init=False
    )
    _loaded: dict[int, Model | PerfcError] = attrs.field(
        factory=dict["int", "Model | PerfcError"], init=False
    )

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a node."""
        return self.target.once(assumed_system).gpus_per_node

    def load(self, strategy: strategies.Strategy) -> Model:
        """Return the model as a strategy spreads it."""
        transforms = strategy.passes(self.gpus_per_node)
        batch = None if self.fixed else self.samples(strategy)
        return self.models.load(transforms, batch, strategy.ranks)

    def report(self, strategy: strategies.Strategy) -> Report:
        """Return the report of a strategy."""
        return self._report(self.load(strategy))

    def price(self, strategy: strategies.Strategy) -> strategies.StrategyPrice:
        """Return the price of a strategy."""
        report = self.report(strategy)
        totals, results = report.summary, report.results
        low_us, high_us = report.interval_us
        samples = self.samples(strategy) * strategy.replicas
        errors = report.errors
        price = strategies.StrategyPrice(
            strategy=strategy,
            samples=samples,
            step_s=report.time_us / US,
            low_s=low_us / US,
            high_s=high_us / US,
            exposed_s=totals["exposed_comm_us"] / US,
            bubble_s=bubble_s(results) if strategy.stages > 1 else 0.0,
            shares=report.bound_shares,
            parameters_bytes=report.memory_use.parameters_bytes,
            peak_bytes=report.memory_use.peak_bytes,
            limit_bytes=self.limit_bytes,
            energy_j=totals["energy_j"],
            diagnostics=report.analysis.diagnostics,
            errors=attrs.evolve(errors, time_s=errors.time_s / samples),
        )
        # Free graphs, which refer to themselves, if there are many.
        if gc.get_count()[0] > _GARBAGE:
            gc.collect()
        return price

    def bound(self, strategy: strategies.Strategy) -> strategies.StrategyBound:
        """Return the bound of a strategy: what its kernels and hosts do alone.

        Nothing is known of sharded tables.
        """
        own = self.samples(strategy)
        samples = own * strategy.replicas
        if strategy.shards_tables or (strategy.tables and strategy.shards > 1):
            return strategies.StrategyBound(samples=samples)
        count, stages = strategy.microbatches, strategy.stages
        part = self._part(strategy.tensor, own // count)
        updates_s = part.optimizer_s / strategy.shards
        saved = part.saved_bytes if strategy.shards == 1 else 0.0
        lasting = part.lasting_bytes / strategy.shards
        return strategies.StrategyBound(
            samples=samples,
            step_s=max(
                _least_s(part, strategy),
                (part.device_s * count + updates_s) / stages,
                part.host_s * count / stages,
            ),
            peak_bytes=strategies.least_memory(lasting, saved, strategy.kept),
        )

    def samples(self, strategy: strategies.Strategy) -> int:
        """Return the batch of a replica."""
        if self.batch is None:
            return self.fixed or 1
        return self.batch // strategy.replicas

    def _part(self, tensor: int, samples: int) -> _Part:
        found = self._parts.get((tensor, samples))
        if found is None:
            found = self._parts[tensor, samples] = self._measured(tensor, samples)
        return found

    def _measured(self, tensor: int, samples: int) -> _Part:
        per_node = self.gpus_per_node
        if tensor > per_node and tensor % per_node:
            return _Part()  # alone these ranks do not fill nodes
        # One replica, loaded once.
        if tensor not in self._loaded:
            transforms = strategies.Strategy(replicas=1, tensor=tensor).passes(
                self.gpus_per_node
            )
            batch = None if self.fixed else samples
            try:
                self._loaded[tensor] = self.models.load(transforms, batch, None)
            except PerfcError as error:
                self._loaded[tensor] = error
        model = self._loaded[tensor]
        if isinstance(model, PerfcError):
            raise model
        if not self.fixed:
            model = self.models.bound(model, samples)
        elif samples != self.fixed:
            return _Part()
        part = _part_of(report := self._report(model))
        if self.models.request.runtime == "compiled":
            return part  # a kernel may be of several layers
        return attrs.evolve(part, layers_s=layers_s(report.results))

    def _report(self, model: Model) -> Report:
        asked = self.models.request
        left = asked.of_loaded(model, asked.passes, asked.pipeline)
        return report_on(attrs.evolve(left, target=self.target, overrides={}))


def _least_s(part: _Part, strategy: strategies.Strategy) -> float:
    """Return the device's least seconds, for stages that wait for each other."""
    count, stages = strategy.microbatches, strategy.stages
    if strategy.schedule == strategies.INTERLEAVED:
        return strategies.least_interleaved_s(part.device_s, part.layers_s, count)
    return max(
        part.device_s * strategies.least_share(count, stages),
        strategies.least_step_s(part.layers_s, count, stages),
    )


def _part_of(report: Report) -> _Part:
    """Return the times and the bytes of one replica, as a report says them."""
    phases: dict[str, Any] = {entry["phase"]: entry for entry in report.phases}
    step = [entry for name, entry in phases.items() if name in _STEP]
    device_us = math.fsum(entry["device_us"] for entry in step)
    optimizer = phases.get("optimizer", {"device_us": 0.0})
    kinds = report.memory["by_kind"]
    return _Part(
        device_s=(device_us - report.summary["comm_us"]) / US,
        host_s=math.fsum(entry["host_us"] for entry in step) / US,
        optimizer_s=optimizer["device_us"] / US,
        lasting_bytes=kinds["parameters"] + kinds["optimizer_state"],
        saved_bytes=kinds["saved_for_backward"],
    )
