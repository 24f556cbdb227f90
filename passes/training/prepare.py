"""What a graph needs before gradients can be derived from it.

Files are exported for inference: weights transposed, equal vectors merged, modules
evaluating. In training each of these is what the model has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import attrs

from perfc.ir import DTYPES, Graph, Node, TensorType, UsageError, Value, node_kinds
from perfc.ir.core import Use
from perfc.ir.opdef import Abstract
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.ops.recurrent import reserved_vectors
from perfc.passes.base import PassContext
from perfc.passes.graphs import (
    typed,
)

_I64 = DTYPES["i64"]
_COUNT = TensorType(_I64, ())
_STATISTICS = 3
"""Operands of `batch_norm` from here on are running statistics."""

_ROLES: Mapping[int, str] = {1: "weight", 2: "bias"}
_WITH_VECTORS = frozenset(
    ("linear", "conv", "conv_transpose", "layer_norm", "rms_norm", "group_norm", "add")
)


def turn_weights_back(graph: Graph) -> None:
    """Store weights as the model does where the exporter has transposed them."""
    for weight in graph.parameters:
        uses = graph.uses(weight)
        if uses and all(_is_turned(use) for use in uses):
            type_ = typed(weight)
            weight.type = attrs.evolve(type_, shape=type_.shape[::-1])
            for use in uses:
                graph.set_attributes(
                    use.node, weight_is_kn=None, transposed_by_exporter=None
                )


def _is_turned(use: Use) -> bool:
    attributes = use.node.attributes
    return (
        node_kinds.is_linear(use.node)
        and use.index == 1
        and attributes.flag("transposed_by_exporter")
        and attributes.flag("weight_is_kn")
    )


def separate_vectors(graph: Graph, ctx: PassContext) -> None:
    """Give each module its own biases and scales; say how many were merged.

    Exporters write equal initializers once, and those of a fresh model are all
    zeros or ones. No framework shares a vector between different modules.
    """
    merged = 0
    for vector in tuple(graph.parameters):
        if typed(vector).rank != 1 or not typed(vector).dtype.is_float:
            continue
        by_module: dict[str, list[Use]] = {}
        for use in graph.uses(vector):
            by_module.setdefault(use.node.location.module, []).append(use)
        if "" in by_module:
            continue
        for module, uses in list(by_module.items())[1:]:
            if _WITH_VECTORS.issuperset(use.node.op for use in uses):
                _give_own(graph, vector, module, uses)
                merged += 1
    if merged:
        ctx.note(
            "merged-parameters",
            "biases and scales that the exporter merged, being equal, are those of one "
            f"module each: {merged} more",
        )


def _give_own(graph: Graph, vector: Value, module: str, uses: Sequence[Use]) -> None:
    role = _ROLES.get(uses[0].index, "vector")
    own = graph.add_parameter(graph.fresh_name(f"{module}.{role}"), typed(vector))
    for use in uses:
        graph.set_operand(use.node, use.index, own)


def trained(graph: Graph) -> list[Value]:
    """Return the parameters that want gradients, in order.

    Buffers and constants do not. Where the source does not tell those from weights,
    integers are taken for them, running statistics, and what the exporter notes as a
    buffer (`%b_name`).
    """
    return [value for value in graph.parameters if _is_trained(graph, value)]


def _is_trained(graph: Graph, value: Value) -> bool:
    if value in graph.untrained or not typed(value).dtype.is_float:
        return False
    uses = graph.uses(value)
    noted = f"%b_{re.sub(r'[^a-z0-9]', '_', value.name.lower())}"
    return not any(
        (node_kinds.is_batch_norm(use.node) and use.index >= _STATISTICS)
        or re.search(rf"{re.escape(noted)}\b", use.node.location.origin) is not None
        for use in uses
    )


_SPARSE_FLAG: Mapping[str, int] = {
    "aten.embedding_bag": 5,
    "aten._embedding_bag": 5,
    "aten.embedding": 4,
}
"""Argument of a lookup that says that its gradient is sparse."""

_CALL = re.compile(r"(aten\.\w+)\.\w+\(args = \((.*?)\)")
"""A call of a lookup, as PyTorch's exporter to ONNX notes it."""

