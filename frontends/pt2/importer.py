"""Walk the graph of an exported program and hand its calls to the builder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

import attrs

from perfc.frontends import aten
from perfc.frontends.pt2.fields import Fields
from perfc.frontends.pt2.parts import PART, find_parts, paths
from perfc.frontends.pt2.values import Values
from perfc.frontends.source import source_line
from perfc.ir import Diagnostic, Program
from perfc.ir.core import BUFFER, CONST, PARAM
from perfc.ir.location import ACCUMULATE_GRAD, Location
from perfc.ir.support import Level, UnsupportedModelError
from perfc.ir.types import MemorySpace

_PREFIX = "torch.ops."
_HIGHER_ORDER = "higher_order."
_WRAPS: Mapping[str, int] = {
    "wrap_with_set_grad_enabled": 1,
    "wrap_with_autocast": 4,
    "wrap": 0,
    "hints_wrapper": 0,
    "invoke_subgraph": 0,
    "inductor_compiled_code": 0,
    "wrap_activation_checkpoint": 0,
    "tag_activation_checkpoint": 0,
}
"""Ops that only run a graph."""

_FUNCTIONAL, _BASE = "auto_functionalized_v2", "_base_index"
"""What calls an op that works in place, and how it says which tensor an argument is."""

_CONTROL = ("cond", "while_loop", "scan", "map_impl", "map", "associative_scan")
_PYTHON = ("_operator.", "operator.", "math.", "torch.sym_", "builtins.")
"""What computes with sizes: Python's own integers."""

_FUNCTORCH = "torch._functorch."
"""Python functions between which tensors have one axis less than they say."""

_CONSTANT = "tensor_constant"
_PARAMETERS: Mapping[str, str] = {
    "parameter": "parameter_name",
    "buffer": "buffer_name",
    _CONSTANT: "tensor_constant_name",
}
"""Kinds of inputs that are there before, and what names them."""

_KINDS: Mapping[str, str] = {"parameter": PARAM, "buffer": BUFFER, _CONSTANT: CONST}
"""What they are called in a graph."""

_LOSS = "loss_output"
_GRADIENT = "gradient_to_parameter"
_OUTPUTS = (
    *(_LOSS, "gradient_to_user_input"),
    *("buffer_mutation", "parameter_mutation", "user_input_mutation"),
)
"""Kinds of outputs that are tensors."""


Elements: TypeAlias = Callable[[str], tuple[int, ...] | None]
"""Returns the elements of a parameter, a buffer or a constant, if they are known."""


def _unknown_elements(path: str) -> None:
    return None


def import_model(
    model: Fields,
    name: str,
    sha256: str = "",
    elements: Elements = _unknown_elements,
) -> Program:
    """Return an exported program as a program for rank 0.

    Args:
        model: What `torch.export` writes of it.
        name: What it is called.
        sha256: Digest of its file.
        elements: Where the few elements come from that say what an op does.

    """
    module = model.record("graph_module")
    signature = module.record("signature")
    importer = _Importer(aten.AtenBuilder(name), signature, elements)
    importer.read(module.record("graph"))
    return importer.builder.program(sha256=sha256, diagnostics=importer.remarks())


