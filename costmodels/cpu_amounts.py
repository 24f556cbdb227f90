"""What each term of the CPU's model stands for: how much of it a kernel does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.causal import executed_share
from perfc.costmodels.cpu_reductions import goes_down, reduction_amounts
from perfc.costmodels.kernel_fit import BACKWARD
from perfc.costmodels.lookups import distinct_rows, has_tables, lookups_of
from perfc.costmodels.maths import ARRAYS
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

ENOUGH_FLOPS: Mapping[str, float] = MappingProxyType(
    {"gemm": MKL_PARALLEL_FLOPS, "optimizer_step": math.inf}
)
"""The same by op: tensors of a step are many kernels."""

NARROW = 12
"""Columns of a product from which on MKL's kernels are as fast as they get, about: with
fewer a row of the left operand takes the same time, however few they are."""

COLUMNS = 16
"""Columns that a product's kernel takes at once: two vectors of AVX2."""

COLUMN_PIECES = np.array([count.bit_count() for count in range(COLUMNS)])
"""Pieces of 8, 4, 2 and 1 that so many columns are taken in."""

NEW_BYTES = 32 * 2**20
"""Results of this size are mapped anew (`DEFAULT_MMAP_THRESHOLD_MAX`, 64 bits)."""

NEW = "new_pages"
"""Parameter of a kernel whose result lies in memory that the heap has just grown by."""

IN_PLACE = "in_place"
"""Parameter of a kernel that writes over one of its operands."""

PAGE_BYTES = 4096

CACHE_PARTS: Mapping[str, int] = MappingProxyType(
    {"gemm": 4, "gather": 4, "embedding_bag": 4, "reduction": 4}
)
"""Ops that find one such part of the last cache free, others find all: what ran before
and what other programs use lies there, too. Read off rows of two cores of Zen 3."""

LINE_BYTES = 64
"""Of a cache: a row that is looked up comes in whole lines."""

LANES = 8
"""fp32 numbers of a vector of AVX2: what is left of a row is computed apart."""

BINARY = frozenset({"add", "sub", "mul", "div", "pow", "remainder", "floor_divide"})
"""Kinds of elementwise kernels that take two operands."""

ELEMENT_BYTES = 4
"""Of fp32, in which parameters are."""

FUSED = "fused"
STEPS = ("single", "foreach", FUSED)
"""Algorithms of an optimizer's step."""

STEP_CALLS: Mapping[str, int] = MappingProxyType(
    {"sgd": 1, "adagrad": 5, "adam": 8, "adamw": 9}
)
"""Calls of ATen for each tensor of a step, or list of them (`torch/optim/*.py`)."""

MOST_STEP_CALLS = 9
"""The same of other optimizers."""


def amounts_of(kernels: KernelTable, target: Target) -> dict[str, Floats]:
    """Return how many seconds each coefficient stands for at 1, by its name.

    Shape (kernels,) each.
    """
    device = target.device
    bags, rows = _Bags.of(kernels), _rows(kernels)
    items = _items(kernels, bags)
    enough = np.array([ENOUGH_FLOPS.get(k.op, PARALLEL_FLOPS) for k in kernels.kernels])
    parallel: NDArray[np.bool_] = (items >= GRAIN) | (kernels.flops >= enough)
    parallel &= ~_on_one_core(kernels)
    share: Floats = np.where(parallel, 1.0, 1.0 / device.sm_count)
    cores = share * device.sm_count
    parts = np.array([_cache_parts(kernel) for kernel in kernels.kernels])
    far = _held_bytes(kernels, bags) / device.l2.capacity_bytes * parts
    outside: Floats = np.clip(far - 0.5, 0.0, 1.0)
    moved = np.maximum(kernels.bytes, _line_bytes(kernels))
    written = kernels.bytes_written
    grown = np.array([kernel.params.flag(NEW) for kernel in kernels.kernels])
    mapped = (written >= NEW_BYTES) & ~_writes_over(kernels)
    mapped_pages: Floats = np.where(mapped, written / PAGE_BYTES, 0.0)
    grown_pages: Floats = np.where(grown, written / PAGE_BYTES, 0.0)
    down = goes_down(kernels)
    amounts = {
        "start_us": np.full(len(kernels), 1e-6),
        "fork_us": np.where(parallel, 1e-6, 0.0),
        "scalar_us": np.where(_takes_scalar(kernels), 1e-6, 0.0),
        "item_ns": np.where(_stays_whole(kernels) | down, 0.0, items) / cores * 1e-9,
        "row_ns": np.where(down, 0.0, rows) / cores * 1e-9,
        "tail_ns": np.where(down, 0.0, _tails(kernels)) / cores * 1e-9,
        "lookup_ns": bags.lookups * 1e-9,
        "miss_ns": (bags.distinct + _by_op(kernels, _FETCHED)) / cores * 1e-9,
        "cache_passes": moved * (1 - outside) / (device.l2.bytes_per_s * share),
        "memory_passes": moved * outside / device.memory.bytes_per_s,
        "page_us": mapped_pages * 1e-6,
        "grown_us": np.where(mapped_pages > 0, 0.0, grown_pages) * 1e-6,
    }
    amounts |= reduction_amounts(kernels, parallel, device.sm_count)
    amounts |= _step_amounts(kernels, cores)
    return amounts | _product_amounts(kernels, target, share)


