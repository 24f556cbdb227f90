"""A model on many targets, at many sizes: what reports say, by arrays."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import Floats, Indices
from perfc.ir import Diagnostic
from perfc.ir.launch import BUSY_KINDS
from perfc.ir.support import US
from perfc.passes.lowering import LowerKernels, dtype_name
from perfc.passes.timing import SustainedClock, sources, task_mask
from perfc.tools.oracle.columns import Columns
from perfc.tools.oracle.families import Family
from perfc.tools.oracle.host_fields import HostFields
from perfc.tools.oracle.many_sizes import FEWEST, ManySizes
from perfc.tools.oracle.setting import Setting
from perfc.tools.oracle.solved_block import SolvedBlock
from perfc.tools.oracle.solving import Solving
from perfc.tools.oracle.state import State
from perfc.tools.reports import LIMITS
from perfc.tools.run import Run


@attrs.frozen(eq=False)
class Found:
    """What is found of some members, all of them of the same tasks.

    Attributes:
        members: Which.
        numbers: Numbers of a report's summary, one a member; NaN for null.
        bounds: What limits most of the time of each.
        diagnostics: What there is to say of all of them.

    """

    members: Sequence[int]
    numbers: Mapping[str, NDArray[Any]]
    bounds: Sequence[str]
    diagnostics: Sequence[Diagnostic]


def found_together(
    bases: Sequence[Setting], which: Indices, sizes: Mapping[str, NDArray[np.int64]]
) -> Iterator[Found]:
    """Yield findings of members; those that are in none are to be analyzed.

    Args:
        bases: A setting on each of some targets, at any sizes.
        which: The target of each member.
        sizes: The sizes of members by name, as columns of `Oracle.batch`.

    """
    groups: dict[Hashable, list[int]] = {}
    for number, base in enumerate(bases):
        groups.setdefault(_lowered_by(base.run), []).append(number)
    for numbers in groups.values():
        members = np.flatnonzero(np.isin(which, numbers))
        if len(members) < FEWEST:
            continue
        own = np.searchsorted(numbers, which[members])
        at = {name: column[members] for name, column in sizes.items()}
        chosen = [bases[number] for number in numbers]
        many = ManySizes(State(chosen[0]), chosen, own, at)
        for family in many.families()[0]:
            if family.costs is not None:
                yield from _found(family, chosen, own, members)


def _lowered_by(run: Run) -> Hashable:
    """Return a key that runs of one model share which the same rules lower.

    How many SMs targets have may differ: rules are asked for all of them at once.
    """
    target, lowering = run.target, run.passes[0]
    if not isinstance(lowering, LowerKernels) or run.model.ranks > 1:
        return target.spec_sha256
    settings = attrs.evolve(lowering.settings(target), sm_count=0)
    graphs = [rank.ops for rank in run.model.program.classes if rank.ops is not None]
    if not any("conv" in node.op for graph in graphs for node in graph):
        settings = attrs.evolve(settings, gpu=None)  # whom convolutions alone ask
    types = [value.type for graph in graphs for value in graph.values()]
    if not any(type_ is None or dtype_name(type_.dtype) == "fp64" for type_ in types):
        settings = attrs.evolve(settings, fp64_gemms="")
    return settings


def _found(
    family: Family, bases: Sequence[Setting], which: Indices, members: Indices
) -> Iterator[Found]:
    """Yield findings of the members of a family."""
    peaks = family.peaks()
    if peaks is None:
        return
    count = len(family.members)
    rows = [np.array([row]) for row in range(count)]
    solving = Solving(family, rows, HostFields({}), Columns(count, {}, ()))
    diagnostics = family.state.setting.step.diagnostics
    left = np.array(family.members)
    for block in solving.blocks(intervals=True):
        own, left = np.split(left, [len(block.times_s)])
        peak, peaks = np.split(peaks, [len(own)])
        numbers_of: list[int] = which[own].tolist()
        targets = [bases[number].run for number in numbers_of]
        numbers: dict[str, NDArray[Any]] = {
            **_numbers(block),
            **_energy(block, targets),
            "peak_memory_bytes": peak,
        }
        bounds: list[int] = block.bounds.tolist()
        limits = [LIMITS[number] for number in bounds]
        yield Found(
            members[own].tolist(),
            numbers,
            limits,
            diagnostics,
        )


def _numbers(block: SolvedBlock) -> dict[str, Floats]:
    time_us, active_us = block.times_s * US, block.active_s * US
    low_s, high_s = block.intervals_s
    launched = np.count_nonzero(task_mask(block.graph, BUSY_KINDS))
    return {
        "time_us": time_us,
        "time_us_p05": low_s * US,
        "time_us_p95": high_s * US,
        "gpu_active_us": active_us,
        "gpu_idle_us": np.maximum(0.0, time_us - active_us),
        "launches": np.full(len(time_us), float(launched)),
    }


def _energy(block: SolvedBlock, runs: Sequence[Run]) -> dict[str, Floats]:
    """Return the joules of each step, as `sustained-clock` adds them up."""
    powers = [run.target.power for run in runs]
    (rank,) = block.step.run.model.program.classes
    costs, kernel = block.costs, sources(block.graph).kernel
    asked = any(isinstance(p, SustainedClock) for p in block.step.run.passes)
    if not asked or not any(powers):
        return {"energy_j": np.full(len(runs), np.nan)}
    launched = np.bincount(kernel, minlength=len(costs.rows))
    drawn_j = (launched[:, None] * costs.of("joules")).sum(axis=0)
    known = (costs.of("known") | (launched == 0)[:, None]).all(axis=0)
    idle_w = np.array([np.nan if p is None else p.idle_watts for p in powers])
    joules = len(rank.ranks) * (drawn_j + idle_w * block.times_s)
    return {"energy_j": np.where(known, joules, np.nan)}
