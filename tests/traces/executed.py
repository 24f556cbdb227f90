"""Execution traces made up node by node, as PyTorch's observer writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs

MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
RELU = "aten::relu(Tensor self) -> Tensor"
SUM = (
    "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, "
    "ScalarType? dtype=None) -> Tensor"
)


def tensor(number: int, device: str = "cuda:0") -> list[object]:
    """Return a tensor as a node names it."""
    return [number, number, 0, 1, 4, device]


@attrs.define
class Executed:
    """An execution trace that grows node by node."""

    nodes: list[dict[str, Any]] = attrs.field(factory=list[dict[str, Any]])

    def op(
        self,
        schema: str,
        inputs: list[object],
        shapes: list[object],
        types: list[str],
        outputs: list[object],
        output_shapes: list[object],
        *,
        thread: int = 1,
        parent: int = 1,
    ) -> int:
        """Add a call; return the number of its node."""
        order = len(self.nodes) + 1
        self.nodes.append(
            {
                "name": schema.partition("(")[0].partition(".")[0],
                "id": order + 10,
                "rf_id": order,
                "parent": parent,
                "tid": thread,
                "op_schema": schema,
                "inputs": inputs,
                "input_shapes": shapes,
                "input_types": types,
                "outputs": outputs,
                "output_shapes": output_shapes,
                "output_types": ["Tensor(float)"] * len(outputs),
            }
        )
        return order + 10

    def mm(self, rows: int, inner: int, columns: int) -> None:
        """Add a matmul."""
        shapes: list[object] = [[rows, inner], [inner, columns]]
        types = ["Tensor(float)"] * 2
        inputs: list[object] = [tensor(1), tensor(2)]
        self.op(MM, inputs, shapes, types, [tensor(3)], [[rows, columns]])

    def relu(self, *shape: int) -> None:
        """Add a call on what the matmul made."""
        dims: list[object] = [[*shape]]
        self.op(RELU, [tensor(3)], dims, ["Tensor(float)"], [tensor(4)], dims)

    def write(self, path: Path, **header: object) -> Path:
        """Write it."""
        root = {"name": "[pytorch|profiler|execution_trace|thread]", "id": 1}
        root |= {"rf_id": 0, "parent": 0, "tid": 1}
        document = {"schema": "1.0.1", "pid": 1, **header}
        # Nodes are written when they end, and the observer's own come first.
        path.write_text(
            json.dumps({**document, "nodes": [root, *reversed(self.nodes)]}),
            encoding="utf-8",
        )
        return path
