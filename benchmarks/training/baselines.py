"""What others would say of the same rows: baselines that perfc is compared with.

The formulas of Lin et al. (HiPC 2022; owensgroup/ml_perf_model, BSD-3): a kernel takes
what its flops take at the peak rate or its accesses of 4 bytes at the peak bandwidth,
with constants per element. Of GEMMs, convolutions and layer norm they have networks
whose weights are not published.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from perfc.costmodels.kernels import Floats
from training.samples import Sample

ACCESS_BYTES = 4

PER_ELEMENT: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        **dict.fromkeys(("add", "sub", "mul", "div"), (1.0, 3.0)),
        "relu": (1.0, 2.0),
        "tanh": (180.0, 2.0),
        "pow": (180.0, 2.0),
        "gelu": (175.0, 2.0),
        "softmax": (174.0, 2.0),
    }
)
"""Flops and accesses, by kind of elementwise kernel or by op."""


def lin_formula_s(rows: Sample) -> Floats | None:
    """Return the seconds of rows by `PER_ELEMENT`; None: it has none for these."""
    if rows.key.dtype != "fp32":
        return None
    kinds = rows.table.text("kind")
    names = np.where(kinds != "", kinds, rows.key.op)
    listed, at = np.unique(names, return_inverse=True)
    words: list[str] = listed.tolist()
    if not set(words) <= set(PER_ELEMENT):
        return None
    flops, accesses = np.array([PER_ELEMENT[word] for word in words])[at].T
    elements = rows.table.param("rows") * rows.table.param("cols")
    device = rows.target.device
    return rows.timed_s(
        elements
        * np.maximum(
            flops / device.flops_per_s["fp32"],
            accesses * ACCESS_BYTES / device.memory.bytes_per_s,
        )
    )
