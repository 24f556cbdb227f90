"""Fields of a target that say how fast a host is, and what lies between tasks.

They need no kernel priced again: a host's times are divided by its speed, and gaps and
latencies are what they are. So a column of them is a column of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Target
from perfc.costmodels.kernels import Floats
from perfc.passes.facts import HostedLaunches
from perfc.passes.timing import Amount, Lag, Lags, Network, sources
from perfc.tools import edits
from perfc.tools.oracle.setting import Setting
from perfc.tools.oracle.state import State
from perfc.tools.oracle.step import Step

HOST_FIELDS = frozenset(
    {
        "host.speed",
        "runtime.launch_latency_us",
        "runtime.stream_gap_us",
        "runtime.graph_gap_us",
    }
)
"""Fields that no cost model of a kernel reads."""

_CLOSE = 1e-12


@attrs.frozen
class Constants:
    """What a schedule reads of a target.

    Attributes:
        slowness: How much longer a host's times are than the profile's.
        stream_gap_s: Seconds between two tasks of a busy stream.
        graph_gap_s: The same where one call issued both.
        latency_s: Seconds from the end of a call to what it issued.

    """

    slowness: float
    stream_gap_s: float
    graph_gap_s: float
    latency_s: float

    @classmethod
    def of(cls, target: Target) -> Constants:
        """Return the constants of a target."""
        device, speed = target.device, target.host.speed
        return cls(
            1.0 if speed is None else 1.0 / speed,
            device.stream_gap_s,
            device.graph_gap_s,
            target.runtime.launch_latency_s,
        )


NAMES = tuple(field.name for field in attrs.fields(Constants))


@attrs.frozen(eq=False)
class HostFields:
    """Columns of constants, one number a configuration.

    Attributes:
        columns: By the name of the constant.
        fastest: The edit that leads to the fastest host of all.

    """

    columns: Mapping[str, Floats]
    fastest: edits.Target | None = None

    @classmethod
    def read(
        cls, state: State, fields: Mapping[str, NDArray[Any]]
    ) -> HostFields | None:
        """Read columns of fields; None if they have to be looked at one by one.

        A constant is taken to follow its field in proportion, or by a constant, which
        is checked on three values. A board whose power is capped draws more the less
        it waits, so its kernels would take longer beside a faster host.
        """
        if not fields:
            return cls({})
        found: dict[str, Floats] = {}
        for name, values in fields.items():
            for constant, column in _columns(state, name, values).items():
                if constant in found or column is None:
                    return None
                found[constant] = column
        fastest = {
            name: float(values.max() if name == "host.speed" else values.min())
            for name, values in fields.items()
        }
        return cls(found, edits.Target(**fastest))

    def seconds(
        self, step: Step, seconds: Sequence[Lag], stated: frozenset[int], first: int
    ) -> list[Lag]:
        """Return the seconds of places on each host.

        Args:
            step: The step.
            seconds: What they take on its own host.
            stated: Tasks whose duration is set.
            first: Number of the first column of these fields.

        """
        made = list(seconds)
        if "slowness" not in self.columns:
            return made
        column = first + [*self.columns].index("slowness")
        own = 1.0 / Constants.of(step.run.target).slowness
        for launches, offset in zip(step.hosted, step.timeline.offsets, strict=True):
            tasks: list[int] = sources(launches.graph).host.tolist()
            for task in tasks:
                if task + offset in stated:
                    continue
                place = step.network.places[task + offset]
                now = made[place]
                amount = now if isinstance(now, Amount) else Amount(now)
                made[place] = amount.times(own, column)
        return made

    def hosted(self, setting: Setting) -> HostedLaunches:
        """Return a setting's only launch graph, on a host that these fields are of.

        A host of known speed errs otherwise than one of the profile's; how fast it is
        makes no difference to that.
        """
        if "slowness" in self.columns:
            setting = setting.after(edits.Target(**{"host.speed": 1.0}))
        return setting.step.hosted[0]

    def lags(self, step: Step, first: int) -> Lags | None:
        """Return the lags between tasks; None where they do not vary."""
        names = [*self.columns]
        if not {"stream_gap_s", "graph_gap_s", "latency_s"}.intersection(names):
            return None
        network: Network = step.network
        amounts = {n: Amount(1.0, (first + at,)) for at, n in enumerate(names)}
        gaps: dict[int, Lag] = {}
        for kind, name in ((1, "stream_gap_s"), (2, "graph_gap_s")):
            for task, gap in enumerate(step.gap_kinds if name in amounts else ()):
                if gap == kind:
                    gaps[network.arrival(task)] = amounts[name]
        return Lags(gaps, amounts.get("latency_s", network.latency_s))


def _columns(state: State, name: str, values: NDArray[Any]) -> dict[str, Floats | None]:
    """Return the constants that a field changes; None for one not in proportion."""
    setting = state.setting
    low, high = float(values.min()), float(values.max())
    middle = (low + high) / 2
    asked = (low, middle, high)
    targets = [
        setting.after(edits.Target(**{name: value})).run.target for value in asked
    ]
    before = attrs.astuple(Constants.of(setting.run.target))
    three = [attrs.astuple(Constants.of(target)) for target in targets]
    found: dict[str, Floats | None] = {}
    for at, constant in enumerate(NAMES):
        numbers = [constants[at] for constants in three]
        if {*numbers} == {before[at]}:
            continue
        if constant == "slowness":
            column = 1.0 / values.astype(np.float64)
            expected = [1.0 / value for value in asked]
        else:
            slope = (numbers[2] - numbers[0]) / (high - low) if high > low else 0.0
            column = numbers[0] + slope * (values - low)
            expected = [numbers[0] + slope * (value - low) for value in asked]
        fits = np.allclose(numbers, expected, rtol=_CLOSE, atol=0.0)
        found[constant] = column if fits else None
    return found
