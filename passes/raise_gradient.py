"""Recognise gradients and losses in what torch.export makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import attrs

from perfc.ir import (
    AnyKey,
    AttrValue,
    Graph,
    Node,
    Program,
    Record,
    TensorType,
    Value,
)
from perfc.passes.base import PassContext, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.gradient_patterns import (
    FORMULAS,
    LINEAR,
    LOG_SOFTMAX_BACKWARD,
    NLL_BACKWARD,
    NORM_BACKWARD,
    NORM_BIAS,
    NORM_WEIGHT,
)
from perfc.passes.term import Call, Found, find_term, number_of


@attrs.frozen
class RaiseGradient(Transform):
    """Turn what a joint graph spells out into the ops that eager PyTorch calls.

    `torch.export` writes forward and backward together in ATen's core ops. Eager
    PyTorch has a kernel for most gradients and losses; the formulas that stand for
    them are found and replaced. Graphs without a backward are left alone.
    """

    name: ClassVar[str] = "raise-gradient"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Raise in every op graph that has a backward."""
        for rank in program.classes:
            graph = rank.ops
            if graph is None or not any(map(_is_backward, graph)):
                continue
            graph.rewrite(_Matcher(graph).step)
            graph.erase_dead(keep=lambda node: node.has_effect)


def _is_backward(node: Node) -> bool:
    return node.location.phase == "backward"


_BY_ROOT = {
    op: [formula for formula in FORMULAS if formula.term.op == op]
    for op in {formula.term.op for formula in FORMULAS}
}


_ROOTS = {*_BY_ROOT, LINEAR.op}


@attrs.frozen(eq=False)
class _Matcher:
    graph: Graph

    def step(self, node: Node) -> None:
        """Put the op that *node* ends the formula of in front of it."""
        if node.op not in _ROOTS or len(node.results) != 1:
            return
        raised = self._special(node) or self._formula(node)
        if node.op == "index_put" and not raised:
            self._write_in_place(node)

    def _special(self, node: Node) -> bool:
        return self._norm(node) or self._label_loss(node) or self._linear(node)

    def _linear(self, node: Node) -> bool:
        """A bias that is added to a view of the product, by the product's kernel."""
        found = _first(LINEAR, node.results[0])
        if found is None or found.values["b"] not in self.graph.parameters:
            return False
        product, view = found.first("matmul"), found.first("reshape")
        x, weight, bias = (found.values[name] for name in "xwb")
        if any(v.type is None or v.type.rank != r for v, r in ((weight, 2), (bias, 1))):
            return False
        name = self.graph.fresh_name(f"{product.results[0].name}.linear")
        made = self.graph.add(
            "linear",
            (x, weight, bias),
            [name],
            {"weight_is_kn": True},
            location=node.location,
        ).results[0]
        made.type = product.results[0].type
        operands = (made, *view.operands[1:])
        self._replace(node, "reshape", operands, dict(view.attributes), node.results)
        return True

    def _formula(self, node: Node) -> bool:
        result = node.results[0]
        for formula in _BY_ROOT.get(node.op, ()):
            found = next(find_term(formula.term, result), None)
            if found is not None:
                operands = [found.values[name] for name in formula.operands]
                attributes = formula.attributes(found, result)
                self._replace(node, formula.op, operands, attributes, (result,))
                return True
        return False

    def _label_loss(self, node: Node) -> bool:
        """The gradient of `nll_loss` has the scores' shape: its reader knows them."""
        result = node.results[0]
        found = _first(NLL_BACKWARD, result)
        if found is None:
            return False
        for use in self.graph.uses(result):
            known = Found({"g": result})
            softmax = next(
                find_term(LOG_SOFTMAX_BACKWARD, use.node.results[0], known), None
            )
            if softmax is not None:
                grad, labels = found.values["g"], found.values["t"]
                operands = (grad, softmax.values["y"], labels)
                attributes: dict[str, AttrValue] = {"reduction": "mean"}
                self._replace(
                    node, "nll_loss_backward", operands, attributes, (result,)
                )
                return True
        return False

    def _norm(self, node: Node) -> bool:
        """Gather the gradients of one layer norm: they are one call."""
        found = _first(NORM_BACKWARD, node.results[0])
        if found is None:
            return False
        x, weight = found.values["x"], found.values["w"]
        if x.type is None or weight.type is None:
            return False
        results = [node.results[0]]
        wants: tuple[AttrValue, ...] = ("x",)
        for name, value in self._of_scale(found, weight.type):
            results.append(value)
            wants = (*wants, name)
        attributes: dict[str, AttrValue] = {
            "axis": x.type.rank - weight.type.rank,
            "wants": wants,
        }
        operands = (found.values["g"], x, weight)
        self._replace(node, "layer_norm_backward", operands, attributes, results)
        return True

    def _of_scale(self, found: Found, type_: TensorType) -> Iterator[tuple[str, Value]]:
        """Yield the gradients of scale and bias that follow the one of the input."""
        grad = found.values["g"]
        made = [
            value
            for use in self.graph.uses(grad)
            for value in _and_read(self.graph, use.node)
            if value.type == type_
        ]
        for name, term in (("weight", NORM_WEIGHT), ("bias", NORM_BIAS)):
            for value in made:
                if next(find_term(term, value, Found(found.values)), None):
                    yield name, value
                    break

    def _write_in_place(self, node: Node) -> None:
        """Eager PyTorch puts into zeros that it has just made for that."""
        zeros = node.operands[0]
        if node.has_effect or number_of(zeros) is None:
            return
        if len(self.graph.uses(zeros)) == 1:
            node.attributes = node.attributes.updated(in_place=True)

    def _replace(
        self,
        node: Node,
        op: str,
        operands: Sequence[Value],
        attributes: dict[str, AttrValue],
        results: Sequence[Value],
    ) -> None:
        names = [self.graph.fresh_name(f"{value.name}.raised") for value in results]
        record = Record(attributes)
        made = self.graph.add(op, operands, names, record, location=node.location)
        for old, new in zip(results, made.results, strict=True):
            new.type = old.type
            self.graph.replace_uses(old, new)


def _first(term: Call, value: Value) -> Found | None:
    return next(find_term(term, value), None)


def _and_read(graph: Graph, node: Node) -> Iterator[Value]:
    """Yield the results of a node, and of those that read them."""
    for value in node.results:
        yield value
        for use in graph.uses(value):
            yield from use.node.results
