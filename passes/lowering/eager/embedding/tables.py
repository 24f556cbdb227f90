"""Embedding bags and their gradients in eager PyTorch.

A lookup of one table is that of `nn.EmbeddingBag`, one of several is fbgemm's
(`fused.py`). Read from ATen (`EmbeddingBag.cpp`,
`cuda/EmbeddingBag.cu`, `cuda/Embedding.cu`, `cuda/EmbeddingBackwardKernel.cu`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from perfc.ir import DTYPES, AttrValue, DType, Record, TensorType, Work
from perfc.ir.ops.embedding import bags
from perfc.passes.lowering.eager.embedding.rows import (
    PADDING,
    Lookup,
    distinct,
    elementwise,
    gather,
    rows_of,
)
from perfc.passes.lowering.eager.reductions import (
    I64,
    INDEX_BYTES,
    arange,
    fill,
    key_bits,
    places,
    radix_sort,
    runs,
    stream,
    sums,
    vector,
)
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    bound,
    elementwise_launch,
    made_contiguous,
    scratch,
    vector_launch,
)

if TYPE_CHECKING:
    from perfc.passes.lowering.eager.embedding.far_lookup import FarLookup

FUSED = "fbgemm::split_embedding_codegen_lookup"
"""What looks several tables up at once."""

FEW_INDICES = 3072
"""`embedding_dense_backward` does not sort so many indices (cuda/Embedding.cu)."""

ROWS_PER_PARTIAL = 10
"""Gradients that one warp adds up (NROWS_PER_THREAD, EmbeddingBackwardKernel.cu)."""


def _embedding_bag(site: Site) -> Eager:
    """One kernel; two-dimensional indices need offsets made by `arange` first."""
    tables = len(site.attributes.records("tables"))
    rest = site.operands[tables:]
    launches = list(made_contiguous(rest))
    types = [operand.type for operand in site.operands]
    batch = bound(bags(site.attributes, types))
    if tables == 1 and not site.attributes.flag("has_offsets"):
        offsets = Tensor(TensorType(rest[0].type.dtype, (batch,)))
        launches.append(scratch(elementwise_launch("arange", (), offsets)))
    lookup = Lookup.of(site, rest[0], batch)
    dtype = site.operands[0].type.dtype
    name = FUSED if tables > 1 else "aten::embedding_bag"
    far = _far(site, lookup)
    if far is None:
        return Eager(name, (*launches, *_read(lookup, dtype, site.work)))
    launches += far.before(dtype)
    if far.near:
        near = attrs.evolve(lookup, tables=far.near)
        launches += _read(near, dtype, far.near_work(site.work))
    return Eager(name, (*launches, *far.beside(dtype, site.results[0].dtype.bits // 8)))


def _far(site: Site, lookup: Lookup) -> FarLookup | None:
    """Return the part of a lookup that others than kernels do, None without one."""
    if not _is_placed(lookup):
        return None
    from perfc.passes.lowering.eager.embedding.far_lookup import FarLookup  # noqa: PLC0415 - lazy

    return FarLookup.of(site, lookup)


def _read(lookup: Lookup, dtype: DType, work: Work) -> tuple[Launch, ...]:
    """Return the kernel that looks up, and what brings rows into caches before it."""
    kernel = vector_launch("embedding_bag", dtype, lookup.params(), work)
    if not _is_placed(lookup):
        return (kernel,)
    from perfc.passes.lowering.eager.embedding.row_cache import filled_caches  # noqa: PLC0415 - lazy

    return (*filled_caches(lookup, dtype), kernel)


def _is_placed(lookup: Lookup) -> bool:
    return any(table.get("tier") for table in lookup.tables)


def _bag_backward(site: Site) -> Eager:
    """ATen's for one table with a gradient, else fbgemm's."""
    grad, indices = site.operands[:2]
    lookup = Lookup.of(site, indices, grad.shape[0])
    several = len(lookup.tables) > 1
    if several or site.attributes.text("optimizer", ""):
        from perfc.passes.lowering.eager.embedding.fused import fused_backward  # noqa: PLC0415 - lazy

        return fused_backward(site, lookup)
    if site.attributes.flag("sparse"):
        return Eager("aten::_embedding_bag_sparse_backward", _sparse(site, lookup))
    name = "aten::_embedding_bag_dense_backward"
    copies = made_contiguous((grad,))
    if site.settings.on_cpu:
        return Eager(name, (*copies, *_rows_added(site, lookup)))
    if site.attributes.text("mode") == "max":
        return Eager(name, (*copies, *_max_gradient(grad, site.out)))
    summed = _sum_of_bags(site, lookup)
    return Eager(name, (*copies, *_dense(site.out, lookup.lookups, summed)))


def _rows_added(site: Site, lookup: Lookup) -> tuple[Launch, ...]:
    """Zeros, and each lookup's row added: `_embedding_bag_dense_backward_cpu`."""
    grad, indices = site.operands[:2]
    table = site.out
    dtype = grad.type.dtype
    rows = rows_of(dtype, lookup.lookups, grad.shape[1])
    work = Work(rows.numel, 2 * rows.nbytes + indices.nbytes, rows.nbytes)
    params = lookup.params(phase="backward", algorithm="atomic")
    return (
        fill(dtype, *table.shape),
        vector_launch("embedding_bag", dtype, params, work),
    )


