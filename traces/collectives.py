"""Collectives that several ranks recorded: which of them are one."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from perfc.costmodels.constants import constants
from perfc.ir import Diagnostic, LaunchGraph, TaskKind
from perfc.ir.support import Level
from perfc.traces.events import Trace, TraceError
from perfc.traces.kineto import read_trace
from perfc.traces.nesting import CLOCKS_US
from perfc.traces.recorded import Recorded
from perfc.traces.recording import record

_MOST_LOST = 12
"""How far from where they are expected sequences of two ranks may lie."""

_KINDS = ("AllReduce", "AllGather", "ReduceScatter", "SendRecv", "Broadcast", "Reduce")
_FEWEST = 2
_SECONDS = 1e-6
_APART_US = constants("traces").number("recorded_apart_us")
"""Ranks of one run are recorded within it."""


def read_ranks(paths: Sequence[str | Path]) -> list[Recorded]:
    """Read the traces of the ranks of one run, all times from the first event on."""
    return record_ranks([read_trace(path) for path in paths])


def record_ranks(traces: Sequence[Trace]) -> list[Recorded]:
    """Return the launch graphs of the ranks of one run, by one clock."""
    numbers = [trace.rank for trace in traces if trace.rank is not None]
    if len(set(numbers)) < len(numbers):
        listed = ", ".join(f"{t.file} is rank {t.rank}" for t in traces)
        msg = f"two traces of one rank: {listed}; expected one trace a rank"
        raise TraceError(msg)
    begin_us = min(trace.origin_us for trace in traces)
    for trace in traces:
        late_us = trace.origin_us - begin_us
        if late_us > _APART_US:
            msg = (
                f"{trace.file}: begins {late_us / 1e6:,.0f} s after the first of the "
                "traces; expected ranks of one run"
            )
            raise TraceError(msg)
        trace.delay(late_us)
    found = [record(trace) for trace in traces]
    missing = max(t.world_size or 0 for t in traces) - len(traces)
    if missing > 0:
        message = (
            f"{missing} other ranks of the run are not here, and nobody waits for them"
        )
        note = Diagnostic(Level.NOTE, "trace-ranks", message, traces[0].file)
        first = found[0]
        found[0] = attrs.evolve(first, diagnostics=(*first.diagnostics, note))
    return found


@attrs.frozen(eq=False)
class Joint:
    """Ranks of one run.

    Attributes:
        ranks: What each recorded, in the order given.
        groups: Collectives that are one: a task for each rank that has it.

    """

    ranks: Sequence[Recorded]
    groups: Sequence[Mapping[int, int]]


def align_collectives(ranks: Sequence[Recorded]) -> Joint:
    """Find which collectives of several ranks are one, and tie them together.

    Newer traces give each a group and a number. Of others it is known that they
    follow each other in the same order on every rank; ranks that began to record later
    lack the first ones. Where the sequences lie against each
    other is told by their ends, which a collective has in common on all ranks; the
    clocks of the ranks have to agree, as they do within a host.

    A collective then takes on a rank what was left of it when the last rank came, if
    the clocks of the ranks agree; else what it took on the one that waited least.
    """
    groups = _named(ranks) or _ordered(ranks)
    shared = [group for group in groups if len(group) >= _FEWEST]
    # The ranks with graphs in which a group starts together.
    tied: list[Recorded] = []
    graphs = [_copied(rank.graph) for rank in ranks]
    ahead_us = _ahead_us(ranks, shared)
    for number, group in enumerate(shared):
        taken_s = _taken_s(ranks, group, ahead_us)
        for rank, task in group.items():
            graphs[rank].group[task] = f"joint{number}"
            graphs[rank].stated_s[task] = taken_s[rank]
    for number, (own, graph) in enumerate(zip(ranks, graphs, strict=True)):
        for task, kind in enumerate(graph.kind):
            alone = not graph.group[task].startswith("joint")
            if kind is TaskKind.COLLECTIVE and alone:
                graph.group[task] = f"r{number}{graph.group[task]}"
        tied.append(attrs.evolve(own, graph=graph))
    return Joint(tuple(tied), shared)


def _collectives(rank: Recorded) -> list[int]:
    graph = rank.graph
    found = [t for t, kind in enumerate(graph.kind) if kind is TaskKind.COLLECTIVE]
    return sorted(found, key=lambda task: rank.end_us[task])


def _named(ranks: Sequence[Recorded]) -> list[dict[int, int]]:
    """Return collectives by what newer traces call them; nothing if some have no name.

    Sends and receives that were started together have one name, and are told apart by
    their order.
    """
    groups: dict[tuple[str, int], dict[int, int]] = {}
    for number, rank in enumerate(ranks):
        met: Counter[str] = Counter()
        for task in _collectives(rank):
            name = rank.collectives.get(task)
            if name is None:
                return []
            groups.setdefault((name, met[name]), {})[number] = task
            met[name] += 1
    return list(groups.values())


def _ordered(ranks: Sequence[Recorded]) -> list[dict[int, int]]:
    """Return collectives by their order, the first rank's."""
    first = ranks[0]
    known = _collectives(first)
    groups: list[dict[int, int]] = [{0: task} for task in known]
    for number, rank in enumerate(ranks[1:], 1):
        own = _collectives(rank)
        offset = _offset(first, known, rank, own)
        for at, task in enumerate(own, offset):
            if 0 <= at < len(known):
                groups[at][number] = task
    return groups


