"""What each term of the CPU's model stands for: how much of it a kernel does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.causal import executed_share
from perfc.costmodels.embedding_bag import has_tables, lookups_of
from perfc.costmodels.product_sizes import product_sizes
from perfc.costmodels.protocol import Floats, KernelTable
from perfc.costmodels.target import Target
from perfc.ir import Kernel, Record

GRAIN = 32768
"""Elements from which on all cores work (`at::internal::GRAIN_SIZE`)."""

PARALLEL_FLOPS = 2e4
"""The same of convolutions and attention."""

MKL_PARALLEL_FLOPS = 2e3
"""The same of plain products: what MKL 2024.2 does on two cores."""

NARROW = 12
"""Columns of a product from which on MKL's kernels are as fast as they get, about: with
fewer a row of the left operand takes the same time, however few they are."""

NEW_BYTES = 32 * 2**20
"""Results of this size are mapped anew (`DEFAULT_MMAP_THRESHOLD_MAX`, 64 bits)."""

NEW = "new_pages"
"""Parameter of a kernel whose result lies in memory that the heap has just grown by."""

IN_PLACE = "in_place"
"""Parameter of a kernel that writes over one of its operands."""

PAGE_BYTES = 4096

LINE_BYTES = 64
"""Of a cache: a row that is looked up comes in whole lines."""

LANES = 8
"""fp32 numbers of a vector of AVX2: what is left of a row is computed apart."""

BINARY = frozenset({"add", "sub", "mul", "div", "pow", "remainder", "floor_divide"})
"""Kinds of elementwise kernels that take two operands."""

STEPS = ("single", "foreach", "fused")
"""Algorithms of an optimizer's step."""


def amounts_of(kernels: KernelTable, target: Target) -> dict[str, Floats]:
    """Return how many seconds each coefficient stands for at 1, by its name.

    Shape (kernels,) each.
    """
    device = target.device
    bags, rows = _Bags.of(kernels), _rows(kernels)
    items = _items(kernels, bags)
    enough = np.where(_is_gemm(kernels), MKL_PARALLEL_FLOPS, PARALLEL_FLOPS)
    parallel: NDArray[np.bool_] = (items >= GRAIN) | (kernels.flops >= enough)
    parallel &= ~_on_one_core(kernels)
    share: Floats = np.where(parallel, 1.0, 1.0 / device.sm_count)
    cores = share * device.sm_count
    far = _held_bytes(kernels, bags) / device.l2.capacity_bytes
    outside: Floats = np.clip(far - 0.5, 0.0, 1.0)
    moved = np.maximum(kernels.bytes, _line_bytes(kernels))
    written = kernels.bytes_written
    grown = np.array([kernel.params.flag(NEW) for kernel in kernels.kernels])
    mapped = (written >= NEW_BYTES) & ~_writes_over(kernels)
    mapped_pages: Floats = np.where(mapped, written / PAGE_BYTES, 0.0)
    grown_pages: Floats = np.where(grown, written / PAGE_BYTES, 0.0)
    down = np.array([kernel.params.get("axis") == 0 for kernel in kernels.kernels])
    down &= np.array([kernel.op == "reduction" for kernel in kernels.kernels])
    amounts = {
        "start_us": np.full(len(kernels), 1e-6),
        "fork_us": np.where(parallel, 1e-6, 0.0),
        "scalar_us": np.where(_takes_scalar(kernels), 1e-6, 0.0),
        "item_ns": np.where(_stays_whole(kernels) | down, 0.0, items) / cores * 1e-9,
        "row_ns": np.where(down, 0.0, rows) / cores * 1e-9,
        "tail_ns": np.where(down, 0.0, _tails(kernels)) / cores * 1e-9,
        "down_item_ns": np.where(down, items, 0.0) * 1e-9,
        "down_row_ns": np.where(down, rows, 0.0) * 1e-9,
        "down_line_ns": np.where(down, kernels.param("cols"), 0.0) * 1e-9,
        "lookup_ns": bags.lookups * 1e-9,
        "cache_passes": moved * (1 - outside) / (device.l2.bytes_per_s * share),
        "memory_passes": moved * outside / device.memory.bytes_per_s,
        "page_us": mapped_pages * 1e-6,
        "grown_us": np.where(mapped_pages > 0, 0.0, grown_pages) * 1e-6,
    }
    return amounts | _step_amounts(kernels) | _product_amounts(kernels, target, share)


