"""The typed tier of the verifier: every declared type agrees with its op's rule."""

from __future__ import annotations

from perfc.ir.core import Graph, Node, Value
from perfc.ir.opdef import Abstract, OpRegistry
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType


def verify_types(graph: Graph, ops: OpRegistry) -> None:
    """Run the type rules of *graph* and its regions again, and compare.

    Values without a type, and what depends on them, are left alone. A symbol
    agrees with anything: passes give names to dimensions that depend on data.
    """
    _verify(graph, ops, {})


def _verify(graph: Graph, ops: OpRegistry, known: dict[Value, Abstract]) -> None:
    for value in graph.arguments():
        if value.type is not None:
            known[value] = Abstract(value.type)
    for node in graph:
        for region in node.regions:
            _verify(region, ops, known)
        for value in node.results:
            if value.type is not None:
                known[value] = Abstract(value.type)
        if all(operand in known for operand in node.operands):
            _verify_node(node, ops, known)


def _verify_node(node: Node, ops: OpRegistry, known: dict[Value, Abstract]) -> None:
    operands = [known[operand] for operand in node.operands]
    try:
        results = ops[node.op].infer(node.attributes, operands)
    except VerifyError as error:
        msg = f"{node}: {error}"
        raise VerifyError(msg) from None
    # A rule may say nothing of some results, or of all.
    for value, inferred in zip(node.results, results, strict=False):
        if inferred is None:
            continue
        if value.type is not None and not _agree(value.type, inferred.type):
            msg = f"{node}: {value} is {value.type}, its rule says {inferred.type}"
            raise VerifyError(msg)
        known[value] = Abstract(value.type or inferred.type, inferred.elements)


def _agree(declared: TensorType, inferred: TensorType) -> bool:
    return (
        declared.dtype == inferred.dtype
        and declared.rank == inferred.rank
        and all(
            left == right or not (isinstance(left, int) and isinstance(right, int))
            for left, right in zip(declared.shape, inferred.shape, strict=True)
        )
    )
