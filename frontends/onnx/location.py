"""Location of a node, by its name and what exporters note beside it."""

from __future__ import annotations

import re

import attrs

from perfc.frontends.onnx.protobuf import onnx
from perfc.frontends.onnx.reader import utf8
from perfc.ir.location import Location

_LEGACY_SCOPE = re.compile(r"/(?:[^/]+/)*")
_TARGET = "target=torch.ops."


def location_of(proto: onnx.NodeProto, call: Location | None = None) -> Location:
    """Return where *proto* comes from.

    Args:
        proto: The node.
        call: Where the call is from whose function body has the node. A body is
            a module, or part of one: what the node does not say itself, the call
            says.

    """
    own = _own_location(proto)
    if call is None:
        return own
    module = own.module or ".".join(filter(None, (call.module, call.name)))
    return attrs.evolve(
        own, module=module, source=own.source or call.source, origin=own.origin
    )


def _own_location(proto: onnx.NodeProto) -> Location:
    metadata = {prop.key: utf8(prop.value) for prop in proto.metadata_props}
    if not metadata:
        name = utf8(proto.name)
        return Location(name=name, module=_legacy_module(name))
    from perfc.frontends.source import source_line  # noqa: PLC0415 - few files have it

    return Location(
        name=utf8(proto.name),
        module=_scopes(metadata.get("pkg.torch.onnx.name_scopes", "")),
        source=source_line(metadata.get("pkg.torch.onnx.stack_trace", "")),
        origin=_origin(metadata.get("pkg.torch.onnx.fx_node", "")),
    )


def _legacy_module(name: str) -> str:
    """`/top_l/top_l.0/Gemm` comes from module `top_l.0`."""
    match = _LEGACY_SCOPE.match(name)
    return match[0].strip("/").rpartition("/")[2] if match else ""


def _scopes(text: str) -> str:
    """`['', 'emb_l.0', 'embedding_bag']` comes from module `emb_l.0`."""
    scopes = [part.strip(" '\"") for part in text.strip("[]").split(",")]
    return scopes[-2] if len(scopes) > 1 else ""


def _origin(text: str) -> str:
    """Keep `aten.x(args)` of `%x : … = call_function[target=torch.ops.aten.x](…)`."""
    start = text.find(_TARGET)
    if start < 0:
        return ""
    return (
        text[start + len(_TARGET) :]
        .replace("](", "(", 1)
        .removesuffix(", kwargs = {})")
    )
