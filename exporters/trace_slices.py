"""The slices of a trace: ops, runtime calls, kernels and copies, with their arrows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain, compress
from typing import TypeAlias

import attrs
import numpy as np

from perfc.exporters.trace_device import device_slices
from perfc.exporters.trace_events import (
    arrow_start,
    microseconds,
    quoted,
    slice_start,
)
from perfc.exporters.trace_rank import Lane, RankTrace
from perfc.ir import Node, TaskKind, TensorType, Value
from perfc.passes import task_mask
from perfc.tools import Results

_CALLS = frozenset({TaskKind.CALL, TaskKind.SYNC})
_CBIDS = {
    "cudaDeviceSynchronize": 165,
    "cudaEventRecord": 135,
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaStreamSynchronize": 131,
    "cudaStreamWaitEvent": 147,
}
"""CUPTI's numbers of runtime calls, as PyTorch's traces have them."""

_INPUT_TYPES = {
    "f64": "double",
    "f32": "float",
    "f16": "c10::Half",
    "bf16": "c10::BFloat16",
    "f8e4m3": "c10::Float8_e4m3fn",
    "f8e5m2": "c10::Float8_e5m2",
    "i64": "long int",
    "i32": "int",
    "i16": "short int",
    "i8": "signed char",
    "u8": "unsigned char",
    "bool": "bool",
    "c64": "c10::complex<float>",
}
"""Element types by their names in PyTorch's traces; others keep their own."""


def rank_slices(rank: RankTrace, results: Results) -> Iterator[str]:
    """Return every slice of a rank, and the arrows from calls to device tasks."""
    return chain(
        _op_slices(rank, results), _call_slices(rank), device_slices(rank, results)
    )


def _op_slices(rank: RankTrace, results: Results) -> Iterator[str]:
    graph, inputs = rank.graph, _Inputs.of_rank(rank, results)
    heads: dict[tuple[str, int], str] = {}
    shown, resource_of, start_ns, end_ns = rank.op_slices
    ops: list[int] = shown.tolist()
    resources: list[int] = resource_of.tolist()
    columns = zip(
        ops,
        resources,
        microseconds(start_ns),
        microseconds(end_ns - start_ns),
        strict=True,
    )
    for number, resource, start, duration in columns:
        op = graph.ops[number]
        key = op.name, resource
        head = heads.get(key)
        if head is None:
            lane = rank.lanes[resource]
            head = heads[key] = slice_start("cpu_op", op.name, lane)
        yield (
            f'{head}{start},"dur":{duration},"args":{{{rank.external_ids[number]}'
            f'"Record function id":0,{inputs.describe(op.node)}"Ev Idx":{number}}}}}'
        )


def _call_slices(rank: RankTrace) -> Iterator[str]:
    """Return runtime calls; each that issues something starts one arrow."""
    graph, shown = rank.graph, task_mask(rank.graph, _CALLS)
    tasks, issuing = np.flatnonzero(shown), frozenset(graph.issue)
    columns = zip(
        tasks.tolist(),
        compress(zip(graph.detail, graph.resource, strict=True), shown),
        compress(graph.op, shown),
        microseconds(rank.start_ns[tasks]),
        microseconds(rank.end_ns[tasks] - rank.start_ns[tasks]),
        strict=True,
    )
    parts: dict[tuple[str, int], tuple[str, str, str]] = {}
    for task, key, op, start, duration in columns:
        found = parts.get(key)
        if found is None:
            detail, resource = key
            name = detail or graph.kind[task].value
            found = parts[key] = _call_parts(name, rank.lanes[resource])
        head, cbid, arrow = found
        correlation = rank.first_correlation + task
        yield (
            f'{head}{start},"dur":{duration},"args":{{{rank.external_ids[op]}'
            f'{cbid}"correlation":{correlation}}}}}'
        )
        if task in issuing:
            yield f'{arrow}{start},"id":{correlation}}}'


def _call_parts(name: str, lane: Lane) -> tuple[str, str, str]:
    cbid = f'"cbid":{_CBIDS[name]},' if name in _CBIDS else ""
    return slice_start("cuda_runtime", name, lane), cbid, arrow_start("ac2g", lane)


_Types: TypeAlias = tuple[TensorType | None, ...]


@attrs.frozen(eq=False)
class _Inputs:
    """What the trace says of the inputs of ops; equal ones are written once."""

    sources: Mapping[str, Node | Value]
    bindings: Mapping[str, int]
    _written: dict[_Types, str] = attrs.field(factory=dict[_Types, str], init=False)

    @classmethod
    def of_rank(cls, rank: RankTrace, results: Results) -> _Inputs:
        """Take the nodes of a rank, and its inputs, which are copied, by name."""
        graph = results.program.classes[rank.number].ops
        sources: dict[str, Node | Value] = {}
        if graph is not None:
            sources.update((value.name, value) for value in graph.inputs)
            sources.update((node.name, node) for node in graph)
        return cls(sources, results.program.bindings)

    def describe(self, name: str) -> str:
        """Return shapes, types and module of the node of this name."""
        source = self.sources.get(name)
        if isinstance(source, Node):
            types = tuple([value.type for value in source.operands])
            module = quoted(source.location.module)
        else:
            types, module = (source.type,) if source is not None else (), '""'
        inputs = self._written.get(types)
        if inputs is None:
            inputs = self._written[types] = self._write(types)
        return f'{inputs}"Module Hierarchy":{module},"perfc node":{quoted(name)},'

    def _write(self, types: _Types) -> str:
        bound = [None if t is None else t.bind(self.bindings) for t in types]
        dims = [[] if t is None else list(t.shape) for t in bound]
        names = ["" if t is None else t.dtype.name for t in bound]
        names = [_INPUT_TYPES.get(name, name) for name in names]
        return f'"Input Dims":{json.dumps(dims)},"Input type":{json.dumps(names)},'