def _step_amounts(kernels: KernelTable) -> dict[str, Floats]:
    """Return the tensors of an optimizer's step: each is a few calls, by algorithm.

    Python goes from tensor to tensor, and `torch._foreach_*` does so in ATen; a fused
    step takes them in one call (`torch/optim`, `aten/src/ATen/native/ForeachOps...`).
    """
    tensors = kernels.param("tensors") * 1e-6
    how = [
        str(k.params.get("algorithm", "fused")) if k.op == "optimizer_step" else ""
        for k in kernels.kernels
    ]
    return {
        f"{algorithm}_us": np.where([name == algorithm for name in how], tensors, 0.0)
        for algorithm in STEPS
    }


def _product_amounts(
    kernels: KernelTable, target: Target, share: Floats
) -> dict[str, Floats]:
    rate = np.array(
        [target.device.flops_per_s.get(k.math, np.inf) for k in kernels.kernels]
    )
    flops_s = kernels.flops / (rate * share)
    attention = np.flatnonzero([k.op == "attention" for k in kernels.kernels])
    if len(attention):
        flops_s[attention] *= executed_share(kernels.take(attention))
    sizes = np.array([product_sizes(k) for k in kernels.kernels], dtype=np.float64)
    batch, m, n, k = sizes.reshape(-1, 4).T
    bias = [k.op == "gemm" and k.params.flag("bias") for k in kernels.kernels]
    vectors = _by_vectors(kernels)
    flops_s[vectors] = 0.0
    return _narrow_amounts(kernels, sizes, share * target.device.sm_count) | {
        "vector_ns": np.where(vectors, m * n * k * 1e-9, 0.0),
        "bias_us": np.where(bias, 1e-6, 0.0),
        "slowdown": flops_s,
        "m_half": flops_s / m,
        "n_half": flops_s / n,
        "k_half": flops_s / k,
        "matrix_us": 1e-6 * batch / (share * target.device.sm_count),
    }


def _narrow_amounts(
    kernels: KernelTable, sizes: Floats, cores: Floats
) -> dict[str, Floats]:
    """Return left operands of products with few columns, by how the operands lie.

    Fastest where both lie along k, slowest where the left one lies along m.
    """
    batch, m, n, k = sizes.reshape(-1, 4).T
    narrow = _is_gemm(kernels) & ~_by_vectors(kernels) & (n < NARROW)
    left_s = np.where(narrow, np.maximum(batch, 1) * m * k / cores, 0.0) * 1e-9
    layouts = [str(kernel.params.get("layout", "nn")) for kernel in kernels.kernels]
    return {
        f"narrow_{layout}_ns": np.where([own == layout for own in layouts], left_s, 0.0)
        for layout in ("nn", "nt", "tn", "tt")
    }


def _is_gemm(kernels: KernelTable) -> NDArray[np.bool_]:
    return np.array([kernel.op == "gemm" for kernel in kernels.kernels], dtype=np.bool_)


@attrs.frozen(eq=False)
class _Bags:
    """What embedding bags look up, 0 of other kernels; shape (kernels,) each.

    Attributes:
        lookups: Rows that are named.
        held_bytes: Of all tables.
        found: Which kernels are of embedding bags.

    """

    lookups: Floats
    held_bytes: Floats
    found: NDArray[np.bool_]

    @classmethod
    def of(cls, kernels: KernelTable) -> _Bags:
        """Return what the kernels look up."""
        lookups, held_bytes = np.zeros(len(kernels)), np.zeros(len(kernels))
        found = np.array(
            [k.op == "embedding_bag" and has_tables(k) for k in kernels.kernels]
        )
        rows = np.flatnonzero(found)
        if len(rows):
            seen = lookups_of(kernels.take(rows))
            lookups[rows] = seen.per_kernel(seen.count, len(rows))
            tables = seen.per_kernel(seen.rows * seen.row_bytes, len(rows))
            held_bytes[rows] = tables
        return cls(lookups, held_bytes, found)


def _items(kernels: KernelTable, bags: _Bags) -> Floats:
    """Return what a kernel goes over: elements, those of windows, of rows looked up."""
    items = kernels.param("rows") * kernels.param("cols")
    moved = np.maximum(kernels.bytes_read, kernels.bytes_written) / 4
    items = np.where(items > 0, items, moved)
    by_flops = [kernel.op == "pool" for kernel in kernels.kernels]
    return np.where(by_flops | bags.found, kernels.flops, items)


def _held_bytes(kernels: KernelTable, bags: _Bags) -> Floats:
    """Return the bytes that a kernel needs at hand: of rows looked up twice, one."""
    held = np.where(bags.found, bags.held_bytes, kernels.bytes)
    for row, kernel in enumerate(kernels.kernels):
        if kernel.op == "gather" and "indices" in kernel.params:
            held[row] = max(held[row], 4.0 * math.prod(kernel.params.integers("shape")))
    return held


