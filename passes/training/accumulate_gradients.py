"""The pass `accumulate-gradients`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from perfc.ir import AnyKey, Graph, Program, UsageError, Value, spend
from perfc.ir.dims import Dim
from perfc.ir.program import MAX_MICROBATCHES, RankClass
from perfc.ir.support import UnsupportedModelError
from perfc.passes import graphs
from perfc.passes.base import Pass, PassContext, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.training.gradient_sums import Sums
from perfc.passes.training.microbatch_writer import MicrobatchWriter

LAST, EACH = "last", "each"
SYNCS = (LAST, EACH)
"""Values of `sync`: microbatches in which ranks add gradients up."""

_REDUCES = "data-parallel"
"""The pass by which they do."""


@attrs.frozen
class AccumulateGradients(Transform):
    """Run forward and backward of several microbatches before the optimizer steps.

    Microbatches run one after another, each of inputs that are copied for it, and its
    loss is divided by their number. The first hands every parameter its gradient; those
    of later ones are added to it in place, parameter by parameter, as PyTorch's
    `AccumulateGrad` does; sparse ones are joined. The optimizer steps once. What a
    microbatch has computed is freed before the next one begins, and what the step
    returns is the last one's. Batched lookups whose backward kernel updates their
    tables do so in every microbatch. The graph computes one microbatch; the batch of a
    step is that of all of them together.

    Run it behind `training`, `regather` and `checkpoint-activations`. The microbatches
    of `pipeline-parallel` are accumulated already.

    Attributes:
        microbatches: How many.
        sync: When ranks add gradients up: `last`, with those of the last microbatch
            (`no_sync` of DDP and FSDP): until then `fsdp` keeps whole gradients, and
            with `grad-op` whole parameters; or `each`, in every microbatch: `fsdp` then
            keeps sums of its parts.
        divide_loss: Whether the loss is divided, as loops do for the mean over all.

    """

    name: ClassVar[str] = "accumulate-gradients"
    runs_after: ClassVar[frozenset[str]] = frozenset(
        {"training", "regather", "checkpoint-activations", "pipeline-parallel"}
    )
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    provides: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    microbatches: int
    sync: str = LAST
    divide_loss: bool = True

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        if not 1 <= self.microbatches <= MAX_MICROBATCHES:
            msg = (
                f"microbatches={self.microbatches} of {self.name}: expected 1 to "
                f"{MAX_MICROBATCHES:,}"
            )
            raise UsageError(msg)
        if self.sync not in SYNCS:
            msg = f"sync={self.sync!r} of {self.name}: expected {', '.join(SYNCS)}"
            raise UsageError(msg)

    def precedes(self, other: Pass) -> bool:
        """Precede `data-parallel` if it adds up what all microbatches make."""
        return (other.name == _REDUCES and self.is_late) or super().precedes(other)

    def follows(self, other: Pass) -> bool:
        """Follow `data-parallel` if it adds up what each microbatch makes."""
        return (other.name == _REDUCES and not self.is_late) or super().follows(other)

    @property
    def is_late(self) -> bool:
        """Whether ranks add up the gradients of all microbatches together."""
        return self.sync == LAST

    def run(self, program: Program, ctx: PassContext) -> Program:
        """Write the step of every rank class anew."""
        classes = tuple(self._class(rank, program, ctx) for rank in program.classes)
        made = attrs.evolve(program, classes=classes)
        return attrs.evolve(made, microbatches=self.microbatches)

    def _class(self, rank: RankClass, program: Program, ctx: PassContext) -> RankClass:
        graph = self._checked(program, rank.ops)
        known: Mapping[Value, tuple[Dim, ...]] = ctx.get(ELEMENTS, graph)
        if self.microbatches == 1:
            made, elements = graph, known
        else:
            # Say which tables do not wait for the optimizer.
            updated = [
                node
                for node in graph
                if node.location.phase == graphs.BACKWARD
                and "optimizer" in node.attributes
            ]
            if updated:
                ctx.note(
                    "tables-updated-each-microbatch",
                    "the backward kernel of batched lookups updates their tables, in "
                    "every "
                    "microbatch: their gradients are not accumulated",
                    str(updated[0]),
                )
            writer = MicrobatchWriter(self._sums(graph, known), self.microbatches)
            made, elements = writer.write(), writer.elements
        ctx.set(TYPED, made, True)
        ctx.set(ELEMENTS, made, elements)
        return attrs.evolve(rank, ops=made)

    def _checked(self, program: Program, graph: Graph | None) -> Graph:
        """Return a graph whose gradients can be accumulated."""
        if graph is None:
            msg = f"{program} is given as launches: it has no gradients to accumulate"
            raise UnsupportedModelError(msg)
        if not graphs.is_training_step(graph):
            msg = (
                f"{graph} has no backward pass whose gradients could be accumulated; "
                f"give --mode training, or the pass training before {self.name}"
            )
            raise UsageError(msg)
        if any(map(graphs.is_between_stages, graph)):
            msg = (
                f"the microbatches of pipeline-parallel are accumulated already: leave "
                f"{self.name} out"
            )
            raise UsageError(msg)
        if any(node.regions for node in graph):
            msg = f"{graph} has loops or branches, which {self.name} does not repeat"
            raise UnsupportedModelError(msg)
        where = f"{self.microbatches:,} microbatches of {graph}"
        spend("microbatch-nodes", self.microbatches * len(graph), where)
        return graph

    def _sums(self, graph: Graph, known: Mapping[Value, tuple[Dim, ...]]) -> Sums:
        """Find what is added up, when, and what all microbatches share."""
        late = self.is_late
        # Gathered again means forgotten: only what stays serves the next microbatch.
        stays = late and not any(graphs.gathers(graph, graphs.BACKWARD))
        gathered = (
            [node for nodes in graphs.gathers(graph) for node in nodes] if stays else []
        )
        return Sums.of(graph, known, gathered, late=late, divide=self.divide_loss)
