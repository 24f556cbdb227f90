"""Lookups in several tables at once, and their gradients: fbgemm's.

`SplitTableBatchedEmbeddingBagsCodegen` looks all tables up in one kernel, and applies
the optimizer in its backward pass: indices are made those of one table after another,
sorted with the bags that they are of, and each run of equal ones updates its row, short
runs by a warp, long ones by a block. Read from fbgemm's
`embedding_backward_split_template.cu` and `transpose_embedding_input.cu`; kernels
counted on Kineto traces of TorchRec on V100 (14 with 768 indices, 22 with 262,144 in
two passes of the sort; with a dense gradient 15), published with PARAM.
"""

from __future__ import annotations

import attrs

from perfc.ir import DTYPES, OPTIMIZER_STATES, AttrValue, Record, Work
from perfc.passes.lowering.eager import reductions
from perfc.passes.lowering.eager.embedding.far_lookup import FarLookup
from perfc.passes.lowering.eager.embedding.rows import Lookup
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Site,
    Tensor,
    elementwise_launch,
    made_contiguous,
    vector_launch,
)

INFO_BYTES = 4
"""Bytes that say which bag of which table a lookup is of."""

LONG_RUN = 32
"""Lookups of one row above which a block updates it, not a warp."""

ROWS_OF_A_BLOCK = 1024
"""Lookups of one row that a block takes; of longer runs it adds sums atomically."""

_ROW_FLOPS = 6
"""Flops of an optimizer for each element of a row, about."""


def fused_backward(site: Site, lookup: Lookup) -> Eager:
    """Sort, find runs, and update rows; or write the rows of a dense gradient."""
    kind = site.attributes.text("optimizer", "")
    weighted = "weighted" if site.attributes.flag("weighted") else "unweighted"
    name = (
        f"fbgemm::split_embedding_backward_codegen_{kind or 'dense'}_{weighted}"
        "_exact_cuda"
    )
    grad = site.operands[0]
    launches = list(made_contiguous((grad,)))
    far = FarLookup.of(site, lookup)
    if far is not None:
        dtype = grad.type.dtype
        launches += far.updated(dtype, dtype.bits // 8)
        lookup = attrs.evolve(lookup, tables=far.near)
        if not far.near:
            return Eager(name, tuple(launches))
    if not kind:
        elements = sum(Tensor(result).numel for result in site.results)
        launches.append(reductions.fill(grad.type.dtype, elements))
    if not lookup.total:
        return Eager(name, tuple(launches))
    if site.attributes.flag("atomic"):
        launches.append(_update(site, lookup, "atomic", lookup.tables))
        return Eager("batched_embedding_backward_sgd", tuple(launches))
    # `transpose_embedding_input`: from indices of bags to bags of each row.
    total, touched = lookup.total, _touched(lookup)
    bags = lookup.batch * len(lookup.tables)
    params: dict[str, AttrValue] = {"bags": bags, "items": total}
    read = total * lookup.index_bytes + (bags + 1) * lookup.index_bytes
    written = total * (reductions.INDEX_BYTES + INFO_BYTES)
    linearize = vector_launch(
        "linearize_indices", reductions.I64, params, Work(0, read, written)
    )
    launches += (
        linearize,
        *reductions.radix_sort(total, _bits(lookup), INFO_BYTES),
        reductions.fill(reductions.I32, total),
        reductions.fill(reductions.I32, 1),
        *reductions.runs(total, touched, INFO_BYTES),
        reductions.fill(reductions.I32, 1),
        *reductions.sums(total, INFO_BYTES),
    )
    if site.attributes.flag("weighted"):
        launches += reductions.radix_sort(lookup.total, _bits(lookup), 4)
    if site.attributes.text("mode") == "mean":
        launches.append(elementwise_launch("div", (grad,), grad, grad.numel))
    launches += _long_runs(site, lookup)
    # Blocks update the rows of long runs, warps those of short ones.
    # Which of the two kernels has the work of a table, its mean run decides.
    by_length: dict[bool, list[Record]] = {True: [], False: []}
    for table in lookup.tables:
        runs_of_table = lookup.touched(table)
        by_length[lookup.lookups > LONG_RUN * runs_of_table].append(table)
    launches += (
        _update(site, lookup, "cta_per_row", tuple(by_length[True])),
        _update(site, lookup, "warp_per_row", tuple(by_length[False])),
    )
    return Eager(name, tuple(launches))


def _sizes(table: Record) -> tuple[int, int]:
    return table.integer("rows"), table.integer("dim")


def _bits(lookup: Lookup) -> int:
    return reductions.key_bits(sum(_sizes(table)[0] for table in lookup.tables))


def _touched(lookup: Lookup) -> int:
    return sum(map(lookup.touched, lookup.tables))


def _long_runs(site: Site, lookup: Lookup) -> tuple[Launch, ...]:
    """List the rows that blocks update, and clear what very long runs add up in."""
    listed = INFO_BYTES * _touched(lookup)
    found = reductions.stream("scan", "long_runs", lookup.total, listed, listed)
    launches = [
        reductions.fill(reductions.I32, 1),
        reductions.fill(reductions.I32, 1),
        found,
    ]
    blocks = lookup.total // ROWS_OF_A_BLOCK
    if blocks:
        widest = max(_sizes(table)[1] for table in lookup.tables)
        launches.append(reductions.fill(DTYPES["f32"], blocks, widest))
    return tuple(launches)


def _update(
    site: Site, lookup: Lookup, algorithm: str, tables: tuple[Record, ...]
) -> Launch:
    """Read gradients of bags, and read and write rows and their states."""
    if not tables:  # launched all the same: how many runs are long is not read back
        return reductions.stream("scan", algorithm, 1, INFO_BYTES, 0)
    kind = site.attributes.text("optimizer", "")
    item = site.operands[0].type.dtype.bits // 8
    elements = rewritten = 0
    for table in tables:
        dim, touched = table.integer("dim"), lookup.touched(table)
        elements += lookup.lookups * dim
        rewritten += touched * (dim * item + _state_bytes(kind, dim))
    listed = len(tables) * lookup.lookups * 2 * INFO_BYTES
    read = elements * item + listed + (rewritten if kind else 0)
    flops = elements + rewritten // item * _ROW_FLOPS
    params = lookup.params(tables, phase="backward", algorithm=algorithm)
    if kind:
        params["optimizer"] = kind
    dtype = site.operands[0].type.dtype
    work = Work(flops, read, rewritten)
    return vector_launch("embedding_bag", dtype, params, work)


def _state_bytes(kind: str, dim: int) -> int:
    """Return the bytes of one row's states: fp32, of each element or one number."""
    states = OPTIMIZER_STATES.get(kind, ())
    return sum(4 * (dim if state == "element" else 1) for state in states)
