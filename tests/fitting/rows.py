"""Measured rows of machines that are made up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import attrs
import numpy as np

from perfc.costmodels import NEW_BYTES, Target, cost_models, load_target, price
from perfc.ir import Kernel, Record
from perfc.measurements import Measurement, kernel_of, split_of

Law = Callable[[Kernel, float], float]
"""From a kernel and perfc's seconds to what the machine takes."""


def gemms(target: str, law: Law, timing: str = "kernel") -> list[Measurement]:
    """Return rows of 80 GEMMs, timed by *law*."""
    sizes = itertools.product((32, 200, 512, 1024), (64, 100, 768, 2048), (16, 96, 333))
    shapes = [dict(zip("bmnk", (1, *size), strict=True)) for size in sizes]
    records = [Record({**shape, "layout": "nn"}) for shape in shapes]
    return list(_timed(load_target(target), "gemm", records, law, timing))


def copies(target: str, law: Law) -> list[Measurement]:
    """Return rows of elementwise copies, from a page to 120 MiB, timed by *law*.

    Those of 32 MiB and more also to new pages.
    """
    sizes = {
        side * (1 << power) for side in range(16, 31) for power in (6, 10, 14, 18, 20)
    }
    records = [
        Record({"kind": "copy", "rows": 1, "cols": size, "tensor_inputs": 1, **new})
        for size in sorted(sizes)
        for new in ({}, {"new_pages": True})[: 2 if 4 * size >= NEW_BYTES else 1]
    ]
    return list(_timed(load_target(target), "elementwise", records, law, "event"))


def _timed(
    target: Target, op: str, params: list[Record], law: Law, timing: str
) -> Iterator[Measurement]:
    for record in params:
        row = Measurement(
            target=target.name,
            op=op,
            dtype="fp32",
            params=record,
            latency_us=1.0,
            timing=timing,
            source="made up, 6 threads",
            split=split_of(op, record),
        )
        kernel = kernel_of(row)
        seconds = float(price([kernel], target, cost_models()).seconds[0])
        yield measured(row, law(kernel, seconds))


def measured(row: Measurement, seconds: float) -> Measurement:
    """Return a row with another time."""
    return attrs.evolve(row, latency_us=seconds * 1e6)


def noisy(law: Law, spread: float = 0.03) -> Law:
    """Add a log-normal error, the same every time."""
    random = np.random.default_rng(0)
    return lambda kernel, seconds: (
        law(kernel, seconds) * float(np.exp(random.normal(0, spread)))
    )
