"""Put the nodes of regions in place of the node that has them, as often as they run."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import TypeAlias

import attrs

from perfc.ir import DTYPES, AttrValue, Graph, Node, TensorType, Value, Work, spend
from perfc.ir.dims import Dim
from perfc.ir.support import UnsupportedModelError, VerifyError
from perfc.passes.shapes import Inference

Item: TypeAlias = "Value | tuple[Item, ...] | None"
"""A tensor, a sequence, or the absence of an optional one."""

Env: TypeAlias = MutableMapping[Value, Item]
"""What the values of a region stand for, once it is being copied."""

_INDEX = DTYPES["i64"]


@attrs.frozen(eq=False)
class Site:
    """A node that is to be replaced, where it stands.

    Attributes:
        node: The node.
        operands: What its operands stand for.
        env: What the values around it stand for.

    """

    node: Node
    operands: tuple[Item, ...]
    env: Env

    def __str__(self) -> str:
        location = self.node.location
        name = f"{self.node.op} {location.name!r}" if location.name else str(self.node)
        return f"{name} in module {location.module!r}" if location.module else name

    def tensor(self, index: int) -> Value:
        """Return operand *index*."""
        item = self.operands[index] if index < len(self.operands) else None
        if not isinstance(item, Value):
            found = "nothing" if item is None else "a sequence"
            msg = f"{self}: operand {index} is {found}, expected a tensor"
            raise UnsupportedModelError(msg)
        return item


Rule: TypeAlias = "Callable[[Unroller, Site], Sequence[Item] | None]"
"""What the results of a node stand for; None to leave the node as it is."""


@attrs.define(eq=False)
class Unroller:
    """Rewrites one graph; types and known integers are found on the way.

    Attributes:
        graph: The graph.
        inference: Types of what is there so far.
        rules: What to do with ops, by name; others are copied.
        warn: Called with code, message and place.
        work: Flops plus bytes of the nodes added while `weighing`.
        weighing: Whether branches are being compared.
        reads: Nodes by which the host waits for a condition.
        dropped: Those of them that stand in a branch not taken.

    """

    graph: Graph
    inference: Inference
    rules: Mapping[str, Rule]
    warn: Callable[[str, str, str], None]
    work: int = attrs.field(default=0, init=False)
    weighing: bool = attrs.field(default=False, init=False)
    reads: list[Node] = attrs.field(factory=list[Node], init=False)
    dropped: set[Node] = attrs.field(factory=set[Node], init=False)
    _items: dict[Value, Item] = attrs.field(factory=dict[Value, "Item"], init=False)
    _declared: dict[Value, TensorType | None] = attrs.field(
        factory=dict[Value, "TensorType | None"], init=False
    )
    _count: int = attrs.field(default=0, init=False)

    def run(self) -> None:
        """Replace every node that has a rule; types are again as declared."""
        self.graph.rewrite(self._step)
        outputs = (self._items.get(value, value) for value in self.graph.outputs)
        self.graph.outputs = list(tensors(outputs))
        self.graph.erase_dead(
            keep=lambda node: node.has_effect and node not in self.dropped
        )
        for value, declared in self._declared.items():
            value.type = declared

    def _step(self, node: Node) -> None:
        """Leave a node of the graph, or note what its results stand for."""
        operands = tuple(self._items.get(value, value) for value in node.operands)
        found = self._apply(Site(node, operands, {}))
        if found is None:
            if operands == node.operands:
                self._infer(node)
                return
            found = self._copy(node, operands)
        for value, item in zip(node.results, found, strict=True):
            self._items[value] = item
            if isinstance(item, Value):
                self.graph.replace_uses(value, item)

    def _apply(self, site: Site) -> Sequence[Item] | None:
        rule = self.rules.get(site.node.op)
        return None if rule is None else rule(self, site)

    def copy_region(
        self, region: Graph, arguments: Sequence[Item], env: Env
    ) -> list[Item]:
        """Add the nodes of *region*, and return what its outputs stand for."""
        if len(arguments) != len(region.inputs):
            msg = (
                f"the graph of {region.name} has {len(region.inputs)} inputs, "
                f"expected {len(arguments)}"
            )
            raise UnsupportedModelError(msg)
        inner = ChainMap(dict(zip(region.inputs, arguments, strict=True)), env)
        for node in region:
            operands = tuple(self._stands_for(v, inner) for v in node.operands)
            found = self._apply(Site(node, operands, inner))
            if found is None:
                found = self._copy(node, operands)
            inner.update(zip(node.results, found, strict=True))
        return [self._stands_for(value, inner) for value in region.outputs]

    def _stands_for(self, value: Value, env: Env) -> Item:
        return env[value] if value in env else self._items.get(value, value)

    def _copy(self, node: Node, operands: Iterable[Item]) -> Sequence[Value]:
        """Copy a node; one that reads a sequence reads its tensors."""
        if node.regions:
            msg = f"{node}: cannot be copied with its graphs"
            raise UnsupportedModelError(msg)
        read = tuple(tensors(operands))
        problem = self.inference.ops[node.op].arity_problem(len(read))
        if problem is not None:
            msg = f"{node}: {problem}, of a sequence's tensors"
            raise VerifyError(msg)
        types = [value.type for value in node.results]
        stems = [value.name for value in node.results]
        made = self._add(node, node.op, read, node.attributes, stems, types)
        return made.results

    def add(
        self,
        site: Site,
        op: str,
        operands: Iterable[Value],
        attributes: Mapping[str, AttrValue],
        results: int = 1,
    ) -> Sequence[Value]:
        """Add a node that helps to replace that of *site*."""
        stem = site.node.results[0].name if site.node.results else site.node.op
        names = (
            [f"{stem}.{op}"]
            if results == 1
            else [f"{stem}.{op}_{index}" for index in range(results)]
        )
        types = [None] * results
        return self._add(site.node, op, operands, attributes, names, types).results

    def _add(  # noqa: PLR0913, PLR0917 - a node has this many parts
        self,
        source: Node,
        op: str,
        operands: Iterable[Value],
        attributes: Mapping[str, AttrValue],
        stems: Sequence[str],
        types: Sequence[TensorType | None],
    ) -> Node:
        self.count(source)
        names: list[str] = []
        for stem in stems:
            name = self.graph.fresh_name(stem)
            while name in names:
                name += "_"
            names.append(name)
        location = source.location
        node = self.graph.add(op, operands, names, attributes, location=location)
        for value, type_ in zip(node.results, types, strict=True):
            value.type = type_
        self._infer(node)
        return node

    def count(self, source: Node) -> None:
        """Count a node, or a turn of a loop."""
        self._count += 1
        spend("loop-nodes", self._count, str(source))

    def _infer(self, node: Node) -> None:
        for value in node.results:
            self._declared[value] = value.type
        self.inference.infer(node)
        if self.weighing:
            self.work += self._work(node)

    def _work(self, node: Node) -> int:
        """Return flops plus bytes of a typed node; symbols count nothing."""
        types = [[v.type for v in side] for side in (node.operands, node.results)]
        operands, results = ([t for t in side if t is not None] for side in types)
        work: Work = self.inference.ops[node.op].work(
            node.attributes, operands, results
        )
        parts = (work.flops, work.bytes_read, work.bytes_written)
        return sum(map(_number, parts))

    def constant(
        self, site: Site, elements: tuple[Dim, ...], shape: tuple[int, ...], dtype: str
    ) -> Value:
        """Add a constant."""
        attributes: dict[str, AttrValue] = {
            "dtype": DTYPES[dtype],
            "shape": shape,
            "elements": elements,
        }
        return self.add(site, "constant", (), attributes)[0]

    def known(self, value: Value) -> tuple[int, ...] | None:
        """Return the elements of *value* if they are numbers, else None."""
        elements = self.inference.elements.get(value, ())
        numbers = tuple(e for e in elements if isinstance(e, int))
        return numbers if numbers and len(numbers) == len(elements) else None

    def read_on_host(self, site: Site, value: Value) -> None:
        """Add what the host does to know a scalar: wait for it."""
        self.reads.append(self._add(site.node, "item", (value,), {}, (), ()))


def tensors(items: Iterable[Item]) -> Iterable[Value]:
    """Return the tensors, those of sequences included, in order."""
    for item in items:
        if isinstance(item, Value):
            yield item
        elif item is not None:
            yield from tensors(item)


def _number(part: Dim) -> int:
    return part if isinstance(part, int) else 0
