"""Phases of a step, by which nodes say where they belong."""

from __future__ import annotations

from perfc.ir import Graph

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
"""Phases of nodes: see `Location.phase`."""


def is_training_step(graph: Graph) -> bool:
    """Whether a graph has a backward pass."""
    return any(node.location.phase == BACKWARD for node in graph)


def has_optimizer(graph: Graph) -> bool:
    """Whether a graph updates its parameters."""
    return any(node.location.phase == OPTIMIZER for node in graph)
