"""The slices of a trace: ops, runtime calls, kernels and copies, with their arrows."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Mapping
from itertools import compress
from typing import NamedTuple

import numpy as np

from perfc.exporters.kineto.device import device_slices
from perfc.exporters.kineto.events import (
    arrow_start,
    arrows,
    events,
    microseconds,
    quoted,
    slice_start,
)
from perfc.exporters.kineto.rank import CALL_KINDS, Lane, RankTrace
from perfc.exporters.kineto.sync import sync_slices
from perfc.ir import TensorType
from perfc.ir.launch import BUSY_KINDS
from perfc.passes import task_mask
from perfc.tools import Results

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


def rank_slices(rank: RankTrace, results: Results) -> list[str]:
    """Return every slice of a rank, and the arrows from calls to device tasks."""
    slices = _op_slices(rank, results)
    slices += _call_slices(rank)
    slices += sync_slices(rank)
    slices += device_slices(rank, results)
    return slices


def _op_slices(rank: RankTrace, results: Results) -> list[str]:
    arguments, unknown = _arguments_by_node(rank, results), _arguments({}, "", ())
    shown, resource, start_ns, end_ns = rank.op_slices
    numbers: list[int] = shown.tolist()
    ops = [*map(rank.graph.ops.__getitem__, numbers)]
    nodes = [op.node for op in ops]
    resources: list[int] = resource.tolist()
    keys = list(zip([op.name for op in ops], resources, strict=True))
    heads = {
        key: slice_start("cpu_op", key[0], rank.lanes[key[1]]) for key in set(keys)
    }
    return events(
        [heads[key] for key in keys],
        microseconds(start_ns),
        ',"dur":',
        microseconds(end_ns - start_ns),
        [*map(rank.external_ids.__getitem__, numbers)],
        [arguments.get(node, unknown) for node in nodes],
        [*map(quoted, nodes)],
        ',"Ev Idx":',
        list(map(str, numbers)),
        "}}",
    )


def _call_slices(rank: RankTrace) -> list[str]:
    """Return runtime calls, then an arrow from each that issues something."""
    graph, shown = rank.graph, task_mask(rank.graph, CALL_KINDS)
    calls, chosen = np.flatnonzero(shown), shown.tolist()
    called = compress(zip(graph.detail, graph.kind, strict=True), chosen)
    names = [detail or kind.value for detail, kind in called]
    keys = list(zip(names, compress(graph.resource, chosen), strict=True))
    parts = {key: _CallPart.of(key[0], rank.lanes[key[1]]) for key in set(keys)}
    equal = [parts[key] for key in keys]
    times = microseconds(rank.start_ns[calls])
    correlations = rank.correlations(calls)
    slices = events(
        [part.head for part in equal],
        times,
        ',"dur":',
        microseconds(rank.end_ns[calls] - rank.start_ns[calls]),
        [*map(rank.external_ids.__getitem__, rank.op[calls].tolist())],
        [part.cbid for part in equal],
        correlations,
        "}}",
    )
    busy = task_mask(graph, BUSY_KINDS)
    issues = np.isin(calls, rank.issue[busy]).tolist()
    starts = ([part.arrow for part in equal], times, correlations)
    slices += arrows(*(list(compress(column, issues)) for column in starts))
    return slices


class _CallPart(NamedTuple):
    """What equal calls share: beginning, number of the call, beginning of the arrow."""

    head: str
    cbid: str
    arrow: str

    @classmethod
    def of(cls, name: str, lane: Lane) -> _CallPart:
        cbid = f'"cbid":{_CBIDS[name]},' if name in _CBIDS else ""
        head = slice_start("cuda_runtime", name, lane)
        return cls(head, f'{cbid}"correlation":', arrow_start("ac2g", lane))


def _arguments_by_node(rank: RankTrace, results: Results) -> dict[str, str]:
    """Return the input arguments of ops, by node; equal ones are written once.

    An op of an input copies it to the device.
    """
    graph = results.program.classes[rank.number].ops
    if graph is None:
        return {}
    type_ = operator.attrgetter("type")  # quicker than a comprehension
    write = functools.cache(functools.partial(_arguments, results.program.bindings))
    found = {value.name: write("", (value.type,)) for value in graph.inputs}
    for node in graph:
        found[node.name] = write(node.location.module, tuple(map(type_, node.operands)))
    return found


def _arguments(
    bindings: Mapping[str, int], module: str, types: tuple[TensorType | None, ...]
) -> str:
    """Return the arguments of an op up to the name of its node."""
    bound = [None if t is None else t.bind(bindings) for t in types]
    dims = [[] if t is None else list(t.shape) for t in bound]
    names = ["" if t is None else t.dtype.name for t in bound]
    names = [_INPUT_TYPES.get(name, name) for name in names]
    return (
        f'"Record function id":0,"Input Dims":{json.dumps(dims)},'
        f'"Input type":{json.dumps(names)},'
        f'"Module Hierarchy":{quoted(module)},"perfc node":'
    )
