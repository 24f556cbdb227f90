"""How many rows are inside the 90 % intervals, by what of them is unseen.

    python benchmarks/interval_coverage.py DATA [--kind KIND]...

Kinds, each split before anything was predicted:

- size: rows of GPUs with rows whose sizes no fit has seen (`training.samples`).
- session: kernels of another session on another board, by what the other boards say
  (`training.elsewhere`).
- architecture: rows of GPUs that fits and intervals lack (`training.unseen`).
- step: whole steps of models that no fit has seen (`published.whole_steps`).

Of each group: how many rows, the share of them inside, the median width of the interval
over the prediction, and that width over the least which holds nine in ten of these very
rows: what a sigma would need that is perfect for the group. Then how many groups of 50
rows or more hold 85 to 95 %, and how many are at most twice as wide as perfect ones.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray
from published.whole_steps import WholeStep, whole_steps
from training.cross_fit import cross_fitted
from training.elsewhere import (
    OTHERS,
    Session,
    fit_errors,
    library_pairs,
    sessions_elsewhere,
)
from training.priced_rows import LEVEL, Misses
from training.samples import TEST, Sample, samples_of
from training.unseen import Unseen
from training.unseen_intervals import unseen_sigmas

from perfc.costmodels import COLLECTIVES, cost_models
from perfc.costmodels.pricing import as_timed
from perfc.fitting.scores import Z90, priced
from perfc.measurements import read_columns

Floats: TypeAlias = NDArray[np.float64]

FEWEST = 50
"""Rows of a group that counts."""

INSIDE = (0.85, 0.95)
"""Shares of rows that may be inside 90 %."""

WIDEST = 2.0
"""Times a perfect interval's width that one may have."""

_ROW = "{:14}{:60}{:>7}{:>9}{:>9}{:>11}"


@attrs.frozen(eq=False)
class Group:
    """Rows that are scored together.

    Attributes:
        kind: What of them is unseen.
        name: What they are.
        logs: ln(predicted / measured), shape (rows,).
        low: What of the interval is below the prediction, logarithms; shape (rows,).
        high: What is above it.

    """

    kind: str
    name: str
    logs: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, kind: str, name: str, logs: Floats, sigma: Floats) -> Group:
        """Return rows with a sigma each."""
        return cls(kind, name, logs, Z90 * sigma, Z90 * sigma)

    @property
    def inside(self) -> float:
        """Share of rows in their interval."""
        held = (self.logs <= self.low) & (-self.logs <= self.high)
        return float(held.mean())

    @property
    def width(self) -> float:
        """Median of the interval's width over the prediction."""
        return float(np.median(np.exp(self.high) - np.exp(-self.low)))

    @property
    def times_perfect(self) -> float:
        """Median width over that of the least sigma which holds nine in ten."""
        half = float(np.quantile(np.abs(self.logs), LEVEL))
        return self.width / (2 * np.sinh(half)) if half else float("inf")

    @property
    def counts(self) -> bool:
        """Whether it has rows enough."""
        return len(self.logs) >= FEWEST


def of_sizes(data: Path) -> Iterator[Group]:
    """Yield rows of known GPUs whose sizes are in no fit."""
    models = cost_models()
    for sample in cross_fitted(_samples(data)):
        rows = sample.of(TEST)
        if not len(rows):
            continue
        estimate = priced(rows.table, rows.target, models)
        seconds = estimate.seconds if rows.apart_s is None else rows.apart_s
        around = (rows.table, rows.target, rows.key.timing)
        timed = as_timed(seconds, estimate.sigma, *around)
        logs = np.log(timed.seconds / rows.measured_s)
        yield Group.of("size", _name(rows), logs, timed.sigma)


