"""A solved step, and what its critical paths are made of."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias

import attrs
import numpy as np

from perfc.costmodels import Target
from perfc.costmodels.kernels import Floats, Indices
from perfc.ir import LaunchGraph
from perfc.ir.launch import HOST_KINDS
from perfc.passes.timing import LAGS, CriticalWays, Network
from perfc.tools.oracle.state import State
from perfc.tools.oracle.step import Step
from perfc.tools.reports import LIMITS, detail_of, device_limits

Name: TypeAlias = tuple[str, str]
"""Kind of a slope, and what it is of."""

LATENCY_NAME: Name = ("host", "launch latency")
GAP_NAME: Name = ("kernel", "gaps between kernels")


@attrs.frozen(eq=False)
class Solved:
    """A solved step.

    Attributes:
        state: What was solved.
        seconds: What each place takes, slowed down by others where tasks share.
        network: Its schedule.
        ways: Its critical paths.

    """

    state: State
    seconds: Floats
    network: Network
    ways: CriticalWays

    @classmethod
    def of(cls, state: State) -> Solved:
        """Solve a step, with what tasks do to each other."""
        step = state.setting.step
        if step.shares:
            timeline, schedule = step.shared(state.stated)
            network = Network.of(timeline)
            seconds = network.spread(schedule.duration_s)
            ends_s = network.ends_s(seconds)
        else:
            network, seconds, ends_s = step.network, state.seconds, state.ends_s
        kinds = [0] * (len(network) + 1)
        for task, kind in enumerate(step.gap_kinds):
            kinds[network.arrival(task)] = kind
        ways = CriticalWays.of(network, seconds, ends_s, kinds)
        return cls(state, np.array(seconds), network, ways)

    @property
    def step(self) -> Step:
        """The step, before its schedule."""
        return self.state.setting.step

    @functools.cached_property
    def tasks(self) -> Indices:
        """Task of each critical place, -1 for none; one arrives before it starts."""
        found = np.full(len(self.network) + 1, -1)
        number = range(len(self.step.duration_s))
        found[[*map(self.network.arrival, number)]] = number
        found[np.array(self.network.places)] = number
        tasks: Indices = found[self.ways.places]
        return tasks

    @property
    def own_s(self) -> Floats:
        """Seconds of each critical place."""
        seconds: Floats = self.seconds[self.ways.places]
        return seconds

    @functools.cached_property
    def slowed(self) -> Floats:
        """How many times as long each critical place takes as it would alone."""
        stated, alone_s = self.state.stated, np.array([*self.step.duration_s, 0.0])
        for task, taken_s in stated.items():
            alone_s[task] = taken_s
        own_s, alone = self.own_s, alone_s[self.tasks]
        times: Floats = np.ones(len(own_s))
        np.divide(own_s, alone, out=times, where=alone > 0)
        return times

    @functools.cached_property
    def names(self) -> list[Name]:
        """Kind and name of each task, host or kernel."""
        return [
            name for launches in self.step.hosted for name in _names(launches.graph)
        ]

    def labelled(self, names: list[Name | None]) -> tuple[list[Name], Indices]:
        """Number names of tasks.

        Returns:
            The names, and the number of that of each critical place, -1 for none.

        """
        number: defaultdict[Name, int] = defaultdict(lambda: len(number))
        labels = np.array([-1 if name is None else number[name] for name in names])
        found = np.append(labels, -1)[self.tasks] if len(self.tasks) else self.tasks
        return [*number], found

    @functools.cached_property
    def lag_s(self) -> Floats:
        """Seconds of each kind of lag, shape (`LAGS`,)."""
        return np.array(lags_s(self.step.run.target))

    def parts_s(self) -> dict[Name, float]:
        """Return the parts of one critical path, by name, the longest first."""
        numbers, kinds = self.ways.chain
        names, labels = self.labelled([*self.names])
        timed = numbers[labels[numbers] >= 0]
        amounts = np.bincount(labels[timed], self.own_s[timed], minlength=len(names))
        found = dict(zip(names, amounts.tolist(), strict=True))
        lags = np.bincount(kinds, minlength=LAGS) * self.lag_s
        found[LATENCY_NAME], found[GAP_NAME] = float(lags[3]), float(lags[1] + lags[2])
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def bound(self) -> str:
        """Return the limit of most of one critical path, as a report says it."""
        numbers, kinds = self.ways.chain
        step, tasks = self.step, self.tasks[numbers]
        limits = np.append(device_limits(step.hosted, step.run.target), 0)
        kind = [name for name, _ in self.names]
        on_host = np.append(np.array(kind) == "host", True)[tasks]
        of_task = np.where(on_host, 0, limits[tasks])
        shares = np.bincount(of_task, self.own_s[numbers], minlength=len(LIMITS))
        latency = kinds == LAGS - 1
        after = np.where(latency, 0, of_task)
        shares += np.bincount(after, self.lag_s[kinds], minlength=len(LIMITS))
        return LIMITS[int(shares.argmax())]


def lags_s(target: Target) -> list[float]:
    """Return the seconds of each kind of lag on a target, in `CriticalWays`' order."""
    device = target.device
    latency_s = target.runtime.launch_latency_s
    return [0.0, device.stream_gap_s, device.graph_gap_s, latency_s]


def _names(graph: LaunchGraph) -> Iterator[Name]:
    for task, (kind, number) in enumerate(zip(graph.kind, graph.kernel, strict=True)):
        if kind in HOST_KINDS:
            yield "host", detail_of(graph, task)
        elif number >= 0:
            yield "kernel", graph.kernels[number].op
        else:
            yield "kernel", detail_of(graph, task)
