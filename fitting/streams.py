"""Parameters of kernels over rows: softmax and layer norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from perfc.costmodels import STREAMING
from perfc.fitting.samples import Sample
from perfc.fitting.search import least

LIMITS: Mapping[str, tuple[float, float]] = {
    "share": (0.5, 1.0),
    "rereads": (0.1, 3.0),
    "rows_in_flight": (0.25, 64.0),
    "row_cycles": (10.0, 5000.0),
}
"""What each parameter may be (`StreamKind`)."""


def fit_stream(op: str, samples: Sequence[Sample]) -> dict[str, float]:
    """Return the parameters of *op* with the least mean |ln(predicted / measured)|.

    Every GPU weighs the same.
    """
    shipped = STREAMING.kinds[op]

    def loss(values: Mapping[str, float]) -> float:
        model = STREAMING.with_fit(op, values)
        errors = [np.abs(sample.log_ratios(model)).mean() for sample in samples]
        return float(np.mean(errors))

    start = {name: float(getattr(shipped, name)) for name in LIMITS}
    return least(loss, start, LIMITS)
