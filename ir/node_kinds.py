"""What kind of node one is: by the traits of its op, and by what it says itself."""

from __future__ import annotations

import functools

from perfc.ir.core import Node
from perfc.ir.opdef import Trait
from perfc.ir.ops import BUILTIN_OPS


def has_trait(node: Node, trait: Trait) -> bool:
    """Whether the op of a node has a trait; an op that is not known has none."""
    return trait in traits_of(node.op)


@functools.cache  # it is asked of every node of every graph
def traits_of(op: str) -> frozenset[Trait]:
    """Return the traits of an op by name; none of one that is not known."""
    found = BUILTIN_OPS.find(op)
    return frozenset() if found is None else found.traits


def is_view(node: Node) -> bool:
    """Whether a node's first result is a view of one of its operands."""
    return BUILTIN_OPS[node.op].view is not None


def is_free(node: Node) -> bool:
    """Whether a node is a number of Python's own, or a constant: nothing runs."""
    return has_trait(node, Trait.FREE)


def is_collective(node: Node) -> bool:
    """Whether all members of a communicator run a node together."""
    return has_trait(node, Trait.COLLECTIVE)


def is_embedding_bag(node: Node) -> bool:
    """Whether a node looks up embedding tables and pools their rows."""
    return node.op == "embedding_bag"


def is_constant(node: Node | None) -> bool:
    """Whether a node, if there is one, makes a constant."""
    return node is not None and node.op == "constant"


def is_linear(node: Node | None) -> bool:
    """Whether a node, if there is one, is a linear layer: its weight is operand 1."""
    return node is not None and node.op == "linear"


def is_convolution(node: Node) -> bool:
    """Whether a node convolves images: its weight is operand 1."""
    return node.op == "conv"


def is_cast(node: Node) -> bool:
    """Whether a node converts its operand to the element type that it states."""
    return node.op == "cast"


def is_batch_norm(node: Node) -> bool:
    """Whether a node normalizes by running statistics, or those of the batch."""
    return node.op == "batch_norm"


def is_all_gather(node: Node) -> bool:
    """Whether a node joins the parts of all members of a communicator."""
    return node.op == "all_gather"


def is_gather(node: Node) -> bool:
    """Whether a node reads slices of its first operand along one axis."""
    return node.op == "gather"


def is_concat(node: Node) -> bool:
    """Whether a node joins tensors along one of their axes."""
    return node.op == "concat"


def updates_rows(node: Node) -> bool:
    """Whether a node updates those rows of a table that indices name."""
    return node.op == "sparse_optimizer_step"


def permutation(node: Node | None) -> tuple[int, ...] | None:
    """Return the axes of the operand in the order that a transposition puts them in."""
    if node is None or node.op != "transpose":
        return None
    return node.attributes.integers("perm")