def _cache_parts(kernel: Kernel) -> int:
    """Return the parts of the last cache of which it has one; gradients have all."""
    backward = kernel.params.get("phase") == BACKWARD
    return 1 if backward else CACHE_PARTS.get(kernel.op, 1)


def _step_amounts(kernels: KernelTable, cores: Floats) -> dict[str, Floats]:
    """Return what an optimizer's step calls for its tensors, by algorithm.

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


def _product_amounts(
    kernels: KernelTable, target: Target, share: Floats
) -> dict[str, Floats]:
    rate = np.array(
        [target.device.flops_per_s.get(k.math, np.inf) for k in kernels.kernels]
    )
    flops_s = kernels.flops / (rate * share)
    attention = np.flatnonzero([k.op == "attention" for k in kernels.kernels])
    if len(attention):
        flops_s[attention] *= executed_share(kernels.take(attention).signatures, ARRAYS)
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

    Fastest where both lie along k, slowest where the left one lies along m. Of each
    element, and of each row: few columns are few instructions between two rows. Columns
    that fill no whole registers are taken in `COLUMN_PIECES`, each of which reads the
    left operand once more.
    """
    batch, m, n, k = sizes.reshape(-1, 4).T
    matrices = _is_gemm(kernels) & ~_by_vectors(kernels)
    rows_s = np.where(matrices, np.maximum(batch, 1) * m / cores, 0.0) * 1e-9
    narrow_s = np.where(n < NARROW, rows_s, 0.0)
    pieces = COLUMN_PIECES[n.astype(np.intp) % COLUMNS]
    layouts = np.array([k.params.get("layout", "nn") for k in kernels.kernels])
    amounts = {"piece_ns": rows_s * k * pieces}
    for layout in ("nn", "nt", "tn", "tt"):
        own_s = np.where(layouts == layout, narrow_s, 0.0)
        amounts[f"narrow_{layout}_ns"] = own_s * k
        amounts[f"narrow_row_{layout}_ns"] = own_s
    return amounts


def _is_gemm(kernels: KernelTable) -> NDArray[np.bool_]:
    return np.array([kernel.op == "gemm" for kernel in kernels.kernels], dtype=np.bool_)


@attrs.frozen(eq=False)
class _Bags:
    """What embedding bags look up, 0 of other kernels; shape (kernels,) each.

    Attributes:
        lookups: Rows that are named.
        distinct: Different rows among them.
        held_bytes: Of all tables.
        found: Which kernels are of embedding bags.

    """

    lookups: Floats
    distinct: Floats
    held_bytes: Floats
    found: NDArray[np.bool_]

    @classmethod
    def of(cls, kernels: KernelTable) -> _Bags:
        """Return what the kernels look up."""
        lookups, distinct, held_bytes = np.zeros((3, len(kernels)))
        found = np.array(
            [k.op == "embedding_bag" and has_tables(k) for k in kernels.kernels]
        )
        rows = np.flatnonzero(found)
        if len(rows):
            seen = lookups_of(kernels.take(rows))
            lookups[rows] = seen.per_kernel(seen.count)
            distinct[rows] = seen.per_kernel(seen.distinct())
            tables = seen.per_kernel(seen.rows * seen.row_bytes)
            held_bytes[rows] = tables
        return cls(lookups, distinct, held_bytes, found)


def _items(kernels: KernelTable, bags: _Bags) -> Floats:
    """Return what a kernel goes over at once: elements, of windows, of rows looked up.

    An optimizer goes over one tensor after another.
    """
    items = kernels.param("rows") * kernels.param("cols")
    moved = np.maximum(kernels.bytes_read, kernels.bytes_written) / 4
    items = np.where(items > 0, items, moved)
    each = kernels.param("elements") / np.maximum(kernels.param("tensors"), 1)
    items = np.where(each > 0, each, items)
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
    """Return the rows that no whole number of vectors fills.

    Reductions go down the columns of rows that are shorter than a vector.
    """
    columns = kernels.param("cols")
    reduced = np.array([kernel.op == "reduction" for kernel in kernels.kernels])
    rest = (columns % LANES != 0) & ~(reduced & (columns < LANES))
    return np.where(rest, kernels.param("rows"), 0.0)


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


def _fetched(kernel: Kernel) -> float:
    """Return the different rows that are looked up: each is waited for once."""
    pieces = _gathered(kernel)
    if not pieces:
        return 0.0
    shape, axis = kernel.params.integers("shape"), kernel.params.integer("axis", 0)
    rows = np.array([math.prod(shape[: axis + 1])], dtype=np.float64)
    return float(distinct_rows(rows, np.array([pieces]))[0])


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


_FETCHED: Mapping[str, Callable[[Kernel], float]] = {"gather": _fetched}

_PIECES: Mapping[str, Callable[[Kernel], float]] = {
    "gather": _gathered,
    "concat": _joined,
    "transpose": _turned,
}
