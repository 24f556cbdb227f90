"""Figures of a group of rows, their noise, and whether they got worse.

The noise of a figure is its bootstrap standard error: its standard deviation over
draws, with repetition, of as many units as there are, a unit being what is off as one
(a size, an (n, k), a session, a GPU, a step, a run). It says by how much the figure
would be another had others been measured: a change below that says nothing of rows that
nobody has measured, and is no reason to keep a change of the models out. One rule for
all, with nothing to choose. Figures of one unit have no such error, and all are printed
in tenths of a percent: so much is always allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import Floats
from perfc.fitting.errors import LEAST_APE
from scoring.group import Group

Figures: TypeAlias = Mapping[str, float]
"""Figures by name, fractions; those of intervals only where some are stated."""

LEVEL = 0.9
"""Share of rows that intervals are to hold."""

LEAST_NOISE = 0.001
"""A tenth of a percent, the last digit that is printed."""

GATED = ("mape", "gmae", "p90", "bias", "inside", "width")
"""Figures that may not get worse: all but the largest error, which is of one row."""

DRAWS, SEED = 200, 1
DIGITS = 5


@attrs.frozen
class Beside:
    """What another predictor says of the same rows.

    Attributes:
        name: Its name.
        statistic: Which figure it is: `mape`, `gmae` or `geomean`.
        value: Its figure.
        own: perfc's, by the same statistic.

    """

    name: str
    statistic: str
    value: float
    own: float


@attrs.frozen
class Line:
    """A line of the table.

    Attributes:
        kind: What is unseen.
        what: What the rows are.
        scorer: Which scorer they are of.
        rows: How many.
        units: How many that are off on their own.
        figures: By name.
        noise: Of each that is gated.
        beside: What others say of the same rows.
        family: What it is listed under in the short table; empty: itself.

    """

    kind: str
    what: str
    scorer: str
    rows: int
    units: int
    figures: Figures
    noise: Figures
    beside: tuple[Beside, ...] = ()
    family: str = ""

    @property
    def key(self) -> str:
        """What it is known by."""
        return f"{self.kind}: {self.what}"


def figures_of(
    logs: Floats, held: NDArray[np.bool_] | None, widths: Floats | None
) -> dict[str, float]:
    """Return the figures of rows, from ln(predicted / measured)."""
    errors = np.expm1(logs)
    sizes = np.abs(errors)
    found = {
        "mape": float(sizes.mean()),
        "gmae": float(np.expm1(np.abs(logs).mean())),
        "p90": float(np.quantile(sizes, LEVEL)),
        "max": float(sizes.max()),
        "bias": float(errors.mean()),
    }
    if held is not None and widths is not None:
        found |= {"inside": float(held.mean()), "width": float(np.median(widths))}
    return found


def noise_of(group: Group) -> dict[str, float]:
    """Return the noise of the figures that are gated."""
    units = np.arange(len(group)) if group.units is None else group.units
    held, widths = group.held, group.widths
    members = _members(units)
    random = np.random.default_rng(SEED)
    drawn: list[list[float]] = []
    for _ in range(DRAWS if len(members) > 1 else 0):
        chosen = random.integers(len(members), size=len(members))
        at = np.concatenate([members[unit] for unit in chosen.tolist()])
        parts = (None if each is None else each[at] for each in (held, widths))
        figures = figures_of(group.logs[at], *parts)
        drawn.append([figures[name] for name in GATED if name in figures])
    names = [name for name in GATED if held is not None or name in GATED[:4]]
    if not drawn:
        return dict.fromkeys(names, LEAST_NOISE)
    spread: list[float] = np.array(drawn).std(axis=0, ddof=1).tolist()
    return {
        name: max(noise, LEAST_NOISE) for name, noise in zip(names, spread, strict=True)
    }


def _members(units: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    order = np.argsort(units, kind="stable")
    _, starts = np.unique(units[order], return_index=True)
    return np.split(order, starts[1:])


def statistic_of(logs: Floats, statistic: str) -> float:
    """Return one figure by which others state theirs."""
    if statistic == "geomean":
        sizes = np.maximum(np.abs(np.expm1(logs)), LEAST_APE)
        return float(np.exp(np.log(sizes).mean()))
    return figures_of(logs, None, None)[statistic]


def line_of(group: Group, scorer: str, published: Sequence[Beside] = ()) -> Line:
    """Return the line of a group, rounded as it is committed."""
    units = len(group) if group.units is None else len(np.unique(group.units))
    beside = [
        Beside(
            name,
            "mape",
            statistic_of(logs, "mape"),
            statistic_of(group.logs, "mape"),
        )
        for name, logs in group.beside.items()
    ]
    figures = figures_of(group.logs, group.held, group.widths)
    return Line(
        group.kind,
        group.name,
        scorer,
        len(group),
        units,
        _rounded(figures),
        _rounded(noise_of(group)),
        tuple(
            attrs.evolve(
                one, value=round(one.value, DIGITS), own=round(one.own, DIGITS)
            )
            for one in (*beside, *published)
        ),
        group.family,
    )


def _rounded(figures: Figures) -> dict[str, float]:
    return {name: round(value, DIGITS) for name, value in figures.items()}


def badness(name: str, value: float) -> float:
    """Return how bad a figure is: less is better, 0 is best.

    Of the share inside only what lacks: too wide an interval shows in its width.
    """
    if name == "inside":
        return max(LEVEL - value, 0.0)
    return abs(value)


def worse_by(now: Line, committed: Line) -> dict[str, float]:
    """Return by how much each figure got worse, beyond the noise of the committed."""
    found: dict[str, float] = {}
    for name in GATED:
        if name not in now.figures or name not in committed.noise:
            continue
        more = badness(name, now.figures[name])
        more -= badness(name, committed.figures[name])
        if abs(more) > committed.noise[name]:
            found[name] = more
    return found