def _max_gradient(grad: Tensor, table: Tensor) -> tuple[Launch, ...]:
    """Zeros; then every element is added where the largest one was."""
    listed = grad.numel * INDEX_BYTES
    work = Work(grad.numel, 2 * grad.nbytes + listed, grad.nbytes)
    zeros = fill(table.type.dtype, *table.shape)
    return (zeros, gather("scatter_add", table, grad, work))


def _sparse(site: Site, lookup: Lookup) -> tuple[Launch, ...]:
    """Each lookup gets its bag's gradient, divided or weighted."""
    grad, indices = site.operands[:2]
    dtype = grad.type.dtype
    rows = rows_of(dtype, lookup.lookups, grad.shape[1])
    launches = [gather("index_select", grad, rows)]
    mode, padding = site.attributes.text("mode"), site.attributes.integer(PADDING, -1)
    if site.settings.on_cpu and mode == "sum" and padding < 0:
        launches[:0] = _bags_listed(lookup)
    if mode == "mean":
        bag, share = vector(dtype, lookup.batch), vector(dtype, lookup.lookups)
        launches += [
            elementwise_launch("cast", (vector(I64, lookup.batch),), bag),
            elementwise("reciprocal", bag, bag),
            elementwise("mul", bag, bag),
            gather("index_select", bag, share),
            elementwise("mul", rows, rows, share),
        ]
    if site.attributes.flag("weighted"):
        launches.append(elementwise("mul", rows, rows, vector(dtype, lookup.lookups)))
    return (*launches, *_without_padding(site, indices, rows))


def _bags_listed(lookup: Lookup) -> tuple[Launch, ...]:
    """List each lookup's bag, which a CPU's sums did not need: `make_offset2bag`."""
    bag, first = vector(I64, lookup.lookups), vector(I64, lookup.batch)
    return (
        fill(I64, lookup.lookups),
        fill(I64, lookup.batch),
        gather("index_add", bag, first),
        elementwise("sub", vector(I64, 1), vector(I64, 1)),
        stream("scan", "sums", lookup.lookups, bag.nbytes, bag.nbytes),
    )


def _without_padding(site: Site, indices: Tensor, rows: Tensor) -> tuple[Launch, ...]:
    """Drop what was looked up at the padding index: mask, places, rows, twice."""
    if site.attributes.integer(PADDING, -1) < 0:
        return ()
    kept = vector(DTYPES["bool"], indices.numel)
    found = vector(I64, indices.numel)
    return (
        elementwise("ne", kept, indices),
        *places(kept, found),
        gather("index", indices, found),
        *places(kept, found),
        gather("index", rows, rows),
    )


def _sum_of_bags(site: Site, lookup: Lookup) -> Launch:
    """Add up to ten gradients of bags: a lookup in the gradient itself."""
    grad = site.operands[0]
    return _sum_of_rows(site.out, lookup.lookups, grad.shape[0], 2 * INDEX_BYTES)


def _sum_of_rows(table: Tensor, lookups: int, rows: int, index_bytes: int) -> Launch:
    """Add up to ten rows of a gradient that has *rows*, for each part of a run."""
    partials, dim = _partials(table, lookups), table.shape[1]
    moved = rows_of(table.type.dtype, lookups, dim).nbytes + lookups * index_bytes
    written = rows_of(_summed_in(table), partials, dim).nbytes
    mean = lookups / max(partials, 1)
    described = Record({"rows": rows, "dim": dim, "pooling": mean})
    params: dict[str, AttrValue] = {
        "batch": partials,
        "tables": (described,),
        "mode": "sum",
        "index_bytes": index_bytes,
    }
    work = Work(lookups * dim, moved, written)
    return vector_launch("embedding_bag", table.type.dtype, params, work)


