"""Ranks of edits: which is the fastest, and how sure that is."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import cast

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats
from perfc.ir import UsageError
from perfc.passes.timing import Amount, Lag, Network, Timeline, solve_columns, sources
from perfc.tools import edits
from perfc.tools.oracle.state import State

_DRAWS = 2048
"""Draws of all errors; a probability is off by about one in a hundred."""

_AT_ONCE = 4_000_000
"""Numbers that are drawn for one candidate at once."""

_TIE = 1e-12
"""Times that differ by less are the same: sums of floats differ by that."""


@attrs.frozen
class Ranked:
    """One candidate.

    Attributes:
        edits: The edits, made together; none for the step as it stands.
        time_us: Microseconds of an iteration under them.
        probability: That it is the fastest of all candidates.

    """

    edits: tuple[edits.Edit, ...]
    time_us: float
    probability: float


def rank(state: State, candidates: object) -> list[Ranked]:
    """Rank edits, fastest first.

    Errors of prices are log-normal, as in the interval of a report. What candidates
    have in common errs alike in all of them, and is drawn once: the host, each cost
    model, each kernel, each node's host time. The schedule is solved for every draw.
    Durations that were set have no error. Draws are the same each time. What tasks take
    of each other (contention) stays what it is without errors.

    Args:
        state: The step as it stands.
        candidates: Edits, or sequences of edits that are made together.

    """
    asked = [*map(_read, _listed(candidates))]
    edited = [_Candidate.of(state.after(one)) for one in asked]
    most = max(len(candidate.network) for candidate in edited)
    count = max(1, min(_DRAWS, _AT_ONCE // max(1, most)))
    wins = np.zeros(len(asked))
    for seed in range(-(-_DRAWS // count)):
        draws = _Draws(np.random.default_rng(seed), count)
        times_s = np.stack([candidate.times_s(draws) for candidate in edited])
        fastest = times_s <= times_s.min(axis=0) * (1 + _TIE)
        wins += (fastest / fastest.sum(axis=0)).mean(axis=1)
    shares = (wins / wins.sum()).tolist()
    made = [
        Ranked(one, candidate.state.time_s * 1e6, share)
        for one, candidate, share in zip(asked, edited, shares, strict=True)
    ]
    return sorted(made, key=lambda ranked: ranked.time_us)


def _listed(candidates: object) -> list[object]:
    if not isinstance(candidates, Iterable) or isinstance(candidates, str):
        candidates = ()
    found = list(cast("Iterable[object]", candidates))
    if not found:
        msg = "Oracle.rank: expected a list of edits, or of sequences of edits"
        raise UsageError(msg)
    return found


def _read(candidate: object) -> tuple[edits.Edit, ...]:
    given = isinstance(candidate, tuple | list)
    listed = cast("Sequence[object]", candidate if given else (candidate,))
    for one in listed:
        if not isinstance(one, edits.EDITS):
            msg = f"{one!r} of Oracle.rank is no edit: expected values of perfc.edits"
            raise UsageError(msg)
    return tuple(cast("Sequence[edits.Edit]", listed))


@attrs.define(eq=False)
class _Draws:
    """Errors in sigmas, one number a draw, the same for whoever asks for them again."""

    chance: np.random.Generator
    count: int
    known: dict[Hashable, Floats] = attrs.field(factory=dict[Hashable, Floats])

    def of(self, error: Hashable) -> Floats:
        """Return the draws of an error."""
        found = self.known.get(error)
        if found is None:
            found = self.known[error] = self.chance.standard_normal(self.count)
        return found

    def factor(
        self, shared: Hashable, sigma: float, own: Hashable, other: float
    ) -> Floats:
        """Return by what a time is multiplied that errs by two errors."""
        moved: Floats = np.exp(sigma * self.of(shared) + other * self.of(own))
        return moved


@attrs.frozen(eq=False)
class _Candidate:
    """A step, and the schedule in which its times err.

    Attributes:
        state: The step.
        timeline: Who waits for whom.
        network: The same, to be solved.
        seconds: What each place takes.

    """

    state: State
    timeline: Timeline
    network: Network
    seconds: Sequence[float]

    @classmethod
    def of(cls, state: State) -> _Candidate:
        """Return a candidate; where tasks slow each other down, as they do so."""
        step = state.setting.step
        if not step.shares:
            return cls(state, step.timeline, step.network, state.seconds)
        results = state.report().results
        network = Network.of(results.timeline)
        seconds = network.spread(results.schedule.duration_s)
        return cls(state, results.timeline, network, seconds)

    def times_s(self, draws: _Draws) -> Floats:
        """Return the time of the step under each draw."""
        step, places = self.state.setting.step, self.network.places
        columns: list[Floats] = []
        factors: dict[Hashable, int] = {}
        seconds: list[Lag] = [*self.seconds]

        def err(
            task: int, shared: Hashable, sigma: float, own: Hashable, other: float
        ) -> None:
            place = places[task]
            if task in self.state.stated or not self.seconds[place]:
                return
            number = factors.get((shared, own))
            if number is None:
                number = factors[shared, own] = len(columns)
                columns.append(draws.factor(shared, sigma, own, other))
            seconds[place] = Amount(self.seconds[place], (number,))

        for rank, (hosted, cost, offset) in enumerate(
            zip(step.hosted, step.costs, self.timeline.offsets, strict=True)
        ):
            found, graph = sources(hosted.graph), hosted.graph
            keys = step.host_keys(rank)
            sigmas = hosted.sigma_shared, hosted.sigma_independent
            hosts: list[int] = found.host.tolist()
            for task in hosts:
                err(task + offset, "host", sigmas[0], keys[task], sigmas[1])
            shared, own = cost.sigma_shared.tolist(), cost.sigma_independent.tolist()
            devices: list[int] = found.device.tolist()
            numbers: list[int] = found.kernel.tolist()
            for task, number in zip(devices, numbers, strict=True):
                model, kernel = ("model", cost.model[number]), graph.kernels[number]
                err(task + offset, model, shared[number], kernel, own[number])
        return solve_columns(self.network, seconds, columns, draws.count)
