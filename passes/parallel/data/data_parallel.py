"""The pass `data-parallel`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from perfc import ir
from perfc.costmodels.embedding import HOST, REMOTE
from perfc.ir import node_kinds
from perfc.ir.location import ACCUMULATE_GRAD
from perfc.ir.program import MAX_RANKS, RankClass
from perfc.ir.support import UnsupportedModelError
from perfc.passes import graphs
from perfc.passes.base import PassContext, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.parallel.data.buffer_broadcast import BufferBroadcast
from perfc.passes.parallel.data.gradient_buckets import Limits, Reduction, fill_buckets
from perfc.passes.parallel.data.replicas import repeated

GROUP = "dp"
"""Name of the communicator of ranks that hold the same parameters."""

_MIB = 2**20
_SHARDING, _EVERYWHERE = "sharding", "data_parallel"
"""What an embedding table says of who holds it, and if all ranks do."""

_INDICES, _VALUES = 1, 2
"""Operands of the step that takes a sparse gradient."""


@attrs.frozen
class DataParallel(Transform):
    """Run a model on several ranks, each with a batch of its own.

    What `torch.nn.parallel.DistributedDataParallel` does. Gradients go to buckets in
    the order in which they become ready, times one over the ranks; a full bucket is
    all-reduced while backward goes on, and the optimizer reads what comes back.
    Buffers, as running statistics, are broadcast before forward. Of an inference all
    that there is are replicas. Run it after `training`, and after what shares one
    model out among ranks: those are one replica then.

    Embedding tables that are sharded are left out, and if there are any the ranks that
    share them are those that are data-parallel. Sparse gradients are gathered, rows and
    indices, from all ranks.

    Attributes:
        ranks: How many replicas.
        world: Instead: how many ranks in all.
        bucket_mb: MiB at which a bucket is full (`bucket_cap_mb`).
        first_bucket_mb: The same of the first one.
        gradient_as_bucket_view: Whether gradients stay in their buckets; else they are
            copied back.
        broadcast_buffers: Whether rank 0 sends its buffers to all others.

    """

    name: ClassVar[str] = "data-parallel"
    requires: ClassVar[frozenset[ir.AnyKey]] = frozenset({TYPED, ELEMENTS})

    ranks: int = 0
    world: int = 0
    bucket_mb: float = 25.0
    first_bucket_mb: float = 1.0
    gradient_as_bucket_view: bool = False
    broadcast_buffers: bool = True

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        for option, value in (("ranks", self.ranks), ("world", self.world)):
            if not 0 <= value <= MAX_RANKS:
                msg = f"{option}={value} of {self.name}: expected 1 to {MAX_RANKS:,}"
                raise ir.UsageError(msg)
        if self.ranks and self.world:
            msg = f"{self.name} takes ranks=N replicas or world=N ranks, not both"
            raise ir.UsageError(msg)
        if not (self.bucket_mb > 0 and self.first_bucket_mb > 0):
            msg = f"buckets of {self.name}: expected more than 0 MiB"
            raise ir.UsageError(msg)

    def run(self, program: ir.Program, ctx: PassContext) -> ir.Program:
        """Reduce the gradients of every rank class, and multiply the ranks."""
        replica = sum(len(rank.ranks) for rank in program.classes)
        shared = program.replicas > 1 or any(map(_has_shards, program.classes))
        replicas = self._replicas(1 if shared else replica)
        if shared and replicas != replica:
            msg = (
                f"{self.name}: tables or parameters are sharded over {replica} ranks, "
                f"and {replicas} are to be data-parallel; expected the same number"
            )
            raise ir.UsageError(msg)
        if replicas == 1:
            return program
        stride = 1 if shared else replica
        found = [
            self._reduce(rank, replicas, stride, program, ctx)
            for rank in program.classes
        ]
        if not any(found) and not any(map(_meets_others, program.classes)):
            ctx.note(
                "replicas",
                f"{program.name} is an inference: {replicas} replicas, each with a "
                "batch of its own, that never wait for each other",
            )
        if shared:
            return program
        classes = tuple(repeated(r, replicas, stride) for r in program.classes)
        return attrs.evolve(program, classes=classes, replicas=replicas)

    def _replicas(self, replica: int) -> int:
        """Return how many replicas there are, each of *replica* ranks."""
        if not self.ranks and not self.world:
            msg = f"{self.name} needs a number of replicas: {self.name}{{ranks=N}}"
            raise ir.UsageError(msg)
        if self.world % replica:
            msg = (
                f"{self.world} ranks do not divide into replicas of {replica}: "
                f"expected a multiple of {replica}"
            )
            raise ir.UsageError(msg)
        return self.ranks or self.world // replica

    def _reduce(
        self,
        rank: RankClass,
        replicas: int,
        stride: int,
        program: ir.Program,
        ctx: PassContext,
    ) -> bool:
        """Reduce the gradients of a rank class; False if there are none."""
        graph = rank.ops
        if graph is None:
            msg = f"{program.name}: a launch graph has no ops to run in parallel"
            raise UnsupportedModelError(msg)
        if not graphs.is_training_step(graph):
            return False
        alone = len(program.classes) == 1 or stride == 1
        communicator: dict[str, ir.AttrValue] = {
            "group": GROUP if alone else f"{GROUP}.{rank.ranks[0]}",
            "ranks": replicas,
            "stride": stride,
        }
        dense = list(dict.fromkeys(_dense_gradients(graph)))
        rows = {
            node.operands[_VALUES]: node.operands[_INDICES]
            for node in graph
            if node_kinds.updates_rows(node)
        }
        limits = Limits(int(self.first_bucket_mb * _MIB), int(self.bucket_mb * _MIB))
        buckets = fill_buckets(dense, limits)
        views = self.gradient_as_bucket_view
        Reduction(graph, communicator, buckets, rows, views).write()
        if self.broadcast_buffers:
            BufferBroadcast(graph, communicator).write()
        _remark(graph, ctx)
        return True


def _meets_others(rank: RankClass) -> bool:
    return rank.ops is not None and any(map(node_kinds.is_collective, rank.ops))


def _has_shards(rank: RankClass) -> bool:
    return rank.ops is not None and any(map(_is_sharded, rank.ops))


def _is_sharded(node: ir.Node) -> bool:
    tables = node.attributes.get("tables")
    if not tables:
        return False
    found = [table.get(_SHARDING) for table in node.attributes.records("tables")]
    return any(sharding not in (None, _EVERYWHERE) for sharding in found)


def _is_shared(node: ir.Node) -> bool:
    """Whether ranks have one copy of all tables, which others update for them."""
    tables = node.attributes.records("tables")
    return all(table.get("tier") in (HOST, REMOTE) for table in tables)


def _dense_gradients(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield gradients of backward that the optimizer reads, in the order of making.

    Without an optimizer these are what the step returns of backward.
    """
    read = {
        value
        for node in graph
        if node.location.phase == graphs.OPTIMIZER and not node_kinds.updates_rows(node)
        for value in node.operands
    }
    wanted = read or set(graph.outputs)
    for node in graph:
        if node.location.phase == graphs.BACKWARD:
            yield from (v for v in node.results if v in wanted and _is_summed(v))


