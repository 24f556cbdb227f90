"""Writes the step of several microbatches, whose gradients are added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from perfc.ir import AttrValue, Graph, Node, TensorType, Value
from perfc.ir.core import PARAM
from perfc.ir.dims import Dim
from perfc.ir.location import ACCUMULATE_GRAD, NOWHERE, Location
from perfc.ir.types import MemorySpace
from perfc.passes import graphs
from perfc.passes.training.gradient_sums import Gradient, Sums

_DIVIDED = "DivBackward0"


@attrs.define(eq=False)
class MicrobatchWriter:
    """The graph of a step in the making.

    Attributes:
        sums: The step of one microbatch, and what of it is added up.
        count: How many microbatches there are.
        graph: The step of all.
        elements: Elements of its values that are known before running.

    """

    sums: Sums
    count: int
    graph: Graph = attrs.field(init=False)
    elements: dict[Value, tuple[Dim, ...]] = attrs.field(
        factory=dict["Value", "tuple[Dim, ...]"], init=False
    )
    _shared: dict[Value, Value] = attrs.field(
        factory=dict["Value", "Value"], init=False
    )
    """What all microbatches have: parameters, states, constants."""
    _made: dict[Value, Value] = attrs.field(factory=dict["Value", "Value"], init=False)
    """What the microbatch has that is being written."""
    _held: dict[Value, Value] = attrs.field(factory=dict["Value", "Value"], init=False)
    """Sums of the microbatches so far, by what the optimizer reads of them."""
    _returned: dict[Value, Value] = attrs.field(
        factory=dict["Value", "Value"], init=False
    )
    """What is returned in place of other values: a loss that was divided."""
    _divisor: Value | None = attrs.field(default=None, init=False)
    _number: int = attrs.field(default=0, init=False)
    _taken: Mapping[Node, Gradient] = attrs.field(init=False)
    """Gradients by the node that hands them to their parameters."""
    _parts: dict[Node, list[Gradient]] = attrs.field(
        factory=dict[Node, "list[Gradient]"], init=False
    )
    """All others, by the node that makes what is added."""
    _late: frozenset[Node] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Begin a graph of the same name."""
        self.graph = Graph(self.sums.graph.name)
        gradients = self.sums.gradients
        self._late = frozenset(node for g in gradients for node in g.late)
        self._taken = {
            g.taken: g for g in gradients if g.taken is not None and not g.late
        }
        for gradient in gradients:
            maker = gradient.part.producer
            if maker is not None and (gradient.taken is None or gradient.late):
                self._parts.setdefault(maker, []).append(gradient)

    def write(self) -> Graph:
        """Write all microbatches, then what the optimizer does."""
        source = self.sums.graph
        nodes, updates = list[Node](), list[Node]()
        for node in source:
            is_update = node.location.phase == graphs.OPTIMIZER
            (updates if is_update else nodes).append(node)
        self._declare(source)
        for number in range(self.count):
            self._number = number
            self._begin(source.inputs)
            for node in nodes:
                self._write(node)
            # Put the rows of sparse gradients behind those of the microbatches before.
            for value in self.sums.rows:
                joined = self._value(value)
                if self._number:
                    before = self._held[value]
                    first, *rest = graphs.typed(before).shape
                    count = first + graphs.typed(joined).shape[0]
                    type_ = attrs.evolve(graphs.typed(value), shape=(count, *rest))
                    result = (f"{value.name}{self._suffix}.joined", type_)
                    here = Location(phase=graphs.BACKWARD, origin=ACCUMULATE_GRAD)
                    both = (before, joined)
                    joined = self._one("concat", both, result, {"axis": 0}, here)
                    self._made[value] = joined
                self._held[value] = joined
            for gradient in self.sums.gradients:
                if not gradient.late:
                    self._held[gradient.value] = self._value(gradient.value)
        for node in updates:
            self._copy(node)
        returned = [self._returned.get(v) or self._value(v) for v in source.outputs]
        self.graph.outputs = returned
        return self.graph

    @property
    def _is_last(self) -> bool:
        return self._number == self.count - 1

    @property
    def _suffix(self) -> str:
        """What the names of a microbatch end with; those of the first are its own."""
        return f".mb{self._number}" if self._number else ""

    def _declare(self, source: Graph) -> None:
        graph, shared = self.graph, self._shared
        for value in source.inputs:
            shared[value] = graph.add_input(value.name, value.type)
        for value in source.parameters:
            kind = source.untrained.get(value, PARAM)
            shared[value] = graph.add_parameter(value.name, graphs.typed(value), kind)
        for value in source.states:
            shared[value] = graph.add_state(value.name, graphs.typed(value))
        for value in source.arguments():
            self._know(value, shared[value])

    def _begin(self, inputs: Iterable[Value]) -> None:
        """Forget the microbatch before, and copy the inputs of this one."""
        self._made = {}
        if not self._number:
            return
        for value in inputs:
            if graphs.typed(value).space is MemorySpace.DEVICE:
                result = (f"{value.name}{self._suffix}", graphs.typed(value))
                first = self._shared[value]
                self._made[value] = self._one("copy", (first,), result, {"input": True})

    def _write(self, node: Node) -> None:
        """Write a node for one microbatch; add up its gradients."""
        if node in self.sums.once:
            if not self._number:
                self._copy(node)
                self._shared.update({v: self._made[v] for v in node.results})
            return
        if node in self._late and not self._is_last:
            return
        taken = self._taken.get(node)
        parts = self._parts.get(node, ())
        if self._number and taken is not None:
            self._add_to_sum(taken, taken.part)
        elif self._number and any(g.narrow is not None for g in parts):
            pass  # what it casts is added as it is
        else:
            self._copy(node, self._suffix)
            self._divide(node)
        for gradient in parts:
            self._add_part(gradient)

    def _add_part(self, gradient: Gradient) -> None:
        """Add what a node has made to the sum; the last microbatch goes on with that.

        A sum that ranks add up late is kept as they are to read it.
        """
        if self._number:
            self._add_to_sum(gradient, gradient.narrow or gradient.part)
        if gradient.late:
            self._held[gradient.value] = self._made[gradient.part]

    def _add_to_sum(self, gradient: Gradient, added: Value) -> None:
        """Add to what the microbatches before have made, in place."""
        taken = None if gradient.late else gradient.taken
        result = gradient.part if taken is None else taken.results[0]
        maker = result.producer
        here = Location(phase=graphs.BACKWARD) if maker is None else maker.location
        name = f"{result.name}{self._suffix}" + ".sum" * (taken is None)
        self._made[result] = self._one(
            "add",
            (self._held[gradient.value], self._value(added)),
            (name, graphs.typed(result)),
            {"in_place": True},
            attrs.evolve(here, origin=ACCUMULATE_GRAD),
        )

    def _divide(self, node: Node) -> None:
        """Divide the loss by the number of microbatches, and so its gradient."""
        if self.sums.loss is None:
            return
        loss, seed = self.sums.loss
        if loss in node.results:
            here = attrs.evolve(node.location, name="")
            self._returned[loss] = self._divided(loss, here)
        elif seed in node.results:
            here = Location(phase=graphs.BACKWARD, origin=f"{_DIVIDED}(%{loss.name})")
            self._made[seed] = self._divided(seed, here)

    def _divided(self, value: Value, location: Location) -> Value:
        """Write a number over the number of microbatches."""
        type_ = graphs.typed(value)
        if self._divisor is None:
            count: dict[str, AttrValue] = {
                "dtype": type_.dtype,
                "shape": (),
                "value": float(self.count),
            }
            result = ("microbatches", TensorType(type_.dtype, ()))
            self._divisor = self._one("constant", (), result, count, NOWHERE)
        operands = (self._made[value], self._divisor)
        name = f"{value.name}{self._suffix}.div"
        return self._one("div", operands, (name, type_), {}, location)

    def _copy(self, node: Node, suffix: str = "") -> None:
        """Write a node as it is, of what the microbatch has."""
        location = node.location
        if suffix and not node.results:
            location = attrs.evolve(location, name=f"{node.name}{suffix}")
        fresh = self.graph.fresh_name
        made = self.graph.add(
            node.op,
            [self._value(value) for value in node.operands],
            [fresh(f"{value.name}{suffix}") for value in node.results],
            node.attributes,
            location=location,
        )
        for old, new in zip(node.results, made.results, strict=True):
            new.type = old.type
            self._made[old] = new
            self._know(old, new)

    def _one(
        self,
        op: str,
        operands: Sequence[Value],
        result: tuple[str, TensorType],
        attributes: Mapping[str, AttrValue],
        location: Location = NOWHERE,
    ) -> Value:
        name, type_ = result
        names = [self.graph.fresh_name(name)]
        node = self.graph.add(op, operands, names, attributes, location=location)
        node.results[0].type = type_
        return node.results[0]

    def _know(self, old: Value, new: Value) -> None:
        """Note the elements of a value, where they are known before running."""
        found = self.sums.known.get(old)
        if found is not None:
            self.elements[new] = found

    def _value(self, value: Value) -> Value:
        found = self._made.get(value)
        return self._shared[value] if found is None else found
