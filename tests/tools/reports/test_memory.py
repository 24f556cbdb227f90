"""Memory over time, as a report has it."""

from __future__ import annotations

import perfc
from perfc.tools.reports.memory import memory_timeline


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


def test_the_peak_is_made_of_its_kinds() -> None:
    """Kinds sum to the peak; what backward reads of forward is told apart."""
    model = perfc.load("dlrm-ddp", batch=256, mode="training", optimizer="adagrad")
    memory = perfc.analyze(model, "v100").memory
    kinds = memory["by_kind"]

    assert memory["peak_bytes"] == sum(kinds.values())
    assert memory["parameters_bytes"] == kinds["parameters"]
    assert memory["optimizer_bytes"] == kinds["optimizer_state"]
    assert memory["gradients_bytes"] == kinds["gradients"]
    activations = ("saved_for_backward", "inputs", "other_results", "workspaces")
    rest = memory["activations_bytes"] + memory["library_bytes"]
    assert rest == sum(kinds[kind] for kind in activations)


def test_inference_saves_nothing() -> None:
    """Without backward nothing is saved for it."""
    memory = perfc.analyze(perfc.load("dlrm-ddp", batch=256), "v100").memory

    assert 0 == memory["by_kind"]["saved_for_backward"]
    assert 0 < memory["by_kind"]["other_results"]
