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

STARTS: Sequence[Mapping[str, float]] = [
    {"share": 0.8, "rereads": 1.0, "rows_in_flight": 4.0, "row_cycles": cycles}
    for cycles in (100.0, 200.0, 400.0, 800.0)
]
"""Where searches begin: not at what is shipped, so that a second fit is the same."""


def fit_stream(op: str, samples: Sequence[Sample]) -> dict[str, float]:
    """Return the parameters of *op* with the least mean |ln(predicted / measured)|.

    Every GPU weighs the same.
    """

    def loss(values: Mapping[str, float]) -> float:
        model = STREAMING.with_fit(op, values)
        errors = [np.abs(sample.log_ratios(model)).mean() for sample in samples]
        return float(np.mean(errors))

    return min((least(loss, start, LIMITS) for start in STARTS), key=loss)
