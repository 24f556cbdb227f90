"""The memory of a trace: a counter of what is allocated on the device."""

from __future__ import annotations

from collections.abc import Iterator

from perfc.exporters.trace_rank import RankTrace
from perfc.tools import Report, activation_steps


def memory_counters(rank: RankTrace, report: Report) -> Iterator[str]:
    """Return the bytes of parameters and live activations, where they change.

    PyTorch allocates when the host gets to an op, so that is the time.
    """
    starts_ns = {"": 0}
    for op, span in rank.op_spans.items():
        starts_ns[rank.graph.ops[op].node] = span.start_ns
    pid = next((lane.pid for lane in rank.lanes if lane.device >= 0), None)
    parameters = report.memory["parameters_bytes"]
    shown = -1
    for node, activations in activation_steps(report.results.program):
        if pid is None or node not in starts_ns or activations == shown:
            continue
        shown = activations
        yield (
            f'{{"ph":"C","name":"device memory (bytes)","pid":{pid},"tid":0,'
            f'"ts":{starts_ns[node] / 1000:.3f},"args":{{'
            f'"parameters":{parameters},"activations":{activations}}}}}'
        )
