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


def _gathers() -> KernelColumns:
    """Return kernels of which one says a parameter that is a list."""
    shapes = np.empty(2, dtype=np.object_)
    shapes[0], shapes[1] = (4, 8), None
    axes = np.array([0, None], dtype=np.object_)
    kinds = np.array(["index_select", None], dtype=np.object_)
    ones = np.ones(2)
    return KernelColumns(
        op="gather",
        dtype="fp32",
        math="fp32",
        params={
            **dict.fromkeys(("rows", "cols"), np.array([3, 4])),
            "shape": shapes,
            "axis": axes,
            "kind": kinds,
        },
        flops=0 * ones,
        bytes_read=96 * ones,
        bytes_written=96 * ones,
    )


def test_parts_of_several_ops_are_one_table() -> None:
    """Each part says what it has; what a kernel does not say it is not made with."""
    table = ColumnTable.of(_columns(), _gathers(), _columns())
    made = KernelTable(list(table.kernels))

    assert [*made.kernels] == [table.kernels[row] for row in range(-8, 0)]
    for name in ("op", "known", "flops", "bytes"):
        np.testing.assert_array_equal(getattr(made, name), getattr(table, name))
    for name in ("rows", "kind", "in_place", "axis", "shape", "absent"):
        np.testing.assert_array_equal(made.param(name, 7), table.param(name, 7))
        np.testing.assert_array_equal(made.param(name), table.param(name))
        np.testing.assert_array_equal(made.text(name, "-"), table.text(name, "-"))
        np.testing.assert_array_equal(made.given(name), table.given(name))
        assert made.values(name) == table.values(name)
    flagged = np.arange(8) % 2 == 0
    expected = made.with_param("in_place", flagged).given("in_place")
    np.testing.assert_array_equal(
        expected, table.with_param("in_place", flagged).given("in_place")
    )


@pytest.mark.parametrize("rows", [[], [4], [7, 0, 3, 3], [0, 1, 2], list(range(8))])
def test_some_rows_of_parts(rows: list[int]) -> None:
    """Rows are taken in the order that is asked for, none and all of them too."""
    table = ColumnTable.of(_columns(), _gathers(), _columns())

    part = table.take(np.array(rows, dtype=np.intp))

    assert [table.kernels[row] for row in rows] == list(part.kernels)
    np.testing.assert_array_equal(table.param("rows")[rows], part.param("rows"))
    np.testing.assert_array_equal(table.flops[rows], part.flops)


def test_parameters_of_a_table_cannot_be_written_to() -> None:
    """They are kept: a model that changed them would change what others read."""
    table = KernelTable(list(ColumnTable.of(_columns()).kernels))

    with pytest.raises(ValueError, match="read-only"):
        table.param("rows")[0] = 1.0
    assert table.param("rows") is table.param("rows")


def test_a_part_of_a_table_that_is_gone_reads_itself() -> None:
    """A table keeps its parts, and no part its table."""
    kernels = list(ColumnTable.of(_columns()).kernels)
    part = KernelTable(kernels).take(np.array([2, 1]))

    np.testing.assert_array_equal([1e5, 4096], part.param("rows"))
    assert [("elementwise", "fp32", "fp32")] == part.kinds[0]
    np.testing.assert_array_equal([k.work.flops for k in part.kernels], part.flops)
