"""What optimizers remember of each parameter."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.ir import Graph, TensorType, Value

STATES: Mapping[str, tuple[str, ...]] = {
    "sgd": (),
    "adagrad": ("sum",),
    "rowwise_adagrad": ("sum",),
    "adam": ("exp_avg", "exp_avg_sq"),
    "adamw": ("exp_avg", "exp_avg_sq"),
}
"""Optimizers, and what `torch.optim` calls their states; counts of steps are the
host's."""


def declare_state(
    graph: Graph, parameter: Value, name: str, type_: TensorType
) -> Value:
    """Declare one state of a parameter; it is named for both."""
    return graph.add_state(graph.fresh_name(f"{parameter.name}.{name}"), type_)
