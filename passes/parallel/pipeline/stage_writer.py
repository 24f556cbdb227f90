"""Writes what one stage of a pipeline runs for all microbatches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from perfc.ir import AttrValue, Graph, Node, TensorType, Value, node_kinds
from perfc.ir.core import PARAM
from perfc.ir.location import ACCUMULATE_GRAD, Location
from perfc.passes import graphs
from perfc.passes.parallel.pipeline.microbatches import Step
from perfc.passes.parallel.pipeline.pipeline_stages import Stages, Transfer
from perfc.passes.parallel.pipeline.stage_gradients import Gradient, Update


@attrs.frozen(eq=False)
class Plan:
    """A pipeline, as all stages know it.

    Attributes:
        stages: Which stage has what, of one microbatch.
        places: How many groups of ranks there are, which stages are assigned to in
            turn.
        whole: Inputs of all microbatches together, and the axis that is divided.
        microbatches: How many there are.
        ranks: Ranks of a stage, which are neighbours.
        gradients: What is added up over microbatches.
        left_out: Nodes that no stage runs.
        transfers: What stages send.

    """

    stages: Stages
    places: int
    whole: Mapping[Value, tuple[TensorType, int]]
    microbatches: int
    ranks: int
    gradients: Sequence[Gradient]
    left_out: frozenset[Node]
    transfers: Sequence[Transfer]

    def communicator(self, first: int, last: int, name: str) -> dict[str, AttrValue]:
        """Return the attributes of a communicator of two stages or more."""
        group = f"{graphs.STAGES}.{name}"
        named: dict[str, AttrValue] = {"group": group, "stream": group}
        distance = abs(last % self.places - first % self.places) * self.ranks
        return named if distance == 1 else {**named, "stride": distance}


@attrs.define(eq=False)
class StageWriter:
    """The graph of one place's stages in the making."""

    plan: Plan
    place: int
    graph: Graph = attrs.field(init=False)
    _resident: dict[Value, Value] = attrs.field(
        factory=dict["Value", "Value"], init=False
    )
    """Parameters, states, constants, and sums of gradients."""
    _made: list[dict[Value, Value]] = attrs.field(init=False)
    """What each microbatch has."""
    _nodes: Mapping[tuple[int, bool], Sequence[Node]] = attrs.field(init=False)
    """Nodes of each stage, forward and backward."""
    _taken: dict[Node, Gradient] = attrs.field(
        factory=dict[Node, "Gradient"], init=False
    )
    """Gradients by the node by which their parameters take them over."""
    _untaken: dict[Node | None, list[Gradient]] = attrs.field(
        factory=dict["Node | None", "list[Gradient]"], init=False
    )
    """All others, by the node that makes this stage's part."""

    def __attrs_post_init__(self) -> None:
        """Begin a graph of the same name."""
        stages = self.plan.stages
        self.graph = Graph(stages.graph.name)
        self._made = [{} for _ in range(self.plan.microbatches)]
        self._nodes = {
            (stage, backward): [
                node
                for node in stages.nodes(stage, backward=backward)
                if node not in self.plan.left_out
            ]
            for stage in range(self.place, stages.count, self.plan.places)
            for backward in (False, True)
        }
        for gradient in self.plan.gradients:
            taken, part = gradient.taken, self._part(gradient)
            if taken is not None and taken not in self.plan.left_out:
                self._taken[taken] = gradient
            elif part is not None:
                self._untaken.setdefault(part.producer, []).append(gradient)

    def _part(self, gradient: Gradient) -> Value | None:
        """Return the part of a gradient that is made here."""
        here = (
            part
            for s, part in gradient.parts.items()
            if s % self.plan.places == self.place
        )
        return next(here, None)

    def write(self, steps: Iterable[Step], updates: Sequence[Update]) -> Graph:
        """Write steps in order, then what follows the last of them."""
        self._declare(updates)
        for step in steps:
            self._step(step)
        # All-reduce the gradients of parameters that other stages have, too.
        for gradient in self.plan.gradients:
            stages = gradient.stages
            if len(stages) == 1 or self._part(gradient) is None:
                continue
            name = "shared." + "-".join(map(str, stages))
            attributes = self.plan.communicator(stages[0], stages[1], name)
            self._resident[gradient.value] = self._one(
                "all_reduce",
                (self._resident[gradient.value],),
                (f"{gradient.value.name}.shared", graphs.typed(gradient.value)),
                {**attributes, "ranks": len(stages)},
                Location(phase=graphs.BACKWARD),
            )
        for update in updates:
            # Step the optimizer for the parameters of the stage.
            node = update.node
            made = self.graph.add(
                node.op,
                [self._lasting(value) for value in update.operands],
                [value.name for value in update.results],
                node.attributes,
                location=node.location,
            )
            for old, new in zip(update.results, made.results, strict=True):
                new.type = old.type
                self._resident[old] = new
        self._return()
        return self.graph

    def _declare(self, updates: Sequence[Update]) -> None:
        """Declare the inputs, parameters and states that the stage reads."""
        source, graph = self.plan.stages.graph, self.graph
        nodes = [node for phase in self._nodes.values() for node in phase]
        read = {value for node in nodes for value in node.operands}
        read.update(value for update in updates for value in update.operands)
        for value in source.parameters:
            if value in read:
                kind = source.untrained.get(value, PARAM)
                made = graph.add_parameter(value.name, graphs.typed(value), kind)
                self._resident[value] = made
        for value in source.states:
            if value in read:
                self._resident[value] = graph.add_state(value.name, graphs.typed(value))
        for value in source.inputs:
            if value in read:
                self._declare_input(value)

    def _declare_input(self, value: Value) -> None:
        """Declare an input, and cut it into microbatches."""
        if value not in self.plan.whole:
            made = self.graph.add_input(value.name, graphs.typed(value))
            self._resident[value] = made
            return
        type_, axis = self.plan.whole[value]
        whole = self.graph.add_input(value.name, type_)
        count = self.plan.microbatches
        sizes = (graphs.typed(value).shape[axis],) * count
        names = [self._name(value, number) for number in range(count)]
        node = self.graph.add("split", (whole,), names, {"axis": axis, "sizes": sizes})
        for number, result in enumerate(node.results):
            result.type = value.type
            self._made[number][value] = result

    def _step(self, step: Step) -> None:
        """Receive, compute and send one microbatch."""
        stage = step.chunk * self.plan.places + self.place
        moved = [t for t in self.plan.transfers if t.backward == step.backward]
        for transfer in moved:
            if transfer.target == stage:
                type_ = graphs.typed(transfer.value)
                shape: tuple[AttrValue, ...] = type_.shape
                self._made[step.microbatch][transfer.value] = self._one(
                    "recv",
                    (),
                    (self._name(transfer.value, step.microbatch), type_),
                    {**self._pair(transfer), "dtype": type_.dtype, "shape": shape},
                    _location(step),
                )
        for node in self._nodes[stage, step.backward]:
            # Compute a node for one microbatch; add up its gradients.
            taken = self._taken.get(node)
            if taken is None:
                self._copy(node, step.microbatch)
            else:
                self._accumulate(taken, step.microbatch)
            for gradient in self._untaken.get(node, ()):
                self._accumulate(gradient, step.microbatch)
        for transfer in moved:
            if transfer.source == stage:
                name = (
                    f"{self._stem(transfer.value, step.microbatch)}.to{transfer.target}"
                )
                self.graph.add(
                    "send",
                    (self._value(transfer.value, step.microbatch),),
                    (),
                    self._pair(transfer),
                    location=attrs.evolve(_location(step), name=name),
                )

    def _copy(self, node: Node, number: int) -> None:
        attributes = node.attributes
        if "group" in attributes:
            group = f"{attributes.text('group')}.stage{self.place}"
            attributes = attributes.updated(group=group)
        made = self.graph.add(
            node.op,
            [self._value(value, number) for value in node.operands],
            [self._name(value, number) for value in node.results],
            attributes,
            location=node.location,
        )
        for old, new in zip(node.results, made.results, strict=True):
            new.type = old.type
            self._made[number][old] = new

    def _accumulate(self, gradient: Gradient, number: int) -> None:
        """Keep the first gradient, and add the others to it in place."""
        made, taken = self._part(gradient), gradient.taken
        assert made is not None  # its node is computed here
        part = self._value(made, number)
        held = self._resident.get(gradient.value)
        location = Location(phase=graphs.BACKWARD) if taken is None else taken.location
        result = (self._name(gradient.value, number), graphs.typed(gradient.value))
        if held is not None:
            location = attrs.evolve(location, origin=ACCUMULATE_GRAD)
            part = self._one("add", (held, part), result, {"in_place": True}, location)
        elif taken is not None:
            part = self._one(taken.op, (part,), result, taken.attributes, location)
        self._resident[gradient.value] = part

    def _return(self) -> None:
        """Return gradients and losses; of an inference, all that it returns."""
        source = self.plan.stages.graph
        training = any(node.location.phase == graphs.BACKWARD for node in source)
        summed = {gradient.value for gradient in self.plan.gradients}
        for value in source.outputs:
            if value in summed:
                self.graph.outputs += filter(None, [self._resident.get(value)])
            elif not training or graphs.typed(value).rank == 0:
                made = (values.get(value) for values in self._made)
                self.graph.outputs += filter(None, made)

    def _pair(self, transfer: Transfer) -> dict[str, AttrValue]:
        first, last = sorted((transfer.source, transfer.target))
        way = "bwd" if transfer.backward else "fwd"
        return self.plan.communicator(first, last, f"{first}-{last}.{way}")

    def _one(
        self,
        op: str,
        operands: Sequence[Value],
        result: tuple[str, TensorType],
        attributes: Mapping[str, AttrValue],
        location: Location,
    ) -> Value:
        name, type_ = result
        node = self.graph.add(op, operands, [name], attributes, location=location)
        node.results[0].type = type_
        return node.results[0]

    def _value(self, value: Value, number: int) -> Value:
        found = self._made[number].get(value)
        return self._lasting(value) if found is None else found

    def _lasting(self, value: Value) -> Value:
        """Return the value that stands for one in all microbatches; write constants."""
        found = self._resident.get(value)
        if found is None:
            found = self._resident[value] = self._constant(value)
        return found

    def _constant(self, value: Value) -> Value:
        """Write a constant, or known integers as one."""
        node, type_ = value.producer, graphs.typed(value)
        assert node is not None  # arguments are declared
        attributes: Mapping[str, AttrValue] = node.attributes
        if not node_kinds.is_constant(node):
            shape: tuple[AttrValue, ...] = type_.shape
            elements: tuple[AttrValue, ...] = self.plan.stages.known[value]
            attributes = {"dtype": type_.dtype, "shape": shape, "elements": elements}
        result = (value.name, type_)
        return self._one("constant", (), result, attributes, node.location)

    def _name(self, value: Value, number: int) -> str:
        return self.graph.fresh_name(self._stem(value, number))

    def _stem(self, value: Value, number: int) -> str:
        alone = self.plan.microbatches == 1
        return value.name if alone else f"{value.name}.mb{number}"


def _location(step: Step) -> Location:
    return Location(phase=graphs.BACKWARD) if step.backward else Location()