def of_sessions(data: Path) -> Iterator[Group]:
    """Yield kernels of other boards, each board by what the others say."""
    by_kind: dict[str, list[Session]] = defaultdict(list)
    for session in sessions_elsewhere(data):
        by_kind[session.kind].append(session)
    for kind, sessions in by_kind.items():
        pairs = library_pairs(data) if kind == OTHERS else ()
        what = "all but GEMMs" if kind == OTHERS else "GEMMs"
        for board in sorted({session.board for session in sessions}):
            others = [one for one in sessions if one.board != board]
            errors = fit_errors(others, pairs)
            mine = [one for one in sessions if one.board == board]
            logs = np.concatenate([one.logs for one in mine])
            sigma = np.concatenate([errors.sigma(one) for one in mine])
            yield Group.of("session, board", f"{what}, {board}", logs, sigma)


def of_architectures(data: Path) -> Iterator[Group]:
    """Yield rows of GPUs that neither a fit nor an interval has seen."""
    samples = _samples(data)
    unseen = Unseen(samples)
    gpus = sorted({sample.key.target for sample in samples})
    stated = {gpu: unseen_sigmas(unseen.calibrating(frozenset({gpu}))) for gpu in gpus}
    for sample in samples:
        found = unseen.priced(sample, {TEST})
        known = stated[sample.key.target]
        for name, rows in found.named() if found else ():
            if name not in known:
                continue
            shared, own, power = known[name]
            misses = Misses.of([rows])
            sigma = misses.sigma(float(np.hypot(shared, own)), power)
            what = f"{name}, {rows.sample.target.name}"
            yield Group.of("architecture", what, misses.logs, sigma)


def of_steps(data: Path) -> Iterator[Group]:
    """Yield whole steps, by kind, then all of them."""
    kinds: dict[str, list[WholeStep]] = defaultdict(list)
    for step in whole_steps(data / "end_to_end"):
        kinds[step.kind].append(step)
    kinds["all"] = [step for steps in kinds.values() for step in steps]
    for name, steps in kinds.items():
        columns = np.array(
            [(one.time_us, one.measured_us, one.low_us, one.high_us) for one in steps]
        ).T
        time, measured, low, high = np.log(columns)
        yield Group("step", name, time - measured, time - low, high - time)


KINDS: Mapping[str, Callable[[Path], Iterator[Group]]] = {
    "size": of_sizes,
    "session": of_sessions,
    "architecture": of_architectures,
    "step": of_steps,
}


def _samples(data: Path) -> list[Sample]:
    files = sorted((data / "measurements").glob("*.parquet"))
    found = (sample for file in files for sample in samples_of(read_columns(file)))
    return [sample for sample in found if sample.key.op not in COLLECTIVES]


def _name(rows: Sample) -> str:
    key = rows.key
    batched = key.op == "gemm" and bool((rows.table.param("b") > 1).all())
    op = f"{key.op} batched" if batched else key.op
    return f"{op} {key.dtype}, {key.target}, {key.timing}"


def print_groups(groups: Sequence[Group]) -> None:
    """Print a line a group, then how many are as they should be."""
    print(_ROW.format("unseen", "group", "n", "in 90 %", "width", "x perfect"))
    for one in groups:
        cells = f"{one.inside:.1%}", f"{one.width:.1%}", f"{one.times_perfect:.2f}"
        print(_ROW.format(one.kind, one.name, len(one.logs), *cells))
    counted = [one for one in groups if one.counts]
    inside = sum(INSIDE[0] <= one.inside <= INSIDE[1] for one in counted)
    narrow = sum(one.times_perfect <= WIDEST for one in counted)
    median = float(np.median([one.times_perfect for one in counted] or [np.nan]))
    print(
        f"{len(counted)} groups of {FEWEST} rows or more: {inside} hold "
        f"{INSIDE[0]:.0%} to {INSIDE[1]:.0%}, {narrow} are at most {WIDEST:g} times as "
        f"wide as perfect ones; in the median {median:.2f} times"
    )


def main() -> None:
    """Print the groups of the kinds that are asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--kind", action="append", choices=KINDS)
    options = parser.parse_args()
    found: list[Group] = []
    for kind in options.kind or KINDS:
        groups = list(KINDS[kind](options.data))
        print_groups(groups)
        print(flush=True)
        found += groups
    if len(options.kind or KINDS) > 1:
        print("together: ", end="")
        print_groups(found)


if __name__ == "__main__":
    main()
