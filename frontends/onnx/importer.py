"""Walk an ONNX graph and write it as an op graph, node by node."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import zip_longest

import attrs

from perfc.frontends.onnx import op_map
from perfc.frontends.onnx.conversion import function_opset, modernised
from perfc.frontends.onnx.functions import (
    Function,
    FunctionKey,
    call_key,
    check_calls,
    function_name,
    graphs_of,
    read_functions,
    schema_function,
)
from perfc.frontends.onnx.location import location_of
from perfc.frontends.onnx.node import OnnxNode
from perfc.frontends.onnx.opsets import DEFAULT_DOMAINS, check_ir_version
from perfc.frontends.onnx.order import in_dependency_order, names_captured
from perfc.frontends.onnx.protobuf import onnx
from perfc.frontends.onnx.reader import (
    Constant,
    convert_attribute,
    convert_tensor,
    convert_type,
    dense,
    type_proto,
    utf8,
)
from perfc.frontends.onnx.scope import Attribute, Call, Scope
from perfc.frontends.onnx.weights import is_weight, numbers_of
from perfc.ir import Graph, Program, TensorType, Value, single
from perfc.ir.location import Location
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.support import UnsupportedModelError
from perfc.ir.verification import verify

_ASKS_FOR_SHAPES = frozenset({"Shape", "Size"})


def import_model(model: onnx.ModelProto, name: str, sha256: str) -> Program:
    """Return *model* as a program for rank 0.

    One of an older opset than are read is converted, with a remark.
    """
    check_ir_version(model.ir_version)
    model, opset, remarks = modernised(model)
    if not model.graph.output:
        msg = "the graph has no outputs, so there is nothing to compute"
        raise UnsupportedModelError(msg)
    graph = Graph(name)
    file = _File(read_functions(model.functions))
    check_calls(file.functions, model.graph.node)
    _Importer(graph, file, Scope(opset)).read(model.graph)
    verify(graph, BUILTIN_OPS)
    program = attrs.evolve(single(graph), sha256=sha256, types_are_hints=True)
    return attrs.evolve(program, diagnostics=remarks)


@attrs.define(eq=False)
class _File:
    """State that all graphs of one file share.

    Attributes:
        functions: The model's own functions.
        constants: Constants by value.

    """

    functions: Mapping[FunctionKey, Function]
    constants: dict[Value, Constant] = attrs.field(
        factory=dict[Value, Constant], init=False
    )


@attrs.define(eq=False)
class _Importer:
    """Writes one ONNX graph, or the body of one function, into one op graph."""

    graph: Graph
    file: _File
    scope: Scope

    def read(self, proto: onnx.GraphProto) -> None:
        """Write inputs, initializers, nodes and outputs."""
        numbers = numbers_of(proto)
        initializers = [*proto.initializer, *map(dense, proto.sparse_initializer)]
        for tensor in initializers:
            self._add_initializer(tensor, numbers)
        given = {tensor.name for tensor in initializers}
        for info in proto.input:
            if info.name not in given:
                self._add_input(info)
        given |= {info.name for info in proto.input}
        declared = {info.name: info for info in proto.value_info}
        declared.update((info.name, info) for info in proto.output)
        for node in in_dependency_order(proto.node, given):
            self._add_node(node, declared)
        for info in proto.output:
            self.graph.outputs.append(self._value(info.name, "an output of the graph"))

    def _value(self, name: str, reader: str) -> Value:
        value = self.scope.find(name, self.graph)
        if value is None:
            msg = f"{name!r} is read by {reader}, but nothing defines it"
            raise UnsupportedModelError(msg)
        return value

    def _add_input(self, info: onnx.ValueInfoProto) -> None:
        is_model_input = self.graph.parent is None
        type_ = convert_type(info, name_open_dims=is_model_input)
        if is_model_input and type_ is None:
            # Say what is wrong with an input that has no tensor type.
            if info.type.HasField("sequence_type"):
                message = (
                    f"input {info.name!r} is a sequence, and the file does not say of "
                    "how many "
                    "tensors; export the model with the tensors as inputs of their own"
                )
            else:
                message = f"input {info.name!r} has no tensor type with a known rank"
            raise UnsupportedModelError(message)
        name = self.scope.new_name(info.name, self.graph)
        self.scope.define(info.name, self.graph.add_input(name, type_))

    def _add_initializer(
        self, tensor: onnx.TensorProto, numbers: AbstractSet[str]
    ) -> None:
        """Weights are parameters; scalars and small integer tensors constants."""
        name = self.scope.new_name(tensor.name, self.graph)
        constant = convert_tensor(tensor, f"initializer {utf8(tensor.name)!r}")
        is_number = tensor.name in numbers and constant.value is not None
        if is_weight(constant) and not is_number and self.graph.parent is None:
            value = self.graph.add_parameter(name, constant.type)
        else:
            attributes = op_map.constant_attributes(constant)
            node = self.graph.add("constant", (), [name], attributes)
            value = node.results[0]
            value.type = constant.type
        self.file.constants[value] = constant
        self.scope.define(tensor.name, value)

    def _add_node(
        self, proto: onnx.NodeProto, declared: Mapping[str, onnx.ValueInfoProto]
    ) -> None:
        if not proto.op_type:
            msg = f"node {proto.name!r} has no op type"
            raise UnsupportedModelError(msg)
        attributes = dict(self.scope.attributes(proto))
        functions = self.file.functions
        function = functions.get(call_key(proto)) if functions else None
        if function is None:
            self._add_op(proto, attributes)
        else:
            self._inline(proto, function, attributes)
        # Set the types that the file declares; shape inference checks them.
        for name in proto.output:
            if name in declared:
                value = self.scope.find(name, self.graph)
                type_: TensorType | None = convert_type(declared[name])
                if value is not None and value.type is None:
                    value.type = type_

    def _add_op(
        self, proto: onnx.NodeProto, attributes: Mapping[str, Attribute]
    ) -> None:
        default = proto.domain in DEFAULT_DOMAINS
        op = utf8(proto.op_type if default else f"{proto.domain}::{proto.op_type}")
        graphs = {
            name: attribute
            for name, attribute in attributes.items()
            if attribute.proto.type == onnx.AttributeProto.GRAPH
        }
        # A graph of an op that is not modelled is not read, but what it reads of this
        # one is an operand all the same: it has to be computed, and must stay in
        # memory.
        regions = self._regions(proto, op, graphs) if op in op_map.REGIONS else {}
        captured = self._captured(proto) if graphs and not regions else ()
        names = self._result_names(proto)
        node = OnnxNode(
            op=op,
            operands=(*self._operands(proto), *captured),
            results=tuple(names.values()),
            attributes={n: convert_attribute(a.proto) for n, a in attributes.items()},
            tensors=_tensors(attributes),
            regions=regions,
            location=self._location(proto),
            graph=self.graph,
            constants=self.file.constants,
            opset=self.scope.opset,
        )
        # ONNX defines many ops by others. A definition is read only where perfc has no
        # op, since an op's own cost model knows the kernel that libraries run for it.
        if not op_map.lower_node(node):
            function = self._definition(proto, node) if default else None
            if function is not None:
                self._inline(proto, function, attributes)
                return
            node.emit("unknown", attributes={"op": op})
        for name, result in names.items():
            self.scope.define(name, self.graph.find(result))

    def _definition(self, proto: onnx.NodeProto, node: OnnxNode) -> Function | None:
        """Return ONNX's definition of an op that perfc has not, if it has its parts."""
        types = [type_proto(None if v is None else v.type) for v in node.operands]
        function = schema_function(proto, node.opset, types)
        if function is None or not all(map(_is_plain, function.proto.node)):
            return None
        defined = {name for other in function.proto.node for name in other.output}
        wanted = function.proto.output[: len(node.results)]
        return function if defined.issuperset(wanted) else None

    def _inline(
        self,
        proto: onnx.NodeProto,
        function: Function,
        attributes: Mapping[str, Attribute],
    ) -> None:
        """Write the body of *function* in place of the call *proto*."""
        key, body = call_key(proto), function.proto
        if len(proto.input) > len(body.input) or len(proto.output) > len(body.output):
            msg = (
                f"{proto.op_type} {proto.name!r} has {len(proto.input)} inputs and "
                f"{len(proto.output)} outputs; function {function_name(key)} has "
                f"{len(body.input)} and {len(body.output)}"
            )
            raise UnsupportedModelError(msg)
        names = self._result_names(proto)
        results = dict(zip(body.output, names.values(), strict=False))
        where = f"function {function_name(key)}"
        defaults = {n: Attribute(a, self.scope) for n, a in function.defaults.items()}
        location = self._location(proto)
        call = Call(
            location.name or next(iter(results.values()), function_name(key)),
            location,
            {**defaults, **attributes},
            results,
        )
        scope = Scope(function_opset(body, self.scope.opset, where), call, ChainMap({}))
        operands = self._operands(proto)
        for formal, actual in zip_longest(body.input, operands):
            scope.define(formal, actual)
        made = _Importer(self.graph, self.file, scope).read_body(body)
        for name, value in zip(names, made, strict=False):
            self.scope.define(name, value)

    def read_body(self, body: onnx.FunctionProto) -> Iterable[Value]:
        """Write the nodes of a function, and return the outputs that are called for."""
        inputs = frozenset(body.input)
        for node in in_dependency_order(body.node, inputs):
            self._add_node(node, {})
        call = self.scope.call
        wanted: Mapping[str, str] = {} if call is None else call.results
        made: list[Value] = []
        for name, result in wanted.items():
            value = self._value(name, f"an output of function {utf8(body.name)!r}")
            if self.graph.find(result) is not value:
                value = self.graph.add("identity", (value,), [result]).results[0]
            made.append(value)
        return made

    def _location(self, proto: onnx.NodeProto) -> Location:
        call = self.scope.call
        return location_of(proto, None if call is None else call.location)

    def _operands(self, proto: onnx.NodeProto) -> Iterator[Value | None]:
        for name in proto.input:
            value = self.scope.find(name, self.graph) if name else None
            if value is None and not self.scope.is_absent(name):
                value = self._value(name, f"{proto.op_type} {proto.name!r}")
            yield value

    def _captured(self, proto: onnx.NodeProto) -> Iterator[Value]:
        """Values of this graph that graphs of *proto* read."""
        for name in sorted({utf8(name) for name in names_captured(proto)}):
            value = self.scope.find(name, self.graph)
            if value is not None:
                yield value

    def _regions(
        self, proto: onnx.NodeProto, op: str, graphs: Mapping[str, Attribute]
    ) -> dict[str, Graph]:
        regions: dict[str, Graph] = {}
        for name in op_map.REGIONS[op]:
            if name not in graphs:
                msg = f"{op} {proto.name!r} has no graph {name!r}"
                raise UnsupportedModelError(msg)
            region = Graph(op, self.graph)
            scope = graphs[name].scope.region()
            _Importer(region, self.file, scope).read(graphs[name].proto.g)
            regions[name] = region
        return regions

    def _result_names(self, proto: onnx.NodeProto) -> Mapping[str, str]:
        """Names of the results, in the file and here; unwanted ones at the end go.

        An unwanted one between wanted ones gets a name.
        """
        names = [utf8(name) for name in proto.output]
        while names and not names[-1]:
            names.pop()
        stem = proto.name or proto.op_type
        return {
            name or f"{stem}.unused{index}": self.scope.new_name(
                name or f"{stem}.unused{index}", self.graph
            )
            for index, name in enumerate(names)
        }


def _tensors(attributes: Mapping[str, Attribute]) -> Mapping[str, onnx.TensorProto]:
    """Return tensor attributes; a `sparse_value` comes as the dense `value`."""
    tensors: dict[str, onnx.TensorProto] = {}
    for name, attribute in attributes.items():
        if attribute.proto.type == onnx.AttributeProto.TENSOR:
            tensors[name] = attribute.proto.t
        elif attribute.proto.type == onnx.AttributeProto.SPARSE_TENSOR:
            tensors[name.removeprefix("sparse_")] = dense(attribute.proto.sparse_tensor)
    return tensors


def _is_plain(node: onnx.NodeProto) -> bool:
    """Whether perfc has an op for *node*, of which neither shapes nor data decide.

    A definition that asks for shapes is written for an interpreter: types that are
    not known yet would make an error of what is one unknown op otherwise.
    """
    plain = node.op_type not in _ASKS_FOR_SHAPES and not any(graphs_of(node))
    return plain and node.domain in DEFAULT_DOMAINS and op_map.is_known(node.op_type)