@attrs.define(eq=False)
class _Importer:
    """Reads one graph, and the graphs that its wrappers run.

    Attributes:
        builder: What is written into.
        signature: What inputs and outputs mean.
        elements: What knows the elements of parameters.

    """

    builder: aten.AtenBuilder
    signature: Fields
    elements: Elements
    _phase: str = attrs.field(default="forward", init=False)
    _loss: str = attrs.field(default="", init=False)
    _host: set[str] = attrs.field(factory=set[str], init=False)
    _clones: int = attrs.field(default=0, init=False)
    _parts: dict[str, dict[str, str]] = attrs.field(
        factory=dict[str, dict[str, str]], init=False
    )
    """Values that are several tensors: the names of those, and of attributes."""

    def read(self, graph: Fields) -> None:
        """Write inputs, calls and outputs."""
        values = Values()
        values.read(graph)
        self._parts = find_parts(graph, _PREFIX)
        self._declare(values)
        # Name what is two tensors here for its parameter.
        for spec in self.signature.records("output_specs"):
            if spec.only()[0] == _GRADIENT:
                gradient = spec.record(_GRADIENT)
                name = gradient.record("arg").text("name")
                if name in values.sparse:
                    values.rename(name, _gradient_name(gradient))
        # The name of the loss, or "" where the graph is forward only.
        specs = self.signature.records("output_specs")
        losses = [s.record(_LOSS) for s in specs if s.only()[0] == _LOSS]
        self._loss = losses[0].record("arg").text("name") if losses else ""
        for node in graph.records("nodes"):
            self._read_node(node, values)
        outputs = dict.fromkeys(self._outputs(values))
        if not outputs:
            msg = "the program returns no tensor, so there is nothing to compute"
            raise UnsupportedModelError(msg)
        self.builder.outputs(outputs)

    def _declare(self, values: Values) -> None:
        for spec in self.signature.records("input_specs"):
            kind, _ = spec.only()
            if kind == "user_input":
                union = spec.record(kind).record("arg")
                if union.only()[0] == "as_tensor":
                    name = union.record("as_tensor").text("name")
                    self.builder.input(values.tensor(name))
            elif kind in _PARAMETERS:
                found = spec.record(kind)
                name = found.record("arg").text("name")
                path = found.text(_PARAMETERS[kind])
                if name in self._parts:
                    self._declare_parts(values, name, path, kind)
                    continue
                if path not in values.tensors:
                    values.names[name] = path
                tensor = values.tensor(name)
                if kind == _CONSTANT and tensor.type.dtype.kind == "int":
                    tensor = self._left_on_host(tensor)
                self.builder.parameter(tensor, _KINDS[kind])

    def _declare_parts(self, values: Values, name: str, path: str, kind: str) -> None:
        """Declare the tensors that a parameter is made of, each once."""
        declared: set[str] = set()
        for part, inner in paths(self._parts, name, path):
            values.names[part] = inner
            if inner not in declared:
                self.builder.parameter(values.tensor(part), _KINDS[kind])
            declared.add(inner)

    def _left_on_host(self, tensor: aten.AtenTensor) -> aten.AtenTensor:
        """Note a tensor that is on the host.

        That is where `torch.tensor([...])` makes indices, and PyTorch takes them there;
        what computes with other constants has moved them to the device.
        """
        self._host.add(tensor.name)
        return attrs.evolve(
            tensor, type=attrs.evolve(tensor.type, space=MemorySpace.HOST)
        )

    def _keep_gradient(self, gradient: Fields, values: Values) -> str:
        """Take over the gradient of a parameter, as autograd does: a view of it."""
        arg = gradient.record("arg")
        source, name = values.ref(arg), _gradient_name(gradient)
        if source.name == name:
            return name
        kept = attrs.evolve(values.tensor(arg.text("name")), name=name)
        location = Location(
            name=name,
            module=gradient.text("parameter_name").rpartition(".")[0],
            phase="backward",
            origin=ACCUMULATE_GRAD,
        )
        self.builder.call(aten.AtenCall(_DETACH, {"self": source}, (kept,), location))
        return name

    def _outputs(self, values: Values) -> Iterator[str]:
        """Return the names of what comes out."""
        for spec in self.signature.records("output_specs"):
            kind, _ = spec.only()
            found = spec.record(kind)
            if kind == _GRADIENT:
                yield self._keep_gradient(found, values)
            elif kind in _OUTPUTS:
                yield values.ref(found.record("arg")).name
            elif kind == "user_output":
                argument = values.argument(found.record("arg"))
                if isinstance(argument, aten.Ref):
                    yield argument.name

    def remarks(self) -> list[Diagnostic]:
        """Say what of the file is not counted."""
        if not self._clones:
            return []
        message = (
            f"{self._clones} copies without a memory format are not counted: in a "
            "joint file they are what is left of dropout that drops nothing, and of "
            "the export; a clone() that the model itself writes looks the same"
        )
        return [Diagnostic(Level.NOTE, "clones-left-out", message)]

    @property
    def _is_joint(self) -> bool:
        return bool(self._loss)

    def _read_node(self, node: Fields, values: Values) -> None:
        target = node.text("target")
        if target.startswith(_PYTHON):
            return
        if target.startswith(_FUNCTORCH):
            msg = (
                f"{node.text('name', '')[:60]!r} is a step of torch.func or torch.vmap,"
                " which hides sizes: save program.run_decompositions() instead"
            )
            raise UnsupportedModelError(msg)
        target = target.removeprefix(_PREFIX)
        if target == PART:
            return
        if target.startswith(_HIGHER_ORDER):
            self._read_higher_order(node, target.removeprefix(_HIGHER_ORDER), values)
            return
        results = tuple(self._results(node, values))
        if self._is_joint and _is_idle(target, node) and self._renamed(node, values):
            self._clones += target == _CLONE
            return
        makes_loss = self._is_joint and any(r and r.name == self._loss for r in results)
        phase = "loss" if makes_loss else self._phase
        location = _location(node, target, phase, noted=not self._is_joint)
        arguments = {
            named.text("name") or f"{index}": values.argument(named.record("arg"))
            for index, named in enumerate(node.records("inputs"))
        }
        refs = tuple(_refs(arguments.values()))
        if refs and all(ref.name in self._host for ref in refs):
            results = tuple(r and self._left_on_host(r) for r in results)
        told = self._told(target, arguments)
        call = aten.AtenCall(target, arguments, results, location, elements=told)
        self.builder.call(call)
        if makes_loss:
            self._phase = "backward"

    def _told(
        self, target: str, arguments: Mapping[str, aten.Argument]
    ) -> Mapping[str, tuple[int, ...]]:
        """Return the elements of arguments that say what an op does, if known."""
        found: dict[str, tuple[int, ...]] = {}
        for name in aten.READ_ELEMENTS.get(target, ()):
            argument = arguments.get(name)
            known = (
                self.elements(argument.name) if isinstance(argument, aten.Ref) else None
            )
            if known is not None:
                found[name] = known
        return found

    def _results(
        self, node: Fields, values: Values
    ) -> Iterator[aten.AtenTensor | None]:
        """Return the tensors that a node makes; nobody reads those without a type."""
        for union in node.records("outputs"):
            argument = values.argument(union)
            refs = argument if isinstance(argument, tuple) else (argument,)
            for ref in refs:
                name = values.declared(ref) if isinstance(ref, aten.Ref) else ""
                yield values.tensor(name) if name in values.tensors else None

    def _renamed(self, node: Fields, values: Values) -> bool:
        """Let a tensor that is only another name of one be that one."""
        ends = [values.argument(n.record("arg")) for n in node.records("inputs")]
        ends += [values.argument(union) for union in node.records("outputs")]
        source, result = ends[0] if ends else None, ends[-1] if ends else None
        if not isinstance(source, aten.Ref) or not isinstance(result, aten.Ref):
            return False
        values.names[result.name.removeprefix(values.prefix)] = source.name
        return True

    def _read_higher_order(self, node: Fields, op: str, values: Values) -> None:
        if op in _CONTROL:
            msg = (
                f"{node.text('name', '')[:60]!r} is torch.{op}: data decide what it "
                "runs; export the model with the branch that is taken"
            )
            raise UnsupportedModelError(msg)
        if op == _FUNCTIONAL:
            self._read_functional(node, values)
            return
        operands = [named.record("arg") for named in node.records("inputs")]
        graphs = [o for o in operands if o.only()[0] == "as_graph"]
        if op not in _WRAPS or len(graphs) != 1:
            self._unknown(node, op, values)
            return
        given = [values.argument(operand) for operand in operands]
        tensors = [value for value in given if isinstance(value, aten.Ref)]
        graph = graphs[0].record("as_graph")
        made = self._inline(graph.record("graph"), f"{node.text('name', op)}.", tensors)
        results = [r for r in self._results(node, values) if r is not None]
        for result, inner in zip(results, made, strict=False):
            values.names[result.name.removeprefix(values.prefix)] = inner

    def _read_functional(self, node: Fields, values: Values) -> None:
        """Read a call that works in place, which a decomposed program has no form for.

        The tensors that it writes come back behind its results, as new ones; compilers
        let it write where they lie, as the model's own call does.
        """
        given = [(n.text("name"), n.record("arg")) for n in node.records("inputs")]
        called = [u.only()[1] for _, u in given if u.only()[0] == "as_operator"]
        named = {name: values.argument(union) for name, union in given if name}
        bases = named.get("_all_bases")
        written = bases if isinstance(bases, tuple) else ()
        arguments = {n: a for n, a in named.items() if not n.startswith("_")}
        for name, index in named.items():
            argument = name.removeprefix("_").removesuffix(_BASE)
            if not name.endswith(_BASE) or not isinstance(index, int):
                continue
            if 0 <= index < len(written):
                arguments[argument] = written[index]
        results = tuple(self._results(node, values))
        own = results[: len(results) - len(written)]
        for result, base in zip(results[len(own) :], written, strict=False):
            if result is not None and isinstance(base, aten.Ref):
                values.names[result.name.removeprefix(values.prefix)] = base.name
        target = f"{called[0] if called else ''}".removeprefix(_PREFIX)
        location = _location(node, target, self._phase, noted=True)
        kept = tuple(result for result in own if result is not None)
        self.builder.call(aten.AtenCall(target, arguments, kept, location))

    def _unknown(self, node: Fields, op: str, values: Values) -> None:
        """Hand it on as a call that no map knows."""
        arguments = {
            f"{index}": values.argument(named.record("arg"))
            for index, named in enumerate(node.records("inputs"))
        }
        target = f"higher_order.{op}"
        location = _location(node, target, self._phase, noted=True)
        results = tuple(self._results(node, values))
        self.builder.call(aten.AtenCall(target, arguments, results, location))

    def _inline(self, graph: Fields, prefix: str, given: list[aten.Ref]) -> list[str]:
        """Write the nodes of a wrapped graph; return the names of its outputs."""
        inner = Values(prefix=prefix)
        inner.read(graph)
        formal = [u for u in graph.records("inputs") if u.only()[0] == "as_tensor"]
        for union, actual in zip(formal, given, strict=False):
            inner.names[union.record("as_tensor").text("name")] = actual.name
        for node in graph.records("nodes"):
            self._read_node(node, inner)
        made = [inner.argument(union) for union in graph.records("outputs")]
        return [value.name for value in made if isinstance(value, aten.Ref)]