def _is_summed(value: ir.Value) -> bool:
    """Whether all ranks have this parameter, and its gradient is not a sum yet."""
    if not graphs.typed(value).dtype.is_float:
        return False
    source: ir.Value | None = value
    while source is not None and (node := source.producer) is not None:
        if graphs.is_between_stages(node):
            return True
        if _is_sharded(node) or node_kinds.is_collective(node):
            return False
        if node.location.origin == ACCUMULATE_GRAD:
            source = node.operands[-1]  # the first is the sum so far
        else:
            source = node.operands[0] if node.op in ("alias", "copy") else None
    return True


def _remark(graph: ir.Graph, ctx: PassContext) -> None:
    """Say what DDP itself does not do."""
    if any(map(node_kinds.updates_rows, graph)):
        ctx.note(
            "sparse-gradients",
            "DDP over NCCL does not all-reduce sparse gradients: priced as all-gathers "
            "of their rows and indices",
            str(graph),
        )
    fused = [n for n in graph if "optimizer" in n.attributes and n.operands]
    bags = [n for n in fused if n.op == "embedding_bag_backward"]
    left = [n for n in bags if not (_is_sharded(n) or _is_shared(n))]
    if left:
        ctx.warn(
            "tables-apart",
            "the backward pass of batched tables updates them at once: their gradients "
            "are not all-reduced; shard them (--pass shard-embeddings)",
            str(left[0]),
        )
