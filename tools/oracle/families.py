"""Settings whose steps have the same tasks, solved together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.tools.oracle.state import State

Floats: TypeAlias = NDArray[np.float64]


@attrs.frozen(eq=False)
class Family:
    """Settings whose steps have the same tasks.

    Attributes:
        state: One of their states: all have its network.
        members: Which settings.
        seconds: Seconds of each place: a number, or an array of one a member.
        states: The state of each member, if they were made.

    """

    state: State
    members: Sequence[int]
    seconds: Sequence[float | Floats]
    states: Sequence[State] = ()

    @classmethod
    def of_states(cls, states: Sequence[State], members: Sequence[int]) -> Family:
        """Return the family of states that have one network."""
        if len(states) == 1:
            return cls(states[0], members, states[0].seconds, states)
        table = np.array([state.seconds for state in states]).T
        varies = (table != table[:, :1]).any(axis=1)
        known: dict[bytes, Floats] = {}
        seconds: list[float | Floats] = []
        for own, differs in zip(table, varies.tolist(), strict=True):
            if differs:
                seconds.append(known.setdefault(own.tobytes(), own))
            else:
                seconds.append(float(own[0]))
        return cls(states[0], members, seconds, states)
