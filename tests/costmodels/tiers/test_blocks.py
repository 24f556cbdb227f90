"""Rows on blocks: how many a read touches, and what the medium reads for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.costmodels.tiers import amplification, blocks_per_row, stored_bytes
from perfc.ir import PerfcError

ROW = st.integers(1, 600)
BLOCK = st.integers(1, 600)


@pytest.mark.parametrize(
    ("row", "block", "blocks", "amplified"),
    [
        (128, 512, 1, 4),
        (128, 4096, 1, 32),
        (512, 4096, 1, 8),
        (4096, 4096, 1, 1),
        (8192, 4096, 2, 1),
        (192, 512, 1.25, 10 / 3),
        (100, 512, 1.1875, 6.08),
    ],
)
def test_blocks_of_known_rows(
    row: int, block: int, blocks: float, amplified: float
) -> None:
    """The cases that can be counted by hand."""
    assert blocks == blocks_per_row(row, block)
    assert amplified == pytest.approx(amplification(row, block))


@given(row=ROW, block=BLOCK)
def test_packed_rows_are_counted_one_by_one(row: int, block: int) -> None:
    """Over as many rows as fill whole blocks, the mean is that of counting."""
    touched = [
        ((i + 1) * row - 1) // block - i * row // block + 1 for i in range(block)
    ]

    assert sum(touched) / block == pytest.approx(blocks_per_row(row, block))


@given(row=ROW, block=BLOCK)
def test_padded_rows_take_whole_blocks(row: int, block: int) -> None:
    """Reads are never more than of packed rows; what is stored never less."""
    packed, padded = (blocks_per_row(row, block, padded=flag) for flag in (False, True))

    assert -(-row // block) == padded <= packed
    assert row <= block * padded
    stored = stored_bytes(1000, row, block, padded=True)
    assert 1000 * padded * block == stored >= stored_bytes(1000, row, block)
    assert 0 <= stored_bytes(1000, row, block) - 1000 * row < block


@given(row=ROW, block=BLOCK, times=st.integers(2, 9))
def test_rows_read_as_one_never_take_more_reads(
    row: int, block: int, times: int
) -> None:
    """The same bytes in larger rows, each several of the smaller: no more blocks."""
    together = blocks_per_row(times * row, block)

    assert together <= times * blocks_per_row(row, block) + 1e-12
    assert 1 <= amplification(times * row, block) <= amplification(row, block) + 1e-12


@pytest.mark.parametrize(("row", "block"), [(0, 512), (128, 0), (-1, 1)])
def test_nothing_has_no_blocks(row: int, block: int) -> None:
    """A row or a block of no bytes is refused."""
    with pytest.raises(PerfcError, match="expected at least 1"):
        blocks_per_row(row, block)
