"""What a step of a recommendation model runs, by the rules of MAD-Max.

Source: as `perfc.costmodels.reference.madmax`; the rules are stated again here,
simplifications included, so that its published figures come out. There is one stream
that computes and one that communicates, each in the order of the list; messages take
no time but that of their bytes; a layer's backward takes twice its forward; nothing is
launched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import attrs

from perfc.costmodels.reference import MadMaxModel, MadMaxSystem
from perfc.frontends.reference.madmax_strategy import Level, Parallelism, Strategy
from perfc.ir import LaunchGraph, TaskKind


@attrs.frozen(kw_only=True)
class MadMaxStep:
    """One step of one GPU: all are alike.

    Attributes:
        model: The model.
        system: The machine.
        ranks: GPUs in all.
        strategy: How layers and tables are spread over them.
        batch: Samples of all GPUs together.
        training: Whether it goes backward too.

    """

    model: MadMaxModel
    system: MadMaxSystem
    ranks: int
    strategy: Strategy
    batch: int
    training: bool

    def weight_bytes(self) -> float:
        """Return the bytes that a GPU holds: weights only."""
        layers = self.model.bottom_layers + self.model.top_layers
        of_layers = layers * self.model.layer_bytes / _shards(self.strategy.mlp)
        return of_layers + self.model.table_bytes / _degrees(
            self.strategy.emb, Parallelism.MP
        )

    def launches(self) -> LaunchGraph:
        """Return the step with the seconds of each task stated."""
        return _Writer(self).write()

    @property
    def layer_s(self) -> float:
        """Seconds of one layer forward."""
        replicas = _degrees(self.strategy.mlp, Parallelism.DDP, Parallelism.FSDP)
        flops = self.model.layer_flops * self.batch / replicas
        parts = _degrees(self.strategy.mlp, Parallelism.TP)
        return flops / parts / self.system.flops_per_s

    @property
    def lookup_s(self) -> float:
        """Seconds of all lookups forward."""
        return self.lookup_bytes / self.system.memory_bytes_per_s

    @property
    def lookup_bytes(self) -> float:
        """What a GPU reads of its tables."""
        parts = _degrees(self.strategy.emb, Parallelism.DDP, Parallelism.MP)
        return self.model.lookup_bytes * self.batch / parts

    def all_to_alls_s(self) -> Iterator[float]:
        """Yield the seconds of the tables' all-to-all at each level that has one."""
        for level, across in _across(self.strategy.emb):
            if level.kind is Parallelism.MP:
                rate = self.system.all_to_all_bytes_per_s(self.ranks, across=across)
                yield 2 * self.lookup_bytes / level.degree / rate

    def table_gradients_s(self) -> float:
        """Return the seconds of their all-reduce; 0 where tables have no copies."""
        first, across = next(_across(self.strategy.emb))
        if first.kind is not Parallelism.DDP:
            return 0.0
        rate = self.system.all_reduce_bytes_per_s(self.ranks, across=across)
        return self.lookup_bytes / rate

    def gather_s(self) -> float:
        """Return the seconds of gathering a layer, or of scattering its gradient."""
        first, across = next(_across(self.strategy.mlp))
        if first.kind is not Parallelism.FSDP:
            return 0.0
        others = _shards(self.strategy.mlp) / first.degree
        rate = self.system.all_reduce_bytes_per_s(self.ranks, across=across)
        return self.model.layer_bytes / others / (2 * rate)

    def outputs_s(self, *, across: bool) -> float:
        """Return the seconds of summing up what the parts of a layer made."""
        replicas = _degrees(self.strategy.mlp, Parallelism.DDP, Parallelism.FSDP)
        rate = self.system.all_reduce_bytes_per_s(self.ranks, across=across)
        return self.model.output_bytes * self.batch / replicas / rate

    def gradients_s(self, index: int, *, across: bool) -> float:
        """Return the seconds of summing up a layer's gradients at a level of ddp.

        Levels before it have divided the number of shards: what comes behind tensor
        parallelism sends the whole layer (a property of the published model).
        """
        behind = _shards(self.strategy.mlp[index:])
        rate = self.system.all_reduce_bytes_per_s(self.ranks, across=across)
        return self.model.layer_bytes / behind / rate


def _shards(levels: Sequence[Level]) -> int:
    return _degrees(levels, Parallelism.TP, Parallelism.FSDP)


