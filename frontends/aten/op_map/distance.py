"""ATen ops that work out distances of all pairs of vectors, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler


def _distances(*names: str) -> Handler:
    """One op, or its gradient; operands by the names of the schema."""

    def handler(node: AtenNode) -> None:
        op = "distances_backward" if node.name.endswith("_backward") else "distances"
        operands = [node.tensor(name) for name in names]
        node.emit(op, operands, {"order": node.number("p", 2.0)})

    return handler


DISTANCE_HANDLERS: Mapping[str, Handler] = {
    "aten._pdist_forward": _distances("self"),
    "aten._pdist_backward": _distances("grad", "self", "pdist"),
    "aten._cdist_forward": _distances("x1", "x2"),
    "aten._cdist_backward": _distances("grad", "x1", "x2", "cdist"),
}
"""ATen ops to the functions that write them."""
