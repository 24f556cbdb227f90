"""Ops that the source spells out, taken apart again: backward goes call by call.

Passes that raise leave such calls alone in a training step; a built-in workload
names them in the attribute `spelled_out` of one op (see
`lowering/eager/spelled_out.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import attrs

from perfc.ir import AttrValue, Graph, Node, TensorType, Value
from perfc.ir.dims import product
from perfc.ir.ops.einsum import einsum_labels, einsum_pairs
from perfc.passes import graphs

_RATE, _CUBE = math.sqrt(2 / math.pi), 0.044715
_HEADS = 1
_BATCHED = 3
"""Axes of a matmul of many matrices: `bmm`."""
_MASK = 3
_PAIR = 2


def take_apart(tape: graphs.Tape) -> None:
    """Put the calls in place of every op that lists them, where they are known."""
    listing = {n for n in tape.graph if n.attributes.get("spelled_out")}
    _replace(tape, {node: _CALLS[node.op] for node in listing if node.op in _CALLS})


def drop_elements(tape: graphs.Tape) -> None:
    """Put `dropout` where a workload says that training zeroes elements."""
    said = {
        node
        for node in tape.graph
        if node.op == "identity" and node.attributes.get("dropout")
    }
    _replace(tape, dict.fromkeys(said, _dropped))


def _dropped(call: _Call) -> Value:
    return call.tape.ops("dropout", 2, *call.operands)[0]


def fold_batches(tape: graphs.Tape) -> None:
    """Put what PyTorch's `matmul` does in place of matmuls of several batch axes.

    It views its operands with one, or copies those that cannot be viewed so. These
    copies are what backward reads: nothing is copied twice.
    """
    _replace(tape, {node: _folded for node in tape.graph if _has_batches(node)})


def pair_einsums(tape: graphs.Tape) -> None:
    """Put sums of products of two in place of those of more operands.

    PyTorch multiplies pair after pair, from left to right, and keeps each result for
    backward. The gradient of all at once would join axes that are never joined.
    """
    several = {n for n in tape.graph if n.op == "einsum" and len(n.operands) > _PAIR}
    _replace(tape, dict.fromkeys(several, _paired))


def _replace(tape: graphs.Tape, rules: Mapping[Node, Rule]) -> None:
    """Write nodes in place of others; those that a rule gives nothing for stay."""
    graph = tape.graph
    made: dict[Value, Value] = {}

    def step(node: Node) -> None:
        if node not in rules:
            return
        tape.location, tape.stem = node.location, node.results[0].name
        operands = tuple(made.get(value, value) for value in node.operands)
        found = rules[node](_Call(tape, node, operands))
        if found is not None:
            made[node.results[0]] = found

    if rules:
        graph.rewrite(step)
        for old, new in made.items():
            graph.replace_uses(old, new)
        graph.erase_dead(keep=lambda node: node.has_effect)


def _has_batches(node: Node) -> bool:
    if node.op != "matmul" or graphs.typed(node.results[0]).rank <= _BATCHED:
        return False
    return all(graphs.typed(value).rank >= _BATCHED for value in node.operands)


@attrs.frozen(eq=False)
class _Call:
    """One op, its operands as they are now."""

    tape: graphs.Tape
    node: Node
    operands: tuple[Value, ...]

    def by(self, op: str, x: Value, number: float) -> Value:
        return self.tape.op(op, x, self.tape.number(x, number))

    def number(self, name: str, default: float) -> float:
        found = self.node.attributes.get(name)
        return found if isinstance(found, float) else default


Rule: TypeAlias = Callable[[_Call], Value | None]
"""Writes the calls of an op, and returns the result; None where they are not known."""


def _folded(call: _Call) -> Value:
    """Expand, reshape, multiply and reshape back, as `_matmul_impl` does."""
    tape, shape = call.tape, graphs.typed(call.node.results[0]).shape
    batch, flat = shape[:-2], product(shape[:-2])
    sides: list[Value] = []
    for value in call.operands:
        rows = graphs.typed(value).shape[-2:]
        wide = value
        if graphs.typed(value).shape[:-2] != batch:
            wide = tape.op("expand", value, tape.integers(*batch, *rows))
        sides.append(tape.reshape(wide, flat, *rows))
    return tape.reshape(tape.op("matmul", *sides), *shape)


def _paired(call: _Call) -> Value:
    """Write a matmul for each pair."""
    ranks = [graphs.typed(value).rank for value in call.operands]
    terms, out = einsum_labels(call.node.attributes.text("equation"), ranks)
    letters = graphs.letters_of(terms)

    def spelled(labels: Iterable[str]) -> str:
        return "".join(letters[label] for label in labels)

    made, *others = call.operands
    pairs = einsum_pairs(terms, out)
    for value, (left, right, kept) in zip(others, pairs, strict=True):
        equation = f"{spelled(left)},{spelled(right)}->{spelled(kept)}"
        made = call.tape.op("einsum", made, value, equation=equation)
    return made


def _gelu(call: _Call) -> Value | None:
    """`NewGELUActivation`: by tanh."""
    if call.node.attributes.get("approximate") != "tanh":
        return None
    (x,) = call.operands
    cube = call.by("mul", call.by("pow", x, 3.0), _CUBE)
    inner = call.by("mul", call.tape.op("add", x, cube), _RATE)
    gate = call.by("add", call.tape.op("tanh", inner), 1.0)
    return call.tape.op("mul", call.by("mul", x, 0.5), gate)


def _rms_norm(call: _Call) -> Value:
    """T5's norm; the reciprocal root is one call, written as a power here."""
    x, *weight = call.operands
    axis = call.node.attributes.integer("axis")
    axes = tuple(range(axis % graphs.typed(x).rank, graphs.typed(x).rank))
    square = call.by("pow", x, 2.0)
    mean = call.tape.op("reduce", square, kind="mean", axes=axes, keepdims=True)
    rate = call.by("pow", call.by("add", mean, call.number("epsilon", 1e-5)), -0.5)
    normed = call.tape.op("mul", x, rate)
    return call.tape.op("mul", *weight, normed) if weight else normed


