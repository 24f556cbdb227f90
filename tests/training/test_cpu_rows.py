"""What rows of many CPUs say: fitted once, shipped as a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from tests.fitting.rows import gemms
from training.cpu_rows import FamilyLogs, fit_shipped_rows

from perfc.costmodels.cpu import shipped_rows, write_shipped_rows
from perfc.costmodels.machine import Family
from perfc.ir import Kernel
from perfc.measurements import kernel_of

GEMMS = Family("gemm", "fp32")


def _tables(count: int, factor: Callable[[Kernel], float]) -> list[FamilyLogs]:
    kernels = [kernel_of(row) for row in gemms("cpu", lambda _, s: s)]
    random = np.random.default_rng(0)
    logs = np.array([np.log(factor(kernel)) for kernel in kernels])
    return [
        FamilyLogs(
            kernels, logs + random.normal(0, 0.1, len(kernels)), np.ones(len(kernels))
        )
        for _ in range(count)
    ]


def test_tables_that_agree_are_averaged(tmp_path: Path) -> None:
    """A kernel of several tables is one row, nearer to the truth; files keep it."""

    def narrow(kernel: Kernel) -> float:
        return 3.0 if kernel.params.integer("n") <= 100 else 1.0

    tables = _tables(9, narrow)
    near = fit_shipped_rows(tables)
    assert near is not None
    assert len(near.weights) == len(tables[0].kernels)
    expected = np.array([np.log(narrow(kernel)) for kernel in tables[0].kernels])
    off = np.abs(near.log_factor(tables[0].kernels) - expected)
    assert off.mean() < 0.05

    path = tmp_path / "rows.npz"
    write_shipped_rows({GEMMS: near}, path)
    read = shipped_rows(path)[GEMMS]
    assert read.words == near.words
    kernels = tables[0].kernels
    assert np.allclose(read.log_factor(kernels), near.log_factor(kernels), atol=1e-4)


def test_tables_of_noise_say_nothing() -> None:
    """Without anything that sizes share there is nothing to ship, or next to it."""
    near = fit_shipped_rows(_tables(1, lambda _: 1.0))
    assert near is None or np.abs(near.weights).max() < 0.15
