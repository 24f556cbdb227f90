"""Calls of ATen ops, one after another, to an op graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import attrs

from perfc import ir
from perfc.frontends.aten.call import Argument, AtenCall, AtenTensor, Ref
from perfc.frontends.aten.node import AtenNode, Misfit, NodeArgument, call_label
from perfc.frontends.aten.op_map import find_handler
from perfc.frontends.aten.template import (
    Operand,
    Place,
    SparseOperand,
    Step,
    Template,
)
from perfc.ir.core import PARAM
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.step_loops import STEP_LOOP, step_loops
from perfc.ir.support import Level, UnsupportedModelError
from perfc.ir.types import MemorySpace
from perfc.ir.verification import verify

_Known: TypeAlias = "ir.Value | tuple[ir.Value, ir.Value] | ir.TensorType"
"""A tensor, the indices and values of a sparse one, or the type of a byproduct that
nobody has read yet."""


_OTHER_FORMS = (LookupError, ValueError, ArithmeticError, StopIteration, ir.PerfcError)
"""What a rule trips over that meets fewer arguments, axes or results than there are."""


@attrs.define(eq=False)
class AtenBuilder:
    """Collects what a source of PyTorch graphs records, in the order it runs.

    Declare every input, parameter and state before the first call that reads it;
    names are unique in the whole graph. A tensor that a call writes in place comes
    back as a result under a new name, which later calls read.

        builder = AtenBuilder("model")
        builder.input(AtenTensor("x", type))
        builder.parameter(AtenTensor("fc.weight", type))
        builder.call(AtenCall("aten.mm.default", {"self": Ref("x"), ...}, (y,)))
        builder.outputs(["y"])
        program = builder.program()

    Attributes:
        name: Name of the model.

    """

    name: str
    _graph: ir.Graph = attrs.field(init=False)
    _calls: int = attrs.field(default=0, init=False)
    _known: dict[str, _Known] = attrs.field(factory=dict[str, "_Known"], init=False)
    _templates: dict[object, Template] = attrs.field(
        factory=dict[object, Template], init=False
    )
    _constants: dict[ir.Record, ir.Value] = attrs.field(
        factory=dict[ir.Record, ir.Value], init=False
    )
    _misfits: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    _assumptions: dict[str, str] = attrs.field(factory=dict[str, str], init=False)

    def __attrs_post_init__(self) -> None:
        """Begin with an empty graph."""
        self._graph = ir.Graph(self.name)

    def input(self, tensor: AtenTensor) -> None:
        """Declare data that an iteration is given."""
        self._known[tensor.name] = self._graph.add_input(tensor.name, tensor.type)

    def parameter(self, tensor: AtenTensor, kind: str = PARAM) -> None:
        """Declare a weight, a `buffer` or a `const` tensor: it is on the device."""
        made = self._graph.add_parameter(tensor.name, tensor.type, kind)
        self._known[tensor.name] = made

    def state(self, tensor: AtenTensor) -> None:
        """Declare state of an optimizer.

        A tensor in `MemorySpace.HOST`, as a step counter is, costs host time only.
        """
        self._known[tensor.name] = self._graph.add_state(tensor.name, tensor.type)

    def call(self, call: AtenCall) -> None:
        """Append one call.

        Arguments by the names of the op's schema; those not given have their
        defaults. Results in the schema's order, lists of tensors flattened, None for
        what is no tensor (an integer, an absent optional result).

        An op that is not in the maps, or is used as they do not expect, becomes an
        `unknown` op of its name: costed by its bytes, and reported.
        """
        self._calls += 1
        ir.spend("nodes", self._calls)
        operands: list[ir.Value] = []
        given = tuple(
            (name, self._signature(argument, operands, call))
            for name, argument in call.arguments.items()
        )
        types = tuple([None if r is None else r.type for r in call.results])
        told = tuple(sorted(call.elements.items()))
        key = (call.target, given, types, call.flops, told)
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = self._template(call, types)
        if template.misfit:
            self._misfits.setdefault(call_label(call.target), template.misfit)
        if template.assumption:
            self._assumptions[call_label(call.target)] = template.assumption
        self._instantiate(template, operands, call)

    def outputs(self, names: Iterable[str]) -> None:
        """Say which tensors the iteration returns."""
        for name in names:
            found = self._find(name, "an output of the graph")
            returned = found if isinstance(found, tuple) else (found,)
            self._graph.outputs += returned

    def program(
        self, *, sha256: str = "", diagnostics: Iterable[ir.Diagnostic] = ()
    ) -> ir.Program:
        """Return the verified program; nothing can be added any more.

        Args:
            sha256: Digest of the file it was read from.
            diagnostics: What the source has to say; the builder's own follow.

        """
        verify(self._graph, BUILTIN_OPS)
        return attrs.evolve(
            ir.single(self._graph),
            sha256=sha256,
            diagnostics=(
                *diagnostics,
                *map(_remark, self._misfits.items()),
                *map(_assumed, self._assumptions.items()),
                *_walked(self._graph),
            ),
        )

    def _find(self, name: str, reader: str) -> ir.Value | tuple[ir.Value, ir.Value]:
        """Return a tensor; a byproduct of an op becomes one when it is first read."""
        found = self._known.get(name)
        if found is None:
            msg = f"{name!r} is read by {reader}, but nothing defines it"
            raise UnsupportedModelError(msg)
        if isinstance(found, ir.TensorType):
            attributes = ir.Record({"dtype": found.dtype, "shape": found.shape})
            made = self._graph.add("constant", (), [name], attributes)
            made.results[0].type = found
            found = self._known[name] = made.results[0]
        return found

    def _signature(
        self, argument: Argument, operands: list[ir.Value], call: AtenCall
    ) -> object:
        """Return the part of an argument that decides what the call becomes."""
        kind = type(argument)
        if kind is Ref:
            found = self._find(argument.name, call.target)  # type: ignore[union-attr]
            if isinstance(found, tuple):
                operands += found
                return (found[0].type, found[1].type)
            operands.append(found)
            return found.type
        if kind is tuple:
            return tuple([self._signature(a, operands, call) for a in argument])  # type: ignore[union-attr]
        return argument if kind is int else (kind, argument)

    def _template(
        self, call: AtenCall, types: tuple[ir.TensorType | None, ...]
    ) -> Template:
        """Work out what a call becomes."""
        operands: list[Operand] = []
        arguments = {
            name: self._resolved(argument, operands)
            for name, argument in call.arguments.items()
        }
        node = AtenNode(
            call.target, arguments, types, tuple(operands), elements=call.elements
        )
        misfit = ""
        handler = _on_host if _is_on_host(node) else find_handler(call.target)
        if handler is not None:
            try:
                handler(node)
                places = tuple(node.places)
                return Template(tuple(node.steps), places, assumption=node.assumption)
            except Misfit as error:
                misfit = str(error)
            except _OTHER_FORMS as error:
                misfit = f"not as its schema says: {error}"
        node = AtenNode(call.target, arguments, types, tuple(operands))
        node.unknown(call.flops)
        return Template(tuple(node.steps), tuple(node.places), misfit)

    def _resolved(self, argument: Argument, operands: list[Operand]) -> NodeArgument:
        """Replace names by operands."""
        if isinstance(argument, tuple):
            return tuple([self._resolved(a, operands) for a in argument])
        if not isinstance(argument, Ref):
            return argument
        found = self._find(argument.name, "a call")
        parts = found if isinstance(found, tuple) else (found,)
        made: list[Operand] = []
        for i, value in enumerate(parts):
            if value.type is None:  # every value of this graph is declared
                msg = f"{value} has no type"
                raise UnsupportedModelError(msg)
            made.append(Operand(len(operands) + i, value.type))
        operands += made
        return SparseOperand(*made) if isinstance(found, tuple) else made[0]

    def _instantiate(
        self, template: Template, operands: list[ir.Value], call: AtenCall
    ) -> None:
        """Write the steps of a template, applied to these operands."""
        values = operands
        results = call.results
        for step in template.steps:
            if step.op == "constant":
                values.append(self._constant(step))
                continue
            names = self._names(step, call)
            node = self._graph.add(
                step.op,
                [values[place] for place in step.operands],
                names,
                step.attributes,
                location=call.location,
            )
            for value, type_ in zip(node.results, step.types, strict=True):
                value.type = type_
            values += node.results
        for result, place in zip(results, template.places, strict=True):
            if result is not None:
                self._known[result.name] = _placed(result, place, values)

    def _names(self, step: Step, call: AtenCall) -> list[str]:
        """Name the results of a step: as the call's, or after its first and the op."""
        results = [call.results[i] if i >= 0 else None for i in step.results]
        named = [result.name for result in results if result is not None]
        if len(named) == len(results):
            return named
        stem = next((r.name for r in call.results if r is not None), call.target)
        helpers = [f"{stem}.{step.op}{i or ''}" for i in range(len(results))]
        return [self._graph.fresh_name(name) for name in helpers]

    def _constant(self, step: Step) -> ir.Value:
        """Return the one constant of these attributes."""
        found = self._constants.get(step.attributes)
        if found is None:
            name = self._graph.fresh_name("constant")
            node = self._graph.add("constant", (), [name], step.attributes)
            found = self._constants[step.attributes] = node.results[0]
            found.type = step.types[0]
        return found


