"""What measured collectives of one installation say of others there.

ln(measured / modelled) is taken for a Gaussian process (Rasmussen and Williams, 2006,
chapter 2). What a row says of another collective is the sum of

- what both owe to what starts them, to their steps, to the rates in the node and
  between nodes: one factor each for the whole installation, weighed with how much the
  modelled time changes with it;
- what an op has of its own, slowly changing with size and number of members;
- what its curve has there, where NCCL changes its protocol.

So two rows, a short one and a long one, move all collectives; many rows of a curve are
followed where they lie. A profile and the fitted file hold weights, not times.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.collectives.isotonic import isotonic_regression
from perfc.costmodels.collectives.links import Links
from perfc.costmodels.collectives.sizes import Collectives
from perfc.costmodels.collectives.terms import CollectiveParameters
from perfc.costmodels.collectives.time import collective_seconds
from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import Floats
from perfc.costmodels.machine import MeasuredCollective

_CONSTANTS = constants("collectives")

FACTORS = _CONSTANTS.table("factors_off")
"""Factors of an installation, and the standard deviation of each one's logarithm."""

_OP, _CURVE = _CONSTANTS.number("op_off"), _CONSTANTS.number("curve_off")
"""How far an op, and a place on its curve, is off besides."""

_OP_OCTAVES = _CONSTANTS.number("op_octaves")
_CURVE_OCTAVES = _CONSTANTS.number("curve_octaves")
"""Sizes so far apart say a 1/e of each other."""

_OP_DOUBLINGS = _CONSTANTS.number("op_doublings")
_CURVE_DOUBLINGS = _CONSTANTS.number("curve_doublings")
"""Doublings of members, or of nodes, after which rows say a 1/e of each other."""

_OTHER_WIDTH = _CONSTANTS.pair("other_width")
"""What sums of single bytes say of other sums: of the op, of the curve."""

NOISE = _CONSTANTS.number("row_off")
"""How far a row is off, but for those that are far off: see `_FREEDOM`."""

_NUDGE = 1.02

Matrix = NDArray[np.float64]


@attrs.frozen(eq=False)
class Features:
    """What covariances see of collectives: columns, shape (rows,)."""

    modelled_s: Floats
    changes: Matrix
    """d ln t / d ln factor, shape (factors, rows)."""
    op: NDArray[np.str_]
    narrow: NDArray[np.bool_]
    octave: Floats
    members: Floats
    nodes: Floats


def features(c: Collectives, links: Links, p: CollectiveParameters) -> Features:
    """Return the features of rows on an installation, or of collectives asked of it."""
    modelled_s = collective_seconds(c, links, p)
    changes: list[Floats] = []
    for name in FACTORS:
        nudged = attrs.evolve(links, **{name: _NUDGE * getattr(links, name)})
        changed = np.log(collective_seconds(c, nudged, p) / modelled_s)
        changes.append(changed / np.log(_NUDGE))
    return Features(
        modelled_s,
        np.array(changes),
        c.op,
        c.narrow,
        np.log2(np.maximum(c.bytes, 1.0)),
        np.log2(c.ranks),
        np.log2(c.nodes),
    )


def covariance(one: Features, other: Features) -> Matrix:
    """Return the covariance of rows of *one* and of *other*, shape (one, other)."""
    weights = np.square(list(FACTORS.values()))[:, None]
    shared: Matrix = (weights * one.changes).T @ other.changes
    octaves = np.abs(one.octave[:, None] - other.octave)
    apart = np.abs(one.members[:, None] - other.members)
    apart = apart + np.abs(one.nodes[:, None] - other.nodes)
    alike = one.op[:, None] == other.op
    width = one.narrow[:, None] == other.narrow
    near = np.exp(-octaves / _OP_OCTAVES - apart / _OP_DOUBLINGS)
    close = np.exp(-octaves / _CURVE_OCTAVES - apart / _CURVE_DOUBLINGS)
    own = _OP**2 * near * np.where(width, 1.0, _OTHER_WIDTH[0])
    own = own + _CURVE**2 * close * np.where(width, 1.0, _OTHER_WIDTH[1])
    found: Matrix = shared + alike * own
    return found


@attrs.frozen(eq=False)
class CollectiveRows:
    """Rows of one installation, and what each weighs.

    Attributes:
        rows: What was measured.
        weights: Of each in a covariance, shape (rows,).

    """

    rows: Collectives
    weights: Floats

    def log_factor(
        self, c: Collectives, links: Links, p: CollectiveParameters
    ) -> Floats:
        """Return ln(expected / modelled) of each collective, shape (rows,)."""
        known = _features_of_rows(self, links, p)
        found: Floats = covariance(features(c, links, p), known) @ self.weights
        return found

    def isotonic_log_factor(
        self, c: Collectives, links: Links, p: CollectiveParameters
    ) -> Floats:
        """Return ln(expected / modelled), held between the next measured sizes' times.

        So from one measured size of a curve to the next, times never fall, which those
        of single runs do.
        """
        asked, known = features(c, links, p), _features_of_rows(self, links, p)
        found: Floats = covariance(asked, known) @ self.weights
        modelled = np.log(asked.modelled_s)
        for curve, sizes, ends in _knots(self, links, p):
            at = np.flatnonzero(_on_curve(c, self.rows, curve))
            least = ends[np.searchsorted(sizes, c.bytes[at], "right")]
            most = ends[np.searchsorted(sizes, c.bytes[at], "left") + 1]
            found[at] = np.clip(modelled[at] + found[at], least, most) - modelled[at]
        return found

    def covers(self, c: Collectives) -> NDArray[np.bool_]:
        """Whether each lies on a curve that was measured, or next to its ends."""
        found = np.zeros(len(c), dtype=np.bool_)
        at = np.log2(np.maximum(c.bytes, 1.0))
        known = np.log2(self.rows.bytes)
        for curve in _curves(self):
            ends = known[curve].min() - 1, known[curve].max() + 1
            near = (ends[0] <= at) & (at <= ends[1])
            found |= near & _on_curve(c, self.rows, curve)
        return found

    def measured(self) -> tuple[MeasuredCollective, ...]:
        """Return the rows one by one."""
        r = self.rows
        columns = (r.op, r.dtype, r.bytes, r.ranks, r.nodes, r.per_node, self.weights)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return tuple(MeasuredCollective(*row) for row in rows)

    def texts(self) -> list[str]:
        """Return the rows as a file holds them: see `collective_rows_of`."""
        return [*map(str, self.measured())]


