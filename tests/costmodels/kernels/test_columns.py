"""Signatures as columns say what the same signatures say as objects."""

from __future__ import annotations

import numpy as np
import pytest

from perfc.costmodels import KernelTable, cost_models, load_target, price
from perfc.costmodels.kernels import ColumnTable, KernelColumns
from perfc.costmodels.pricing import price_table


def _columns() -> KernelColumns:
    rows, cols = np.array([64, 4096, 100_000]), np.array([32, 1024, 2048])
    size = 4.0 * rows * cols
    return KernelColumns(
        op="elementwise",
        dtype="fp32",
        math="fp32",
        params={
            "kind": np.array(["add", "mul", "relu"]),
            "rows": rows,
            "cols": cols,
            "in_place": np.array([True, False, False]),
        },
        flops=size / 4,
        bytes_read=2 * size,
        bytes_written=size,
    )


def test_columns_are_the_kernels_they_make() -> None:
    """Every column of the table is that of a table of its kernels."""
    table = ColumnTable.of(_columns())
    made = KernelTable(list(table.kernels))
    target = load_target("t4")

    for name in ("op", "dtype", "math", "known", "flops", "bytes", "bytes_read"):
        np.testing.assert_array_equal(getattr(made, name), getattr(table, name))
    for name in ("rows", "kind", "in_place", "absent"):
        np.testing.assert_array_equal(made.param(name, 7), table.param(name, 7))
        np.testing.assert_array_equal(made.text(name, "-"), table.text(name, "-"))
        np.testing.assert_array_equal(made.given(name), table.given(name))
    np.testing.assert_array_equal(
        made.peak_flops_per_s(target), table.peak_flops_per_s(target)
    )


def test_some_rows_of_columns() -> None:
    """Rows are taken from columns in the order that is asked for."""
    table = ColumnTable.of(_columns())

    part = table.take(np.array([2, 0]))

    assert [table.kernels[2], table.kernels[0]] == list(part.kernels)


@pytest.mark.parametrize("target", ["a100", "t4", "mi300x", "cpu"])
def test_one_price_for_both_forms(target: str) -> None:
    """Kernels cost the same whether they come as columns or as objects."""
    table = ColumnTable.of(_columns())
    found = load_target(target)

    as_columns = price_table(table, found, cost_models())
    as_objects = price(list(table.kernels), found, cost_models())

    np.testing.assert_array_equal(as_objects.seconds, as_columns.seconds)
    assert as_objects.model == as_columns.model
