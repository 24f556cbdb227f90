"""The type of every value of a graph, node by node, and known integers."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir import DTYPES, Graph, Node, PerfcError, TensorType, Value, node_kinds
from perfc.ir.dims import Dim, Expr, symbol
from perfc.ir.opdef import Abstract, OpDef, OpRegistry, Ratio, Trait
from perfc.ir.ops.rules import UNKNOWN_DIM
from perfc.ir.support import VerifyError

_Signature = tuple[object, ...]
_SCALAR = TensorType(DTYPES["f32"], ())
_MAX_STEPS = 10


_INFERRED: dict[_Signature, Sequence[Abstract | None]] = {}
"""What type rules said, in any graph: layers repeat, and an edited graph is mostly as
it was. A rule that refuses its operands is asked again."""

_TYPES: dict[TensorType, TensorType] = {}
"""Equal types as one object, which a lookup finds equal at once: lookups are many."""

_MOST = 8192


def _one(type_: TensorType) -> TensorType:
    """Return the object that all equal types are, which is checked."""
    found = _TYPES.get(type_)
    if found is None:
        if len(_TYPES) >= _MOST:
            _TYPES.clear()
        found = _TYPES[type_] = type_.checked()
    return found


@attrs.define(eq=False)
class Inference:
    """One run over one graph.

    Attributes:
        graph: The graph.
        ops: Definitions of its ops.
        assumed: Per op without a rule, the values whose types nothing says.
        guessed: Values whose types rest on such an assumption.
        hints: Whether an inferred shape beats the one that the source declares.
        overruled: What was declared of values whose shapes are inferred otherwise.
        misfits: Why nodes do not take the guessed types of their operands; they
            are `unknown` now.
        elements: Elements of the integer tensors that do not depend on data.

    """

    graph: Graph
    ops: OpRegistry
    hints: bool = False
    overruled: dict[Value, TensorType] = attrs.field(
        factory=dict[Value, TensorType], init=False
    )
    misfits: dict[Node, str] = attrs.field(factory=dict[Node, str], init=False)
    assumed: dict[str, list[Value]] = attrs.field(
        factory=dict[str, "list[Value]"], init=False
    )
    guessed: set[Value] = attrs.field(factory=set["Value"], init=False)
    symbols: frozenset[str] = attrs.field(factory=frozenset[str], init=False)
    elements: dict[Value, tuple[Dim, ...]] = attrs.field(
        factory=dict["Value", "tuple[Dim, ...]"], init=False
    )
    _ratios: dict[Value, Ratio] = attrs.field(
        factory=dict["Value", "Ratio"], init=False
    )

    def __attrs_post_init__(self) -> None:
        """Check the inputs: everything follows from them."""
        for value in self.graph.arguments():
            if value.type is None:
                msg = f"input {value} has no type"
                raise VerifyError(msg)
            self._check_input(value, value.type)

    def infer(self, node: Node) -> None:
        """Type the results of *node*, whose operands are typed."""
        try:
            self._infer(node)
        except KeyError as missing:
            msg = f"{node}: attribute {missing} is missing"
            raise VerifyError(msg) from None
        except PerfcError as error:
            msg = f"{node}: {error}"
            raise type(error)(msg) from None

    def _check_input(self, value: Value, type_: TensorType) -> None:
        self.symbols |= type_.symbols()
        try:
            value.type = _one(type_)
        except VerifyError as error:
            msg = f"{value}: {error}"
            raise VerifyError(msg) from None

    def _infer(self, node: Node) -> None:
        opdef = self.ops[node.op]
        operands = [self._abstract(value) for value in node.operands]
        if not self.guessed.isdisjoint(node.operands):
            self._guess(opdef, node, operands)
            return
        inferred = self._rule(opdef, node, operands)
        for index, value in enumerate(node.results):
            result = inferred[index] if index < len(inferred) else None
            if result is not None:
                value.type = self._merged(value, result.type)
                if result.elements is not None:
                    self.elements[value] = result.elements
                if result.ratio is not None:
                    self._ratios[value] = result.ratio
            elif value.type is None:
                value.type = self._assumed(node, value)
                self.guessed.add(value)

    def _guess(self, opdef: OpDef, node: Node, operands: Sequence[Abstract]) -> None:
        """Infer from assumed types: what the source declares is better.

        Where they do not fit the op, its rule says nothing, and it is unknown.
        """
        inferred: Sequence[Abstract | None] = ()
        try:
            inferred = self._rule(opdef, node, operands)
        except VerifyError as error:
            self.misfits[node] = f"{node}: {error}"
            self.graph.make_unknown(node)
        for index, value in enumerate(node.results):
            result = inferred[index] if index < len(inferred) else None
            if value.type is None or self._says_less(value.type, result):
                guess = self._assumed(node, value) if result is None else result.type
                value.type = attrs.evolve(guess, shape=_named(value, guess.shape))
                self.guessed.add(value)
            if result is None or result.elements is None or result.type != value.type:
                continue
            self.elements[value] = result.elements

    def _says_less(self, declared: TensorType, guess: Abstract | None) -> bool:
        if guess is None or guess.type.dtype != declared.dtype:
            return False
        known = self.symbols
        return guess.type.symbols() <= known and not declared.symbols() <= known

    def _rule(
        self, opdef: OpDef, node: Node, operands: Sequence[Abstract]
    ) -> Sequence[Abstract | None]:
        key = (
            opdef.infer,
            node.attributes,
            *[(o.type, o.elements, o.ratio) for o in operands],
        )
        found = _INFERRED.get(key)
        if found is None:
            results = opdef.infer(node.attributes, operands)
            if len(_INFERRED) >= _MOST:
                _INFERRED.clear()
            found = _INFERRED[key] = [_shared(result) for result in results]
        return found

    def _abstract(self, value: Value) -> Abstract:
        if value.type is None:
            msg = f"operand {value} has no type"
            raise VerifyError(msg)
        return Abstract(value.type, self.elements.get(value), self._ratios.get(value))

    def _assumed(self, node: Node, value: Value) -> TensorType:
        """Return the type that a reader tells, else the first operand's; note it."""
        typed = [v.type for v in node.operands if v.type is not None]
        assumed = self._told_by_reader(value) or (typed[0] if typed else _SCALAR)
        label = str(node.attributes.get("op", node.op))
        self.assumed.setdefault(label, []).append(value)
        return assumed

    def _told_by_reader(self, value: Value) -> TensorType | None:
        """Return the type declared after ops that keep the shape, if there is one."""
        for _ in range(_MAX_STEPS):
            readers = [
                use.node
                for use in self.graph.uses(value)
                if use.index == 0 and node_kinds.has_trait(use.node, Trait.KEEPS_SHAPE)
            ]
            if not readers:
                return None
            value = readers[0].results[0]
            if value.type is not None:
                return value.type
        return None

    def _merged(self, value: Value, inferred: TensorType) -> TensorType:
        """Compare with the declared type; name the dimensions that depend on data."""
        declared = value.type
        if declared is None:
            if UNKNOWN_DIM not in inferred.shape:
                return inferred
            return attrs.evolve(inferred, shape=_named(value, inferred.shape))
        if declared is inferred or declared == inferred:
            return inferred
        if declared.dtype != inferred.dtype:
            raise VerifyError(_conflict(declared, inferred))
        shape: list[Dim | None] = [None]
        if declared.rank == inferred.rank:
            pairs = zip(declared.shape, inferred.shape, strict=True)
            shape = [self._merged_dim(*pair) for pair in pairs]
        dims = tuple(dim for dim in shape if dim is not None)
        if len(dims) < len(shape):
            if not self.hints:
                raise VerifyError(_conflict(declared, inferred))
            self.overruled[value] = declared
            dims = _named(value, inferred.shape)
        return attrs.evolve(inferred, shape=dims, space=declared.space)

    def _merged_dim(self, declared: Dim, inferred: Dim) -> Dim | None:
        """Choose what says more; None if the two contradict each other.

        An inferred dimension in terms of the inputs' symbols is exact; one that
        depends on data is not, and then a declared one is as good or better.
        """
        if isinstance(inferred, int):
            agree = isinstance(declared, Expr) or declared == inferred
            return inferred if agree else None
        return inferred if inferred.symbols() <= self.symbols else declared


def _shared(result: Abstract | None) -> Abstract | None:
    if result is None:
        return None
    return Abstract(_one(result.type), result.elements, result.ratio)


def _conflict(declared: TensorType, inferred: TensorType) -> str:
    return f"declared {declared}, inferred {inferred}"


def _named(value: Value, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    stem = "".join(c if c.isalnum() else "_" for c in value.name)
    return tuple(
        symbol(f"n_{stem}_{axis}") if dim == UNKNOWN_DIM else dim
        for axis, dim in enumerate(shape)
    )
