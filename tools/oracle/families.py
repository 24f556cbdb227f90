"""Settings whose steps have the same tasks, solved together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import KernelTable
from perfc.costmodels.kernels import Floats
from perfc.tools.oracle.costs import Costs, PricedRows
from perfc.tools.oracle.state import State

Peaks: TypeAlias = NDArray[np.int64]


@attrs.frozen(eq=False)
class MemberLags:
    """What lies between tasks, one number a member.

    Attributes:
        gaps: Seconds between a place and the one before, where there are any.
        latency: Seconds from the end of a call to what it issued.

    """

    gaps: Mapping[int, Floats]
    latency: Floats


@attrs.frozen(eq=False)
class Family:
    """Settings whose steps have the same tasks.

    Attributes:
        state: One of their states: all have its network.
        members: Which settings.
        seconds: Seconds of each place: a number, or an array of one a member.
        states: The state of each member, if they were made.
        lags: What lies between tasks, where members differ in it.
        costs: Returns what the kernels of a rank class cost at each member.
        peaks: Returns the peak of the memory at each member; None where it has to be
            looked for in each one's report.

    """

    state: State
    members: Sequence[int]
    seconds: Sequence[float | Floats]
    states: Sequence[State] = ()
    lags: MemberLags | None = None
    costs: Callable[[], Costs] | None = None
    peaks: Callable[[], Peaks | None] = lambda: None

    @classmethod
    def of_states(cls, states: Sequence[State], members: Sequence[int]) -> Family:
        """Return the family of states that have one network."""
        costs = functools.partial(_costs, states) if has_costs(states[0]) else None
        if len(states) == 1:
            return cls(states[0], members, states[0].seconds, states, costs=costs)
        table = np.array([state.seconds for state in states]).T
        varies = (table != table[:, :1]).any(axis=1)
        known: dict[bytes, Floats] = {}
        seconds: list[float | Floats] = []
        for own, differs in zip(table, varies.tolist(), strict=True):
            if differs:
                seconds.append(known.setdefault(own.tobytes(), own))
            else:
                seconds.append(float(own[0]))
        return cls(states[0], members, seconds, states, costs=costs)


def has_costs(state: State) -> bool:
    """Whether one rank class runs whose tasks do not slow each other down."""
    step = state.setting.step
    return not step.shares and isinstance(step.network.places, range)


def _costs(states: Sequence[State]) -> Costs:
    """Return the costs of the kernels of states, each of one rank class."""
    priced = PricedRows()
    rows: list[NDArray[np.intp]] = []
    for state in states:
        step = state.setting.step
        (hosted,), (estimate,) = step.hosted, step.costs
        table = KernelTable(hosted.graph.kernels)
        first = priced.add(table, step.run.target, estimate)
        rows.append(np.arange(first, first + len(table)))
    return Costs(priced, np.stack(rows, axis=1))
