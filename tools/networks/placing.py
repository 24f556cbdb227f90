"""Layers of a model placed on a network, and what a step takes there."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import attrs
import numpy as np

from perfc.costmodels import Target
from perfc.ir import Graph, PerfcError, TensorType, UsageError
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.program import single
from perfc.ir.support import US, brief
from perfc.passes.graphs import Tape
from perfc.passes.parallel import GPIPE, ONE_F_ONE_B, Compress
from perfc.passes.shapes import Inference
from perfc.passes.timing import TimeErrors
from perfc.planning.networks import (
    Adaptive,
    Compression,
    LayerPrices,
    Network,
    Placed,
    Placer,
    Problem,
    StageTimes,
    Unit,
    clustered,
    even,
    ordered_step_s,
)
from perfc.tools.analysis import report_on
from perfc.tools.models import Dimensions, Model, prepare
from perfc.tools.networks.layer_prices import LayerTable
from perfc.tools.strategies import StrategyModels

EVEN, BANDWIDTH = POLICIES = ("even", "bandwidth")
"""Splits to compare with: layers by number in the file's order of nodes, or in that of
clusters of fast links; nothing compressed."""

PLACED, FEWER = "placed", "fewer GPUs"
_NUDGE = 1 + 1e-3
"""Factor of the time of stages by which it is seen how much they move a step."""

_LESS = 1e-3
"""Share by which fewer GPUs have to be faster to be told of."""


@attrs.frozen(kw_only=True, eq=False)
class NetworkQuestion:
    """What is asked of a network.

    Attributes:
        models: The model, and how it is asked for; its batch is that of all GPUs.
        network: Where it runs.
        microbatches: Parts of the batch.
        compression: Of what stages send.
        compare: Policies to compare with.
        within_s: The longest that a step may take; None for as fast as can be.

    """

    __repr__ = brief

    models: StrategyModels
    network: Network
    microbatches: int = 1
    compression: Compression = attrs.field(factory=Compression)
    compare: Sequence[str] = ()
    within_s: float | None = None


@attrs.frozen(kw_only=True, eq=False)
class NetworkPlan:
    """A split that was priced.

    Attributes:
        name: `placed`, or a policy.
        problem: What it is of.
        placed: Layers on units.
        ratios: Of each link behind a stage.
        times: Of each stage.
        step_s: Of all.
        low_s: 5th percentile of the step.
        high_s: 95th percentile.
        energy_j: Of a step, all GPUs in use; None where the sheet of one has no watts.
        errors: Of the step.

    """

    __repr__ = brief

    name: str
    problem: Problem
    placed: Placed
    ratios: tuple[float, ...]
    times: tuple[StageTimes, ...]
    step_s: float
    low_s: float
    high_s: float
    energy_j: float | None
    errors: TimeErrors

    @property
    def gpus(self) -> int:
        """GPUs in use."""
        return sum(self.problem.units[unit].gpus for unit in self.placed.units)

    @property
    def memory(self) -> list[float]:
        """Bytes that a GPU of each stage needs."""
        return self.problem.memory(self.placed)

    @property
    def bubble(self) -> float:
        """Share of the time of its GPUs in which they do not compute."""
        count = self.problem.microbatches
        busy = sum(times.busy_s(count) for times in self.times)
        return max(0.0, 1 - busy / (self.step_s * len(self.times)))


@attrs.define(eq=False)
class NetworkPricer:
    """Prices layers on each kind of GPU, and places them.

    Attributes:
        question: What is asked.
        progress: Is told in words how far it is.

    """

    __repr__ = brief

    question: NetworkQuestion
    progress: Callable[[str], None]
    _tables: dict[tuple[str, int], LayerTable] = attrs.field(
        factory=dict[tuple[str, int], LayerTable], init=False
    )
    _codecs: dict[tuple[object, ...], tuple[float, float]] = attrs.field(
        factory=dict["tuple[object, ...]", tuple[float, float]], init=False
    )
    _models: dict[int, Model] = attrs.field(factory=dict[int, Model], init=False)

    @property
    def samples(self) -> int:
        """Samples of a microbatch."""
        batch, count = self.question.models.request.batch, self.question.microbatches
        if batch is None:
            msg = "--network needs --batch N, the samples of all GPUs together"
            raise UsageError(msg)
        if batch % count:
            msg = f"--batch {batch} does not divide into {count} microbatches"
            raise UsageError(msg)
        return batch // count

    def plans(self) -> list[NetworkPlan]:
        """Return the best plan first, then what it is compared with."""
        best = self._best()
        policies = dict.fromkeys((EVEN, *self.question.compare))
        return [*best, *(self._policy(name) for name in policies)]

    def _best(self) -> list[NetworkPlan]:
        if self.question.within_s is not None:
            return [self._fewest(self.question.within_s)]
        found: list[NetworkPlan] = []
        fewer: list[NetworkPlan] = []
        for groups in self._groupings():
            self.progress(f"places layers, {groups} GPUs a stage at most")
            for schedule in (GPIPE, ONE_F_ONE_B):
                problem = self._problem(groups, schedule, self.question.compression)
                made = self._searched(problem)
                less = self._fastest(problem)
                fewer += [] if less is None else [less]
                if made is not None:
                    found.append(made)
                    break  # it fits: the other order waits for links more often
        if not (found or fewer):
            raise PerfcError(self._too_large())
        whole = max((plan.gpus for plan in found), default=0)
        most = [plan for plan in found if plan.gpus == whole]
        best = min(most or fewer, key=lambda plan: plan.step_s)
        less = min([*fewer, *found], key=lambda plan: plan.step_s)
        if less.step_s < best.step_s * (1 - _LESS):
            return [best, attrs.evolve(less, name=FEWER)]
        return [best]

    def _fewest(self, within_s: float) -> NetworkPlan:
        """Return the plan on the fewest GPUs that ends in time."""
        found: list[NetworkPlan] = []
        for groups in self._groupings():
            for schedule in (GPIPE, ONE_F_ONE_B):
                problem = self._problem(groups, schedule, self.question.compression)
                placed = Placer(problem).fewest(within_s)
                if placed is not None:
                    found.append(self._plan(PLACED, problem, placed))
        if not found:
            msg = (
                f"no step ends within {within_s:g} s on the "
                f"{self.question.network.gpus} GPUs of the network; allow more time, "
                "or compress what is sent"
            )
            raise PerfcError(msg)
        return min(found, key=lambda plan: (plan.gpus, plan.step_s))

    def _fastest(self, problem: Problem) -> NetworkPlan | None:
        placed = Placer(problem).fastest()
        return None if placed is None else self._plan(FEWER, problem, placed)

    def _searched(self, problem: Problem) -> NetworkPlan | None:
        placed = Placer(problem).place()
        return None if placed is None else self._plan(PLACED, problem, placed)

    def _groupings(self) -> list[int]:
        """Return the most GPUs that share a stage, to try: 1, 2, 4 and so on."""
        largest = max(node.count for node in self.question.network.nodes)
        found = [1]
        while found[-1] * 2 <= largest:
            found.append(found[-1] * 2)
        if largest not in found:
            found.append(largest)
        return found

    def _problem(self, groups: int, schedule: str, compression: Compression) -> Problem:
        """Return the problem of stages on so many GPUs of a node at most."""
        units: list[Unit] = []
        first = self._table(self.question.network.nodes[0].target, self.samples)
        crossing = first.sizes()
        adapts = compression.adaptive and compression.changes
        for number, node in enumerate(self.question.network.nodes):
            size = max(
                n
                for n in range(1, groups + 1)
                if node.count % n == 0 and self.samples % n == 0
            )
            table = self._table(node.target, self.samples // size)
            prices = self._compressed(node.target, table, compression)
            limit = float(node.target.device.memory.usable_bytes)
            unit = Unit(node=number, gpus=size, prices=prices, limit_bytes=limit)
            # More units of a node than layers cannot all have one: one more says so.
            units += [unit] * min(node.count // size, len(crossing.others))
        return Problem(
            network=self.question.network,
            units=units,
            sent_bytes=np.array(
                [
                    crossing.sent(cut, compression, compression.ratio)
                    for cut in range(len(crossing.others))
                ]
            ),
            microbatches=self.question.microbatches,
            schedule=schedule,
            ratio=compression.ratio,
            adaptive=Adaptive(compression, crossing) if adapts else None,
        )

    def _compressed(
        self, target: Target, table: LayerTable, compression: Compression
    ) -> LayerPrices:
        """Return prices with what compressing takes at each cut."""
        if not compression.changes:
            return table.prices
        both = [(0.0, 0.0)]
        for types in table.crossing[1:]:
            each = [self._codec_s(target, type_, compression) for type_ in types]
            both.append((sum(e for e, _ in each), sum(d for _, d in each)))
        both.append((0.0, 0.0))
        return attrs.evolve(
            table.prices,
            encode_s=np.array([e for e, _ in both]),
            decode_s=np.array([d for _, d in both]),
        )

    def _codec_s(
        self, target: Target, type_: TensorType, compression: Compression
    ) -> tuple[float, float]:
        """Return the seconds of compressing and restoring a tensor on a GPU."""
        ratio = int(max(1, round(compression.ratio)))
        rewrite = Compress(compression.kind, ratio, compression.half)
        codec = rewrite.codec(type_)
        if codec is None:
            return 0.0, 0.0
        key = (target.name, str(type_), rewrite)
        if key not in self._codecs:
            graph = Graph("encode")
            sent = codec.encode(_tape(graph), graph.add_input("x", type_))
            graph.outputs.append(sent)
            restore = Graph("decode")
            received = restore.add_input("sent", codec.sent)
            restore.outputs.append(codec.decode(_tape(restore), received))
            self._codecs[key] = (
                self._graph_s(graph, target),
                self._graph_s(restore, target),
            )
        return self._codecs[key]

    def _graph_s(self, graph: Graph, target: Target) -> float:
        """Return the longer of what the kernels of a graph and their host take."""
        asked = self.question.models.request
        plain = attrs.evolve(
            asked.of_loaded(
                prepare(single(graph), Dimensions(None, None, {}), None, ()), (), None
            ),
            target=target,
            overrides={},
            inputs="device",
            dtype="fp32",  # the types are those that the tensors have
        )
        totals = report_on(plain).summary
        return float(max(totals["gpu_active_us"], totals["host_us"])) / US

    def _table(self, target: Target, samples: int) -> LayerTable:
        key = (target.name, samples)
        if key not in self._tables:
            self.progress(f"prices {samples} samples on {target.name}")
            models, asked = self.question.models, self.question.models.request
            if samples not in self._models:
                self._models[samples] = models.load((), samples, None)
            left = asked.of_loaded(self._models[samples], asked.passes, asked.pipeline)
            report = report_on(attrs.evolve(left, target=target, overrides={}))
            self._tables[key] = LayerTable.of(report)
        return self._tables[key]

    def _policy(self, name: str) -> NetworkPlan:
        problem = self._problem(1, GPIPE, Compression())
        order = clustered(problem) if name == BANDWIDTH else range(len(problem.units))
        return self._plan(name, problem, even(problem, list(order)))

    def _plan(self, name: str, problem: Problem, placed: Placed) -> NetworkPlan:
        """Return a plan; ratios of links follow from where layers are."""
        times = problem.stage_times(placed)
        tables = [self._table_of(problem.units[unit]) for unit in placed.units]
        low = [_slower(t, of.low) for t, of in zip(times, tables, strict=True)]
        high = [_slower(t, of.high) for t, of in zip(times, tables, strict=True)]
        step = _step_s(problem, times)
        return NetworkPlan(
            name=name,
            problem=problem,
            placed=placed,
            ratios=tuple(problem.ratios(placed)),
            times=tuple(times),
            step_s=step,
            low_s=_step_s(problem, low),
            high_s=_step_s(problem, high),
            energy_j=self._joules(problem, placed, times, step),
            errors=self._errors(problem, placed, times),
        )

    def _table_of(self, unit: Unit) -> LayerTable:
        target = self.question.network.nodes[unit.node].target
        return self._table(target, self.samples // unit.gpus)

    def _joules(
        self,
        problem: Problem,
        placed: Placed,
        times: Sequence[StageTimes],
        step_s: float,
    ) -> float | None:
        """Return the joules of a step; None where the sheet of a node has no watts."""
        found: list[float] = []
        for number, stage in zip(placed.units, times, strict=True):
            unit = problem.units[number]
            table = self._table_of(unit)
            if table.work_watts is None:
                return None
            worked = table.work_watts * stage.busy_s(problem.microbatches)
            found.append(unit.gpus * (worked + table.lasting_watts * step_s))
        return math.fsum(found)

    def _errors(
        self, problem: Problem, placed: Placed, times: Sequence[StageTimes]
    ) -> TimeErrors:
        """Return the errors of a step: those of a kind of GPU count once.

        Each moves the step as much as stages on such GPUs do; links have none.
        """
        units = [problem.units[number] for number in placed.units]
        kinds = [
            (self.question.network.nodes[unit.node].target.name, unit.gpus)
            for unit in units
        ]
        tables = dict(zip(kinds, map(self._table_of, units), strict=True))
        step = _step_s(problem, times)
        shared: dict[Hashable, float] = {}
        for kind, table in tables.items():
            moved = [
                _slower(t, _NUDGE) if of == kind else t
                for t, of in zip(times, kinds, strict=True)
            ]
            weight = math.log(_step_s(problem, moved) / step) / math.log(_NUDGE)
            for key, sigma in table.errors.shared.items():
                name = kind[0], key
                shared[name] = shared.get(name, 0.0) + weight * sigma
        alone = max(table.errors.alone for table in tables.values())
        return TimeErrors(step, shared, alone)

    def layer_names(self) -> tuple[str, ...]:
        """Return the names of layers."""
        target = self.question.network.nodes[0].target
        return self._table(target, self.samples).names

    def _too_large(self) -> str:
        gb = self.question.network
        kinds = ", ".join(dict.fromkeys(node.target.name for node in gb.nodes))
        return (
            f"the layers do not fit in the memory of the {gb.gpus} GPUs ({kinds}); use "
            "more microbatches, or more GPUs"
        )


def _step_s(problem: Problem, times: Sequence[StageTimes]) -> float:
    return ordered_step_s(times, problem.microbatches, problem.schedule)


def _slower(times: StageTimes, factor: float) -> StageTimes:
    """Return the times of a stage whose GPU is so much slower."""
    return attrs.evolve(
        times,
        forward_s=times.forward_s * factor,
        backward_s=times.backward_s * factor,
        tail_s=times.tail_s * factor,
    )


def _tape(graph: Graph) -> Tape:
    return Tape(graph, Inference(graph, BUILTIN_OPS))
