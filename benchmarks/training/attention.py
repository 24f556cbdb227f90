"""Parameters and corrections of fused attention, from measured rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from perfc.costmodels import lower_bound
from perfc.costmodels.attention import (
    AttentionParameters,
    attention_features,
    attention_seconds,
    attention_sizes,
)
from perfc.costmodels.fitted_files import Network
from perfc.costmodels.kernels import Floats
from training.network_fit import fit_network
from training.samples import Sample
from training.search import least

LIMITS: Mapping[str, tuple[float, float]] = {
    "start_s": (1e-7, 2e-5),
    "share": (0.2, 1.0),
    "softmax": (0.01, 2.0),
    "fill_s": (1e-7, 1e-5),
    "combine_s": (1e-7, 2e-5),
    "memory_share": (0.2, 1.0),
}
"""What each parameter may be (`AttentionParameters`)."""

START: Mapping[str, float] = {
    "start_s": 5e-6,
    "share": 0.5,
    "softmax": 0.3,
    "fill_s": 1e-6,
    "combine_s": 3e-6,
    "memory_share": 0.8,
}
"""Start of the search: not what is shipped, so that a second fit is the same."""


def formula_s(sample: Sample, values: Mapping[str, float]) -> Floats:
    """Return the seconds of a sample's kernels by the formula alone."""
    parameters = AttentionParameters(**values)
    seconds = attention_seconds(sample.table, sample.target, parameters)
    return np.maximum(seconds, lower_bound(sample.table, sample.target))


def fit_attention(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the parameters with the least mean |ln(predicted / measured)|.

    Every GPU weighs the same.
    """

    def loss(values: Mapping[str, float]) -> float:
        errors = [
            np.log(sample.timed_s(formula_s(sample, values)) / sample.measured_s)
            for sample in samples
        ]
        return float(np.mean([np.abs(logs).mean() for logs in errors]))

    return least(loss, START, LIMITS)


def fit_attention_residual(sample: Sample, values: Mapping[str, float]) -> Network:
    """Return the network that corrects the formula best on one GPU."""
    seconds = formula_s(sample, values)
    before_s = sample.timed_s(np.zeros(len(sample)))
    wanted = np.log((sample.measured_s - before_s) / seconds)
    features = attention_features(seconds, sample.table, sample.target)
    return fit_network(features, wanted, attention_sizes(sample.table), sample.target)
