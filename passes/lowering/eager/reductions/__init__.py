"""Kernels that reduce, normalise, sort or select along axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.lowering.eager.reductions.selection import (
        kernel_launch,
        places,
        read_back,
    )
    from perfc.passes.lowering.eager.reductions.sorting import (
        I32,
        I64,
        INDEX_BYTES,
        arange,
        fill,
        key_bits,
        merge_sort,
        radix_sort,
        runs,
        sort_rows,
        stream,
        sums,
        vector,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "selection": ("kernel_launch", "places", "read_back"),
            "sorting": (
                "I32",
                "I64",
                "INDEX_BYTES",
                "arange",
                "fill",
                "key_bits",
                "merge_sort",
                "radix_sort",
                "runs",
                "sort_rows",
                "stream",
                "sums",
                "vector",
            ),
        },
    )

__all__ = [
    "I32",
    "I64",
    "INDEX_BYTES",
    "arange",
    "fill",
    "kernel_launch",
    "key_bits",
    "merge_sort",
    "places",
    "radix_sort",
    "read_back",
    "runs",
    "sort_rows",
    "stream",
    "sums",
    "vector",
]
