"""Nodes of the ONNX file that a report's nodes stand for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import onnx

from perfc.ir import Node, PerfcError
from perfc.ir.support import Json
from perfc.tools import Report


def read_onnx(report: Report, format_name: str) -> tuple[onnx.ModelProto, Path]:
    """Return the ONNX model that *report* is about, and its file.

    Weights in files of their own stay there.
    """
    source = report.model.source
    if source is None or source.suffix != ".onnx":
        origin = source or f"the built-in workload {report.model.name}"
        msg = (
            f"format {format_name!r} annotates the ONNX file that a model came from; "
            f"this one is {origin}"
        )
        raise PerfcError(msg)
    try:
        data = source.read_bytes()
    except OSError as error:
        msg = f"cannot read {source} again: {error.strerror or error}"
        raise PerfcError(msg) from None
    if hashlib.sha256(data).hexdigest() != report.results.program.sha256:
        msg = f"{source} has changed since it was analyzed; analyze it again"
        raise PerfcError(msg)
    return onnx.ModelProto.FromString(data), source


@attrs.frozen(eq=False)
class OnnxNodes:
    """Report nodes by the ONNX node that they are shown at.

    Attributes:
        entries: Entries of the report's `nodes`, by the number of an ONNX node: the
            one that makes the result. Inputs that are copied have no ONNX node.
        part_of: By the number of an ONNX node without an entry, the number of the
            one whose entry covers it: a step of what perfc recognised as one op, or
            arithmetic on shapes that eager PyTorch does not run.

    """

    entries: Mapping[int, Sequence[Json]]
    part_of: Mapping[int, int]

    @classmethod
    def match(cls, report: Report, proto: onnx.GraphProto) -> OnnxNodes:
        """Match the report's nodes to those of *proto* by the values they make."""
        producers = {
            name: number
            for number, node in enumerate(proto.node)
            for name in node.output
            if name
        }
        ops = report.results.program.classes[0].ops
        nodes = {n.results[0].name: n for n in ops or () if n.results}
        entries: dict[int, list[Json]] = {}
        made: dict[int, list[Node]] = {}
        for entry in report.nodes:
            name = _onnx_value(entry["id"], producers)
            if name is None or entry["id"] not in nodes:
                continue
            entries.setdefault(producers[name], []).append(entry)
            made.setdefault(producers[name], []).append(nodes[entry["id"]])
        part_of: dict[int, int] = {}
        for number, group in made.items():
            stops = {
                _onnx_value(value.name, producers) or value.name
                for node in group
                for value in node.operands
            }
            blocked = {*entries, *part_of}
            for inner in _between(proto, producers, number, stops, blocked):
                part_of[inner] = number
        return cls(entries, part_of)


def _onnx_value(name: str, producers: Mapping[str, int]) -> str | None:
    """Return the ONNX value that perfc's value of this name is, or replaces.

    What passes put in place of a value is called after it: `%x.raised`.
    """
    while name and name not in producers:
        name = name.rpartition(".")[0]
    return name or None


def _between(
    proto: onnx.GraphProto,
    producers: Mapping[str, int],
    number: int,
    stops: set[str],
    blocked: set[int],
) -> Iterator[int]:
    """Return the nodes on the way from the values *stops* to node *number*."""
    stack = [number]
    while stack:
        for name in _reads(proto.node[stack.pop()]):
            before = producers.get(name)
            if name in stops or before is None or before in blocked:
                continue
            blocked.add(before)
            stack.append(before)
            yield before


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _reads(inner)
        yield from (output.name for output in attribute.g.output)
