"""Which shapes are held out: decided by the shape alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.ir import AttrValue
from perfc.measurements import FIT, TEST, split_of


def test_a_third_is_held_out() -> None:
    """Of many shapes a third is to test with."""
    splits = [split_of("gemm", {"m": m, "n": 3 * m}) for m in range(3000)]

    assert pytest.approx(1 / 3, abs=0.03) == splits.count(TEST) / len(splits)
    assert {FIT, TEST} == set(splits)


@given(m=st.integers(1, 2**30), n=st.integers(1, 2**30))
def test_the_same_in_every_variant(m: int, n: int) -> None:
    """Phase, layout, bias and order do not matter: a fit would have seen the shape."""
    plain = split_of("gemm", {"m": m, "n": n})
    more: dict[str, AttrValue] = {"n": n, "m": m, "layout": "nt", "bias": True}

    assert plain == split_of("gemm", more)
    assert plain == split_of("gemm", {**more, "phase": "backward"})


def test_it_never_changes() -> None:
    """The marks of rows that exist stay what they are."""
    assert [TEST, FIT, FIT] == [split_of("gemm", {"m": m}) for m in (1, 2, 3)]
