"""Parameters of fp32 convolutions, and of the host's calls around measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from perfc.costmodels.conv import CONV, ConvParameters
from perfc.costmodels.kernels import Floats
from perfc.costmodels.pricing import MET
from training.samples import Sample
from training.search import least

START: Mapping[str, float] = {
    "implicit": 1.0,
    "narrow_tile": 0.1,
    "tile_fill_s": 1e-6,
    "fused": 1.0,
    "block_fill_s": 3e-6,
    "fused_filters": 2.0,
    "tensors": 0.7,
    "gemm": 1.2,
    "filters": 3.0,
    "images": 1.5,
    "results": 1.5,
    "start_s": 5e-6,
}
"""Start of the search: not what is shipped, so that a second fit is the same."""

_MET_S = 1e-7
_SPAN = 8.0
"""Parameters lie within this factor of where they begin."""


@attrs.frozen(eq=False)
class ConvFit:
    """What was found.

    Attributes:
        kernel: `ConvParameters` by name.
        met_s: What each kernel met adds to a call, by target.

    """

    kernel: Mapping[str, float]
    met_s: Mapping[str, float]


def fit_convolutions(samples: Sequence[Sample]) -> ConvFit:
    """Return the parameters with the least mean |ln(predicted / measured)|.

    Every GPU weighs the same. Each has a host of its own.
    """
    before = {sample.target.name: _before_s(sample) for sample in samples}
    start = {**START, **dict.fromkeys(before, _MET_S)}
    limits = {name: (at / _SPAN, at * _SPAN) for name, at in start.items()}

    def loss(values: Mapping[str, float]) -> float:
        kernel = {name: values[name] for name in START}
        errors: list[float] = []
        for sample in samples:
            name = sample.target.name
            around_s = before[name] + values[name] * sample.table.param(MET)
            seconds = conv_seconds(sample, kernel) + around_s
            errors.append(float(np.abs(np.log(seconds / sample.measured_s)).mean()))
        return float(np.mean(errors))

    found = least(loss, start, limits)
    return ConvFit(
        {name: found[name] for name in START}, {name: found[name] for name in before}
    )


def conv_seconds(sample: Sample, kernel: Mapping[str, float]) -> Floats:
    """Return the seconds of a sample's kernels with some parameters."""
    model = attrs.evolve(CONV, parameters=ConvParameters(**kernel))
    return model.estimate(sample.table, sample.target).seconds


def _before_s(sample: Sample) -> Floats:
    """Return the host's seconds before long kernels, but for those that were met."""
    alone = attrs.evolve(
        sample, table=sample.table.with_param(MET, np.zeros(len(sample)))
    )
    long_s = np.ones(len(sample))
    return alone.timed_s(long_s) - long_s
