"""Collectives: parameters of all systems, and the rows of each one that was measured.

Sizes are split by their octave before anything is fitted: rows of 2^9, 2^11, ... bytes
are fitted, those of 2^10, 2^12, ... are only reported. Rows that a table marks
`split=test` are in no sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import COLLECTIVES, Target, assumed_system, load_target
from perfc.costmodels.collectives import (
    LINK_SHARE,
    MAKERS_SYSTEMS,
    CollectiveParameters,
    CollectiveRows,
    Collectives,
    Links,
    collective_links,
    collective_seconds,
    exchanges_by_peer,
    weighed,
)
from perfc.costmodels.kernels import Floats
from perfc.fitting.scores import Z90
from perfc.measurements import MeasuredColumns
from training.robust import robust_least

START: Mapping[str, float] = {
    "start_ns": 9000,
    "ll_threads_ns": 2500,
    "ll_threads_step_ns": 200,
    "ring_ll_step_ns": 500,
    "ring_ll_rate": 0.15,
    "ring_ll128_start_ns": 3000,
    "ring_ll128_step_ns": 1500,
    "ring_ll128_channels": 3.5,
    "ring_simple_start_ns": 15000,
    "ring_simple_step_ns": 2000,
    "ring_simple_rate": 0.95,
    "ring_fill": 0.3,
    "memory_passes": 1.6,
    "exchange_ll_step_ns": 500,
    "exchange_ll_byte_ns": 0.3,
    "exchange_simple_start_ns": 8000,
    "exchange_simple_byte_ns": 0.1,
    "exchange_channel_byte_ns": 0.1,
    "exchange_simple_step_ns": 500,
    "exchange_simple_rate": 0.95,
    "exchange_copy_rate": 0.5,
    "copy_rate": 0.27,
    "reduce_ns": 200,
    "narrow_rate": 0.95,
    "nvls_start_ns": 60000,
    "nvls_rate": 0.62,
    "network_rate": 0.97,
    "network_exchange_rate": 0.92,
    "network_start_us": 20,
    "network_step_us": 10,
    "network_inside_step_ns": 8000,
    "network_peer_us": 4,
}
"""Start of the search, and the value of a parameter that no row tells."""

_MOST: Mapping[str, float] = {
    "ring_simple_rate": 1 / max(LINK_SHARE),
    "exchange_simple_rate": 1.0,
    "network_rate": 1.0,
    "network_exchange_rate": 1.0,
    "nvls_rate": 1.0,
}
"""Shares of a rate: none goes faster than links do by name."""

_LEAST: Mapping[str, float] = {"memory_passes": 1.75}
"""What Simple sends is read from device memory once and written once; a quarter of a
pass hides at most. Chosen: nodes with a switch hardly tell a pass from a slower link,
and with few of them a single link of V100 would reach 0.74 of its rate, where it has
0.87 in traces."""

_BELIEF = 0.05
"""Weight of that: as many rows that are off by so much."""

_ROBUST = 0.1
"""Rows that are farther off count less."""

_SPAN = 4.0
"""Logarithm of how far a parameter may go from where it begins."""

OTHERS = ("xxrjun/cluster00", "xxrjun/cluster01/pair")
"""Sources of the parameters' rows that are left out: another fabric, another setting of
the same one. They are installations of their own."""


@attrs.frozen(eq=False)
class CollectiveSample:
    """Rows of one system, as one source measured them.

    Attributes:
        target: The system.
        software: The source, which says which NCCL.
        fabric: Between nodes; empty for rows of one node.
        collectives: What was measured.
        measured_s: Shape (rows,).
        ll_by_peer: How its NCCL chooses: see `Links`.

    """

    target: Target
    software: str
    fabric: str
    collectives: Collectives
    measured_s: Floats
    ll_by_peer: bool = False

    @property
    def links(self) -> Links:
        """What the model sees of the system."""
        links = collective_links(self.target, several=bool(self.fabric))
        return attrs.evolve(links, ll_by_peer=self.ll_by_peer)

    def of(self, chosen: NDArray[np.bool_]) -> CollectiveSample:
        """Return some of the rows."""
        at = np.flatnonzero(chosen)
        return attrs.evolve(
            self, collectives=self.collectives.take(at), measured_s=self.measured_s[at]
        )

    @property
    def fitted(self) -> NDArray[np.bool_]:
        """Whether each row may be fitted: those of odd octaves."""
        found: NDArray[np.bool_] = (
            np.round(np.log2(self.collectives.bytes)).astype(int) % 2 == 1
        )
        return found


def collective_samples(tables: Iterable[MeasuredColumns]) -> list[CollectiveSample]:
    """Return the collectives of tables by target, source, and whether of several nodes.

    Not those that a table marks `split=test`. Those with the most rows come first, and
    of two alike the one of the later NCCL.
    """
    found = [sample for rows in tables for sample in _samples_of(rows)]
    later = sorted(found, key=lambda sample: sample.software, reverse=True)
    return sorted(later, key=lambda sample: -len(sample.measured_s))


def _samples_of(rows: MeasuredColumns) -> Iterator[CollectiveSample]:
    op, target, source = (
        np.array(coded.values)[coded.at]
        for coded in (rows.op, rows.target, rows.source)
    )
    cells: list[int] = rows.params.at.tolist()
    params: list[Mapping[str, Any]] = [rows.parsed[cell] for cell in cells]
    several = np.array([int(given.get("nodes", 1)) > 1 for given in params])
    known = np.isin(op, list(COLLECTIVES)) & ~rows.held_out
    keys = zip(target.tolist(), source.tolist(), several.tolist(), strict=True)
    groups: dict[tuple[str, str, bool], list[int]] = {}
    for row, key in enumerate(keys):
        if known[row]:
            groups.setdefault(key, []).append(row)
    for (name, software, across), at in groups.items():
        loaded = load_target(MAKERS_SYSTEMS.get(name, name))
        yield CollectiveSample(
            target=loaded,
            software=software,
            fabric=assumed_system(loaded).fabric if across else "",
            collectives=_collectives(rows, at, params),
            measured_s=rows.latency_us[at] * 1e-6,
        )


def _collectives(
    rows: MeasuredColumns, at: Sequence[int], params: Sequence[Mapping[str, Any]]
) -> Collectives:
    given = [params[row] for row in at]
    ranks = np.array([row["ranks"] for row in given], dtype=np.float64)
    nodes = np.array([row.get("nodes", 1) for row in given], dtype=np.float64)
    each = np.array([row.get("gpus_per_node", 0) for row in given], dtype=np.float64)
    return Collectives(
        np.array(rows.op.values)[rows.op.at[at]],
        np.array(rows.dtype.values)[rows.dtype.at[at]],
        np.array([row["bytes"] for row in given], dtype=np.float64),
        ranks,
        nodes,
        np.where(each > 0, each, np.ceil(ranks / nodes)),
    )


def fit_parameters(samples: Sequence[CollectiveSample]) -> CollectiveParameters:
    """Return the parameters of all systems that fit ln(measured) best."""
    begin = np.log(list(START.values()))
    limits = np.column_stack((begin - _SPAN, begin + _SPAN))
    for at, name in enumerate(START):
        limits[at, 0] = max(limits[at, 0], np.log(_LEAST.get(name, 1e-30)))
        limits[at, 1] = min(limits[at, 1], np.log(_MOST.get(name, np.inf)))

    def errors(x: Floats) -> Floats:
        p = _parameters(x)
        off = [np.log(modelled_s(sample, p) / sample.measured_s) for sample in samples]
        return np.concatenate([*off, _BELIEF * (x - begin)])

    numbers = attrs.asdict(_parameters(robust_least(errors, begin, limits, _ROBUST)))
    return CollectiveParameters(
        **{name: float(f"{number:.4g}") for name, number in numbers.items()}
    )


def fit_systems(
    samples: Sequence[CollectiveSample],
) -> tuple[list[CollectiveSample], CollectiveParameters]:
    """Return the parameters, and the samples told how their NCCL chooses.

    Each is told what its exchanges say, by parameters that take all to choose alike:
    the number of NCCL that a source gives does not tell (`collective_parts`).
    """
    alike = fit_parameters(samples)
    told = [_choosing(sample, alike) for sample in samples]
    return told, fit_parameters(told)


def fitted_systems(
    samples: Sequence[CollectiveSample],
) -> tuple[list[CollectiveSample], CollectiveParameters, list[CollectiveRows]]:
    """Return the samples told how their NCCL chooses, and what is fitted to them.

    Samples that the parameters are not fitted to come last.
    """
    used = [s for s in samples if not s.software.startswith(OTHERS)]
    told, p = fit_systems([s.of(s.fitted) for s in used])
    known = [
        *(
            attrs.evolve(s, ll_by_peer=t.ll_by_peer)
            for s, t in zip(used, told, strict=True)
        ),
        *(s for s in samples if s.software.startswith(OTHERS)),
    ]
    return known, p, [fit_rows(sample.of(sample.fitted), p) for sample in known]


def untold(
    samples: Sequence[CollectiveSample], *, fitted: bool = False
) -> list[CollectiveSample]:
    """Return rows of systems whose NCCL chooses as its number says."""
    told = [attrs.evolve(s, ll_by_peer=exchanges_by_peer(s.software)) for s in samples]
    return [s.of(s.fitted) for s in told] if fitted else told


def _choosing(sample: CollectiveSample, p: CollectiveParameters) -> CollectiveSample:
    exchanges = sample.collectives.op == "all_to_all"
    ways = [attrs.evolve(sample, ll_by_peer=by_peer) for by_peer in (False, True)]

    def off(way: CollectiveSample) -> float:
        asked = way.of(exchanges)
        return float(np.abs(np.log(modelled_s(asked, p) / asked.measured_s)).sum())

    return min(ways, key=off)


def _parameters(x: Floats) -> CollectiveParameters:
    numbers: list[float] = np.exp(x).tolist()
    return CollectiveParameters(**dict(zip(START, numbers, strict=True)))


def modelled_s(sample: CollectiveSample, p: CollectiveParameters) -> Floats:
    """Return the seconds of the rows by the model alone."""
    return collective_seconds(sample.collectives, sample.links, p)


def fit_rows(sample: CollectiveSample, p: CollectiveParameters) -> CollectiveRows:
    """Return the rows of one installation, weighed."""
    off = np.log(sample.measured_s / modelled_s(sample, p))
    return weighed(sample.collectives, off, sample.links, p)


def corrected_s(
    sample: CollectiveSample, p: CollectiveParameters, rows: CollectiveRows
) -> Floats:
    """Return the seconds of rows by the model and other rows of their installation."""
    factor = rows.isotonic_log_factor(sample.collectives, sample.links, p)
    found: Floats = modelled_s(sample, p) * np.exp(factor)
    return found


def two_points(sample: CollectiveSample) -> CollectiveSample:
    """Return a reduce-scatter of 8 KB on two ranks, and an all-gather of 32 MB on four.

    Of a short one and a long one these leave the least standard deviation of all curves
    on average, by the covariances alone: no time is looked at.
    """
    c = sample.collectives
    short = (c.op == "reduce_scatter") & (c.ranks == 2) & (c.bytes == 2**13)
    long = (c.op == "all_gather") & (c.ranks == 4) & (c.bytes == 2**25)
    return sample.of((c.dtype != "int8") & (short | long))


def two_sums(sample: CollectiveSample) -> CollectiveSample:
    """Return all-reduces alone: of 512 B on two ranks, and of 32 MB on four."""
    c = sample.collectives
    short = (c.ranks == 2) & (c.bytes == 2**9)
    long = (c.ranks == 4) & (c.bytes == 2**25)
    return sample.of((c.op == "all_reduce") & (c.dtype != "int8") & (short | long))


def two_of_each(sample: CollectiveSample) -> CollectiveSample:
    """Return a row of 2 KB and one of 32 MB of each op on each number of ranks."""
    c = sample.collectives
    return sample.of(np.isin(c.bytes, (2**11, 2**25)) & (c.dtype != "int8"))


def line_s(fitted: CollectiveSample, asked: CollectiveSample) -> Floats:
    """Return alpha + bytes / beta, fitted to each curve on its own: the baseline."""
    found = np.full(len(asked.measured_s), np.nan)
    for curve in dict.fromkeys(_curves(asked.collectives)):
        mine = np.array([other == curve for other in _curves(fitted.collectives)])
        at = np.array([other == curve for other in _curves(asked.collectives)])
        if mine.sum() < 2:  # parameters
            continue
        size, seconds = fitted.collectives.bytes[mine], fitted.measured_s[mine]

        def off(x: Floats, size: Floats = size, seconds: Floats = seconds) -> Floats:
            errors: Floats = np.log((np.exp(x[0]) + size * np.exp(x[1])) / seconds)
            return errors

        begin = np.log([seconds.min(), seconds.max() / size.max()])
        limits = np.column_stack((begin - _SPAN, begin + _SPAN))
        alpha, slope = np.exp(robust_least(off, begin, limits, _ROBUST))
        found[at] = alpha + asked.collectives.bytes[at] * slope
    return found


def _curves(c: Collectives) -> list[tuple[object, ...]]:
    numbers = (c.op.tolist(), c.dtype.tolist(), c.ranks.tolist(), c.nodes.tolist())
    return list(zip(*numbers, strict=True))


def sigma_of(log_errors: Floats) -> float:
    """Return the uncertainty whose 90 % interval holds nine errors in ten."""
    return float(np.quantile(np.abs(log_errors), 0.9)) / Z90


def off_curve(sample: CollectiveSample, p: CollectiveParameters) -> Floats:
    """Return ln(predicted / measured) of each curve that all others say something of.

    Curves are left out one after the other: an op on as many ranks.
    """
    c = sample.collectives
    found: list[Floats] = []
    for op, ranks in dict.fromkeys(zip(c.op.tolist(), c.ranks.tolist(), strict=True)):
        mine = (c.op == op) & (c.ranks == ranks)
        rows = fit_rows(sample.of(~mine & sample.fitted), p)
        asked = sample.of(mine & sample.fitted)
        found.append(np.log(corrected_s(asked, p, rows) / asked.measured_s))
    return np.concatenate(found)
