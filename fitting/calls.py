"""What eager calls between two events take the host: see `costmodels/timing.py`.

Where the kernel has no part in it, the rows of a call lie close together at the low end
of what was measured: their median is what the call takes, a floor of its name times a
factor of the host.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import STREAMING, call_names
from perfc.fitting.samples import FITTED, Sample
from perfc.fitting.scores import Z90

Floats: TypeAlias = NDArray[np.float64]

OPS = frozenset({"elementwise", "gemm", "layer_norm", "softmax"})
"""Ops with rows that hide their kernels; the shortest of convolutions show theirs."""

HIDDEN_SHARE = 0.25
"""Most that bound / 0.8 + 3 us may be of what was measured."""

LOW_END = 0.1
"""Quantile of such rows where the low end is: kernels far from their bound show."""

NEAR = 1.15
"""Most over the low end that a row may be which hides its kernel."""

FEWEST = 10
"""Rows of a call on a GPU below which it is not known there."""

REFERENCE = "a100-pcie-40g"
"""The GPU whose host has the factor 1: the newest one with such rows."""

SHARES = np.arange(0.0, 1.001, 0.05)
"""What of a call may pass before its kernel starts."""


@attrs.frozen
class EventCalls:
    """What `fitted/event.toml` holds.

    Attributes:
        share: Of a call passes before its kernel starts.
        call_us: Floors of calls by name; `default` of others.
        host: Factors by GPU.
        other_host: The factor of a GPU without rows.
        sigma: Relative uncertainty of a call on a known host.
        sigma_other_host: The same on another one.

    """

    share: float
    call_us: Mapping[str, float]
    host: Mapping[str, float]
    other_host: float
    sigma: float
    sigma_other_host: float


def fit_calls(samples: Sequence[Sample]) -> EventCalls:
    """Fit the floors and factors to the fitted rows of events, medians throughout."""
    chosen = (s for s in samples if s.key.timing == "event" and s.key.op in OPS)
    fitted = [rows for s in chosen if len(rows := s.of(FITTED))]
    hiding = _hiding(fitted)
    medians: dict[str, dict[str, float]] = {}
    for (target, name), measured_us in hiding.items():
        medians.setdefault(target, {})[name] = float(np.median(measured_us))
    hosts = {target: _factor(found, medians) for target, found in medians.items()}
    floors = _floors(medians, hosts)
    logs = np.log(list(hosts.values()))
    return EventCalls(
        share=_share(fitted, floors, hosts),
        call_us=floors,
        host=hosts,
        other_host=float(np.exp(logs.mean())),
        sigma=_spread(hiding, floors, hosts),
        sigma_other_host=float(logs.std()),
    )


def _hiding(samples: Sequence[Sample]) -> dict[tuple[str, str], Floats]:
    """Return the microseconds of rows that hide their kernel, by target and call."""
    found: dict[tuple[str, str], list[Floats]] = {}
    for sample in samples:
        hidden = sample.bound_s() < HIDDEN_SHARE * sample.measured_s
        names = call_names(sample.table)
        for name in np.unique(names[hidden]).tolist():
            rows_us = sample.measured_s[hidden & (names == name)] * 1e6
            found.setdefault((sample.target.name, name), []).append(rows_us)
    joined = {key: np.concatenate(parts) for key, parts in found.items()}
    near = {
        key: us[us <= NEAR * np.quantile(us, LOW_END)] for key, us in joined.items()
    }
    return {key: us for key, us in near.items() if len(us) >= FEWEST}


def _factor(
    found: Mapping[str, float], medians: Mapping[str, Mapping[str, float]]
) -> float:
    """Return how much longer the calls of a host take than those of the reference."""
    reference = medians[REFERENCE]
    ratios = [us / reference[name] for name, us in found.items() if name in reference]
    return float(np.median(ratios))


def _floors(
    medians: Mapping[str, Mapping[str, float]], hosts: Mapping[str, float]
) -> dict[str, float]:
    """Return the median floor of each call, and of each op for its other kinds."""
    found: dict[str, list[float]] = {}
    for target, by_name in medians.items():
        for name, us in by_name.items():
            found.setdefault(name, []).append(us / hosts[target])
    floors = {name: float(np.median(us)) for name, us in sorted(found.items())}
    by_op: dict[str, list[float]] = {}
    for name, us in floors.items():
        by_op.setdefault(name.split()[0], []).append(us)
    ops = {op: float(np.median(us)) for op, us in by_op.items()}
    return {"default": float(np.median(list(ops.values()))), **ops, **floors}


def _calls_s(
    sample: Sample, floors: Mapping[str, float], hosts: Mapping[str, float]
) -> Floats:
    """Return what the call of each row takes; NaN where no floor has its name."""
    names, at = np.unique(call_names(sample.table), return_inverse=True)
    factor = hosts.get(sample.target.name, math.nan) * 1e-6
    floor_us = [floors.get(name, math.nan) for name in names.tolist()]
    return np.array(floor_us)[at] * factor


def _spread(
    hiding: Mapping[tuple[str, str], Floats],
    floors: Mapping[str, float],
    hosts: Mapping[str, float],
) -> float:
    """Return the sigma at which nine in ten rows that hide a kernel are inside."""
    logs = [
        np.abs(np.log(floors[name] * hosts[target] / measured_us))
        for (target, name), measured_us in hiding.items()
    ]
    return float(np.quantile(np.concatenate(logs), 0.9)) / Z90


def _share(
    samples: Sequence[Sample], floors: Mapping[str, float], hosts: Mapping[str, float]
) -> float:
    """Return the share with the least mean error on elementwise kernels.

    Of those it is known best what they take.
    """
    parts: list[tuple[Floats, Floats, Floats]] = []
    for sample in samples:
        calls_s = _calls_s(sample, floors, hosts)
        known = np.isfinite(calls_s)
        if sample.key.op == "elementwise" and known.any():
            kernels_s = STREAMING.estimate(sample.table, sample.target).seconds
            parts.append((calls_s[known], kernels_s[known], sample.measured_s[known]))

    def error(share: float) -> float:
        means = [
            np.abs(np.log((share * c + np.maximum(k, (1 - share) * c)) / m)).mean()
            for c, k, m in parts
        ]
        return float(np.mean(means))

    return float(min(SHARES.tolist(), key=error))