def _attention(call: _Call) -> Value | None:
    """Two matmuls around a softmax; a causal mask is a tensor that is added."""
    q, k, v, *masks = call.operands
    if (
        graphs.typed(q).rank > _MASK
        and graphs.typed(q).shape[_HEADS] != graphs.typed(k).shape[_HEADS]
    ):
        return None
    tape, causal = call.tape, call.node.attributes.flag("causal")
    scores = tape.op("matmul", q, tape.turned(k))
    scale = call.number("scale", 0.0)
    size = graphs.typed(q).shape[-1]
    if not scale and isinstance(size, int):
        scale = size**-0.5
    if scale != 1.0:
        scores = call.by("mul", scores, scale)
    if causal:
        masks.append(_causal_mask(tape, scores))
    for mask in masks:
        if not graphs.typed(mask).dtype.is_float:
            return None
        scores = tape.op("add", scores, mask)
    weights = tape.op("softmax", scores, axis=-1)
    if call.number("dropout", 0.0):
        weights = tape.ops("dropout", 2, weights)[0]
    return tape.op("matmul", weights, v)


def _causal_mask(tape: graphs.Tape, scores: Value) -> Value:
    """Return the mask that hides the keys after each query: a buffer of the model."""
    type_ = TensorType(graphs.typed(scores).dtype, graphs.typed(scores).shape[-2:])
    name = tape.graph.fresh_name(f"{tape.stem}.causal")
    shape: tuple[AttrValue, ...] = type_.shape
    attributes: dict[str, AttrValue] = {"dtype": type_.dtype, "shape": shape}
    return tape.node("constant", (), [name], attributes).results[0]


_CALLS: Mapping[str, Rule] = {
    "gelu": _gelu,
    "rms_norm": _rms_norm,
    "attention": _attention,
}
"""What the calls are, by the op that lists them."""


def left_whole(graph: Graph) -> list[Node]:
    """Return the ops that list calls which are not known: they stay one."""
    return [node for node in graph if node.attributes.get("spelled_out")]
