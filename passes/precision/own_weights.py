"""Weights of linear layers as their modules have them.

What is recorded of `nn.Linear` is `addmm` with the transposed weight, or `mm`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from perfc.ir import Graph, Node, Program, Record, Value
from perfc.ir.core import Replacement
from perfc.ir.node_kinds import is_linear
from perfc.passes.base import PassContext
from perfc.passes.graphs import FORWARD, typed

_MATRIX = 2


def weight_of(node: Node) -> Value | None:
    """Return the weight of a linear layer, before it is transposed.

    None for other nodes. Rows times a matrix are a layer if that is a parameter.
    """
    if not is_linear(node) and not _is_matmul_of_rows(node):
        return None
    return untransposed(node.operands[1])


def untransposed(value: Value) -> Value:
    """Return the value that one is the transposed view of, if it is one."""
    maker = value.producer
    return maker.operands[0] if maker is not None and maker.op == "transpose" else value


def _is_matmul_of_rows(node: Node) -> bool:
    if node.op != "matmul" or node.attributes or node.location.phase != FORWARD:
        return False
    x, weight = map(typed, node.operands)
    return x.rank > 1 and weight.rank == _MATRIX


def raise_layers(program: Program) -> None:
    """Let linear layers read their parameters themselves, by ops `linear`."""
    for rank in program.classes:
        if rank.ops is not None:
            _raise_layers(rank.ops)


def _raise_layers(graph: Graph) -> None:
    parameters = frozenset(graph.parameters)
    raised: dict[Node, Replacement] = {}
    for node in graph:
        weight = weight_of(node)
        if weight not in parameters or (is_linear(node) and weight in node.operands):
            continue
        x, found, *bias = node.operands
        kn = not is_linear(node) or node.attributes.flag("weight_is_kn")
        kn = kn != (found is not weight)
        raised[node] = Replacement(
            "linear",
            (x, weight, *bias),
            Record({"weight_is_kn": True} if kn else {}),
            node.results[0],
            node.location,
        )
    if raised:
        graph.replace(raised)
        graph.erase_dead(keep=lambda node: node.op != "transpose")


_OTHERS: Mapping[str, str] = {
    "conv": "convolution",
    "conv_transpose": "transposed convolution",
    "recurrent": "recurrent layer",
}
"""Other layers that multiply by parameters, by op."""


def say_unchanged(program: Program, dtype: str, ctx: PassContext) -> None:
    """Say which layers a type is not for that linear layers are given."""
    nodes = [node for rank in program.classes for node in rank.ops or ()]
    found = Counter(_OTHERS[node.op] for node in nodes if node.op in _OTHERS)
    others = [f"{count} {name}{'s' * (count > 1)}" for name, count in found.items()]
    if others:
        ctx.note(
            "linear-only",
            f"{dtype} is for linear layers: it changes nothing of "
            f"{' and '.join(others)}",
            program.name,
        )
    if not any(map(is_linear, nodes)):
        message = f"{program.name} has no linear layers: {dtype} changes nothing"
        ctx.note("no-linear", message, program.name)
