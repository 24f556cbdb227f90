"""What each term of the CPU's model stands for: how much of it a kernel does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.cpu import movement
from perfc.costmodels.cpu.gemm import gemm_amounts
from perfc.costmodels.cpu.memory import memory_amounts
from perfc.costmodels.cpu.norms import batch_norm_amounts
from perfc.costmodels.cpu.parallel import cores_at_work
from perfc.costmodels.cpu.reductions import goes_down, reduction_amounts, singly, sums
from perfc.costmodels.kernels import Floats, KernelTable
from perfc.costmodels.locality import has_tables, lookups_of
from perfc.costmodels.machine import Target

PIPES = 2
"""Pipes of a core that multiply and add vectors."""

BINARY = frozenset({"add", "sub", "mul", "div", "pow", "remainder", "floor_divide"})
"""Kinds of elementwise kernels that take two operands."""

PRIMITIVES: Mapping[str, int] = MappingProxyType({"gelu": 1, "gelu_backward": 2})
"""Kinds of elementwise kernels that are oneDNN's, and how many primitives they are."""

ELEMENT_BYTES = 4
"""Bytes of an fp32 element, in which parameters are."""

FUSED = "fused"
STEPS = ("single", "foreach", FUSED)
"""Algorithms of an optimizer's step."""

STEP_CALLS: Mapping[str, int] = MappingProxyType(
    {"sgd": 1, "adagrad": 5, "adam": 8, "adamw": 9}
)
"""Calls of ATen for each tensor of a step, or list of them (`torch/optim/*.py`)."""

MOST_STEP_CALLS = 9
"""Calls of ATen for each tensor of a step, or list of them, of other optimizers."""


def amounts_of(
    kernels: KernelTable,
    target: Target,
    most_cores: int | None = None,
    lanes: int | None = None,
) -> dict[str, Floats]:
    """Return how many seconds each coefficient stands for at 1, by its name.

    Shape (kernels,) each. A kernel takes at most so many cores, in vectors of so many
    lanes; those of the target where none are given.
    """
    device = target.device
    bags, rows = _Bags.of(kernels), kernels.param("rows") + movement.pieces_of(kernels)
    items = _items(kernels, bags)
    cores = cores_at_work(kernels, items, most_cores or device.sm_count)
    share = cores / device.sm_count
    down, lanes = goes_down(kernels), lanes or vector_lanes(target)
    # Whether a number of Python's is the other operand: it is made a tensor first.
    takes_scalar = np.array(
        [
            kernel.op == "elementwise"
            and kernel.params.get("kind") in BINARY
            and kernel.params.get("tensor_inputs") == 1
            and "bytes" not in kernel.params
            for kernel in kernels.kernels
        ],
        dtype=np.bool_,
    )
    amounts = {
        "start_us": np.full(len(kernels), 1e-6),
        "fork_us": np.where(cores > 1, 1e-6, 0.0),
        "scalar_us": np.where(takes_scalar, 1e-6, 0.0),
        "item_ns": np.where((movement.rows_turned(kernels) > 0) | down, 0.0, items)
        / cores
        * 1e-9,
        "broadcast_ns": _broadcast_rows(kernels) / cores * 1e-9,
        "short_item_ns": _short_items(kernels, lanes) / cores * 1e-9,
        "row_ns": np.where(down, 0.0, rows) / cores * 1e-9,
        "tail_ns": np.where(down, 0.0, _tails(kernels, lanes)) / cores * 1e-9,
        "primitive_us": _primitives(kernels) * 1e-6,
        "lookup_ns": bags.lookups * 1e-9,
        "miss_ns": (bags.distinct + movement.rows_fetched(kernels)) / cores * 1e-9,
        **memory_amounts(kernels, _held_bytes(kernels, bags), target, share),
    }
    amounts |= reduction_amounts(kernels, cores)
    amounts |= movement.joined_amounts(kernels)
    amounts |= batch_norm_amounts(kernels, cores, lanes)
    amounts |= _step_amounts(kernels, cores)
    return amounts | gemm_amounts(kernels, target, share, lanes)


