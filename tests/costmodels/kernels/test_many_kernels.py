"""Signatures of many numbers as columns: the kernels of each configuration."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfc.costmodels.kernels import (
    column_table,
    configurations,
    kernels_of,
    many,
    token,
)
from perfc.ir import Kernel, Record, Work

N = many(np.array([2, 5, 3]))


def gemm(m: Any, **more: Any) -> Kernel:
    """Return a GEMM of so many rows."""
    params = {"b": 1, "m": m, "n": 8, "k": 4, "layout": "nt", **more}
    return Kernel("gemm", "fp32", "fp32", Record(params), Work(64 * m, 16 * m, 32 * m))


def bag(batch: Any) -> Kernel:
    """Return a lookup in two tables, one of which is looked up as the batch goes."""
    tables = (
        Record({"rows": 9, "dim": 4, "pooling": batch / 2}),
        Record({"rows": 7, "dim": 4, "pooling": 1}),
    )
    params = {"batch": batch, "tables": tables, "mode": "sum"}
    work = Work(0, 8 * batch, 8)
    return Kernel("embedding_bag", "fp32", "fp32", Record(params), work)


def concat(batch: Any) -> Kernel:
    """Return a kernel with a list of lists."""
    params: dict[str, Any] = {"axis": 1, "shapes": ((batch, 4), (batch, 2))}
    return Kernel("concat", "fp32", "fp32", Record(params), Work(0, 24 * batch, 1))


def test_a_kernel_of_each_configuration() -> None:
    """Numbers stand in parameters, in lists and records of them, and in the work."""
    for make in (gemm, bag, concat):
        assert 1 < configurations(make(N))
        assert 1 == configurations(make(2))
        assert [make(2), make(5), make(3)] == list(kernels_of(make(N), 3))


def test_a_table_of_columns() -> None:
    """Rows are the kernels, wherever those of one form were put together."""
    others = many(np.array([7, 9]))
    asked = [gemm(N), bag(others), gemm(others), concat(N), gemm(N, bias=True), bag(N)]
    counts = [3, 2, 2, 3, 3, 3]
    table, rows = column_table(asked, counts)

    assert sum(counts) == len(table)
    for kernel, count, own in zip(asked, counts, rows, strict=True):
        expected = list(kernels_of(kernel, count))
        assert expected == [table.kernels[row] for row in own.tolist()]
        assert [k.work.flops for k in expected] == table.flops[own].tolist()


def test_equal_kernels_have_one_key() -> None:
    """Kernels differ by any number, and by its type."""
    other = many(np.array([2, 5, 4]))

    assert token(gemm(N)) == token(gemm(many(np.array([2, 5, 3]))))
    assert token(gemm(N)) != token(gemm(other))
    assert token(bag(N)) != token(bag(other))
    assert token(gemm(N)) != token(gemm(N, bias=True))
    assert token(gemm(N, beside=1)) != token(gemm(N, beside=2))