@functools.lru_cache(maxsize=64)
def _curves(rows: CollectiveRows) -> list[NDArray[np.intp]]:
    """Return which rows differ in size alone: an op, its width, on as many ranks."""
    left = np.ones(len(rows.rows), dtype=np.bool_)
    found: list[NDArray[np.intp]] = []
    while left.any():
        mine = _on_curve(rows.rows, rows.rows, np.flatnonzero(left)[:1])
        found.append(np.flatnonzero(mine))
        left &= ~mine
    return found


@functools.lru_cache(maxsize=64)
def _features_of_rows(
    rows: CollectiveRows, links: Links, p: CollectiveParameters
) -> Features:
    return features(rows.rows, links, p)


@functools.lru_cache(maxsize=64)
def _knots(
    rows: CollectiveRows, links: Links, p: CollectiveParameters
) -> list[tuple[NDArray[np.intp], Floats, Floats]]:
    """Return each curve's rows, sizes, and logarithms of its times, which rise.

    Before the first and behind the last time is what nothing is below and above.
    """
    known = _features_of_rows(rows, links, p)
    log_s = np.log(known.modelled_s) + covariance(known, known) @ rows.weights
    found: list[tuple[NDArray[np.intp], Floats, Floats]] = []
    for curve in _curves(rows):
        sizes, which = np.unique(rows.rows.bytes[curve], return_inverse=True)
        counts = np.bincount(which).astype(np.float64)
        times = isotonic_regression(np.bincount(which, log_s[curve]) / counts, counts)
        found.append((curve, sizes, np.concatenate(([-np.inf], times, [np.inf]))))
    return found


def _on_curve(
    c: Collectives, rows: Collectives, curve: NDArray[np.intp]
) -> NDArray[np.bool_]:
    one = curve[0]
    found: NDArray[np.bool_] = c.op == rows.op[one]
    found &= (c.ranks == rows.ranks[one]) & (c.nodes == rows.nodes[one])
    found &= c.narrow == rows.narrow[one]
    return found


@functools.lru_cache(maxsize=64)
def collective_rows(measured: tuple[MeasuredCollective, ...]) -> CollectiveRows:
    """Return rows as columns."""
    op, dtype, sizes, ranks, nodes, each, weights = zip(
        *map(attrs.astuple, measured), strict=True
    )
    columns = (np.array(cells, np.float64) for cells in (sizes, ranks, nodes, each))
    texts = np.array(op, np.str_), np.array(dtype, np.str_)
    return CollectiveRows(Collectives(*texts, *columns), np.array(weights, np.float64))


def collective_rows_of(texts: Iterable[str]) -> CollectiveRows:
    """Return rows written as `op dtype bytes ranks nodes per_node weight`.

    Raises:
        ValueError: a row is not of this form.

    """
    return collective_rows(tuple(map(MeasuredCollective.parse, texts)))


_ROUNDS = 4
_FREEDOM = 1.0
"""Degrees of freedom of Student's t: a row that its neighbours contradict counts less.

Of most rows a second run says the same within 1 %, of some small ones twice as long.
"""


def weighed(
    c: Collectives, log_ratio: Floats, links: Links, p: CollectiveParameters
) -> CollectiveRows:
    """Return rows with their weights.

    Args:
        c: What was measured.
        log_ratio: ln(measured / modelled), shape (rows,).
        links: Of the system.
        p: Of the model.

    """
    return CollectiveRows(c, _solved(c, log_ratio, links, p)[0])


def left_out_one_by_one(
    c: Collectives, log_ratio: Floats, links: Links, p: CollectiveParameters
) -> Floats:
    """Return each row's ln(measured / modelled) as all other rows say it."""
    weights, inverse = _solved(c, log_ratio, links, p)
    found: Floats = log_ratio - weights / np.diag(inverse)
    return found


def _solved(
    c: Collectives, log_ratio: Floats, links: Links, p: CollectiveParameters
) -> tuple[Floats, Matrix]:
    """Return the rows' weights, and the inverse of their covariance."""
    known = features(c, links, p)
    shared = covariance(known, known)
    noise: Floats = np.full(len(c), NOISE**2)
    used: Floats = noise.copy()
    weights: Floats = np.zeros(len(c))
    for _ in range(_ROUNDS):
        weights[:] = np.linalg.solve(shared + np.diag(noise), log_ratio)
        used[:] = noise
        off = noise * weights / NOISE
        noise[:] = NOISE**2 * (1 + off**2 / _FREEDOM) / (1 + 1 / _FREEDOM)
    inverse: Matrix = np.zeros_like(shared)
    inverse[:] = np.linalg.inv(shared + np.diag(used))
    return weights, inverse