def _degrees(levels: Sequence[Level], *kinds: Parallelism) -> int:
    return math.prod(level.degree for level in levels if level.kind in kinds)


def _across(levels: Sequence[Level]) -> Iterator[tuple[Level, bool]]:
    """Yield each level, and whether it is across nodes: one alone is."""
    for index, level in enumerate(levels):
        yield level, index == len(levels) - 1


@attrs.define(eq=False)
class _Writer:
    """Writes the tasks of a step in the order in which they are issued."""

    step: MadMaxStep
    graph: LaunchGraph = attrs.field(init=False)
    _compute: int = attrs.field(init=False)
    _comm: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.graph = LaunchGraph(self.step.model.name)
        self._compute = self.graph.stream("compute")
        self._comm = self.graph.stream("comm")

    def write(self) -> LaunchGraph:
        """Write forward and, of training, backward."""
        step, model = self.step, self.step.model
        layers = model.bottom_layers + model.top_layers
        pooled = self._all_to_alls([self._run("emb", step.lookup_s)])
        ends: list[int] = []
        summed: list[int] = []
        for layer in range(layers):
            after = [*summed, *self._gather(ends[-2:-1])]
            after += pooled if layer == model.bottom_layers else []
            ends.append(self._run("gemm", step.layer_s, after))
            odd = self._place(layer) % 2 == 1
            summed = [*self._outputs(ends[-1])] if odd else []
        if step.training:
            self._backward(layers)
        return self.graph

    def _place(self, layer: int) -> int:
        bottom = self.step.model.bottom_layers
        return layer if layer < bottom else layer - bottom

    def _backward(self, layers: int) -> None:
        """Write it; it begins when both streams are done."""
        step, model = self.step, self.step.model
        last = {stream: task for task, stream in enumerate(self.graph.resource)}
        begin = list(last.values())
        summed: list[int] = []
        ends: list[int] = []
        pooled: list[int] = []
        for layer in reversed(range(layers)):
            if layer == model.bottom_layers - 1:
                pooled = self._all_to_alls(ends[-1:])
            # The gathers of the last two layers wait for no layer.
            before = ends[-2:-1] if layer > 1 else []
            after = [*begin, *summed, *self._gather([*begin, *before])]
            ends.append(self._run("gemm", 2 * step.layer_s, after))
            summed = self._gradients(layer, ends[-1])
            begin = []
        end = self._run("emb", step.lookup_s, pooled)
        self._send("all_reduce", step.table_gradients_s(), [end])

    def _gradients(self, layer: int, end: int) -> list[int]:
        """Write what a layer sends, and return what the next one waits for."""
        step = self.step
        self._send("reduce_scatter", step.gather_s(), [end])
        summed: list[int] = []
        even = self._place(layer) % 2 == 0
        for index, (level, across) in enumerate(_across(step.strategy.mlp)):
            if level.kind is Parallelism.DDP:
                self._send("all_reduce", step.gradients_s(index, across=across), [end])
            elif level.kind is Parallelism.TP and even:
                summed = self._send("all_reduce", step.outputs_s(across=across), [end])
        return summed

    def _outputs(self, end: int) -> Iterator[int]:
        for level, across in _across(self.step.strategy.mlp):
            if level.kind is Parallelism.TP:
                yield from self._send(
                    "all_reduce", self.step.outputs_s(across=across), [end]
                )

    def _gather(self, after: Sequence[int]) -> list[int]:
        return self._send("all_gather", self.step.gather_s(), after)

    def _all_to_alls(self, after: list[int]) -> list[int]:
        for seconds in self.step.all_to_alls_s():
            after = self._send("all_to_all", seconds, after)
        return after

    def _run(self, detail: str, seconds: float, after: Sequence[int] = ()) -> int:
        return self.graph.task(
            TaskKind.KERNEL,
            self._compute,
            after=tuple(after),
            detail=detail,
            stated_s=seconds,
        )

    def _send(self, detail: str, seconds: float, after: Sequence[int]) -> list[int]:
        """Write a collective, unless it has nothing to send."""
        if not seconds:
            return []
        task = self.graph.task(
            TaskKind.COLLECTIVE,
            self._comm,
            after=tuple(after),
            detail=detail,
            group=f"{detail}#{len(self.graph)}",
            stated_s=seconds,
        )
        return [task]
