"""What a few GEMMs of a GPU say of all of its GEMMs."""

from __future__ import annotations

import numpy as np
import pytest
from tests.costmodels.signatures import gemm

from perfc.costmodels.machine import Family
from perfc.fitting.near_gemms import gemm_factors, gemm_fits
from perfc.ir import Kernel

SIGMAS = (0.05, 0.2)
"""Shared and own, as a model states them."""


def _kernels(count: int, seed: int, *, batch: int = 1) -> list[Kernel]:
    random = np.random.default_rng(seed)
    sizes = np.exp2(random.uniform(6, 12, (count, 3))).astype(int).tolist()
    return [gemm(*size, b=batch) for size in sizes]


def _learnt(
    kernels: list[Kernel], logs: np.ndarray, others: list[Kernel]
) -> np.ndarray:
    """Return logarithms of factors of *others* by what *kernels* took."""
    fits = gemm_fits(kernels, logs, np.ones(len(kernels)), SIGMAS)
    return np.log(gemm_factors(fits, others))


def test_ten_rows_say_how_slow_a_gpu_is() -> None:
    """Kinds may differ, and one that has no row stays as it was."""
    single, batched = _kernels(5, 1), _kernels(5, 2, batch=64)
    logs = np.array([0.3] * 5 + [-0.2] * 5)

    kinds = (_kernels(20, 3), _kernels(20, 4, batch=64), [gemm(1, 7, 1 << 20)])
    found = [_learnt(single + batched, logs, kind).mean() for kind in kinds]

    assert pytest.approx([0.3, -0.2, 0.0], abs=0.05) == found


def test_one_row_is_not_believed_alone() -> None:
    """It tells as much as models err in common."""
    kernels = [*_kernels(1, 1), gemm(1 << 14, 64, 64)]
    found = _learnt(kernels[:1], np.array([0.2]), kernels)

    assert (found > 0.05).all()
    assert (found < 0.15).all()


def test_what_sizes_differ_in_is_learnt_from_rows_near_them() -> None:
    """A library that is slow where sums are deep is predicted so elsewhere."""

    def law(kernels: list[Kernel]) -> np.ndarray:
        depth = np.log2([kernel.params.integer("k") for kernel in kernels])
        return 0.1 * (depth - 9)

    seen, others = _kernels(60, 1), _kernels(60, 2)
    off = np.abs(_learnt(seen, law(seen), others) - law(others))

    assert off.mean() < 0.25 * np.abs(law(others)).mean()


def test_a_disturbed_row_tells_little() -> None:
    """Of twenty one took four times as long: the others stay where they were."""
    seen, others = _kernels(20, 1), _kernels(20, 2)
    logs = np.zeros(20)
    logs[3] = np.log(4)

    assert np.abs(_learnt(seen, logs, others)).mean() < 0.05


def test_a_fit_says_what_it_was_made_of() -> None:
    """Of all kinds first, with the rows; of each kind then, with a factor."""
    kernels = _kernels(3, 1) + _kernels(4, 2, batch=2)
    logs = np.array([0.0, 0.0, 0.0, 0.2, 0.2, 0.2, 0.2])
    fits = gemm_fits(kernels, logs, np.ones(7), SIGMAS)

    whole, *kinds = fits.values()
    assert Family("gemm", "fp32") == whole.family
    assert 7 == whole.rows
    assert {"start_us": 0.0, "scale": 1.0} == whole.values
    assert {"batched": 4, "matrix": 3} == {fit.family.kind: fit.rows for fit in kinds}
