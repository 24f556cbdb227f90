"""Find gradients and losses in a joint graph, and put ops in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from perfc.ir import (
    AttrValue,
    Graph,
    Node,
    Record,
    Value,
)
from perfc.passes.graphs import (
    Call,
    Found,
    find_term,
    number_of,
    parse_term,
)
from perfc.passes.raising.gradient_norm_patterns import NORMS, NormGradient
from perfc.passes.raising.gradient_patterns import (
    FORMULAS,
    LINEAR,
    LOG_SOFTMAX_BACKWARD,
    NLL_BACKWARD,
    SHOWN,
)


def raise_gradients(graph: Graph) -> None:
    """Raise all that is found in a graph with a backward."""
    graph.rewrite(_Matcher(graph).step)
    _show_masks(graph)
    graph.erase_dead(keep=lambda node: node.has_effect)


_BY_ROOT = {
    op: [formula for formula in FORMULAS if formula.term.op == op]
    for op in {formula.term.op for formula in FORMULAS}
}

_NORMS_BY_ROOT = {
    op: [norm for norm in NORMS if norm.term.op == op]
    for op in {norm.term.op for norm in NORMS}
}

_ROOTS = {*_BY_ROOT, *_NORMS_BY_ROOT, LINEAR.op}
_MASK = parse_term(SHOWN)
_MASK_OPERAND = 5
"""Operand of `attention_backward` that is its mask."""


@attrs.frozen(eq=False)
class _Matcher:
    graph: Graph

    def step(self, node: Node) -> None:
        """Put the op that *node* ends the formula of before it."""
        if node.op not in _ROOTS or len(node.results) != 1:
            return
        raised = (
            self._norm(node) or self._label_loss(node) or self._linear(node)
        ) or self._formula(node)
        if node.op == "index_put" and not raised:
            self._write_in_place(node)

    def _linear(self, node: Node) -> bool:
        """A bias that is added to a view of the matmul, by the matmul's kernel."""
        found = _first(LINEAR, node.results[0])
        if found is None or found.values["b"] not in self.graph.parameters:
            return False
        matmul, view = found.first("matmul"), found.first("reshape")
        x, weight, bias = (found.values[name] for name in "xwb")
        if any(v.type is None or v.type.rank != r for v, r in ((weight, 2), (bias, 1))):
            return False
        name = self.graph.fresh_name(f"{matmul.results[0].name}.linear")
        made = self.graph.add(
            "linear",
            (x, weight, bias),
            [name],
            {"weight_is_kn": True},
            location=node.location,
        ).results[0]
        made.type = matmul.results[0].type
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
        """Gather the gradients of one norm: they are one call."""
        result = node.results[0]
        for norm in _NORMS_BY_ROOT.get(node.op, ()):
            found = _first(norm.term, result)
            if found is not None and norm.applies(found):
                results = [node.results[0]]
                wants: tuple[AttrValue, ...] = ("x",)
                for name, value in self._of_scale(norm, found):
                    results.append(value)
                    wants = (*wants, name)
                operands = [
                    found.values[name] for name in "gxw" if name in found.values
                ]
                attributes = {**norm.attributes(found), "wants": wants}
                self._replace(node, norm.op, operands, attributes, results)
                return True
        return False

    def _of_scale(
        self, norm: NormGradient, found: Found
    ) -> Iterator[tuple[str, Value]]:
        """Yield the gradients of scale and bias that follow the one of the input."""
        if "w" not in found.values:
            return
        made = [value for node in found.nodes for value in node.results]
        made += _read_from(self.graph, found.values["g"])
        for name, term in norm.others.items():
            known = Found(found.values)
            for value in filter(self._is_gradient(found.values["w"]), made):
                if next(find_term(term, value, known), None):
                    yield name, value
                    break

    def _is_gradient(self, scale: Value) -> Callable[[Value], bool]:
        returned = frozenset(self.graph.outputs)
        return lambda value: (
            value.type == scale.type
            and (value in returned or bool(self.graph.readers(value)))
        )

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


_STEPS_TO_SCALE = 8
"""Nodes between the gradient of a norm and that of its scale, at most."""


def _read_from(graph: Graph, value: Value) -> list[Value]:
    """Return the values that are computed from *value*, near to it first."""
    found = {value: None}
    last = [value]
    for _ in range(_STEPS_TO_SCALE):
        nodes = [use.node for v in last for use in graph.uses(v)]
        last = [v for node in nodes for v in node.results if v not in found]
        found.update(dict.fromkeys(last))
    return list(found)


def _show_masks(graph: Graph) -> None:
    """Give the gradient of attention the mask that its call was given."""
    for node in graph:
        if node.op == "attention_backward" and len(node.operands) > _MASK_OPERAND:
            found = _first(_MASK, node.operands[_MASK_OPERAND])
            if found is not None:
                graph.set_operand(node, _MASK_OPERAND, found.values["m"])
