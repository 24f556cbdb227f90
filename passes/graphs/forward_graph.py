"""What rewrites of a whole model take: the op graph of one GPU, without backward."""

from __future__ import annotations

from perfc.ir import Graph, Program, UsageError
from perfc.passes.graphs.phases import is_training_step


def forward_graph_of(program: Program, who: str) -> Graph:
    """Return the one graph of a program.

    Args:
        program: The model.
        who: Name of the pass that asks.

    """
    (rank, *others) = program.classes
    if others or len(rank.ranks) > 1 or rank.ops is None:
        msg = f"{who} takes the op graph of one GPU, before other rewrites"
        raise UsageError(msg)
    if is_training_step(rank.ops):
        msg = (
            f"{rank.ops} has a backward pass already; {who} comes before the pass "
            "training"
        )
        raise UsageError(msg)
    return rank.ops
