"""Parameters of streams: what memory gives, softmax and layer norm.

Minimises a robust sum of ln(predicted / measured)^2 over the logarithms of the
parameters, each within bounds. Every GPU weighs the same. Beside them stands which
share of a call passes before its kernel starts, the same on all hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import attrs
import numpy as np

from perfc.costmodels import lower_bound
from perfc.costmodels.kernels import Floats
from perfc.costmodels.pricing import call_seconds, graph_gaps_s
from perfc.costmodels.streaming import STREAMING, StreamingModel
from training.robust import robust_least
from training.samples import FITTED, Sample

Range: TypeAlias = tuple[float, float, float]
"""Start of a search, the least and the most. It never begins at what is shipped, so
that a second fit is the same; what no row says stays there."""

SHARE = "call_share"

MEMORY: Mapping[str, Range] = MappingProxyType(
    {
        SHARE: (0.5, 0.05, 1.0),
        "stacked_share": (0.89, 0.7, 1.0),
        "pascal_share": (0.8, 0.6, 1.0),
        "planar_share": (0.755, 0.5, 1.0),
        "l2_bytes_per_clock": (18.0, 8.0, 64.0),
        "l2_held": (1.0, 0.5, 1.5),
        "spill": (0.3, 0.1, 1.5),
    }
)
"""`MemoryRates`, from elementwise kernels."""

KINDS: Mapping[str, Mapping[str, Range]] = MappingProxyType(
    {
        "softmax": {
            SHARE: (0.6, 0.05, 1.0),
            "share": (0.9, 0.5, 1.1),
            "rereads": (2.0, 0.1, 3.0),
            "rows_in_flight": (2.0, 0.25, 64.0),
            "element_cycles": (0.5, 0.01, 3.0),
            "idle_s": (1e-4, 2e-5, 6e-4),
            "idle_slowdown": (1.0, 0.05, 3.0),
        },
        "layer_norm": {
            SHARE: (0.7, 0.05, 1.0),
            "share": (0.9, 0.5, 1.1),
            "rereads": (1.5, 0.1, 3.0),
            "rows_in_flight": (12.0, 0.25, 64.0),
            "row_cycles": (200.0, 10.0, 5000.0),
            "element_cycles": (0.3, 0.01, 3.0),
            "full_loops": (0.3, 0.01, 4.0),
            "pascal_cycles": (1.5, 0.5, 4.0),
            "idle_s": (1e-4, 2e-5, 6e-4),
            "idle_slowdown": (1.0, 0.05, 3.0),
        },
    }
)
"""`StreamKind`, by op."""

APART: Mapping[str, frozenset[str]] = MappingProxyType({"softmax": frozenset({"6.0"})})
"""Compute capabilities whose rows say parameters of their own, by op: GP100 reads long
rows of softmax from memory where others have them in L2, and would pull all with it."""

ROWS = 1500
"""Most rows of one GPU in a fit: more hardly change the parameters."""

_ROBUST = 0.05
"""Errors beyond which a row counts by its size, not by its square."""

_BELIEF = 0.05
"""Weight of where the search began: what rows do not say stays there."""


@attrs.frozen(eq=False)
class StreamFit:
    """What was found for one op.

    Attributes:
        model: With the parameters in it.
        values: The parameters by name.
        share: Of a call passes before its kernel starts.

    """

    model: StreamingModel
    values: Mapping[str, float]
    share: float

    def predicted_s(self, sample: Sample) -> Floats:
        """Return the seconds that rows would measure; their host is known."""
        return _Rows.of(sample).predicted_s(self.model, self.share)


@attrs.frozen(eq=False)
class _Rows:
    """Rows of one GPU with what is around their kernels."""

    sample: Sample
    call_s: Floats
    gap_s: Floats
    bound_s: Floats

    @classmethod
    def of(cls, sample: Sample) -> _Rows:
        table, target = sample.table, sample.target
        none = np.zeros(len(sample))
        event = sample.key.timing == "event"
        return cls(
            sample,
            call_seconds(table, target)[0] if event else none,
            none if event else graph_gaps_s(table, target),
            lower_bound(table, target),
        )

    def predicted_s(self, model: StreamingModel, share: float) -> Floats:
        kernel_s = model.estimate(self.sample.table, self.sample.target).seconds
        kernel_s = np.maximum(kernel_s, self.bound_s)
        beside_s = (1 - share) * self.call_s
        found: Floats = self.gap_s + share * self.call_s
        return found + np.maximum(kernel_s, beside_s)


def fit_memory(samples: Sequence[Sample]) -> StreamFit:
    """Return the rates of memory that rows of elementwise kernels say."""
    return _fit(samples, MEMORY, STREAMING.with_memory)


def fit_kind(op: str, samples: Sequence[Sample], memory: StreamingModel) -> StreamFit:
    """Return the parameters of *op*, with rates of memory that are known.

    Rows that are `APART` say them for their own GPUs only, where there are others.
    """
    apart = APART.get(op, frozenset())
    usual = [s for s in samples if s.target.device.compute_capability not in apart]
    chosen = usual or samples
    return _fit(chosen, KINDS[op], lambda values: memory.with_fit(op, values))


def _fit(
    samples: Sequence[Sample],
    ranges: Mapping[str, Range],
    model_of: Callable[[Mapping[str, float]], StreamingModel],
) -> StreamFit:
    drawn = (_drawn(sample.of(FITTED)) for sample in samples)
    groups = [_Rows.of(sample) for sample in drawn if len(sample)]
    most = max(len(group.sample) for group in groups)
    weights = [np.sqrt(most / len(group.sample)) for group in groups]
    first, low, high = np.log(np.array(list(ranges.values()))).T

    def decoded(logs: Floats) -> StreamFit:
        values = dict(zip(ranges, np.exp(logs).tolist(), strict=True))
        share = values.pop(SHARE)
        return StreamFit(model_of(values), values, share)

    def residuals(logs: Floats) -> Floats:
        fit = decoded(logs)
        errors = [
            np.log(group.predicted_s(fit.model, fit.share) / group.sample.measured_s)
            * weight
            for group, weight in zip(groups, weights, strict=True)
        ]
        return np.concatenate([*errors, (logs - first) * _BELIEF])

    return decoded(robust_least(residuals, first, np.stack([low, high], 1), _ROBUST))


def _drawn(sample: Sample) -> Sample:
    """Return as many rows as one GPU may have, drawn with a fixed seed."""
    order = np.random.default_rng(0).permutation(len(sample))
    return sample.take(np.sort(order[:ROWS]))