_ASKS = re.compile(r"aten\.\w+\.\w+\(.*, sparse=(True|False)\)")
"""A call of a lookup, as the importer of archives notes it."""


def noted_sparse(node: Node) -> bool | None:
    """Tell whether the source asks for sparse gradients; None if nothing is noted."""
    asks = _ASKS.match(node.location.origin)
    if asks is not None:
        return asks[1] == "True"
    call = _CALL.match(node.location.origin)
    if call is None or call[1] not in _SPARSE_FLAG:
        return None
    arguments = call[2].split(", ")
    index = _SPARSE_FLAG[call[1]]
    return index < len(arguments) and arguments[index] == "True"


def switch_to_training(graph: Graph) -> None:
    """Let modules train: batch norms with statistics of the batch, and a counter.

    Max pooling returns the places of the maxima, which backward needs, and recurrent
    layers what cuDNN has kept of each step.
    """
    counters: dict[Node, tuple[str, str]] = {}
    for node in graph:
        if node_kinds.is_batch_norm(node) and not node.attributes.flag("training"):
            graph.set_attributes(node, training=True)
            # Name what counts the batches of a norm, and the count after this one.
            norm = (
                node.operands[_STATISTICS].name.rpartition(".")[0]
                or node.results[0].name
            )
            counters[node] = f"{norm}.num_batches_tracked", f"{norm}.add_"
        is_max = node.op == "pool" and node.attributes.text("kind") == "max"
        if is_max and len(node.results) == 1:
            type_ = attrs.evolve(typed(node.results[0]), dtype=_I64)
            name = graph.fresh_name(f"{node.results[0].name}.places")
            graph.add_result(node, name, type_)
        if node.op == "recurrent" and "reserve" not in node.attributes:
            _reserve(graph, node)
    for node, (counter, result) in counters.items():
        count = graph.add_parameter(graph.fresh_name(counter), _COUNT)
        one = graph.insert(
            node,
            "constant",
            (),
            (f"{result}.one", _COUNT),
            {"dtype": _I64, "shape": (), "elements": (1,)},
        )
        graph.insert(node, "add", (count, one), (result, _COUNT), {"in_place": True})


def _reserve(graph: Graph, node: Node) -> None:
    """Let a layer return its last states, and what its gradients need, behind them."""
    vectors = reserved_vectors(node.attributes.text("kind"))
    graph.set_attributes(node, reserve=vectors)
    operands = [Abstract(typed(value)) for value in node.operands]
    found = BUILTIN_OPS[node.op].infer(node.attributes, operands)
    names = ("state", "state", "reserve")[-len(found) + 1 :]
    for name, made in list(zip(names, found[1:], strict=True))[len(node.results) - 1 :]:
        if made is not None:
            fresh = graph.fresh_name(f"{node.results[0].name}.{name}")
            graph.add_result(node, fresh, made.type)


def called(node: Node) -> str:
    """Return the name of an op, or of the call that it stands for."""
    return node.attributes.text("call", node.op)


def refuse_narrow_weights(graph: Graph) -> None:
    """Refuse a graph whose weights are quantised: they have no gradients."""
    weights = frozenset(graph.parameters)
    for node in graph:
        for value in node.operands if node.op in _OF_WEIGHTS else ():
            dtype = None if value.type is None else value.type.dtype
            if value not in weights or dtype is None:
                continue
            few = dtype.scaling is not None or dtype.bits < _BYTE
            if few or (node.op == "matmul" and dtype.bits == _BYTE):
                msg = (
                    f"{graph}: {value.name} is stored in {dtype}: gradients of weights "
                    "of few bits make no sense; leave the pass quantize out, or train "
                    "linear layers in 8 bits by --dtype fp8"
                )
                raise UsageError(msg)


_OF_WEIGHTS = frozenset({"embedding_bag", "matmul", "packed_linear"})
_BYTE = 8


def nothing_to_train(graph: Graph, first: Node | None) -> str:
    """Say why: of complex numbers, which *first* makes, there are no gradients."""
    if first is not None:
        return (
            f"{graph}: outputs depend on parameters through complex numbers only, "
            "whose gradients are not supported: "
            f"{called(first)} makes {first.results[0]}"
        )
    return (
        f"{graph}: no output depends on a parameter of real numbers, so there is "
        "nothing to train"
    )