def _refs(arguments: Iterable[aten.Argument]) -> Iterator[aten.Ref]:
    for argument in arguments:
        if isinstance(argument, aten.Ref):
            yield argument
        elif isinstance(argument, tuple):
            yield from _refs(argument)


_DETACH = "aten.detach.default"
_SAVED = frozenset(("aten.alias.default", _DETACH))
_CLONE = "aten.clone.default"


def _is_idle(target: str, node: Fields) -> bool:
    """Whether a call of a joint graph does nothing when it runs.

    So does what is saved for backward. Dropout that drops nothing is written as a clone
    of no memory format; eager PyTorch returns what it was given.
    """
    given = [named.text("name") for named in node.records("inputs")]
    return target in _SAVED or (target == _CLONE and given == ["self"])


def _gradient_name(gradient: Fields) -> str:
    """Return `w.grad` for a parameter `w`: so the pass `training` knows it."""
    return f"{gradient.text('parameter_name')}.grad"


def _location(node: Fields, target: str, phase: str, *, noted: bool) -> Location:
    """Return where a node comes from.

    Every node is a call of its own, which is what passes that look for calls spelled
    out go by; not so in a joint graph, whose calls are decomposed. There the overload
    of numbers is noted, which PyTorch's own decompositions call and users do not.
    """
    name = node.text("name", "")
    metadata = node.record("metadata") if "metadata" in node else None
    if metadata is None:
        return Location(name=name, phase=phase)
    return Location(
        name=name,
        module=_module(metadata.text("nn_module_stack", "")),
        source=source_line(metadata.text("stack_trace", "")),
        phase=phase,
        origin=f"{target}({name}{_sparse(node, target)})"
        if noted
        else _decomposed(target),
    )


_LOOKUPS = ("aten.embedding.", "aten.embedding_bag.", "aten._embedding_bag.")


def _sparse(node: Fields, target: str) -> str:
    """Note whether a lookup asks for sparse gradients; what is left out is False."""
    if not target.startswith(_LOOKUPS):
        return ""
    given = (n for n in node.records("inputs") if n.text("name") == "sparse")
    asks = any(named.record("arg").only() == ("as_bool", True) for named in given)
    return f", sparse={asks}"


def _decomposed(target: str) -> str:
    return target if target.endswith(".Scalar") else ""


def _module(stack: str) -> str:
    """`key,path,type;key,path,type`: the innermost module's path."""
    entry = stack.rpartition(";")[2].split(",")
    return entry[1] if len(entry) > 2 else ""  # noqa: PLR2004 - all three
