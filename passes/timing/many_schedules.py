"""Schedules of many configurations, with the critical path of each.

Arrays run over configurations, Python over the places of the network that they share.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from perfc.costmodels.kernels import Flags, Floats
from perfc.passes.timing.network import Network


@attrs.frozen(eq=False)
class ManyLags:
    """What lies between tasks: a number, or one a configuration.

    Attributes:
        gaps_s: Seconds between each place and the one before, from place 1 on.
        latency_s: Seconds from the end of a call to what it issued.

    """

    gaps_s: Sequence[float | Floats]
    latency_s: float | Floats


@attrs.frozen(eq=False)
class ManyPaths:
    """The critical path of each configuration, shape (places, configurations) each.

    Attributes:
        passed: Whether it passes a place.
        issued: Whether it comes there from the call that enqueued the task.
        followed: Whether it comes there from the task before on the same resource.

    """

    passed: Flags
    issued: Flags
    followed: Flags


@attrs.frozen(eq=False)
class ManySchedules:
    """Solved schedules, each in some variants.

    Attributes:
        network: What they have in common.
        ends_s: When places end, shape (places, variants, configurations).
        later: By place, what it waits for besides the task before, and whether that is
            later than all before it, in the first variant.

    """

    network: Network
    ends_s: Floats
    later: Sequence[Sequence[tuple[int, Flags]]]

    @classmethod
    def of(cls, network: Network, seconds: Floats, lags: ManyLags) -> ManySchedules:
        """Solve them, as `solve` does one.

        Args:
            network: The schedule.
            seconds: What places take, shape (places, variants, configurations).
            lags: What lies between tasks.

        """
        ends = np.empty_like(seconds)
        ends[0] = 0.0
        found: list[list[tuple[int, Flags]]] = [[]]
        columns = (network.previous, lags.gaps_s, network.issue, network.after)
        latency_s = lags.latency_s
        for place, (c, gap_s, q, after) in enumerate(zip(*columns, strict=True), 1):
            now, later = ends[place], list[tuple[int, Flags]]()
            start = np.add(ends[c], gap_s, out=now) if c else ends[0]
            if q:
                start = _latest(start, ends[q] + latency_s, q, later, now)
            for j in after:
                start = _latest(start, ends[j], j, later, now)
            np.add(start, seconds[place], out=now)
            found.append(later)
        return cls(network, ends, found)

    @property
    def times_s(self) -> Floats:
        """When the last task ends, shape (variants, configurations)."""
        times: Floats = self.ends_s.max(axis=0)
        return times

    def paths(self) -> ManyPaths:
        """Return the critical paths of the first variant, as `critical-path` finds."""
        first = self.ends_s[:, 0]
        shape = first.shape
        passed, issued, followed = (np.zeros(shape, dtype=np.bool_) for _ in range(3))
        passed[first[1:].argmax(axis=0) + 1, np.arange(shape[1])] = True
        previous, issue = self.network.previous, self.network.issue
        for place in range(len(first) - 1, 0, -1):
            own = passed[place]
            if not own.any():
                continue
            for source, later in reversed(self.later[place]):
                passed[source] |= own & later
                if source == issue[place - 1]:
                    issued[place] = own & later
                own = own & ~later
            passed[previous[place - 1]] |= own
            followed[place] = own
        return ManyPaths(passed, issued, followed)


def _latest(
    start: Floats,
    came: Floats,
    source: int,
    later: list[tuple[int, Flags]],
    out: Floats,
) -> Floats:
    """Return the later of two starts; note where the second one is."""
    later.append((source, came[0] > start[0]))
    return np.maximum(start, came, out=out)