def _rows(kernels: KernelTable) -> Floats:
    """Return the pieces that lie in one, each with a start of its own."""
    return kernels.param("rows") + _by_op(kernels, _PIECES)


def _tails(kernels: KernelTable) -> Floats:
    """Return the rows that no whole number of vectors fills."""
    return np.where(kernels.param("cols") % LANES != 0, kernels.param("rows"), 0.0)


def _line_bytes(kernels: KernelTable) -> Floats:
    return _by_op(kernels, {"gather": _gathered_bytes})


def _on_one_core(kernels: KernelTable) -> NDArray[np.bool_]:
    """Whether one core does it all: a matrix transposed, or times a vector."""
    turned = [kernel.params.get("perm") == (1, 0) for kernel in kernels.kernels]
    return np.array(turned) | _by_vectors(kernels)


def _by_vectors(kernels: KernelTable) -> NDArray[np.bool_]:
    """Whether it is a matrix times a vector: a single product with one row or column.

    PyTorch calls `gemv` for these.
    """
    found: NDArray[np.bool_] = np.array(
        [
            kernel.op == "gemm"
            and kernel.params.integer("b", 1) == 1
            and 1 in {kernel.params.integer("m"), kernel.params.integer("n")}
            for kernel in kernels.kernels
        ],
        dtype=np.bool_,
    )
    return found


def _writes_over(kernels: KernelTable) -> NDArray[np.bool_]:
    """Whether what is written has its place already: no result is made."""
    found: NDArray[np.bool_] = np.array(
        [
            kernel.op in {"memcpy", "optimizer_step"}
            or kernel.params.get("kind") == "fill"
            or kernel.params.flag(IN_PLACE)
            for kernel in kernels.kernels
        ],
        dtype=np.bool_,
    )
    return found


def _takes_scalar(kernels: KernelTable) -> NDArray[np.bool_]:
    """Whether a number of Python's is the other operand: it is made a tensor first."""
    found: NDArray[np.bool_] = np.array(
        [
            kernel.op == "elementwise"
            and kernel.params.get("kind") in BINARY
            and kernel.params.get("tensor_inputs") == 1
            and "bytes" not in kernel.params
            for kernel in kernels.kernels
        ],
        dtype=np.bool_,
    )
    return found


def _stays_whole(kernels: KernelTable) -> NDArray[np.bool_]:
    """Whether whole rows are copied to other places, not one element after another."""
    return _by_op(kernels, {"transpose": _turned}) > 0


def _by_op(
    kernels: KernelTable, rules: Mapping[str, Callable[[Kernel], float]]
) -> Floats:
    """Return a number of each kernel by the rule of its op, 0 where there is none."""
    return np.array([rules[k.op](k) if k.op in rules else 0.0 for k in kernels.kernels])


def _gathered(kernel: Kernel) -> float:
    """Return the pieces that lie in one: rows, or elements that are named one by one.

    An index of several axes, `x[:, i, j]`, has more numbers than there are pieces.
    """
    params = kernel.params
    if "indices" not in params:
        return 0.0
    outer = math.prod(params.integers("shape")[: params.integer("axis", 0)])
    named = outer * math.prod(params.integers("indices"))
    return float(min(named, kernel.work.bytes_written // 4))


def _gathered_bytes(kernel: Kernel) -> float:
    """Return the bytes of the lines that the pieces lie in, and of the result."""
    pieces = _gathered(kernel)
    if not pieces:
        return 0.0
    piece_bytes = kernel.work.bytes_written / pieces
    lines = math.ceil(piece_bytes / LINE_BYTES) * LINE_BYTES
    return pieces * (lines + piece_bytes)


def _joined(kernel: Kernel) -> float:
    """Return the pieces of tensors that are joined: one of each for every row."""
    shapes, axis = kernel.params.get("shapes"), kernel.params.integer("axis", 0)
    if not isinstance(shapes, tuple) or not shapes:
        return 0.0
    first = Record({"shape": shapes[0]}).integers("shape")
    return float(len(shapes) * math.prod(first[:axis]))


def _turned(kernel: Kernel) -> float:
    """Return the rows that stay whole in a transposition; 0 if the last axis moves."""
    params = kernel.params
    if "perm" not in params or "shape" not in params:
        return 0.0
    shape, perm = params.integers("shape"), params.integers("perm")
    whole = perm[-1] == len(perm) - 1
    return float(math.prod(shape[:-1]) if whole else 0)


_PIECES: Mapping[str, Callable[[Kernel], float]] = {
    "gather": _gathered,
    "concat": _joined,
    "transpose": _turned,
}
