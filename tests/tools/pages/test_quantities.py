"""Text of quantities, as tables of pages sort it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.tools.pages.quantities import quantity, quantity_table
from perfc.tools.pages.tables import Cell
from perfc.tools.reports import format_bytes, format_quantity, format_us


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.00 us", 0.0),
        ("1.5 ms", 1500.0),
        ("~2 s", 2e6),
        ("-23.0 %", -23.0),
        ("<1 %", 1.0),
        ("1,234", 1234.0),
        ("9e-05", 9e-5),
        ("2.58 M", 2.58e6),
        ("5.00x", 5.0),
        ("1.50 GiB", 1.5 * 2**30),
        ("20.5 GB, too much", 20.5e9),
        ("3, does not fit one", 3.0),
        ("1 us to 2 ms", 1.0),
        ("5.26 ms (2.17 ms to 12.8 ms)", 5260.0),
    ],
)
def test_quantities(text: str, value: float) -> None:
    """A text is what it begins with, in the first unit of its kind."""
    assert value == pytest.approx(quantity(text))


@pytest.mark.parametrize(
    "text", ["", "-", "8 dram, 2 optane", "dp:8", "26 table_wise", "emb_l.0", "1e", "."]
)
def test_other_text(text: str) -> None:
    """Names that begin with numbers are none."""
    assert quantity(text) is None


@given(st.floats(100, 1e12))
def test_what_reports_write_is_read(value: float) -> None:
    """Three digits of what reports write come back."""
    for text in (format_us(value), format_bytes(value), format_quantity(value, "")):
        assert value == pytest.approx(quantity(text.strip()), rel=6e-3)


def test_columns() -> None:
    """A column is of numbers if all that it says are; the rest stays text."""
    lines = [("name", "time", "mixed"), ("a", "2 ms", "1"), ("b", "-", "x")]

    table = quantity_table(lines, "plans")

    assert [["a", Cell("2 ms", 2000.0), "1"], ["b", Cell("-", -1e300), "x"]] == [
        list(row) for row in table.rows
    ]
