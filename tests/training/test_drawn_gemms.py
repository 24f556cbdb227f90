"""GEMMs that a network is shown beside the measured ones."""

from __future__ import annotations

import numpy as np
import pytest
from tests.costmodels.signatures import gemm
from training.drawn_gemms import drawn_gemms

from perfc.costmodels import KernelTable, load_target
from perfc.costmodels.gemm import Gemms, gemms_of
from perfc.ir import Kernel

A100 = load_target("a100")
COUNT = 2000


def measured(*kernels: Kernel) -> Gemms:
    """Return a few GEMMs."""
    return gemms_of(KernelTable(list(kernels)), A100)


SINGLE = measured(*(gemm(m, 64, 128, layout="nt") for m in (8, 16, 32)))
MIXED = measured(
    *(gemm(m, 64, k, layout="nt") for m, k in ((8, 128), (16, 32), (64, 64))),
    *(gemm(100, n, 7, b=n) for n in (2, 3, 5)),
)


def test_every_other_one_is_of_measured_sizes() -> None:
    """Each size is one that was measured, in combinations that were not."""
    drawn = drawn_gemms(MIXED, COUNT)

    plain = drawn.sizes[:, 1::2]
    for size, known in zip(plain, MIXED.sizes, strict=True):
        assert set(size.tolist()) <= set(known.tolist())
    together = {str(size) for size in plain.T.tolist()}
    assert together > {str(size) for size in MIXED.sizes.T.tolist()}


def test_the_rest_is_larger_by_up_to_eight() -> None:
    """And as long as measured ones in between; whole numbers, none below one."""
    rows = drawn_gemms(SINGLE, COUNT).sizes[1, ::2]

    assert rows.min() >= 1
    assert (rows == np.round(rows)).all()
    assert 32 * 4 < rows.max() <= 32 * 8 + 32
    assert len(set(rows.tolist())) > 50


def test_kinds_are_not_mixed() -> None:
    """Single GEMMs stay single, and have batches' sizes never; nor these theirs."""
    drawn = drawn_gemms(MIXED, COUNT)

    b, m, n, k = drawn.sizes
    assert drawn.transposed.tolist() == (b == 1).tolist()
    assert 0.4 < (b == 1).mean() < 0.6
    plain = np.arange(COUNT) % 2 == 1
    assert set(m[plain & (b > 1)].tolist()) == {100.0}
    assert set(k[plain & (b > 1)].tolist()) == {7.0}
    assert set(n[plain & (b == 1)].tolist()) == {64.0}


@pytest.mark.parametrize("widths", [(4, 4, 4), (2, 0.5, 2)])
def test_bytes_follow_the_types_of_the_operands(widths: tuple[float, ...]) -> None:
    """As the measured ones move them, one operand in four bits for one."""
    random = np.random.default_rng(0)
    sizes = np.exp2(random.uniform(4, 10, (4, 50))).round()
    sizes[0] = 1

    def moved(of: np.ndarray) -> np.ndarray:
        b, m, n, k = of
        return np.asarray(np.array(widths) @ (b * np.array([m * k, k * n, m * n])))

    none = np.zeros(50, dtype=np.bool_)
    rows = Gemms(
        sizes, moved(sizes), np.full(50, 1e12), none, none, none, none.astype(np.intp)
    )
    drawn = drawn_gemms(rows, COUNT)

    assert pytest.approx(moved(drawn.sizes).tolist(), rel=1e-6) == drawn.bytes.tolist()


def test_the_same_every_time() -> None:
    """Nothing depends on when they are drawn."""
    first, second = drawn_gemms(MIXED, COUNT), drawn_gemms(MIXED, COUNT)

    assert first.sizes.tolist() == second.sizes.tolist()
