"""Kernels that are no collectives and run on another stream than what computes."""

from __future__ import annotations

from perfc.ir import Node
from perfc.ir.ops.collective import COLLECTIVES, COMM_STREAM


def has_own_stream(node: Node) -> bool:
    """Whether the kernels of a node, no collective, name their stream."""
    return node.op == "cast" and bool(node.attributes.text("stream", ""))


def is_issued_in_order(node: Node) -> bool:
    """Whether others wait for a node by events: nothing moves across it."""
    return node.op in COLLECTIVES or has_own_stream(node)


def cast_stream(stream: str) -> str:
    """Return where what a communicator's stream sends is cast."""
    return f"{stream or COMM_STREAM}.cast"


def gradient_stream(stream: str) -> str:
    """Return where the gradient of a cast that has a stream is cast back."""
    return f"{stream}.grad"


STAGES = "pp"
"""What names of communicators between the stages of a pipeline begin with."""


def is_between_stages(node: Node) -> bool:
    """Whether a node is a collective of stages of one replica."""
    return node.op in COLLECTIVES and node.attributes.text("group").startswith(
        f"{STAGES}."
    )