def vector_lanes(target: Target) -> int:
    """Return the fp32 numbers of a vector: a core has two pipes of so many lanes."""
    return max(target.device.lanes_per_sm // PIPES, 1)


def _step_amounts(kernels: KernelTable, cores: Floats) -> dict[str, Floats]:
    """Return the amounts of an optimizer's calls for its tensors, by algorithm.

    Python goes from tensor to tensor, and `torch._foreach_*` does so in ATen, kernel by
    kernel; a fused step takes them in one call, and goes over each list that it reads
    or writes once (`torch/optim`, `aten/src/ATen/native/ForeachOps...`).
    """
    steps = [k.op == "optimizer_step" for k in kernels.kernels]
    how = np.array([k.params.get("algorithm", FUSED) for k in kernels.kernels])
    how = np.where(steps, how, "")
    kinds = [str(kernel.params.get("kind", "")) for kernel in kernels.kernels]
    listed = [STEP_CALLS.get(kind, MOST_STEP_CALLS) for kind in kinds]
    tensors, elements = kernels.param("tensors"), kernels.param("elements")
    lists = kernels.bytes / (ELEMENT_BYTES * np.maximum(elements, 1.0))
    calls = np.where(how == FUSED, lists, listed)
    amounts: dict[str, Floats] = {}
    for algorithm in STEPS:
        own = how == algorithm
        own_s = np.where(own, calls * 1e-6, 0.0)
        amounts[f"{algorithm}_start_us"] = np.where(own, 1e-6, 0.0)
        amounts[f"{algorithm}_us"] = own_s * tensors
        amounts[f"{algorithm}_item_ns"] = own_s * elements / cores * 1e-3
    return amounts


@attrs.frozen(eq=False)
class _Bags:
    """What embedding bags look up, 0 of other kernels; shape (kernels,) each.

    Attributes:
        lookups: Rows that are named.
        distinct: Different rows among them.
        held_bytes: Of all tables.
        are_bags: Which kernels are of embedding bags.

    """

    lookups: Floats
    distinct: Floats
    held_bytes: Floats
    are_bags: NDArray[np.bool_]

    @classmethod
    def of(cls, kernels: KernelTable) -> _Bags:
        """Return the embedding lookups of the kernels."""
        lookups, distinct, held_bytes = np.zeros((3, len(kernels)))
        are_bags = np.array(
            [k.op == "embedding_bag" and has_tables(k) for k in kernels.kernels]
        )
        rows = np.flatnonzero(are_bags)
        if len(rows):
            seen = lookups_of(kernels.take(rows))
            lookups[rows] = seen.per_kernel(seen.count)
            distinct[rows] = seen.per_kernel(seen.distinct())
            tables = seen.per_kernel(seen.rows * seen.row_bytes)
            held_bytes[rows] = tables
        return cls(lookups, distinct, held_bytes, are_bags)


def _items(kernels: KernelTable, bags: _Bags) -> Floats:
    """Return the elements that a kernel goes over, also of windows and rows looked up.

    An optimizer goes over one tensor after another.
    """
    items = kernels.param("rows") * kernels.param("cols")
    moved = np.maximum(kernels.bytes_read, kernels.bytes_written) / 4
    items = np.where(items > 0, items, moved)
    each = kernels.param("elements") / np.maximum(kernels.param("tensors"), 1)
    items = np.where(each > 0, each, items)
    by_flops = [kernel.op == "pool" for kernel in kernels.kernels]
    return np.where(by_flops | bags.are_bags, kernels.flops, items)


def _held_bytes(kernels: KernelTable, bags: _Bags) -> Floats:
    """Return the bytes that a kernel needs at hand: of rows looked up twice, one."""
    held = np.where(bags.are_bags, bags.held_bytes, kernels.bytes)
    for row, kernel in enumerate(kernels.kernels):
        if kernel.op == "gather" and "indices" in kernel.params:
            held[row] = max(held[row], 4.0 * math.prod(kernel.params.integers("shape")))
    return held


def _tails(kernels: KernelTable, lanes: int) -> Floats:
    """Return the rows that no whole number of vectors fills.

    Reductions go down the columns of rows that are shorter than a vector.
    """
    columns = kernels.param("cols")
    reduced = np.array([kernel.op == "reduction" for kernel in kernels.kernels])
    rest = (columns % lanes != 0) & ~singly(kernels) & ~(reduced & (columns < lanes))
    return np.where(rest, kernels.param("rows"), 0.0)


def _primitives(kernels: KernelTable) -> Floats:
    """Return the primitives that oneDNN describes before it starts (`GeluKernel.cpp`).

    That of a gradient asks for the forward one's, too.
    """
    found = [
        PRIMITIVES.get(str(kernel.params.get("kind")), 0)
        if kernel.op == "elementwise"
        else 0
        for kernel in kernels.kernels
    ]
    return np.array(found, dtype=np.float64)


def _broadcast_rows(kernels: KernelTable) -> Floats:
    """Return rows that one row or number is combined with, each a loop of its own.

    Work that says its bytes reads fewer of an operand than there are elements.
    """
    found = [k.op == "elementwise" and "bytes" in k.params for k in kernels.kernels]
    return np.where(found, kernels.param("rows"), 0.0)


def _short_items(kernels: KernelTable, lanes: int) -> Floats:
    """Return elements of rows that no vector fits in, which go one by one."""
    ops = np.array([k.op in {"softmax", "reduction"} for k in kernels.kernels])
    rows, columns = kernels.param("rows"), kernels.param("cols")
    short = ops & (columns < lanes) & ~singly(kernels) & ~sums(kernels)
    return np.where(short & ~goes_down(kernels), rows * columns, 0.0)
