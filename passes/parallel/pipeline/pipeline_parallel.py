"""The pass `pipeline-parallel`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import attrs

from perfc.ir import AnyKey, Graph, Program, UsageError, Value, spend
from perfc.ir.copying import bound_copy
from perfc.ir.dims import Dim, Expr, evaluate
from perfc.ir.program import MAX_MICROBATCHES, RankClass
from perfc.ir.support import UnsupportedModelError
from perfc.passes import graphs
from perfc.passes.base import PassContext, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.parallel.pipeline import stage_gradients
from perfc.passes.parallel.pipeline.chunk_cuts import ChunkSteps
from perfc.passes.parallel.pipeline.microbatches import (
    GPIPE,
    INTERLEAVED,
    SCHEDULES,
    batch_axis,
    batch_symbols,
    microbatch_dims,
    steps_of,
)
from perfc.passes.parallel.pipeline.pipeline_stages import Stages
from perfc.passes.parallel.pipeline.stage_writer import Plan, StageWriter

_MICROBATCH, _OTHER = 64, 256
"""Numbers of symbols that have none yet, where work is compared: samples, others."""


@attrs.frozen
class PipelineParallel(Transform):
    """Run the layers of a model on consecutive ranks, a batch in parts.

    Layers are assigned so that the slowest stage is as fast as can be, by their work
    and what crosses between them; chunks so that their last step ends early. Every
    stage runs its part of forward, and of backward, for each microbatch; what crosses
    is sent and received, forward and backward on streams of their own. Gradients are
    added up in place, and the optimizer steps once. Parameters that several stages
    read, as a tied embedding, are held by each, and their gradients are all-reduced.
    The batch is that of all microbatches together.

    Run it after `training`, and before `data-parallel`. Ranks that share layers
    (`tensor-parallel`) make up one stage. What a training step returns but its loss and
    gradients is not kept.

    Attributes:
        stages: How many stages.
        microbatches: How many parts of the batch.
        schedule: `gpipe`, all forward and then all backward; `1f1b`, in turn; or
            `interleaved`, in turn where each stage has several chunks of the layers.
        chunks: How many chunks a stage has, interleaved.

    """

    name: ClassVar[str] = "pipeline-parallel"
    runs_after: ClassVar[frozenset[str]] = frozenset({"training"})
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    stages: int
    microbatches: int
    schedule: str = GPIPE
    chunks: int = 1

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        least = 2
        if self.stages < least:
            msg = f"stages={self.stages} of {self.name}: expected at least {least}"
            raise UsageError(msg)
        if not 1 <= self.microbatches <= MAX_MICROBATCHES:
            msg = (
                f"microbatches={self.microbatches} of {self.name}: expected 1 to "
                f"{MAX_MICROBATCHES:,}"
            )
            raise UsageError(msg)
        if self.schedule not in (*SCHEDULES, INTERLEAVED):
            known = ", ".join((*SCHEDULES, INTERLEAVED))
            msg = f"schedule={self.schedule!r} of {self.name}: expected {known}"
            raise UsageError(msg)
        self._check_chunks()

    def _check_chunks(self) -> None:
        least = 2
        if self.schedule != INTERLEAVED:
            if self.chunks != 1:
                msg = (
                    f"chunks={self.chunks} of {self.name}: {self.schedule} has one; "
                    f"give schedule={INTERLEAVED}"
                )
                raise UsageError(msg)
            return
        if self.chunks < least:
            msg = (
                f"chunks={self.chunks} of {self.name}: {INTERLEAVED}, expected at "
                f"least {least}"
            )
            raise UsageError(msg)
        if self.microbatches % self.stages:
            msg = (
                f"microbatches={self.microbatches} of {self.name}: {INTERLEAVED}, "
                f"expected a multiple of stages={self.stages}"
            )
            raise UsageError(msg)

    def run(self, program: Program, ctx: PassContext) -> Program:
        """Make a class of ranks of every stage."""
        # The graph, and how many ranks share its layers.
        (rank, *others) = program.classes
        if rank.ops is None:
            msg = f"{program} is given as launches: it has no layers"
            raise UnsupportedModelError(msg)
        if others or program.replicas > 1:
            msg = (
                f"{self.name} takes one model on one GPU, or on ranks of "
                "tensor-parallel; other rewrites come after it, or not at all"
            )
            raise UsageError(msg)
        if any(node.regions for node in rank.ops):
            msg = f"{rank.ops} has loops or branches, which {self.name} does not cut"
            raise UnsupportedModelError(msg)
        where = f"{self.microbatches:,} microbatches of {self.name}"
        spend("pipeline-nodes", self.microbatches * len(rank.ops), where)
        if self.microbatches > 1:
            stage_gradients.check_updates(rank.ops)
        source, ranks = rank.ops, len(rank.ranks)
        dims = microbatch_dims(source, self.microbatches)
        graph = bound_copy(source, dims)
        known = _known(source, graph, ctx.get(ELEMENTS, source), dims)
        batch = batch_symbols(source)
        numbers = dict.fromkeys(dims, _OTHER)
        numbers.update(dict.fromkeys(batch, _MICROBATCH * self.microbatches))
        numbers.update(program.bindings)
        count = self.stages * self.chunks
        steps = partial(self._chunk_steps, graph)
        stages = Stages.cut(graph, count, known, numbers, steps)
        plan = self._plan(source, stages, ranks)
        classes = [self._class(stage, plan) for stage in range(self.stages)]
        # Say where each stage begins.
        firsts: dict[int, str] = {}
        for node, stage in stages.of.items():
            firsts.setdefault(stage, node.location.module or f"%{node.name}")
        begins = [f"{stage}: {name}" for stage, name in firsts.items() if stage]
        ctx.note("pipeline-stages", f"stages begin at {', '.join(begins)}")
        divided = tuple((name, self.microbatches) for name in sorted(batch))
        made = attrs.evolve(program, classes=tuple(classes), divided=divided)
        return made.bind({})

    def _chunk_steps(self, graph: Graph) -> ChunkSteps | None:
        if self.schedule != INTERLEAVED:
            return None
        training, count = graphs.is_training_step(graph), self.microbatches
        return ChunkSteps.of(self.stages, self.chunks, count, training=training)

    def _plan(self, source: Graph, stages: Stages, ranks: int) -> Plan:
        """Find what is divided, added up and sent."""
        batch = batch_symbols(source)
        whole: dict[Value, tuple[Value, int]] = {}
        for old, new in zip(source.inputs, stages.graph.inputs, strict=True):
            axis = batch_axis(old, batch) if self.microbatches > 1 else None
            if axis is not None:
                whole[new] = (old, axis)
        gradients = stage_gradients.gradients_of(stages)
        left_out = stage_gradients.sums_across(gradients)
        return Plan(
            stages=stages,
            places=self.stages,
            whole={
                new: (graphs.typed(old), axis) for new, (old, axis) in whole.items()
            },
            microbatches=self.microbatches,
            ranks=ranks,
            gradients=gradients,
            left_out=left_out,
            transfers=list(stages.transfers(left_out, self.stages)),
        )

    def _class(self, stage: int, plan: Plan) -> RankClass:
        stages = plan.stages
        training = graphs.is_training_step(stages.graph)
        steps = steps_of(
            self.schedule,
            stage,
            self.stages,
            self.microbatches,
            training=training,
            chunks=self.chunks,
        )
        held = stage_gradients.holders_of(stages, plan.gradients)
        stage_gradients.check_places(held, self.stages)
        mine = range(stage, stages.count, self.stages)
        updates = list(stage_gradients.updates_of(stages, mine, held))
        first = stage * plan.ranks
        made = StageWriter(plan, stage).write(steps, updates)
        return RankClass(tuple(range(first, first + plan.ranks)), ops=made)


def _known(
    source: Graph,
    graph: Graph,
    elements: Mapping[Value, tuple[Dim, ...]],
    dims: Mapping[str, Dim],
) -> dict[Value, tuple[Dim, ...]]:
    """Return the known integers of a copy in which symbols are bound."""
    pairs = zip(source.values(), graph.values(), strict=True)
    return {
        new: tuple(_bound(dim, dims) for dim in elements[old])
        for old, new in pairs
        if old in elements
    }


def _bound(dim: Dim, dims: Mapping[str, Dim]) -> Dim:
    if not isinstance(dim, Expr) or not dim.symbols() <= dims.keys():
        return dim
    bound: Dim = evaluate(dim, dims)
    return bound
