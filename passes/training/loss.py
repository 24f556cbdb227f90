"""The loss of a training step: chosen as users of PyTorch do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from perfc.ir import DTYPES, AttrValue, Node, TensorType, Value, node_kinds
from perfc.ir.dims import product
from perfc.ir.location import Location
from perfc.ir.opdef import Trait
from perfc.ir.types import MemorySpace
from perfc.passes import autodiff
from perfc.passes.graphs import (
    Tape,
    typed,
)
from perfc.passes.precision import casts_first

AUTO = "auto"
LOSS = "loss"
_F32, _I64 = DTYPES["f32"], DTYPES["i64"]
_MATMULS = frozenset(("linear", "matmul", "packed_linear"))


def chosen_loss(output: Value) -> str:
    """Return the kind of loss that fits what a model ends with.

    A sigmoid of one number a sample is a probability: `bce`. Several numbers a
    sample of a matmul are logits: `cross_entropy`. Anything else: `mse`.
    """
    end, shape = _end(output), typed(output).shape
    if end == "sigmoid" and product(shape[1:]) == 1:
        return "bce"
    classes = shape[-1] if len(shape) > 1 else 1
    if end in _MATMULS and classes != 1:
        return "cross_entropy"
    return "mse"


def _end(output: Value) -> str:
    """Return the op that *output* comes from, behind views and a bias."""
    node = _unviewed(output)
    if node is not None and node.op == "add":
        before = [p for p in map(_unviewed, node.operands) if p is not None]
        if len(before) == 1 and before[0].op in _MATMULS:
            return before[0].op
    return "" if node is None else node.op


def _unviewed(value: Value) -> Node | None:
    node = value.producer
    while node is not None and _has_same_numbers(node):
        node = node.operands[0].producer
    return node


def _has_same_numbers(node: Node) -> bool:
    if node_kinds.is_collective(node):
        return bool(node.operands)
    return node_kinds.has_trait(node, Trait.KEEPS_ORDER) or node_kinds.has_trait(
        node, Trait.CONVERTS
    )


def write_loss(
    tape: Tape, output: Value, kind: str, *, wide: bool, late_labels: bool = False
) -> Value:
    """Append the loss of *output* against labels, a new input; return it.

    Args:
        tape: Where to.
        output: What the model returns.
        kind: One of `LOSSES`.
        wide: Whether it computes in fp32 whatever the output is, as under autocast.
        late_labels: Whether labels are copied to the device here, and the host waits.

    """
    tape.location = Location(name=LOSS, phase=LOSS)
    tape.stem = LOSS
    return LOSSES[kind](_Output(tape, output, wide, late_labels))


@attrs.frozen(eq=False)
class _Output:
    """What a loss is written of.

    Attributes:
        tape: Where it is written.
        value: The output.
        wide: Whether the loss computes in fp32.
        late_labels: Whether labels come from the host only now.

    """

    tape: Tape
    value: Value
    wide: bool
    late_labels: bool

    def read_by(self, op: str, value: Value) -> tuple[Value, dict[str, AttrValue]]:
        """Return the operand of *op* for *value*, and the attribute of its type."""
        if not self.wide:
            return value, {}
        if casts_first(op, typed(value).dtype):
            return self.tape.op("cast", value, dtype=_F32), {}
        return value, {"dtype": _F32}

    def labels(self, type_: TensorType) -> Value:
        """Declare labels, a new input; `labels.to(device)` waits for all before it."""
        graph = self.tape.graph
        name = graph.fresh_name("labels")
        if not self.late_labels:
            return graph.add_input(name, attrs.evolve(type_))
        host = graph.add_input(name, attrs.evolve(type_, space=MemorySpace.HOST))
        copied = graph.fresh_name(f"{name}.copy")
        return self.tape.node("copy", (host,), [copied], {}, (type_,)).results[0]


def _elementwise(kind: str) -> Callable[[_Output], Value]:
    """Compare with labels of the output's own type."""

    def write(output: _Output) -> Value:
        value, _ = output.read_by("loss", output.value)
        labels = output.labels(typed(value))
        return output.tape.op("loss", value, labels, kind=kind, reduction="mean")

    return write


def _cross_entropy(output: _Output) -> Value:
    """`log_softmax` of each row of classes, then `nll_loss` of its label.

    `cross_entropy` asks for the type of the output itself, which autocast respects.
    Scores that ranks have in parts stay so, and are not gathered.
    """
    tape, (*batch, classes) = output.tape, typed(output.value).shape
    labels = output.labels(TensorType(_I64, tuple(batch)))
    gather = autodiff.gathered_scores(output.value)
    if gather is not None:
        (part,), communicator = gather.operands, autodiff.communicator_of(gather)
        tape.graph.replace_uses(output.value, part)
        tape.graph.erase_dead(lambda node: node is not gather)
        return autodiff.write_split_cross_entropy(tape, part, labels, communicator)
    rows = product(batch)
    flat = tape.reshape(output.value, rows, classes)
    scores, _ = output.read_by("nll_loss", tape.op("log_softmax", flat, axis=-1))
    return tape.op("nll_loss", scores, tape.reshape(labels, rows), reduction="mean")


def _sum(output: _Output) -> Value:
    value, dtype = output.read_by("reduce", output.value)
    return output.tape.op("reduce", value, kind="sum", **dtype)


LOSSES: Mapping[str, Callable[[_Output], Value]] = {
    **{kind: _elementwise(kind) for kind in ("bce", "bce_with_logits", "mse")},
    "cross_entropy": _cross_entropy,
    "sum": _sum,
}
"""Losses by kind."""
