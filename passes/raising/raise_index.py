"""Recognise `x[:, i, j]` in what exporters make of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs
import numpy as np

from perfc.ir import DTYPES, AnyKey, AttrValue, Graph, Node, Program, TensorType, Value
from perfc.ir.dims import Dim
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.raising.pattern import Raised, Trail, raise_patterns


@attrs.frozen
class RaiseIndex(Transform):
    """Turn a gather of elements on inner axes into one `index`.

    ONNX gathers from the front, so exporters move the indexed axes there and the
    result's axis back. One exporter keeps index tuples (`GatherND`), the other
    flattens the axes and gathers by one number. In the interaction of DLRM it
    picks the lower triangle; PyTorch runs one kernel and moves no axes.
    """

    name: ClassVar[str] = "raise-index"
    phase: ClassVar[Phase] = Phase.SOURCE
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Raise in every op graph."""
        for rank in program.classes:
            if rank.ops is not None:
                matcher = _Matcher(rank.ops, ctx.get(ELEMENTS, rank.ops))
                raise_patterns(rank.ops, ("transpose",), matcher.match)


@attrs.frozen(eq=False)
class _Picked:
    """What is gathered from the front: axes of x there, and index tuples."""

    x: Value
    perm: tuple[int, ...]
    tuples: Value | tuple[int, ...]
    depth: int


@attrs.frozen(eq=False)
class _Matcher:
    graph: Graph
    elements: Mapping[Value, tuple[Dim, ...]]

    def match(self, root: Node) -> Raised | None:
        trail = Trail(self.elements)
        back = trail.step(root.results[0], "transpose")
        picked = None if back is None else self._picked(trail, root.operands[0])
        if picked is None:
            return None
        axis = _axis(picked, root.attributes.integers("perm"))
        if axis is None:
            return None
        tuples = picked.tuples
        if not isinstance(tuples, Value):
            tuples = self._constant(root, tuples, picked.depth)
        attributes: dict[str, AttrValue] = {"axis": axis}
        return Raised("index", (picked.x, tuples), attributes, tuple(trail.inside))

    def _picked(self, trail: Trail, value: Value) -> _Picked | None:
        value = _without_reshape(trail, value)
        node = trail.step(value, "gather_nd", "gather")
        if node is None:
            return None
        if node.op == "gather_nd":
            front = trail.step(node.operands[0], "transpose")
            indices = node.operands[1]
            depth = None if indices.type is None else indices.type.shape[-1]
            plain = indices.type is not None and indices.type.rank == 2
            if front is None or not plain or node.attributes.integer("batch_dims", 0):
                return None
            if not isinstance(depth, int):
                return None
            perm = front.attributes.integers("perm")
            return _Picked(front.operands[0], perm, indices, depth)
        return self._by_numbers(trail, node)

    def _by_numbers(self, trail: Trail, node: Node) -> _Picked | None:
        flat = trail.step(node.operands[0], "flatten")
        front = None if flat is None else trail.step(flat.operands[0], "transpose")
        known = self.elements.get(node.operands[1])
        if flat is None or front is None or known is None:
            return None
        depth, type_ = flat.attributes.integer("axis"), front.results[0].type
        if type_ is None or not 1 < depth == type_.rank - 1:
            return None
        if node.attributes.integer("axis") != 0 or node.operands[1].type is None:
            return None
        sizes = [n for n in type_.shape[:depth] if isinstance(n, int)]
        numbers = [n for n in known if isinstance(n, int)]
        if len(sizes) < depth or len(numbers) < len(known):
            return None
        if node.operands[1].type.rank != 1 or not all(
            0 <= n < int(np.prod(sizes)) for n in numbers
        ):
            return None
        tuples = np.stack(np.unravel_index(numbers, sizes), axis=-1)
        perm = front.attributes.integers("perm")
        return _Picked(front.operands[0], perm, tuple(tuples.ravel().tolist()), depth)

    def _constant(self, root: Node, tuples: tuple[int, ...], depth: int) -> Value:
        shape = (len(tuples) // depth, depth)
        attributes: dict[str, AttrValue] = {
            "dtype": DTYPES["i64"],
            "shape": shape,
            "elements": tuples,
        }
        made = (f"{root.results[0].name}.indices", TensorType(DTYPES["i64"], shape))
        return self.graph.insert(root, "constant", (), made, attributes)


def _without_reshape(trail: Trail, value: Value) -> Value:
    """Go through a reshape to the shape at hand."""
    node = value.producer
    if node is None or node.op != "reshape" or value.type != node.operands[0].type:
        return value
    trail.step(value, "reshape")
    return node.operands[0]


def _axis(picked: _Picked, back: tuple[int, ...]) -> int | None:
    """The axis where the indices begin, if all others stay where they are."""
    perm, depth = picked.perm, picked.depth
    axis = perm[0]
    rest = [a for a in range(len(perm)) if not axis <= a < axis + depth]
    if perm != (*range(axis, axis + depth), *rest):
        return None
    placed = [
        0 if place == axis else place + (place < axis) for place in range(len(rest) + 1)
    ]
    return axis if list(back) == placed else None
