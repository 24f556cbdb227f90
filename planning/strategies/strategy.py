"""A strategy: how the layers of a model are spread over many GPUs, class by class."""

from __future__ import annotations

import attrs

from perfc.passes import (
    Fsdp,
    PipelineParallel,
    ShardEmbeddings,
    TensorParallel,
    Transform,
)
from perfc.passes.training import AccumulateGradients

DP, FSDP = "dp", "fsdp"
GRAD_OP, HYBRID = "fsdp-grad-op", "fsdp-hybrid"
DATA = (DP, FSDP, GRAD_OP, HYBRID)
"""What replicas do with their parameters: each has them all, or they share them, and
gather them for forward and backward, for both at once, or inside nodes only."""

GPIPE, ONE_F_ONE_B = "gpipe", "1f1b"
INTERLEAVED = "interleaved"
"""The schedule in which each stage has several chunks of layers."""
SCHEDULES = (ONE_F_ONE_B, GPIPE)
"""Orders of microbatches where stages have their layers in one piece."""

CHUNKS = 2
"""Pieces of interleaved stages, if nobody says how many: the fewest."""

TABLE_WISE, ROW_WISE, COLUMN_WISE = "table-wise", "row-wise", "column-wise"
TABLE_ROW_WISE, GRID = "table-row-wise", "grid"
SHARDINGS = (TABLE_WISE, ROW_WISE, COLUMN_WISE, TABLE_ROW_WISE, GRID)
"""How tables of embedding bags are sharded, if all of them are alike."""

_FSDP = {FSDP: "full", GRAD_OP: "grad-op", HYBRID: "hybrid"}


@attrs.frozen(kw_only=True)
class Strategy:
    """How the classes of layers of a model are spread over GPUs.

    Ranks of `tensor` are neighbours, stages come after each other, replicas last. All
    layers but tables of embedding bags go one way; tables go theirs.

    Attributes:
        data: One of `DATA`.
        replicas: How many GPUs, or groups of GPUs, have a batch of their own.
        tensor: GPUs that share each layer (pass `tensor-parallel`).
        stages: Groups of GPUs that have layers after each other.
        microbatches: Parts of the batch of a replica, which stages compute in turn, or
            whose gradients are added up without stages (pass `accumulate-gradients`);
            0 where it is open how many.
        schedule: One of `SCHEDULES` or `INTERLEAVED`, in which stages compute
            microbatches.
        chunks: Pieces of layers that each stage has, interleaved; else 1.
        tables: `dp` for tables that every replica has, one of `SHARDINGS`, or a plan
            file; empty for a model without tables.

    """

    replicas: int
    data: str = DP
    tensor: int = 1
    stages: int = 1
    microbatches: int = 1
    schedule: str = ONE_F_ONE_B
    chunks: int = 1
    tables: str = ""

    @property
    def ranks(self) -> int:
        """GPUs in all."""
        return self.replicas * self.tensor * self.stages

    @property
    def shards_tables(self) -> bool:
        """Whether ranks hold different tables, or parts of them."""
        return self.tables not in ("", DP)

    @property
    def shards(self) -> int:
        """Most parts that replicas cut their parameters into."""
        return 1 if self.data == DP else self.replicas

    @property
    def kept(self) -> list[int]:
        """How many microbatches each stage keeps for backward at once.

        With `1f1b` as many as there are stages from it on, or all there are.
        Interleaved, as many as have been through all of its chunks, or more of them,
        when the first goes back: all of a round, or two for each stage after, and one.
        """
        if self.schedule == INTERLEAVED:
            after = range(self.stages - 1, -1, -1)
            return [min(2 * left + 1, self.stages) for left in after]
        if self.schedule == GPIPE:
            return [self.microbatches] * self.stages
        return [min(left, self.microbatches) for left in range(self.stages, 0, -1)]

    @property
    def family(self) -> tuple[object, ...]:
        """What strategies share that differ in degrees only."""
        return self.data, self.tables, self.tensor > 1, self.stages > 1

    def __str__(self) -> str:
        """Write it as `read_strategy` reads it: `dp:4 tp:2`, `dense=dp:8 emb=grid`."""
        terms = [(self.data, self.replicas), ("tp", self.tensor), ("pp", self.stages)]
        items = [f"{kind}:{degree}" for kind, degree in terms if degree > 1]
        items = items or [f"{self.data}:1"]
        if self.microbatches > 1 or (self.stages > 1 and self.microbatches):
            items.append(f"mb:{self.microbatches}")
        if self.stages > 1 and self.microbatches:
            chunks = f":{self.chunks}" if self.schedule == INTERLEAVED else ""
            items.append(f"{self.schedule}{chunks}")
        if not self.tables:
            return " ".join(items)
        return f"dense={'+'.join(items)} emb={self.tables}"

    def passes(self, gpus_per_node: int) -> list[Transform]:
        """Return the passes that spread one replica, and share parameters.

        `training` and `data-parallel` come from how a model is loaded.

        Args:
            gpus_per_node: GPUs of a node of the machine.

        """
        found: list[Transform] = []
        shared = self.data != DP and self.replicas > 1
        if self.shards_tables or (self.tables and shared):
            plan = "data-parallel" if self.tables == DP else self.tables
            node = min(gpus_per_node, self.replicas)
            found.append(ShardEmbeddings(self.replicas, plan=plan, per_node=node))
        if self.tensor > 1:
            found.append(TensorParallel(self.tensor))
        if shared:
            per_node = max(1, gpus_per_node // self.tensor)
            kind = _FSDP[self.data]
            found.append(Fsdp(self.replicas, strategy=kind, per_node=per_node))
        if self.stages > 1:
            stages, parts = self.stages, self.microbatches
            found.append(PipelineParallel(stages, parts, self.schedule, self.chunks))
        elif self.microbatches > 1:
            found.append(AccumulateGradients(self.microbatches))
        return found
