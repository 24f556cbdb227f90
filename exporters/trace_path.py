"""The critical path of a trace: arrows from slice to slice."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from perfc.exporters.trace_events import arrow_end, arrow_start
from perfc.exporters.trace_rank import BETWEEN_OPS, RankTrace, Span
from perfc.ir import HOST_KINDS, TaskKind
from perfc.tools import Results

_PATH = "critical_path"
_WITHOUT_SLICE = frozenset({TaskKind.HOST, TaskKind.RECORD, TaskKind.WAIT})


def path_arrows(ranks: Sequence[RankTrace], results: Results) -> Iterator[str]:
    """Return an arrow between each two slices that follow one another on the path.

    A task on the host stands for its op, so that the path runs from op to op; time
    between ops has no slice, and so no arrow.
    """
    before: Span | None = None
    arrows = 0
    lanes = {lane for rank in ranks for lane in rank.lanes}
    heads = {lane: arrow_start(_PATH, lane) for lane in lanes}
    tails = {lane: arrow_end(_PATH, lane) for lane in lanes}
    for span in _spans(ranks, results):
        if span is before:
            continue
        if before is not None:
            arrows += 1
            # A slice that has waited began before what it waited for.
            waited = span.start_ns < before.start_ns
            end_ns = before.end_ns if waited else span.start_ns
            yield (
                f'{heads[before.lane]}{before.start_ns / 1000:.3f},"id":{arrows}}},\n'
                f'{tails[span.lane]}{end_ns / 1000:.3f},"id":{arrows}}}'
            )
        before = span


def _spans(ranks: Sequence[RankTrace], results: Results) -> Iterator[Span]:
    """Return the slices that show the tasks of the path; some have none."""
    offsets = results.schedule.offsets
    for flat in results.path.tasks:
        rank = ranks[bisect_right(offsets, flat) - 1]
        graph, task = rank.graph, flat - rank.offset
        kind, op = graph.kind[task], graph.op[task]
        if kind in HOST_KINDS and op in rank.op_spans:
            if graph.detail[task] != BETWEEN_OPS:
                yield rank.op_spans[op]
        elif kind not in _WITHOUT_SLICE:
            lane = rank.lanes[graph.resource[task]]
            yield Span(lane, rank.start_ns[task], rank.end_ns[task])
