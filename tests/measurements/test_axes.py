"""Axes of measured rows are counted from the first, whichever way rows are read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.measurements.rows import measured

from perfc.ir import AttrValue
from perfc.measurements import MEASUREMENTS, read_columns, read_rows, write_rows
from perfc.measurements.axes import counted_from_first

SHAPES = ((8, 64), (8, 36))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_last_axis_is_one_axis(tmp_path: Path, suffix: str) -> None:
    """A row of -1 is of the kernel that a row of 1 is of: as rows and as columns."""
    file = tmp_path / f"rows{suffix}"
    rows = [measured("concat", axis=axis, shapes=SHAPES) for axis in (-1, 1, -2)]
    write_rows(file, rows, MEASUREMENTS)

    assert [1, 1, 0] == [row.params["axis"] for row in read_rows(file, MEASUREMENTS)]
    columns = read_columns(file)
    places: list[int] = columns.params.at.tolist()
    found: list[object] = [columns.parsed[place]["axis"] for place in places]
    assert [1, 1, 0] == found


@pytest.mark.parametrize(
    ("axis", "shapes"),
    [(-3, SHAPES), (-1, ()), (-1, "x"), (-1, (3, 4)), (1, SHAPES), (0.5, SHAPES)],
)
def test_what_cannot_be_counted_stays(axis: AttrValue, shapes: AttrValue) -> None:
    """Whoever reads the row refuses it, or takes it as it is."""
    params = {"axis": axis, "shapes": shapes}

    assert params == counted_from_first(params)