def _placed(result: AtenTensor, place: Place, values: list[ir.Value]) -> _Known:
    if place is None:
        return result.type
    if isinstance(place, tuple):
        return values[place[0]], values[place[1]]
    return values[place]


def _is_on_host(node: AtenNode) -> bool:
    types = [operand.type for operand in node.operands]
    types += [type_ for type_ in node.results if type_ is not None]
    return bool(types) and all(type_.space is MemorySpace.HOST for type_ in types)


def _on_host(node: AtenNode) -> None:
    tensors = [i for i, type_ in enumerate(node.results) if type_ is not None]
    node.emit("host", node.operands, {"op": node.label}, results=tensors)


def _remark(misfit: tuple[str, str]) -> ir.Diagnostic:
    label, reason = misfit
    message = f"{label} is used as perfc does not know it ({reason}): an unknown op"
    return ir.Diagnostic(Level.WARNING, "unknown-use", message, label)


def _walked(graph: ir.Graph) -> Iterator[ir.Diagnostic]:
    loops = step_loops(graph)
    if loops:
        first, others = loops[0], len(loops) - 1
        module, line = first.nodes[0].location.module, first.nodes[0].location.source
        more = f" (and {others} more of its kind)" if others else ""
        message = (
            f"{module or graph.name}{more} runs {first.steps} steps one after another, "
            f"{len(first.nodes)} ops, where libraries have a fused kernel; --pass "
            "fuse-scans prices inference with one"
        )
        yield ir.Diagnostic(Level.NOTE, STEP_LOOP, message, line)


def _assumed(assumption: tuple[str, str]) -> ir.Diagnostic:
    label, what = assumption
    message = f"{label}: {what}, which data decide when it runs"
    return ir.Diagnostic(Level.NOTE, "data-assumed", message, label)
