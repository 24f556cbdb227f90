"""Traces run again with measured kernels: `replays.py FOLDER`, of Kineto traces.

Each trace alone, and ranks of one run together: how far off the whole trace is, and the
worst of its steps. Then what a host is worth that was learnt elsewhere: of each rank
from the others of its run, and of later steps from the first half of them. Files of one
run are told by a folder and a name without the rank.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from perfc.costmodels import HostProfile, load_profile
from perfc.fitting.trace_host import fit_trace_host
from perfc.tools.replay.replay import Replayed, replay_alone, replay_joint
from perfc.traces import Recorded, is_execution_trace
from perfc.traces.collectives import read_ranks
from perfc.traces.kineto import read_trace
from perfc.traces.recording import record

RANK = re.compile(r"_?[rw](\d+)$")


def runs_in(folder: Path) -> dict[str, list[Path]]:
    """Return the traces of each run, by its name: one file, or one a rank."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*.json.gz")):
        if is_execution_trace(path):
            continue
        name = path.name.removesuffix(".json.gz")
        run = RANK.sub("", name)
        of_folder = path.parent.name if run == "kineto" else run
        found[of_folder].append(path)
    return found


@attrs.frozen(eq=False)
class Run:
    """A run whose traces were run again; errors are simulated / measured - 1.

    Attributes:
        name: The run.
        alone: Each of its traces on its own.
        joint: All ranks together; nothing of one rank.
        by_others: Error of each rank with the host of the others.
        by_steps: Error of later steps with the host of those before, by rank.

    """

    name: str
    alone: Sequence[Replayed]
    joint: Sequence[Replayed]
    by_others: Sequence[float]
    by_steps: Sequence[float]


def runs(folder: Path) -> Iterator[Run]:
    """Yield the runs of a folder."""
    base = load_profile("shared")
    for name, paths in runs_in(folder).items():
        ranks = [record(read_trace(path)) for path in paths]
        several = len(ranks) > 1
        yield Run(
            name,
            replay_alone(ranks),
            replay_joint(read_ranks(paths)) if several else [],
            [*others(ranks, base)] if several else [],
            [*later(ranks, base)],
        )


def step_errors(again: Sequence[Replayed]) -> list[float]:
    """Return the error of every step."""
    return [step.error for one in again for step in one.steps]


def cells(again: Sequence[Replayed]) -> str:
    """Return the largest error of whole traces, and of their steps, as cells."""
    if not again:
        return " | "
    whole, steps = max((one.error for one in again), key=abs), step_errors(again)
    return f"{whole:+.2%} | {max(steps, key=abs):+.2%}" if steps else f"{whole:+.2%} | "


def others(ranks: Sequence[Recorded], base: HostProfile) -> Iterator[float]:
    """Yield the error of each rank with the host of the others."""
    for left_out in ranks:
        rest = [one for one in ranks if one is not left_out]
        (again,) = replay_alone([left_out], fit_trace_host(rest, base).profile)
        yield again.error


def later(ranks: Sequence[Recorded], base: HostProfile) -> Iterator[float]:
    """Yield the error of the second half of a rank's steps by those before."""
    for one in ranks:
        numbers = [step.number for step in one.steps]
        half = len(numbers) // 2
        if half:
            host = fit_trace_host([one], base, numbers[:half]).profile
            (again,) = replay_alone([one], host, numbers[half:])
            yield again.error


def _largest(found: Sequence[float]) -> str:
    return f"{max(found, key=abs):+.1%}" if found else ""


def main(folder: Path) -> None:
    """Print a row a run."""
    print("| trace | files | exact | worst step | together | worst step "
          "| host of other ranks | later steps |")  # fmt: skip
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for run in runs(folder):
        print(
            f"| {run.name} | {len(run.alone)} | {cells(run.alone)} | "
            f"{cells(run.joint)} | {_largest(run.by_others)} | "
            f"{_largest(run.by_steps)} |"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
