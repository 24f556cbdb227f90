"""Find gradients and losses in a joint graph, and put ops in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from perfc import ir
from perfc.passes import graphs
from perfc.passes.raising import gradient_patterns
from perfc.passes.raising.gradient_norm_patterns import NORMS, NormGradient


def raise_gradients(graph: ir.Graph) -> None:
    """Raise all that is found in a graph with a backward."""
    graph.rewrite(_Matcher(graph).step)
    _show_masks(graph)
    graph.erase_dead(keep=lambda node: node.has_effect)


_BY_ROOT = {
    op: [formula for formula in gradient_patterns.FORMULAS if formula.term.op == op]
    for op in {formula.term.op for formula in gradient_patterns.FORMULAS}
}

_NORMS_BY_ROOT = {
    op: [norm for norm in NORMS if norm.term.op == op]
    for op in {norm.term.op for norm in NORMS}
}

_ROOTS = {*_BY_ROOT, *_NORMS_BY_ROOT, gradient_patterns.LINEAR.op}
_MASK = graphs.parse_term(gradient_patterns.SHOWN)
_MASK_OPERAND = 5
"""Operand of `attention_backward` that is its mask."""


@attrs.frozen(eq=False)
class _Matcher:
    graph: ir.Graph

    def step(self, node: ir.Node) -> None:
        """Put the op that *node* ends the formula of before it."""
        if node.op not in _ROOTS or len(node.results) != 1:
            return
        raised = (
            self._norm(node) or self._label_loss(node) or self._linear(node)
        ) or self._formula(node)
        if node.op == "index_put" and not raised:
            self._write_in_place(node)

    def _linear(self, node: ir.Node) -> bool:
        """A bias that is added to a view of the matmul, by the matmul's kernel."""
        found = _first(gradient_patterns.LINEAR, node.results[0])
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

    def _formula(self, node: ir.Node) -> bool:
        result = node.results[0]
        for formula in _BY_ROOT.get(node.op, ()):
            found = next(graphs.find_term(formula.term, result), None)
            if found is not None:
                operands = [found.values[name] for name in formula.operands]
                attributes = formula.attributes(found, result)
                self._replace(node, formula.op, operands, attributes, (result,))
                return True
        return False

    def _label_loss(self, node: ir.Node) -> bool:
        """The gradient of `nll_loss` has the scores' shape: its reader knows them."""
        result = node.results[0]
        found = _first(gradient_patterns.NLL_BACKWARD, result)
        if found is None:
            return False
        for use in self.graph.uses(result):
            known = graphs.Found({"g": result})
            softmax = next(
                graphs.find_term(
                    gradient_patterns.LOG_SOFTMAX_BACKWARD, use.node.results[0], known
                ),
                None,
            )
            if softmax is not None:
                grad, labels = found.values["g"], found.values["t"]
                operands = (grad, softmax.values["y"], labels)
                attributes: dict[str, ir.AttrValue] = {"reduction": "mean"}
                self._replace(
                    node, "nll_loss_backward", operands, attributes, (result,)
                )
                return True
        return False

    def _norm(self, node: ir.Node) -> bool:
        """Gather the gradients of one norm: they are one call."""
        result = node.results[0]
        for norm in _NORMS_BY_ROOT.get(node.op, ()):
            found = _first(norm.term, result)
            if found is not None and norm.applies(found):
                results = [node.results[0]]
                wants: tuple[ir.AttrValue, ...] = ("x",)
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
        self, norm: NormGradient, found: graphs.Found
    ) -> Iterator[tuple[str, ir.Value]]:
        """Yield the gradients of scale and bias that follow the one of the input."""
        if "w" not in found.values:
            return
        made = [value for node in found.nodes for value in node.results]
        made += _read_from(self.graph, found.values["g"])
        for name, term in norm.others.items():
            known = graphs.Found(found.values)
            for value in filter(self._is_gradient(found.values["w"]), made):
                if next(graphs.find_term(term, value, known), None):
                    yield name, value
                    break

    def _is_gradient(self, scale: ir.Value) -> Callable[[ir.Value], bool]:
        returned = frozenset(self.graph.outputs)
        return lambda value: (
            value.type == scale.type
            and (value in returned or bool(self.graph.readers(value)))
        )

    def _write_in_place(self, node: ir.Node) -> None:
        """Eager PyTorch puts into zeros that it has just made for that."""
        zeros = node.operands[0]
        if node.has_effect or graphs.number_of(zeros) is None:
            return
        if len(self.graph.uses(zeros)) == 1:
            node.attributes = node.attributes.updated(in_place=True)

    def _replace(
        self,
        node: ir.Node,
        op: str,
        operands: Sequence[ir.Value],
        attributes: dict[str, ir.AttrValue],
        results: Sequence[ir.Value],
    ) -> None:
        names = [self.graph.fresh_name(f"{value.name}.raised") for value in results]
        record = ir.Record(attributes)
        made = self.graph.add(op, operands, names, record, location=node.location)
        for old, new in zip(results, made.results, strict=True):
            new.type = old.type
            self.graph.replace_uses(old, new)


def _first(term: graphs.Call, value: ir.Value) -> graphs.Found | None:
    return next(graphs.find_term(term, value), None)


_STEPS_TO_SCALE = 8
"""Nodes between the gradient of a norm and that of its scale, at most."""


def _read_from(graph: ir.Graph, value: ir.Value) -> list[ir.Value]:
    """Return the values that are computed from *value*, near to it first."""
    found = {value: None}
    last = [value]
    for _ in range(_STEPS_TO_SCALE):
        nodes = [use.node for v in last for use in graph.uses(v)]
        last = [v for node in nodes for v in node.results if v not in found]
        found.update(dict.fromkeys(last))
    return list(found)


def _show_masks(graph: ir.Graph) -> None:
    """Give the gradient of attention the mask that its call was given."""
    for node in graph:
        if node.op == "attention_backward" and len(node.operands) > _MASK_OPERAND:
            found = _first(_MASK, node.operands[_MASK_OPERAND])
            if found is not None:
                graph.set_operand(node, _MASK_OPERAND, found.values["m"])
