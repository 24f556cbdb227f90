"""The op graph: values, nodes and their owner.

Nodes and values have identity (`eq=False`) and are changed only through
`Graph`, which keeps use lists true. Everything that hangs off them (types,
attributes, locations) is an immutable value. The order of the nodes is the
program order; it is also a topological order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import attrs

from perfc.ir.dims import Dim
from perfc.ir.location import NOWHERE, Location
from perfc.ir.record import EMPTY, AttrValue, Record
from perfc.ir.support import VerifyError, brief
from perfc.ir.types import TensorType

MAX_NESTING = 40
"""Regions nested deeper than this are refused."""


@attrs.define(eq=False)
class Value:
    """An SSA value: an input, a parameter, a state, or one result of one node."""

    name: str
    type: TensorType | None
    producer: Node | None = attrs.field(default=None, repr=False)

    def __str__(self) -> str:
        return f"%{self.name}"


@attrs.frozen
class Use:
    """One operand slot."""

    node: Node
    index: int


@attrs.define(eq=False)
class Node:
    """One op applied to values. Create it with `Graph.add`."""

    __repr__ = brief

    op: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attributes: Record = EMPTY
    regions: tuple[Graph, ...] = attrs.field(default=(), repr=False)
    location: Location = NOWHERE

    def __str__(self) -> str:
        results = ", ".join(map(str, self.results))
        return f"{results} = {self.op}" if results else self.op

    @property
    def name(self) -> str:
        """What launches and reports call it: its first result, or itself."""
        return self.results[0].name if self.results else self.location.name or self.op

    @property
    def has_effect(self) -> bool:
        """Whether it does more than make results; others wait for a collective."""
        return not self.results or any(map(self.attributes.get, ("in_place", "group")))


@attrs.define(eq=False)
class _Nest:
    """What a graph and all its regions share."""

    readers: dict[Value, dict[Node, None]] = attrs.field(
        factory=dict["Value", "dict[Node, None]"]
    )
    regions: dict[Graph, None] = attrs.field(factory=dict["Graph", None])
    version: int = 0


PARAM, BUFFER, CONST = "param", "buffer", "const"
"""Kinds of parameters, as printed."""


@attrs.define(eq=False)
class Graph:
    """A named list of nodes in program order, with inputs, parameters and states.

    A region (the body of a loop or a branch) is a graph with a `parent`, whose
    values it may read. All graphs of one nest share one table of uses.
    `untrained` has the parameters that are no weights, and what they are.
    """

    __repr__ = brief

    name: str
    parent: Graph | None = attrs.field(default=None, repr=False)
    inputs: list[Value] = attrs.field(factory=list[Value], init=False)
    parameters: list[Value] = attrs.field(factory=list[Value], init=False)
    untrained: dict[Value, str] = attrs.field(
        factory=dict[Value, str], init=False, repr=False
    )
    states: list[Value] = attrs.field(factory=list[Value], init=False)
    outputs: list[Value] = attrs.field(factory=list[Value], init=False)
    _nodes: list[Node] = attrs.field(factory=list[Node], init=False)
    _by_name: dict[str, Value] = attrs.field(
        factory=dict[str, Value], init=False, repr=False
    )
    _numbers: dict[str, int] = attrs.field(
        factory=dict[str, int], init=False, repr=False
    )
    nest: _Nest = attrs.field(factory=_Nest, init=False, repr=False)
    depth: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        """Join the parent's table of uses."""
        if self.parent is None:
            return
        self.nest = self.parent.nest
        self.nest.regions[self] = None
        self.depth = self.parent.depth + 1
        if self.depth > MAX_NESTING:
            msg = f"regions nested more than {MAX_NESTING} deep in @{self.name}"
            raise VerifyError(msg)

    def __getstate__(self) -> dict[str, object]:
        """Return the state to pickle: nodes in order, lest it recurse deeply.

        The table of uses is the outermost graph's.
        """
        names = [f.name for f in attrs.fields(Graph) if f.name != "_nodes"]
        first = ["name", "parent", "inputs", "parameters", "states", "_nodes"]
        state = {name: getattr(self, name) for name in dict.fromkeys(first + names)}
        if self.parent is not None:
            del state["nest"]
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        """Take what was pickled; give the table of uses to the regions."""
        for name, value in state.items():
            setattr(self, name, value)
        if self.parent is None:
            for region in self.nest.regions:
                region.nest = self.nest

    def __iter__(self) -> Iterator[Node]:
        return iter(tuple(self._nodes))

    def __len__(self) -> int:
        return len(self._nodes)

    def __str__(self) -> str:
        return f"@{self.name}"

    def values(self) -> Iterator[Value]:
        """Every value defined here: inputs, parameters, states, results."""
        results = chain.from_iterable([node.results for node in self._nodes])
        return chain(self.arguments(), results)

    def arguments(self) -> Iterator[Value]:
        """Every value that is there before the first node runs."""
        yield from self.inputs
        yield from self.parameters
        yield from self.states

    def value(self, name: str) -> Value:
        """Return the visible value called *name*, without its `%`."""
        found = self.find(name)
        if found is None:
            msg = f"no value %{name} in graph @{self.name}"
            raise VerifyError(msg)
        return found

    def find(self, name: str) -> Value | None:
        """Return the value called *name* here or in an enclosing graph."""
        found = self._by_name.get(name)
        if found is None and self.parent is not None:
            return self.parent.find(name)
        return found

    def uses(self, value: Value) -> tuple[Use, ...]:
        """Every operand slot that reads *value*, regions included."""
        return tuple(
            Use(node, index)
            for node in self.nest.readers.get(value, ())
            for index, operand in enumerate(node.operands)
            if operand is value
        )

    def readers(self, value: Value) -> Collection[Node]:
        """Every node that reads *value*, once each, regions included."""
        return self.nest.readers.get(value, {}).keys()

    @property
    def version(self) -> int:
        """Grows with every change of nodes or operands, regions included."""
        return self.nest.version

    def fresh_name(self, stem: str) -> str:
        """Return *stem*, or *stem* with a number that makes it new."""
        name, number = stem, self._numbers.get(stem, 0)
        while self.find(name) is not None:
            number += 1
            name = f"{stem}_{number}"
        self._numbers[stem] = max(number - 1, 0)
        return name

    def add_input(self, name: str, type: TensorType | None) -> Value:
        """Declare one graph input (data, or a region's argument)."""
        value = self._define(Value(name, type))
        self.inputs.append(value)
        return value

    def add_parameter(self, name: str, type: TensorType, kind: str = PARAM) -> Value:
        """Declare one parameter: a weight that stays on the device.

        Args:
            name: Its name.
            type: Its type.
            kind: `param`, or what the source says it is instead, which training leaves
                as it is: a `buffer` of a module, or a tensor `const`.

        """
        value = self._define(Value(name, type))
        self.parameters.append(value)
        if kind != PARAM:
            self.untrained[value] = kind
        return value

    def add_state(self, name: str, type: TensorType) -> Value:
        """Declare one state of an optimizer: it stays on the device, as weights do."""
        value = self._define(Value(name, type))
        self.states.append(value)
        return value

    def add(  # noqa: PLR0913 - a node has this many parts
        self,
        op: str,
        operands: Iterable[Value],
        results: Sequence[str],
        attributes: Record | Mapping[str, AttrValue] = EMPTY,
        *,
        regions: tuple[Graph, ...] = (),
        location: Location = NOWHERE,
    ) -> Node:
        """Append a node and register it as a user of its operands."""
        record = attributes if isinstance(attributes, Record) else Record(attributes)
        node = Node(op, tuple(operands), (), record, regions, location)
        self._nodes.append(self._create(node, results))
        return node

    def replace(self, replacements: Mapping[Node, Replacement]) -> None:
        """Put one new node in place of each key, in one linear pass.

        The new node takes over the uses, the type and the name of the old node's
        `result`, by other replacements too; the old node goes, and so must, sooner
        or later, whoever still reads its other results.
        """
        order: list[Node] = []
        moved: dict[Value, Value] = {}
        stale: dict[Node, None] = {}  # they still name what has moved
        returned = self._returned()
        for node in self._nodes:
            new = replacements.get(node)
            if new is None:
                order.append(node)
                continue
            name = self.fresh_name(f"{new.result.name}.raised")
            operands = tuple([moved.get(value, value) for value in new.operands])
            made = self._create(
                Node(new.op, operands, (), new.attributes, (), new.location), [name]
            )
            made.results[0].type = new.result.type
            order.append(made)
            stale |= self._hand_over(new.result, made.results[0])
            moved[new.result] = made.results[0]
            returned.pop(new.result, None)
            if self._is_read(node, returned):
                order.append(node)
            else:
                _rename_operands(stale if node.regions else (node,), moved)
                self._forget(node)
                self._rename(made.results[0], new.result.name)
        _rename_operands(stale, moved)
        self._nodes = order
        self._move_outputs(moved)

    def rewrite(self, step: Callable[[Node], None]) -> None:
        """Call *step* with each node; what it adds goes before that node."""
        waiting, self._nodes = self._nodes, []
        try:
            for node in waiting:
                step(node)
                self._nodes.append(node)
        finally:
            done = frozenset(self._nodes)
            self._nodes += [node for node in waiting if node not in done]

    def insert(
        self,
        before: Node,
        op: str,
        operands: Iterable[Value],
        result: tuple[str, TensorType],
        attributes: Mapping[str, AttrValue],
    ) -> Value:
        """Put a typed node of one result ahead of *before*; return the result.

        Its location is that of *before*.
        """
        node = Node(op, tuple(operands), (), Record(attributes), (), before.location)
        name, type_ = result
        self._nodes.insert(
            self._nodes.index(before), self._create(node, [self.fresh_name(name)])
        )
        node.results[0].type = type_
        return node.results[0]

    def replace_uses(self, old: Value, new: Value) -> None:
        """Make every reader of *old*, and every graph that returns it, use *new*."""
        _rename_operands(self._hand_over(old, new), {old: new})
        self._move_outputs({old: new})

    def set_operand(self, node: Node, index: int, value: Value) -> None:
        """Make operand *index* of *node* read *value*."""
        self._add_reader(node, value)
        old = node.operands[index]
        node.operands = (*node.operands[:index], value, *node.operands[index + 1 :])
        if old not in node.operands:
            del self.nest.readers[old][node]

    def add_result(self, node: Node, name: str, type: TensorType) -> Value:
        """Give *node* one more result, behind those that it has."""
        value = self._define(Value(name, type, node))
        node.results = (*node.results, value)
        self.nest.version += 1
        return value

    def set_attributes(self, node: Node, **changes: AttrValue) -> None:
        """Give attributes of *node* other values; None takes one away."""
        changed = node.attributes.updated(**changes)
        kept = {name: value for name, value in changed.items() if value is not None}
        node.attributes = Record(kept)
        self.nest.version += 1

    def make_constant(self, node: Node, elements: tuple[Dim, ...]) -> None:
        """Turn a typed node of one result into the `constant` of known elements."""
        type_ = node.results[0].type
        if type_ is None:
            msg = f"{node}: its result has no type"
            raise VerifyError(msg)
        for operand in set(node.operands):
            del self.nest.readers[operand][node]
        self.nest.version += 1
        node.op, node.operands = "constant", ()
        shape: tuple[AttrValue, ...] = type_.shape
        node.attributes = Record(
            {"dtype": type_.dtype, "shape": shape, "elements": elements}
        )

    def make_unknown(self, node: Node) -> None:
        """Turn a node into an `unknown` op of its name: its own meaning fails it."""
        self.nest.version += 1
        node.op, node.attributes = "unknown", Record({"op": node.op})

    def erase_unused_parameters(self) -> None:
        """Remove parameters that nobody reads or returns."""
        unused = self._forget_unused(self.parameters)
        self.parameters = [value for value in self.parameters if value not in unused]

    def erase_unused_inputs(self, inputs: Iterable[Value]) -> None:
        """Remove those of *inputs* that nobody reads or returns."""
        unused = self._forget_unused(inputs)
        self.inputs = [value for value in self.inputs if value not in unused]

    def _forget_unused(self, values: Iterable[Value]) -> set[Value]:
        returned, readers = self._returned(), self.nest.readers
        unused = {v for v in values if not readers[v] and not returned[v]}
        for value in unused:
            del readers[value], self._by_name[value.name]
        return unused

    def erase_dead(self, keep: Callable[[Node], bool]) -> int:
        """Remove, from the end, nodes nobody reads unless *keep* says so.

        Nodes inside the regions of others stay. Return how many are removed.
        """
        returned = self._returned()
        alive: list[Node] = []
        for node in reversed(self._nodes):
            if self._is_read(node, returned) or keep(node):
                alive.append(node)
            else:
                self._forget(node)
                for region in _regions_within(node):
                    returned.subtract(region.outputs)
        removed = len(self._nodes) - len(alive)
        self._nodes = alive[::-1]
        return removed

    def _hand_over(self, old: Value, new: Value) -> Mapping[Node, None]:
        """Put the readers of *old* on the list of *new*; they still have *old*."""
        handed = self.nest.readers.get(old)
        if not handed or old is new:
            return {}
        for node in handed:
            self._add_reader(node, new)
        self.nest.readers[old] = {}
        return handed

    def _move_outputs(self, moved: Mapping[Value, Value]) -> None:
        for graph in (self, *self.nest.regions):
            if not moved.keys().isdisjoint(graph.outputs):
                graph.outputs = [moved.get(value, value) for value in graph.outputs]

    def _returned(self) -> Counter[Value]:
        """How often this graph and the regions of the nest return each value."""
        graphs = (self, *self.nest.regions)
        return Counter(value for graph in graphs for value in graph.outputs)

    def _is_read(self, node: Node, returned: Counter[Value]) -> bool:
        return any(self.nest.readers[v] or returned[v] for v in node.results)

    def _create(self, node: Node, results: Sequence[str]) -> Node:
        """Give *node* its results, and enter it in the tables."""
        self.nest.version += 1
        for operand in node.operands:
            self._add_reader(node, operand)
        node.results = tuple([Value(name, None, node) for name in results])
        for value in node.results:
            self._define(value)
        return node

    def _define(self, value: Value) -> Value:
        if self.find(value.name) is not None:
            msg = f"value %{value.name} is defined twice in graph @{self.name}"
            raise VerifyError(msg)
        self._by_name[value.name] = value
        self.nest.readers[value] = {}
        return value

    def _rename(self, value: Value, name: str) -> None:
        """Call *value* by a name that has become free."""
        del self._by_name[value.name]
        value.name = name
        self._by_name[name] = value

    def _add_reader(self, node: Node, value: Value) -> None:
        self.nest.version += 1
        readers = self.nest.readers.get(value)
        if readers is None:
            msg = f"operand {value} of {node.op} does not belong to graph @{self.name}"
            raise VerifyError(msg)
        readers[node] = None

    def _forget(self, node: Node) -> None:
        """Take *node*, and all within its regions, out of the tables."""
        self.nest.version += 1
        for operand in set(node.operands):
            del self.nest.readers[operand][node]
        for region in node.regions:
            for inner in reversed(tuple(region)):
                self._forget(inner)
            for value in region.arguments():
                del self.nest.readers[value]
            del self.nest.regions[region]
        for value in node.results:
            del self.nest.readers[value]
            if self._by_name.get(value.name) is value:
                del self._by_name[value.name]


def _rename_operands(nodes: Iterable[Node], moved: Mapping[Value, Value]) -> None:
    """Let *nodes* read what their operands have become, each in one go."""
    for node in nodes:
        node.operands = tuple([moved.get(value, value) for value in node.operands])


def _regions_within(node: Node) -> Iterator[Graph]:
    for region in node.regions:
        yield region
        for inner in region:
            yield from _regions_within(inner)


@attrs.frozen(eq=False)
class Replacement:
    """One new node that computes *result* of an old one; see `Graph.replace`."""

    op: str
    operands: tuple[Value, ...]
    attributes: Record
    result: Value
    location: Location
