"""Files of older opsets: what changed since is converted by the onnx package."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError

from perfc.frontends.onnx import opsets
from perfc.frontends.onnx.functions import graphs_of
from perfc.frontends.onnx.protobuf import onnx
from perfc.frontends.onnx.reader import MAX_ELEMENTS, utf8
from perfc.ir import Diagnostic
from perfc.ir.dims import product
from perfc.ir.support import Level, UnsupportedModelError

_UNDEFINED = "perfc.undefined"
"""Domain, while converting, of ops of the default domain that ONNX does not define."""

_FAILURES = (RuntimeError, ValueError, TypeError, DecodeError)


def modernised(
    model: onnx.ModelProto,
) -> tuple[onnx.ModelProto, int, tuple[Diagnostic, ...]]:
    """Return *model* in an opset that is read, which one, and remarks that say so.

    Args:
        model: A model; the nodes of one of an older opset may be changed.

    """
    version = opsets.read_opsets(model.opset_import).get("")
    if version is None and not any(_default_nodes(model.graph.node)):
        return model, opsets.OLDEST_OPSET, ()  # any will do
    version = opsets.check_opset(version, "the model")
    if version >= opsets.OLDEST_OPSET:
        return model, version, ()
    done = f"read as opset {opsets.OLDEST_OPSET}, in which its ops are the same"
    if not _means_the_same(model.graph.node, version):
        model = _converted(model, version)
        done = f"converted to opset {opsets.OLDEST_OPSET} by onnx.version_converter"
    message = f"the file is of opset {version}: {done}"
    remark = Diagnostic(Level.NOTE, "opset-converted", message)
    return model, opsets.OLDEST_OPSET, (remark,)


def function_opset(body: onnx.FunctionProto, caller: int, where: str) -> int:
    """Return the opset that the *body* of a function is read in.

    Args:
        body: The function.
        caller: The opset of its caller, which is that of one that says nothing.
        where: What the function is called.

    """
    version = opsets.check_opset(
        opsets.read_opsets(body.opset_import).get("", caller), where
    )
    if version >= opsets.OLDEST_OPSET or _means_the_same(body.node, version):
        return max(version, opsets.OLDEST_OPSET)
    msg = (
        f"{where} is of opset {version} of the default domain, and the bodies of "
        f"functions cannot be converted; export the model again with opset_version "
        f"{opsets.OLDEST_OPSET} or later"
    )
    raise UnsupportedModelError(msg)


def _means_the_same(nodes: Iterable[onnx.NodeProto], version: int) -> bool:
    versions = (version, opsets.OLDEST_OPSET)
    return all(
        len({_revision(op, opset) for opset in versions}) == 1
        for op in {utf8(node.op_type) for node in _default_nodes(nodes)}
    )


def _converted(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    # The converter serializes the model on the way in and out, and protobuf limits a
    # message to 2 GB. So large weights are sent without their elements and put back
    # afterwards.
    tensors, functions = list(model.graph.initializer), list(model.functions)
    _replace(model.graph.initializer, map(_without_elements, tensors))
    # Import every domain, and set apart the ops that ONNX does not define.
    for node in _default_nodes(model.graph.node):
        if _revision(node.op_type, version) is None:
            node.domain = _UNDEFINED
    imported = {entry.domain for entry in model.opset_import}
    used = {node.domain for node in _nodes(model.graph.node)}
    for domain in sorted(used - imported - {*opsets.DEFAULT_DOMAINS}):
        model.opset_import.add(domain=domain, version=1)
    converter: Any = importlib.import_module("onnx.version_converter")
    inference: Any = importlib.import_module("onnx.shape_inference")
    try:
        made: onnx.ModelProto = converter.convert_version(model, opsets.OLDEST_OPSET)
    except (*_FAILURES, converter.ConvertError, inference.InferenceError) as error:
        msg = (
            f"the model imports opset {version} of the default domain, which onnx "
            f"cannot convert to opset {opsets.OLDEST_OPSET} ({_reason(error)}); export "
            "it "
            f"again with opset_version {opsets.OLDEST_OPSET} or later"
        )
        raise UnsupportedModelError(msg) from None
    # The converter empties some tensors that it reads, and drops functions.
    given = {tensor.name: tensor for tensor in tensors}
    kept = [given.get(tensor.name, tensor) for tensor in made.graph.initializer]
    _replace(made.graph.initializer, kept)
    _replace(made.functions, functions)
    for node in _nodes(made.graph.node):
        if node.domain == _UNDEFINED:
            node.domain = ""
    return made


def _replace(field: Any, messages: Iterable[Any]) -> None:  # noqa: ANN401 - protobuf's
    del field[:]
    field.extend(messages)


def _without_elements(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """Leave the elements of a weight out: they would be copied, and nobody asks."""
    if product(tensor.dims) <= MAX_ELEMENTS:
        return tensor
    external = onnx.TensorProto.EXTERNAL
    return onnx.TensorProto(
        name=tensor.name,
        data_type=tensor.data_type,
        dims=tensor.dims,
        data_location=external,
    )


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for graph in graphs_of(node):
            yield from _nodes(graph.node)


def _default_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    return (node for node in _nodes(nodes) if node.domain in opsets.DEFAULT_DOMAINS)


def _revision(op: str, version: int) -> int | None:
    """Return the opset that *op* of opset *version* is from; None if undefined."""
    defs: Any = importlib.import_module("onnx.defs")
    try:
        since: int = defs.get_schema(op, version).since_version
    except defs.SchemaError:
        return None
    return since


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text.rpartition("` failed: ")[2][:200]
