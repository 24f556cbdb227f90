"""What the pass `memory` finds out."""

from __future__ import annotations

import enum
import functools
from collections.abc import Container, Sequence
from typing import NamedTuple, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.ir import AnnotationKey, Program
from perfc.ir.support import brief
from perfc.passes.columns import integers
from perfc.passes.memory.caching_allocator import reserved_bytes, rounded


class BufferKind(enum.Enum):
    """Why device memory is taken; the values are the report's."""

    PARAMETER = "parameter"
    CONSTANT = "constant"
    OPTIMIZER = "optimizer"
    LIBRARY = "library"
    INPUT = "input"
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    SCRATCH = "scratch"

    __hash__ = object.__hash__


LASTING = frozenset(
    {
        BufferKind.PARAMETER,
        BufferKind.CONSTANT,
        BufferKind.OPTIMIZER,
        BufferKind.LIBRARY,
    }
)
"""Kinds that stay from iteration to iteration."""


class Buffer(NamedTuple):
    """One storage on the device; views of it are the same storage.

    Attributes:
        name: The value it was made for; for scratch, the node that uses it.
        kind: What it is for.
        nbytes: Exact size.
        first: Number of the node that allocates it; -1 before any node.
        last: Number of the node at whose end it is freed; the number of nodes, if
            it lasts to the end of the iteration.

    """

    name: str
    kind: BufferKind
    nbytes: int
    first: int
    last: int

    @property
    def allocated_bytes(self) -> int:
        """Its size as the allocator counts it."""
        return rounded(self.nbytes)


BufferRow: TypeAlias = tuple[str, BufferKind, int, int, int]
"""The attributes of a `Buffer`: there can be very many, and few are looked at."""


@attrs.frozen(eq=False)
class MemoryUse:
    """Device memory of one iteration, in steady state.

    Bytes are what PyTorch's allocator counts as allocated (sizes rounded up to 512
    bytes), but for `reserved_bytes`.

    Attributes:
        parameters_bytes: Weights and constants.
        activations_bytes: At the peak: inputs, results and scratch.
        gradients_bytes: At the peak: gradients of parameters.
        library_bytes: Workspace that PyTorch keeps for cuBLAS.
        optimizer_bytes: State of the optimizer.
        node: Name of the node at the peak, "" if it is before any node.
        phase: Its phase.
        nodes: Names of the nodes, in program order.
        before_bytes: Allocated before any node runs.
        during_bytes: Allocated while each node runs.
        after_bytes: Allocated when it has ended.
        rows: Every buffer, in the order in which they are allocated.
        rows_at_peak: Those that are allocated at the peak.

    """

    __repr__ = brief

    parameters_bytes: int = 0
    activations_bytes: int = 0
    gradients_bytes: int = 0
    library_bytes: int = 0
    optimizer_bytes: int = 0
    node: str = ""
    phase: str = ""
    nodes: Sequence[str] = ()
    before_bytes: int = 0
    during_bytes: Sequence[int] = ()
    after_bytes: Sequence[int] = ()
    rows: Sequence[BufferRow] = attrs.field(default=(), repr=False)
    rows_at_peak: Sequence[BufferRow] = attrs.field(default=(), repr=False)

    @functools.cached_property
    def buffers(self) -> Sequence[Buffer]:
        """Every buffer, in the order in which they are allocated."""
        return [*map(Buffer._make, self.rows)]

    @functools.cached_property
    def live(self) -> Sequence[Buffer]:
        """Buffers that are allocated at the peak, largest first."""
        at_peak = map(Buffer._make, self.rows_at_peak)
        return sorted(at_peak, key=lambda b: (-b.nbytes, b.first, b.name))

    @functools.cached_property
    def reserved_bytes(self) -> int:
        """Segments the allocator has taken from the device; simulated when asked."""
        lasting = [b.nbytes for b in self.buffers if b.kind in LASTING]
        events: list[tuple[int, int, int, int]] = []
        for number, buffer in enumerate(self.buffers):
            if buffer.kind not in LASTING:
                # At one node all requests come first, and ends last.
                events.append((buffer.first, 0, number, buffer.nbytes))
                events.append((buffer.last, 1, number, -1))
        events.sort()
        requests = [(number, size) for _, _, number, size in events]
        return reserved_bytes(lasting, requests)

    def held(self, kinds: Container[BufferKind]) -> NDArray[np.int64]:
        """Return the bytes of some kinds over the iteration, shape (nodes + 2,).

        Before any node, while each node runs, and when the last one has ended.
        """
        rows = [row for row in self.rows if row[1] in kinds]
        size = integers([nbytes for *_, nbytes, _, _ in rows])
        first = integers([first for *_, first, _ in rows])
        last = integers([last for *_, last in rows])
        during, after = held_bytes(first, last, rounded(size), len(self.nodes))
        return np.append(during, after[-1]).astype(np.int64)

    @property
    def peak_bytes(self) -> int:
        """The most that is allocated; what `torch.cuda.max_memory_allocated` says."""
        return (
            self.parameters_bytes
            + self.activations_bytes
            + self.gradients_bytes
            + self.library_bytes
            + self.optimizer_bytes
        )


def held_bytes(
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    size: NDArray[np.int64],
    nodes: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the bytes held before any node and while each runs, and after the same.

    Args:
        first: Number of the node that allocates each buffer; -1 before any.
        last: Number of the node at whose end it is freed.
        size: Its bytes, as the allocator counts them.
        nodes: How many nodes there are.

    """
    # The first place is for what there is before any node, the last for what stays.
    # Bytes are added up as floats, which is exact up to 8 PiB.
    # Differences at the ends and one running sum: linear in nodes and buffers, where
    # counting what lives at each node would multiply them.
    grown = np.asarray(np.bincount(first + 1, size, nodes + 2), dtype=np.float64)
    freed = np.asarray(np.bincount(last + 1, size, nodes + 2), dtype=np.float64)
    after = np.cumsum(grown - freed)[:-1]
    # While a node runs its operands are held, though this may be their last read.
    return after + freed[:-1], after


MEMORY: AnnotationKey[tuple[MemoryUse, ...]] = AnnotationKey("memory.use", Program)
"""Per rank class: device memory of one iteration."""
