"""Solved configurations, and what reports say of them besides their times."""

from __future__ import annotations

import functools

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats, Indices
from perfc.ir import LaunchGraph, TaskKind
from perfc.ir.launch import BUSY_KINDS, HOST_KINDS
from perfc.passes import timing
from perfc.tools.oracle.costs import Costs
from perfc.tools.oracle.step import Step
from perfc.tools.reports import LIMITS

_HOST, _COMPUTE, _NETWORK = map(LIMITS.index, ("host", "compute", "network"))


@attrs.frozen(eq=False)
class SolvedBlock:
    """Some configurations of a step of one rank class.

    Attributes:
        step: A step of the same tasks.
        costs: What its kernels cost, by configuration.
        errors: What tasks are off by; None where no interval is asked for.
        seconds: What places take, shape (places, configurations).
        lags: What lies between them.
        schedules: Their schedules, and those that errors lead to.

    """

    step: Step
    costs: Costs
    errors: timing.ManyErrors | None
    seconds: Floats
    lags: timing.ManyLags
    schedules: timing.ManySchedules

    @classmethod
    def of(
        cls,
        step: Step,
        costs: Costs,
        errors: timing.ManyErrors | None,
        seconds: Floats,
        lags: timing.ManyLags,
    ) -> SolvedBlock:
        """Solve configurations."""
        varied = seconds[:, None] if errors is None else errors.variants(seconds)
        schedules = timing.ManySchedules.of(step.network, varied, lags)
        return cls(step, costs, errors, seconds, lags, schedules)

    @property
    def graph(self) -> LaunchGraph:
        """The launches of a step of the same tasks."""
        return self.step.hosted[0].graph

    @functools.cached_property
    def _paths(self) -> timing.ManyPaths:
        return self.schedules.paths()

    @property
    def times_s(self) -> Floats:
        """What each takes."""
        times: Floats = self.schedules.times_s[0]
        return times

    @functools.cached_property
    def intervals_s(self) -> tuple[Floats, Floats]:
        """5th and 95th percentile of the time of each."""
        assert self.errors is not None  # noqa: S101 - for types
        passed = self._paths.passed
        return timing.intervals_s(self.schedules, self.seconds, passed, self.errors)

    @property
    def active_s(self) -> Floats:
        """How long any kernel, copy or collective of each runs."""
        places = 1 + np.flatnonzero(timing.task_mask(self.graph, BUSY_KINDS))
        if not len(places):
            return np.zeros_like(self.seconds[0])
        end_s = self.schedules.ends_s[places, 0]
        start_s = end_s - self.seconds[places]
        order = np.argsort(start_s, axis=0, kind="stable")
        start_s = np.take_along_axis(start_s, order, axis=0)
        end_s = np.take_along_axis(end_s, order, axis=0)
        reached_s = np.maximum.accumulate(end_s, axis=0)
        begun_s = start_s.copy()
        begun_s[1:] = np.maximum(start_s[1:], reached_s[:-1])
        active: Floats = np.maximum(reached_s - begun_s, 0.0).sum(axis=0)
        return active

    @property
    def bounds(self) -> Indices:
        """Place in `LIMITS` of what limits most of the time of each."""
        graph, paths = self.graph, self._paths
        numbers = timing.kernel_numbers(graph)
        limits = self.costs.of("limit")
        of_task = np.concatenate([limits, np.full_like(limits[:1], _COMPUTE)])[numbers]
        own = of_task.copy()
        own[timing.task_mask(graph, HOST_KINDS)] = _HOST
        own[timing.task_mask(graph, frozenset({TaskKind.COLLECTIVE}))] = _NETWORK
        shares = np.zeros((len(LIMITS), self.seconds.shape[1]))
        column = np.arange(shares.shape[1])
        spent = np.where(paths.passed, self.seconds, 0.0)[1:]
        np.add.at(shares, (own, column), spent)
        waited = np.where(paths.issued[1:], self.lags.latency_s, 0.0)
        shares[_HOST] += waited.sum(axis=0)
        followed = zip(paths.followed[1:], of_task, self.lags.gaps_s, strict=True)
        for along, limit, gap_s in followed:
            if np.any(gap_s):
                shares[limit, column] += np.where(along, gap_s, 0.0)
        found: Indices = shares.argmax(axis=0)
        return found
