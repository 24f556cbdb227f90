"""One ATen call as the op map sees it: arguments, results, and what to write.

What a rule writes depends on the types of the tensors, not on the tensors: equal
calls share one `Template`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import attrs

from perfc.frontends.aten.template import Operand, Place, SparseOperand, Step
from perfc.ir import DTYPES, AttrValue, DType, PerfcError, Record, TensorType
from perfc.ir.dims import Dim, Expr
from perfc.ir.opdef import Abstract, OpDef
from perfc.ir.ops import BUILTIN_OPS

_Plain: TypeAlias = Dim | bool | float | complex | str | DType | None
NodeArgument: TypeAlias = "Operand | SparseOperand | tuple[NodeArgument, ...] | _Plain"
"""An argument with operands in place of names."""


class Misfit(Exception):  # noqa: N818 - never leaves this package
    """A call is used as its rule does not expect."""


@attrs.define(eq=False)
class AtenNode:
    """An ATen call on its way into a template.

    Attributes:
        target: Namespace, name and overload: `aten.addmm.default`.
        arguments: By the names of the schema.
        results: The types of its results; None for what is no tensor.
        operands: The tensors among the arguments.
        elements: Elements of arguments that are short lists, where they are known.
        steps: What has been written so far.
        places: Where the results stand, as far as they are defined.
        assumption: What is written takes this for granted, and data decide it: the
            report says so.

    """

    target: str
    arguments: Mapping[str, NodeArgument]
    results: tuple[TensorType | None, ...]
    operands: tuple[Operand, ...]
    elements: Mapping[str, tuple[int, ...]] = attrs.field(
        factory=dict[str, tuple[int, ...]], kw_only=True
    )
    steps: list[Step] = attrs.field(factory=list[Step], init=False)
    places: list[Place] = attrs.field(init=False)
    assumption: str = attrs.field(default="", init=False)
    _next: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Begin behind the arguments."""
        self.places = [None] * len(self.results)
        self._next = len(self.operands)

    @property
    def name(self) -> str:
        """The op without namespace and overload: `addmm`."""
        return self.target.partition(".")[2].partition(".")[0]

    @property
    def overload(self) -> str:
        """The overload: `default`, `Tensor`, `out`, ..."""
        return self.target.rpartition(".")[2]

    @property
    def label(self) -> str:
        """Name of the op in PyTorch's profiler: `aten::addmm`."""
        return call_label(self.target)

    @property
    def in_place(self) -> bool:
        """Whether the op writes its first argument."""
        return self.name.endswith("_") and not self.name.endswith("__")

    # What it is given

    def tensor(self, name: str) -> Operand:
        """Return a dense tensor argument.

        Raises:
            Misfit: it is something else. So do the next methods.

        """
        value = self.arguments.get(name)
        if not isinstance(value, Operand):
            raise self._unlike(name, "a tensor")
        return value

    def optional(self, name: str) -> Operand | None:
        """Return a dense tensor argument, or None if it is absent."""
        return None if self.arguments.get(name) is None else self.tensor(name)

    def sparse_tensor(self, name: str) -> SparseOperand:
        """Return a sparse tensor argument."""
        value = self.arguments.get(name)
        if not isinstance(value, SparseOperand):
            raise self._unlike(name, "a sparse tensor")
        return value

    def is_sparse(self, name: str) -> bool:
        """Whether an argument is a sparse tensor."""
        return isinstance(self.arguments.get(name), SparseOperand)

    def tensors(self, name: str) -> tuple[Operand, ...]:
        """Return a list of dense tensors."""
        values = self.arguments.get(name)
        if isinstance(values, tuple):
            found = tuple(v for v in values if isinstance(v, Operand))
            if len(found) == len(values):
                return found
        raise self._unlike(name, "a list of tensors")

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an integer; absent and None are *default*."""
        value = self._given(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._unlike(name, "an integer")
        return value

    def dim(self, name: str, default: Dim | None = None) -> Dim:
        """Return an integer or an expression."""
        value = self._given(name, default)
        if not isinstance(value, int | Expr) or isinstance(value, bool):
            raise self._unlike(name, "a size")
        return value

    def dims(self, name: str) -> tuple[Dim, ...]:
        """Return a list of integers and expressions."""
        values = self.arguments.get(name)
        if isinstance(values, tuple):
            found = tuple(
                v for v in values if isinstance(v, int | Expr) and v is not True
            )
            if len(found) == len(values):
                return found
        raise self._unlike(name, "a list of sizes")

    def integers(
        self, name: str, default: tuple[int, ...] | None = None
    ) -> tuple[int, ...]:
        """Return a list of integers; a single one is a list, too."""
        values = self._given(name, default)
        listed = values if isinstance(values, tuple) else (values,)
        found = tuple(
            v for v in listed if isinstance(v, int) and not isinstance(v, bool)
        )
        if len(found) < len(listed):
            raise self._unlike(name, "a list of integers")
        return found

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number that is no size."""
        value = self._given(name, default)
        if not isinstance(value, int | float):
            raise self._unlike(name, "a number")
        return float(value)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a truth value."""
        value = self._given(name, default)
        if not isinstance(value, bool | int):
            raise self._unlike(name, "true or false")
        return bool(value)

    def text(self, name: str, default: str = "") -> str:
        """Return a string."""
        value = self._given(name, default)
        if not isinstance(value, str):
            raise self._unlike(name, "a string")
        return value

    def is_given(self, name: str) -> bool:
        """Whether an argument is there and not None."""
        return self.arguments.get(name) is not None

    def result(self, index: int = 0) -> TensorType:
        """Return the type of a result."""
        found = self.results[index] if index < len(self.results) else None
        if found is None:
            msg = f"result {index} is no tensor"
            raise Misfit(msg)
        return found

    def value(self, name: str, dtype: DType | None = None) -> Operand:
        """Return a tensor, or the constant that a number given for one becomes."""
        value = self.arguments.get(name)
        if isinstance(value, Operand):
            return value
        if isinstance(value, Expr):
            return self.constant((value,), dtype or DTYPES["i64"], ())
        if isinstance(value, bool | int | float):
            return self.scalar(float(value), dtype or self._own_dtype())
        raise self._unlike(name, "a tensor or a number")

    # What it becomes

    def emit(
        self,
        op: str,
        operands: Sequence[Operand],
        attributes: Mapping[str, AttrValue] | None = None,
        *,
        results: Sequence[int] = (0,),
    ) -> None:
        """Add the step that defines these results of the call.

        Raises:
            Misfit: the op's type rule says otherwise than the call. So does `helper`.

        """
        given = dict(attributes or {})
        opdef = BUILTIN_OPS[op]
        if self.in_place and "in_place" in opdef.attributes:
            given["in_place"] = True
        declared = [self.result(index) for index in results]
        count = self._checked(opdef, operands, given, declared)
        results, declared = results[:count], declared[:count]
        made = self._add(op, operands, Record(given), declared, results)
        for index, operand in zip(results, made, strict=True):
            self.places[index] = operand.place

    def helper(
        self,
        op: str,
        operands: Sequence[Operand],
        attributes: Mapping[str, AttrValue] | None = None,
        *,
        count: int = 1,
        types: Sequence[TensorType] = (),
    ) -> tuple[Operand, ...]:
        """Add a step whose results only this call's steps read.

        Their types are what the op's rule says, unless they are given.
        """
        record = Record(attributes)
        if types:
            return self._add(op, operands, record, types, (-1,) * len(types))
        inferred = _inferred(BUILTIN_OPS[op], operands, record)[:count]
        known = [found for found in inferred if found is not None]
        if len(known) < count:
            msg = f"{op} does not say what it makes"
            raise Misfit(msg)
        types = [found.type for found in known]
        made = self._add(op, operands, record, types, (-1,) * count)
        if op != "constant":
            return made
        return (attrs.evolve(made[0], elements=known[0].elements),)

    def seen_as(self, operand: Operand, type_: TensorType) -> Operand:
        """Return bytes of a tensor seen as another type: no op of PyTorch's at all."""
        return self._add("view", (operand,), Record({"call": ""}), (type_,), (-1,))[0]

    def alias(self, index: int, operand: Operand) -> None:
        """Make a result be the same tensor as *operand*: no op at all."""
        self.places[index] = operand.place

    def alias_sparse(self, index: int, indices: Operand, values: Operand) -> None:
        """Make a result the sparse tensor of these."""
        self.places[index] = (indices.place, values.place)

    def scalar(self, value: float, dtype: DType) -> Operand:
        """Return a constant number."""
        attributes: dict[str, AttrValue] = {
            "dtype": dtype,
            "shape": (),
            "value": value,
        }
        return self.helper("constant", (), attributes)[0]

    def constant(
        self, elements: tuple[Dim, ...], dtype: DType, shape: tuple[int, ...]
    ) -> Operand:
        """Return a constant with these elements."""
        attributes: dict[str, AttrValue] = {
            "dtype": dtype,
            "shape": shape,
            "elements": elements,
        }
        return self.helper("constant", (), attributes)[0]

    def listed(self, elements: Sequence[Dim]) -> Operand:
        """Return a constant list of integers."""
        return self.constant(tuple(elements), DTYPES["i64"], (len(elements),))

    def unknown(self, flops: int = 0) -> None:
        """Write the call as an op that perfc has no definition of."""
        attributes: dict[str, AttrValue] = {"op": self.label}
        if flops:
            attributes["flops"] = flops
        tensors = [i for i, type_ in enumerate(self.results) if type_ is not None]
        self.emit("unknown", self.operands, attributes, results=tensors)

    def _add(
        self,
        op: str,
        operands: Sequence[Operand],
        record: Record,
        types: Sequence[TensorType],
        results: Sequence[int],
    ) -> tuple[Operand, ...]:
        places = tuple(operand.place for operand in operands)
        self.steps.append(Step(op, places, record, tuple(types), tuple(results)))
        first = self._next
        self._next += len(types)
        return tuple([Operand(first + i, type_) for i, type_ in enumerate(types)])

    def _checked(
        self,
        opdef: OpDef,
        operands: Sequence[Operand],
        attributes: dict[str, AttrValue],
        declared: Sequence[TensorType],
    ) -> int:
        """Compare what the op's type rule says with what the call declares.

        Where only the element type of the first result differs and the op can say
        so, it does. Return how many results the two agree on: further ones that
        the op makes otherwise (statistics of another type) are byproducts.
        """
        inferred = _inferred(opdef, operands, Record(attributes))
        for index, type_ in enumerate(declared):
            found = inferred[index] if index < len(inferred) else None
            if found is None:
                continue
            inferred_type = found.type
            converts = "dtype" in opdef.attributes and "dtype" not in attributes
            if inferred_type.dtype != type_.dtype and not index and converts:
                attributes["dtype"] = type_.dtype
                inferred_type = attrs.evolve(inferred_type, dtype=type_.dtype)
            if _agree(type_, inferred_type):
                continue
            if index and opdef.results is None:
                return index
            msg = f"{opdef.name} would be {inferred_type}, not {type_}"
            raise Misfit(msg)
        return len(declared)

    def _own_dtype(self) -> DType:
        """Return the type that numbers become: that of the first tensor."""
        if self.operands:
            return self.operands[0].type.dtype
        return self.result().dtype

    def _given(self, name: str, default: NodeArgument) -> NodeArgument:
        value = self.arguments.get(name)
        return default if value is None else value

    def _unlike(self, name: str, expected: str) -> Misfit:
        found = self.arguments.get(name)
        return Misfit(f"argument {name!r} is {str(found)[:60]}, not {expected}")


