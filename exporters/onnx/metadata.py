"""The format `onnx`: the user's own ONNX file with the prediction on its nodes.

Netron shows `metadata_props` beside the attributes of a node, and those of the model
beside its inputs and outputs.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from itertools import chain
from pathlib import Path
from typing import ClassVar

import attrs
import onnx

from perfc.exporters.onnx.nodes import OnnxNodes, read_onnx
from perfc.ir import Kernel, PerfcError
from perfc.ir.launch import BUSY_KINDS
from perfc.ir.support import Json
from perfc.tools import Exporter, Report, kernel_limit

_PREFIX = "perfc."
_LOCATION = "location"


class OnnxMetadata(Exporter):
    """A copy of the ONNX file that says at each node what it takes.

    Weights in files of their own stay where they are; the copy refers to them.
    """

    needs_file: ClassVar[bool] = True

    def export(self, reports: Sequence[Report], path: Path | None) -> bytes:
        """Return the annotated model."""
        (report,) = reports
        model, source = read_onnx(report, "onnx")
        target = Path() if path is None else path
        if target.exists() and target.samefile(source):
            msg = f"-o {target} is the model itself; give the copy another name"
            raise PerfcError(msg)
        _move_references(model, source, target)
        _annotate(model.metadata_props, dict(_about_model(report)))
        # The facts of each node, by its number.
        graph = model.graph
        work = _DeviceWork.of(report)
        matched = OnnxNodes.match(report, graph)
        facts: dict[int, dict[str, object]] = {}
        for number, entries in matched.entries.items():
            facts[number] = dict(_about_node(entries, work, report))
        for number, whole in matched.part_of.items():
            name = graph.node[whole].name or graph.node[whole].output[0]
            facts[number] = {"part_of": name}
        for number, node in enumerate(model.graph.node):
            _annotate(node.metadata_props, facts.get(number, {}))
        return model.SerializeToString(deterministic=True)


def _about_model(report: Report) -> Iterator[tuple[str, object]]:
    header = report.header
    summary = header["summary"]
    yield "version", header["tool"]["version"]
    yield "target", header["target"]["name"]
    yield "host_profile", header["target"]["profile"]
    yield "mode", header["model"]["mode"]
    yield "dtype", header["model"]["dtype"]
    if header["model"]["batch"] is not None:
        yield "batch", header["model"]["batch"]
    yield "runtime", header["runtime"]
    for key in ("time_us", "time_us_p05", "time_us_p95", "gpu_active_us", "bound"):
        yield key, summary[key]
    yield "peak_memory_bytes", summary["peak_memory_bytes"]


@attrs.frozen(eq=False)
class _DeviceWork:
    """What each op runs on the device, by its name in the report.

    Attributes:
        kernels: How many kernels and copies.
        longest: The one that takes longest, where it has a signature.

    """

    kernels: Mapping[str, int]
    longest: Mapping[str, Kernel]

    @classmethod
    def of(cls, report: Report) -> _DeviceWork:
        """Look through the launches of the first rank class."""
        results = report.results
        graph, durations_s = results.hosted[0].graph, results.schedule.duration_s
        kernels: Counter[str] = Counter()
        longest: dict[str, Kernel] = {}
        reached_s: dict[str, float] = {}
        for task, kind in enumerate(graph.kind):
            if kind not in BUSY_KINDS:
                continue
            name, number = results.node_of(task), graph.kernel[task]
            kernels[name] += 1
            if number >= 0 and durations_s[task] >= reached_s.get(name, 0.0):
                reached_s[name] = durations_s[task]
                longest[name] = graph.kernels[number]
        return cls(kernels, longest)


def _about_node(
    entries: Sequence[Json], work: _DeviceWork, report: Report
) -> Iterator[tuple[str, object]]:
    """Yield the facts of the op, or ops, that a node stands for."""
    main = max(entries, key=_duration_us)
    yield "op", " ".join(entry["op"] for entry in entries)
    yield "time_us", math.fsum(map(_duration_us, entries))
    yield "runs_on", main["stream"] or "host"
    yield "start_us", min(entry["start_us"] for entry in entries)
    yield "kernels", sum(work.kernels.get(entry["id"], 0) for entry in entries)
    kernel = work.longest.get(main["id"])
    yield "bound", "host" if kernel is None else kernel_limit(kernel, report.target)
    for key in ("flops", "bytes"):
        yield key, sum(entry[key] for entry in entries)
    yield "cost_model", f"{main['cost_model']} ({main['provenance']})"
    yield "on_critical_path", any(entry["on_critical_path"] for entry in entries)
    yield "slack_us", min(entry["slack_us"] for entry in entries)


def _duration_us(entry: Json) -> float:
    duration_us: float = entry["duration_us"]
    return duration_us


def _annotate(
    properties: MutableSequence[onnx.StringStringEntryProto],
    facts: Mapping[str, object],
) -> None:
    """Put *facts* in place of what an earlier prediction has left."""
    for index in reversed(range(len(properties))):
        if properties[index].key.startswith(_PREFIX):
            del properties[index]
    for key, value in facts.items():
        entry = onnx.StringStringEntryProto(key=_PREFIX + key, value=_text(value))
        properties.append(entry)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _move_references(model: onnx.ModelProto, source: Path, target: Path) -> None:
    """Make references to weights, which are relative, lead there from *target*."""
    before, after = source.resolve().parent, target.resolve().parent
    if before == after:
        return
    for tensor in _tensors(model.graph):
        for entry in tensor.external_data:
            if entry.key != _LOCATION:
                continue
            location = os.path.relpath(before / entry.value, after)
            if location.startswith(os.pardir):
                msg = (
                    f"the weights of {source} are in {entry.value} beside it, and ONNX "
                    f"finds weights only below its own folder: write to {before}, "
                    f"not to {after}"
                )
                raise PerfcError(msg)
            entry.value = Path(location).as_posix()


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Return every tensor of a graph, those of nodes and inner graphs included."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for attribute in chain.from_iterable(node.attribute for node in graph.node):
        yield from (attribute.t, *attribute.tensors)
        for inner in (attribute.g, *attribute.graphs):
            yield from _tensors(inner)
