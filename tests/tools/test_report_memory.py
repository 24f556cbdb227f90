"""Memory over time, as a report has it."""

from __future__ import annotations

import perfc
from perfc.tools.report_memory import memory_timeline


def test_memory_over_time() -> None:
    """The curve starts with what is there before, and peaks at the peak."""
    use = perfc.analyze(perfc.load("dlrm-ddp", batch=256), "v100").memory_use
    spans = {name: (10.0 * i, 10.0 * i + 5) for i, name in enumerate(use.nodes)}

    points = memory_timeline(use, spans)
    times = [time_us for time_us, _ in points]

    assert times == sorted(times)
    assert 0.0 == times[0]
    assert spans[use.nodes[-1]][1] == times[-1]
    assert use.peak_bytes == max(size for _, size in points)


def test_memory_of_a_graph_is_flat() -> None:
    """A replay allocates nothing."""
    report = perfc.analyze(
        perfc.load("dlrm-ddp", batch=256), "v100", runtime="cudagraph"
    )

    assert [(0.0, report.memory["peak_bytes"])] == memory_timeline(
        report.memory_use, {}
    )
