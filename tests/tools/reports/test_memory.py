"""Memory at its peak, as a report has it."""

from __future__ import annotations

import perfc


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
