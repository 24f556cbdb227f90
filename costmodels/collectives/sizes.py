"""Collectives as columns: which they are, how large, and who takes part."""

from __future__ import annotations

import attrs
import numpy as np

from perfc.costmodels.kernels import Flags, Floats, Indices, KernelTable, Texts
from perfc.costmodels.machine import COLLECTIVES, RING

NVLS_RANKS = 5
"""Members of a node from which an all-reduce goes through the switch: eight do, four do
not."""

NVLS_DTYPES = ("fp16", "bf16", "fp32", "tf32", "fp64")


@attrs.frozen(eq=False)
class Collectives:
    """Collectives as columns, shape (rows,)."""

    op: Texts
    dtype: Texts
    bytes: Floats
    """Total, as nccl-tests count it."""
    ranks: Floats
    nodes: Floats
    per_node: Floats
    """Members on a node."""

    @classmethod
    def of(cls, kernels: KernelTable) -> Collectives:
        """Return the sizes of kernels; one node where they do not say."""
        ranks = kernels.param("ranks")
        nodes = np.maximum(kernels.param("nodes"), 1.0)
        each = kernels.param("gpus_per_node")
        return cls(
            kernels.op,
            kernels.dtype,
            kernels.param("bytes"),
            ranks,
            nodes,
            np.where(each > 0, each, np.ceil(ranks / nodes)),
        )

    def __len__(self) -> int:
        return len(self.bytes)

    def take(self, rows: Indices) -> Collectives:
        """Return some of the rows."""
        return Collectives(
            self.op[rows],
            self.dtype[rows],
            self.bytes[rows],
            self.ranks[rows],
            self.nodes[rows],
            self.per_node[rows],
        )

    @property
    def is_ring(self) -> Flags:
        """Whether it goes from neighbour to neighbour."""
        ops = [op for op, way in COLLECTIVES.items() if way == RING]
        found: Flags = np.isin(self.op, ops)
        return found

    @property
    def reduces(self) -> Flags:
        """Whether it adds up."""
        found: Flags = np.isin(self.op, ("all_reduce", "reduce_scatter"))
        return found

    @property
    def narrow(self) -> Flags:
        """Whether it adds up single bytes."""
        found: Flags = self.reduces & (self.dtype == "int8")
        return found

    @property
    def wire(self) -> Floats:
        """Bytes that leave each GPU."""
        once = np.isin(self.op, ("broadcast", "send_recv"))
        share = np.where(once, 1.0, (self.ranks - 1) / self.ranks)
        found: Floats = self.bytes * share * np.where(self.op == "all_reduce", 2.0, 1.0)
        return found

    @property
    def steps(self) -> Floats:
        """Steps of a ring, or peers to exchange with."""
        pair = np.where(self.op == "send_recv", 1.0, self.ranks - 1)
        found: Floats = pair * np.where(self.op == "all_reduce", 2.0, 1.0)
        return found

    @property
    def switch_adds(self) -> Flags:
        """Whether switches may add up for it in its nodes, where they can."""
        found: Flags = (self.op == "all_reduce") & np.isin(self.dtype, NVLS_DTYPES)
        found &= np.minimum(self.per_node, self.ranks) >= NVLS_RANKS
        return found

    @property
    def uses_switch(self) -> Flags:
        """Whether the switch of its only node may add up for it, where it can."""
        found: Flags = self.switch_adds & (self.nodes == 1)
        return found