def _summed_in(table: Tensor) -> DType:
    """Sums of halves are floats (`acc_type`)."""
    dtype = table.type.dtype
    return DTYPES["f32"] if dtype.bits < DTYPES["f32"].bits else dtype


def _partials(table: Tensor, lookups: int) -> int:
    """Return how many sums of at most ten rows there are: at least one a run."""
    touched = distinct(table.shape[0], lookups)
    return min(lookups, touched + lookups // ROWS_PER_PARTIAL)


def _dense(table: Tensor, lookups: int, summed: Launch) -> tuple[Launch, ...]:
    """Sort, zero the table, find runs, split them, add them up, add the parts up."""
    zeros = fill(table.type.dtype, *table.shape)
    if not lookups:
        return (zeros,)
    rows, dim = table.shape
    touched, partials = distinct(rows, lookups), _partials(table, lookups)
    listed = INDEX_BYTES * touched
    parts = rows_of(_summed_in(table), partials, dim)
    out = rows_of(table.type.dtype, touched, dim)
    work = Work(parts.numel, parts.nbytes + 3 * listed, out.nbytes)
    return (
        arange(lookups),
        *radix_sort(lookups, key_bits(rows), INDEX_BYTES),
        zeros,
        *runs(lookups, touched, INDEX_BYTES),
        stream("scan", "partials_of_runs", touched, listed, listed),
        *sums(lookups, INDEX_BYTES),
        stream("scan", "number_of_partials", 1, 2 * INDEX_BYTES, INDEX_BYTES),
        stream("scan", "partials", partials, 3 * listed, INDEX_BYTES * partials),
        summed,
        gather("sum_and_scatter", table, out, work),
    )


def _embedding_backward(site: Site) -> Eager:
    """`nn.Embedding`: a sparse gradient is what came in; a dense one is sorted."""
    grad, indices = site.operands[:2]
    lookups, table = indices.numel, site.out
    if site.attributes.flag("sparse"):
        rows = Tensor(site.results[1])
        launches = _without_padding(site, indices, rows)
        return Eager("aten::embedding_sparse_backward", launches)
    name = "aten::embedding_dense_backward"
    copies = made_contiguous((grad, indices))
    if 0 < lookups <= FEW_INDICES or (lookups and site.settings.on_cpu):
        return Eager(name, (*copies, *_few(table, lookups, site.work)))
    summed = _sum_of_rows(table, lookups, lookups, INDEX_BYTES)
    return Eager(name, (*copies, *_dense(table, lookups, summed)))


def _few(table: Tensor, lookups: int, work: Work) -> tuple[Launch, ...]:
    """Zeros; then blocks of 32 columns go over all indices."""
    rows, dim = table.shape
    params: dict[str, AttrValue] = {"rows": rows, "dim": dim, "lookups": lookups}
    added = Work(work.flops, work.bytes_read, work.bytes_written - table.nbytes)
    dtype = table.type.dtype
    kernel = vector_launch("embedding_backward", dtype, params, added)
    return (fill(dtype, rows, dim), kernel)


def _bag_weights_backward(site: Site) -> Eager:
    """A warp for each lookup: the product of its row and the gradient of its bag.

    `_embedding_bag_per_sample_weights_backward_cuda`; of several tables fbgemm's
    `split_embedding_codegen_grad_indice_weights_cuda`.
    """
    table, lookups = site.operands[1], site.out.numel
    moved = rows_of(table.type.dtype, lookups, table.shape[1])
    copies = made_contiguous(site.operands[:1])
    kernel = gather("bag_weights", table, moved, site.work)
    name = "aten::_embedding_bag_per_sample_weights_backward"
    if len(site.attributes.records("tables")) > 1:
        name = "fbgemm::split_embedding_codegen_grad_indice_weights"
    return Eager(name, (*copies, kernel))


RULES: Mapping[str, Rule] = {
    "bag_weights_backward": _bag_weights_backward,
    "embedding_bag": _embedding_bag,
    "embedding_backward": _embedding_backward,
    "embedding_bag_backward": _bag_backward,
}
"""Rules of lookups and their gradients, by op name."""
