"""What is around measured kernels: eager calls and gaps.

See `costmodels/pricing/timing.py`.

Where the kernel has no part in it, the rows of a call lie close together at the low end
of what was measured: their median is what the call takes. For hosts on which it was not
measured it is a floor of its name times a factor of the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np

from perfc.costmodels import lower_bound
from perfc.costmodels.kernels import SOFTWARE, Floats
from perfc.costmodels.pricing import (
    MET,
    SESSION_OPS,
    SOFTWARE_OPS,
    call_names,
)
from perfc.costmodels.streaming import STREAMING
from perfc.fitting.scores import Z90
from training.samples import FITTED, Sample

Sessions: TypeAlias = tuple[tuple[float, float], ...]
"""Number of each session's first row in the table, and microseconds."""

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

CHANGED = 1.1
"""Least by which the low end of a call changes from one session to the next."""

SURE, SURE_SHARE = 1.05, 0.5
"""Half the rows of a session are that near its low end: they show the host alone."""

FEWEST_OF_SESSION, MOST_CUTS = 50, 200
"""Rows of a call that a session has at least, and how many cuts are tried."""

REFERENCE = "a100-pcie-40g"
"""The GPU whose host has the factor 1: the newest one with such rows."""

SHORT = 0.05
"""Most that bytes over bandwidth may be of a kernel in a graph that shows its gap."""


@attrs.frozen
class EventCalls:
    """What `fitted/event.toml` holds, but for what of a call is before its kernel.

    Attributes:
        known_us: What calls were measured to take, by GPU and name.
        sessions: The same of calls whose time changed from one session of measuring to
            the next: of each session the place of its first row, and microseconds.
        call_us: Floors of calls by name, of other hosts; `default` of others.
        host: Factors by GPU.
        other_host: The factor of a GPU without rows.
        sigma: Relative uncertainty of a call on a known host.
        sigma_other_host: The same on another one.

    """

    known_us: Mapping[str, Mapping[str, float]]
    sessions: Mapping[str, Mapping[str, Sessions]]
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
        known_us=medians,
        sessions=_all_sessions(fitted),
        call_us=floors,
        host=hosts,
        other_host=float(np.exp(logs.mean())),
        sigma=_spread(hiding, medians),
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


def _all_sessions(samples: Sequence[Sample]) -> dict[str, dict[str, Sessions]]:
    """Return the sessions of each GPU's calls that were measured in several."""
    found: dict[str, dict[str, Sessions]] = {}
    for sample in samples:
        if sample.key.op not in SESSION_OPS:
            continue
        hidden = sample.bound_s() < HIDDEN_SHARE * sample.measured_s
        names = call_names(sample.table)
        for name in np.unique(names[hidden]).tolist():
            rows = np.flatnonzero(hidden & (names == name))
            rows = rows[np.argsort(sample.table.param(MET)[rows])]
            met, us = sample.table.param(MET)[rows], sample.measured_s[rows] * 1e6
            sessions = tuple(_sessions(met, us))
            if len(sessions) > 1:
                found.setdefault(sample.target.name, {})[name] = sessions
    return found


def _sessions(met: Floats, us: Floats) -> Iterator[tuple[float, float]]:
    """Yield the first row of each session, and what its call takes.

    Rows are cut where their low ends say most, as long as these differ, and all are the
    host's: in two, or in three, for a host that was slow for a while shows no low end
    of its own beside what comes before and after.
    """
    for cuts in (_best_cut(us), _best_cuts(us)):
        if cuts and _are_sessions(np.split(us, cuts)):
            edges = (0, *cuts, len(us))
            for first, last in itertools.pairwise(edges):
                yield from _sessions(met[first:last], us[first:last])
            return
    near = us[us <= NEAR * np.quantile(us, LOW_END)]
    yield float(met[0]), float(np.median(near))


def _best_cut(us: Floats) -> tuple[int, ...]:
    """Return the row at which two sessions would part; nothing of too few rows."""
    losses = {(cut,): _low_loss(us[:cut]) + _low_loss(us[cut:]) for cut in _places(us)}
    return min(losses, key=losses.__getitem__, default=())


def _best_cuts(us: Floats) -> tuple[int, ...]:
    """Return the two rows at which three sessions would part; nothing of too few."""
    places = _places(us)
    before = {cut: _low_loss(us[:cut]) for cut in places}
    after = {cut: _low_loss(us[cut:]) for cut in places}
    losses = {
        (one, other): before[one] + _low_loss(us[one:other]) + after[other]
        for one, other in itertools.combinations(places, 2)
        if other - one >= FEWEST_OF_SESSION
    }
    return min(losses, key=losses.__getitem__, default=())


def _places(us: Floats) -> range:
    """Return the rows where sessions may part."""
    step = -(-len(us) // MOST_CUTS)
    return range(FEWEST_OF_SESSION, len(us) - FEWEST_OF_SESSION + 1, step)


def _are_sessions(parts: Sequence[Floats]) -> bool:
    """Whether all are sure of their low ends, and neighbours differ in them."""
    ends = [float(np.quantile(part, LOW_END)) for part in parts]
    sure = [
        np.mean(part <= SURE * end) > SURE_SHARE
        for part, end in zip(parts, ends, strict=True)
    ]
    changed = [max(pair) > CHANGED * min(pair) for pair in itertools.pairwise(ends)]
    return all(sure) and all(changed)


def _low_loss(us: Floats) -> float:
    """Return how badly rows lie around their low end: the loss of a quantile."""
    above = np.log(us / np.quantile(us, LOW_END))
    return float(np.sum(np.where(above > 0, LOW_END, LOW_END - 1) * above))


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


def _spread(
    hiding: Mapping[tuple[str, str], Floats], medians: Mapping[str, Mapping[str, float]]
) -> float:
    """Return the sigma at which nine in ten rows that hide a kernel are inside."""
    logs = [
        np.abs(np.log(medians[target][name] / measured_us))
        for (target, name), measured_us in hiding.items()
    ]
    return float(np.quantile(np.concatenate(logs), 0.9)) / Z90


def fit_gaps(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the microseconds between kernels of graphs, by software and GPU.

    Under the name of the software alone: their median, for other GPUs.
    """
    found: dict[str, float] = {}
    by_software: dict[str, list[float]] = {}
    for sample in samples:
        if sample.key.op not in SOFTWARE_OPS or sample.key.timing != "graph":
            continue
        rows = sample.of(FITTED)
        bound_s = lower_bound(rows.table, rows.target)
        short = bound_s < SHORT * rows.measured_s
        start_s = rows.target.device.kernel_floor_s
        start_s += STREAMING.kinds[sample.key.op].start_s
        software = rows.table.text(SOFTWARE)
        for name in np.unique(software[short]).tolist():
            measured_s = rows.measured_s[short & (software == name)]
            if len(measured_s) >= FEWEST:
                gap_us = float(np.median(measured_s) - start_s) * 1e6
                found[f"{name}, {sample.target.name}"] = gap_us
                by_software.setdefault(name, []).append(gap_us)
    return {**found, **{n: float(np.median(us)) for n, us in by_software.items()}}
