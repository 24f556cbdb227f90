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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from published.whole_steps import WholeStep, whole_steps
from scoring.group import Group, together
from scoring.kernels import of_architectures, of_boards, of_networks, of_sizes
from scoring.steps import group_of
from training.priced_rows import LEVEL

FEWEST = 50
"""Rows of a group that counts."""

INSIDE = (0.85, 0.95)
"""Shares of rows that may be inside 90 %."""

WIDEST = 2.0
"""Times a perfect interval's width that one may have."""

_ROW = "{:14}{:60}{:>7}{:>9}{:>9}{:>11}"


def of_steps(data: Path) -> Iterator[Group]:
    """Yield whole steps, by kind, then all of them."""
    kinds: dict[str, list[WholeStep]] = {}
    for step in whole_steps(data / "end_to_end"):
        kinds.setdefault(step.kind, []).append(step)
    groups = [group_of(name, steps) for name, steps in kinds.items()]
    yield from groups
    yield together(groups, "all")


def of_all_sizes(data: Path) -> Iterator[Group]:
    """Yield rows of known GPUs whose sizes are in no fit."""
    yield from of_sizes(data)
    yield from of_networks(data)


KINDS: Mapping[str, Callable[[Path], Iterator[Group]]] = {
    "size": of_all_sizes,
    "session": of_boards,
    "architecture": of_architectures,
    "step": of_steps,
}


def times_perfect(group: Group) -> float:
    """Return the median width over that of the least sigma which holds nine in ten."""
    half = float(np.quantile(np.abs(group.logs), LEVEL))
    return _width(group) / (2 * np.sinh(half)) if half else float("inf")


def _width(group: Group) -> float:
    widths = group.widths
    return float("nan") if widths is None else float(np.median(widths))


def _inside(group: Group) -> float:
    held = group.held
    return float("nan") if held is None else float(held.mean())


def print_groups(groups: Sequence[Group]) -> None:
    """Print a line a group, then how many are as they should be."""
    print(_ROW.format("unseen", "group", "n", "in 90 %", "width", "x perfect"))
    for one in groups:
        perfect = f"{times_perfect(one):.2f}"
        cells = f"{_inside(one):.1%}", f"{_width(one):.1%}", perfect
        print(_ROW.format(one.kind, one.name, len(one), *cells))
    counted = [one for one in groups if len(one) >= FEWEST]
    inside = sum(INSIDE[0] <= _inside(one) <= INSIDE[1] for one in counted)
    narrow = sum(times_perfect(one) <= WIDEST for one in counted)
    median = float(np.median([times_perfect(one) for one in counted] or [np.nan]))
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
        groups = [one for one in KINDS[kind](options.data) if one.held is not None]
        print_groups(groups)
        print(flush=True)
        found += groups
    if len(options.kind or KINDS) > 1:
        print("together: ", end="")
        print_groups(found)


if __name__ == "__main__":
    main()
