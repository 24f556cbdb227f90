"""Graphs of `torch.fx`: what their nodes note of the run that they were traced from."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_unflatten

from perfc.ir.support import UnsupportedModelError

_NOTES = ("val", "example_value")
"""Keys under which exporters, and PyTorch's compiler, note what a node makes."""


def noted_arguments(
    graph: torch.fx.GraphModule,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments like those that a graph was traced with, where noted."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    noted = [next((n.meta[k] for k in _NOTES if k in n.meta), None) for n in inputs]
    if not any(isinstance(value, torch.Tensor) for value in noted):
        return (), {}
    for node, value in zip(inputs, noted, strict=True):
        _refuse_open_sizes(str(node.name), value)
    structure = getattr(graph, "_in_spec", None)
    if structure is None:
        return tuple(noted), {}
    args, kwargs = tree_unflatten(noted, structure)
    return tuple(args), dict(kwargs)


def _refuse_open_sizes(name: str, value: Any) -> None:
    shape = value.shape if isinstance(value, torch.Tensor) else (value,)
    if any(isinstance(size, torch.SymInt) for size in shape):
        msg = (
            f"input {name} of the graph has open sizes {list(map(str, shape))}: give "
            "example arguments, or the ExportedProgram itself"
        )
        raise UnsupportedModelError(msg)