Handler: TypeAlias = Callable[[AtenNode], None]
"""Writes a call as steps; raises `Misfit` where it cannot."""


def call_label(target: str) -> str:
    """Write `aten.addmm.default` as PyTorch's profiler does: `aten::addmm`."""
    namespace, _, rest = target.partition(".")
    return f"{namespace}::{rest.split('.')[0]}" if rest else namespace


def inferred_types(
    op: str,
    operands: Sequence[Operand],
    attributes: Mapping[str, AttrValue] | None = None,
) -> list[TensorType]:
    """Return the types of what an op makes, as far as its type rule says them.

    Raises:
        Misfit: it cannot be applied to these operands.

    """
    found = _inferred(BUILTIN_OPS[op], operands, Record(attributes))
    return [abstract.type for abstract in found if abstract is not None]


def _inferred(
    opdef: OpDef, operands: Sequence[Operand], attributes: Record
) -> Sequence[Abstract | None]:
    abstracts = [Abstract(o.type, o.elements) for o in operands]
    try:
        return opdef.infer(attributes, abstracts)
    except (PerfcError, IndexError, KeyError) as error:
        msg = f"{opdef.name}: {error}"
        raise Misfit(msg) from None


def _agree(declared: TensorType, inferred: TensorType) -> bool:
    """Whether two types can be the same; symbols are given the benefit of doubt."""
    if declared.dtype != inferred.dtype or declared.rank != inferred.rank:
        return False
    pairs = zip(declared.shape, inferred.shape, strict=True)
    return all(isinstance(a, Expr) or isinstance(b, Expr) or a == b for a, b in pairs)
