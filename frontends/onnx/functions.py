"""Functions: those of the model, and the ones that ONNX defines ops by."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from perfc.frontends.onnx.opsets import DEFAULT_DOMAINS
from perfc.frontends.onnx.protobuf import onnx
from perfc.frontends.onnx.reader import utf8
from perfc.ir import spend
from perfc.ir.support import UnsupportedModelError

MAX_CALLS = 100
"""Functions that call each other deeper than this are refused."""

FunctionKey: TypeAlias = tuple[str, str, str]
"""Domain, name, overload."""


@attrs.frozen(eq=False)
class Function:
    """A function that nodes can call.

    Attributes:
        proto: Its formal inputs and outputs, and its nodes.
        defaults: Values of attributes that a call leaves out.

    """

    proto: onnx.FunctionProto
    defaults: Mapping[str, onnx.AttributeProto]


def read_functions(
    protos: Sequence[onnx.FunctionProto],
) -> Mapping[FunctionKey, Function]:
    """Return the model's own functions."""
    functions: dict[FunctionKey, Function] = {}
    for proto in protos:
        key = _key(proto.domain, proto.name, proto.overload)
        if key in functions:
            msg = f"function {function_name(key)} is defined twice"
            raise UnsupportedModelError(msg)
        defaults = {attribute.name: attribute for attribute in proto.attribute_proto}
        functions[key] = Function(proto, defaults)
    return functions


def check_calls(
    functions: Mapping[FunctionKey, Function], nodes: Iterable[onnx.NodeProto]
) -> None:
    """Refuse calls that *nodes* and *functions* cannot be rid of by inlining."""
    where = "its functions inlined" if functions else ""
    spend("nodes", _Sizes(functions).of(nodes, ())[0], where)


@attrs.define(eq=False)
class _Sizes:
    """How many nodes functions are once inlined, and how deep they call."""

    functions: Mapping[FunctionKey, Function]
    known: dict[FunctionKey, tuple[int, int]] = attrs.field(
        factory=dict[FunctionKey, "tuple[int, int]"], init=False
    )

    def of(
        self, nodes: Iterable[onnx.NodeProto], callers: tuple[FunctionKey, ...]
    ) -> tuple[int, int]:
        """Return number and depth of *nodes*, which the *callers* call."""
        total, depth = 0, 0
        for node in nodes:
            size, inner = 1, 0
            if self.functions and (key := call_key(node)) in self.functions:
                size, inner = self._call(key, callers)
            total, depth = total + size, max(depth, inner)
            for graph in graphs_of(node):
                size, inner = self.of(graph.node, callers)
                total, depth = total + size, max(depth, inner)
        return total, depth

    def _call(
        self, key: FunctionKey, callers: tuple[FunctionKey, ...]
    ) -> tuple[int, int]:
        if key in callers:
            cycle = (*callers[callers.index(key) :], key)
            shown = " -> ".join(map(function_name, cycle))
            msg = f"function {function_name(key)} calls itself: {shown}"
            raise UnsupportedModelError(msg)
        if key not in self.known and len(callers) < MAX_CALLS:
            size, depth = self.of(self.functions[key].proto.node, (*callers, key))
            self.known[key] = (size, depth + 1)
        if key not in self.known or self.known[key][1] > MAX_CALLS:
            msg = f"functions call each other more than {MAX_CALLS} deep"
            raise UnsupportedModelError(msg)
        return self.known[key]


def graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Return the graphs among the attributes of *node*."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g


def call_key(node: onnx.NodeProto) -> FunctionKey:
    """Return the key of the function that *node* calls, if it is a call."""
    return _key(node.domain, node.op_type, node.overload)


def function_name(key: FunctionKey) -> str:
    """Return the name of a function as users know it."""
    domain, name, overload = key
    return f"{domain}::{name}" + (f" ({overload})" if overload else "")


def _key(domain: str, name: str, overload: str) -> FunctionKey:
    known = "" if domain in DEFAULT_DOMAINS else utf8(domain)
    return (known, utf8(name), utf8(overload))


def schema_function(
    node: onnx.NodeProto, opset: int, types: Sequence[onnx.TypeProto]
) -> Function | None:
    """Return the function by which ONNX defines the op of *node*, if it does.

    Args:
        node: A node of the default domain.
        opset: Version of that domain.
        types: Types of the node's inputs, as far as they are known.

    """
    schema = _schema(node.op_type, opset)
    if schema is None:
        return None
    defaults = {
        name: attribute.default_value
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }
    body = _body(schema, node, opset, types)
    if not body:
        return None
    return Function(onnx.FunctionProto.FromString(body), defaults)


def _schema(op: str, opset: int) -> Any:  # noqa: ANN401 - an onnx.defs.OpSchema
    defs = importlib.import_module("onnx.defs")
    try:
        return defs.get_schema(op, opset, "")
    except defs.SchemaError:
        return None


def _body(
    schema: Any,  # noqa: ANN401 - as above
    node: onnx.NodeProto,
    opset: int,
    types: Sequence[onnx.TypeProto],
) -> bytes:
    """Return the body, which says itself in which opset it is written."""
    if schema.function_opset_versions:
        version = _nearest(schema.function_opset_versions, opset)
        body: bytes = schema.get_function_with_opset_version(version)
        return body
    if not schema.context_dependent_function_opset_versions:
        return b""
    version = _nearest(schema.context_dependent_function_opset_versions, opset)
    inference: Any = importlib.import_module("onnx.shape_inference")
    try:
        body = schema.get_context_dependent_function_with_opset_version(
            version,
            node.SerializeToString(),
            [type_.SerializeToString() for type_ in types],
        )
    except (ValueError, inference.InferenceError):
        return b""  # onnx cannot write it for these types
    return body


def _nearest(versions: Sequence[int], opset: int) -> int:
    """Return the newest that is not newer than *opset*, else the oldest."""
    return max((v for v in versions if v <= opset), default=min(versions))
