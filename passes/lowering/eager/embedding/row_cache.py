"""Caches of embedding rows that lie in host memory: fbgemm's prefetch.

`SplitTableBatchedEmbeddingBagsCodegen.prefetch` of tables that are `MANAGED_CACHING`
makes the indices of a batch those of one table, finds the different ones, those that
are not in the cache, and the sets that they go to, brings them in, and looks up where
in the cache each index is. The kernels are not counted on a trace: none is public.
"""

from __future__ import annotations

from perfc.costmodels import UVM_CACHING
from perfc.costmodels.embedding import ROW_CACHE_FILL
from perfc.ir import DType, Work
from perfc.passes.lowering.eager import reductions
from perfc.passes.lowering.eager.embedding.rows import Lookup
from perfc.passes.lowering.eager.site import Launch, vector_launch

_SLOT_BYTES = 4
"""Bytes that say where in the cache a row is."""


def filled_caches(lookup: Lookup, dtype: DType) -> tuple[Launch, ...]:
    """Return launches that fill caches with rows of a batch; none without caches."""
    tables = tuple(t for t in lookup.tables if t.get("tier") == UVM_CACHING)
    total = lookup.lookups * len(tables)
    if not total:
        return ()
    touched = sum(map(lookup.touched, tables))
    bits = reductions.key_bits(sum(table.integer("rows") for table in tables))
    listed, found = total * reductions.INDEX_BYTES, touched * reductions.INDEX_BYTES
    return (
        reductions.stream("scan", "linearize_cache_indices", total, listed, listed),
        *reductions.radix_sort(total, bits, reductions.INDEX_BYTES),
        *reductions.runs(total, touched, reductions.INDEX_BYTES),
        reductions.fill(reductions.I32, total),
        reductions.stream("scan", "lru_cache_find_uncached", touched, found, found),
        *reductions.radix_sort(touched, bits, reductions.INDEX_BYTES),
        vector_launch(ROW_CACHE_FILL, dtype, lookup.params(tables), Work(0, found, 0)),
        reductions.stream(
            "scan", "lxu_cache_lookup", total, listed, total * _SLOT_BYTES
        ),
    )