def _kind(rank: Recorded, task: int) -> str:
    name = rank.graph.kernels[rank.graph.kernel[task]].op
    return next((kind for kind in _KINDS if kind in name), name)


def _offset(
    first: Recorded, known: Sequence[int], rank: Recorded, own: Sequence[int]
) -> int:
    """Return where in *known* the first of *own* is."""
    if not own:
        return 0
    best: tuple[float, int] | None = None
    likely = bisect_left(known, rank.end_us[own[0]], key=first.end_us.__getitem__)
    for offset in (*_around(0), *_around(likely)):
        pairs = [
            (known[at + offset], task)
            for at, task in enumerate(own)
            if 0 <= at + offset < len(known)
        ]
        if not pairs or len(pairs) * 2 < len(own):
            continue
        if any(_kind(first, a) != _kind(rank, b) for a, b in pairs):
            continue
        apart = statistics.median(
            abs(first.end_us[a] - rank.end_us[b]) for a, b in pairs
        )
        best = min(best or (apart, offset), (apart, offset))
    if best is None:
        msg = (
            f"{rank.trace.file}: its {len(own)} collectives are not those of "
            f"{first.trace.file}; expected ranks of one run"
        )
        raise TraceError(msg)
    return best[1]


def _around(offset: int) -> range:
    return range(offset - _MOST_LOST, offset + _MOST_LOST + 1)


def _ahead_us(
    ranks: Sequence[Recorded], groups: Sequence[Mapping[int, int]]
) -> Mapping[int, float] | None:
    """Return how far the clock of each rank is ahead of those of others.

    Most collectives end on all ranks at once. None if they do not: then the clocks do
    not tell which rank was last.
    """
    apart_us: dict[int, list[float]] = defaultdict(list)
    for group in groups:
        ends_us = {rank: ranks[rank].end_us[task] for rank, task in group.items()}
        usual_us = statistics.median(ends_us.values())
        for rank, end_us in ends_us.items():
            apart_us[rank].append(end_us - usual_us)
    ahead_us = {rank: statistics.median(own) for rank, own in apart_us.items()}
    agree = all(
        statistics.median(abs(us - ahead_us[rank]) for us in own) <= CLOCKS_US
        for rank, own in apart_us.items()
    )
    return ahead_us if agree else None


def _taken_s(
    ranks: Sequence[Recorded],
    group: Mapping[int, int],
    ahead_us: Mapping[int, float] | None,
) -> dict[int, float]:
    """Return the seconds that a collective takes once the last rank is there, by rank.

    Who exchanges parts with all others is done when it has its own, which is not
    when the others are.
    """
    own_s = {rank: ranks[rank].graph.stated_s[task] for rank, task in group.items()}
    if ahead_us is not None:
        ended_us = {r: ranks[r].end_us[task] - ahead_us[r] for r, task in group.items()}
        last_us = max(ended_us[rank] - own_s[rank] / _SECONDS for rank in group)
        left_s = {rank: (us - last_us) * _SECONDS for rank, us in ended_us.items()}
        if min(left_s.values()) > 0:
            return {rank: min(left_s[rank], own_s[rank]) for rank in group}
    return dict.fromkeys(group, min(own_s.values()))


def _copied(graph: LaunchGraph) -> LaunchGraph:
    """Return a graph of the same tasks whose groups and seconds may change."""
    copy = graph.emptied()
    copy.kind, copy.resource, copy.op = graph.kind, graph.resource, graph.op
    copy.kernel, copy.issue, copy.after = graph.kernel, graph.issue, graph.after
    copy.detail = graph.detail
    copy.group, copy.stated_s = [*graph.group], [*graph.stated_s]
    return copy
