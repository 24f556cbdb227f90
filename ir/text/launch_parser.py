"""Read launch graphs from perfc assembly."""

from __future__ import annotations

import math

from perfc.ir import launch
from perfc.ir.record import EMPTY, Record
from perfc.ir.support import VerifyError
from perfc.ir.text.reader import Reader

_KINDS = {kind.value: kind for kind in launch.TaskKind}
_KERNEL_FIELDS = frozenset(
    {"dtype", "math", "flops", "bytes_read", "bytes_written", "params", "known"}
)
_TASK_FIELDS = frozenset(
    {"on", "op", "signature", "issue", "after", "detail", "group", "seconds"}
)


def parse_launches(reader: Reader) -> launch.LaunchGraph:
    """Read `launches @name { ... }` and verify it."""
    reader.expect("launches")
    graph = launch.LaunchGraph(reader.name("symbol"))
    reader.expect("{")
    while not reader.accept("}"):
        word = reader.take("word")
        if word in ("thread", "stream"):
            name = reader.string()
            device = reader.integer() if reader.accept("device") else 0
            graph.resources.append(
                launch.Resource(launch.ResourceKind(word), name, device)
            )
        elif word == "op":
            graph.add_op(_op(reader))
        elif word == "signature":
            known = len(graph.kernels)
            if graph.intern(_kernel(reader)) != known:
                reader.fail("the same signature stands twice")
        elif word in _KINDS:
            _task(reader, graph, _KINDS[word])
        else:
            reader.fail(f"unknown task kind {word!r}; known: {', '.join(_KINDS)}")
    launch.verify_launches(graph)
    return graph


def _op(reader: Reader) -> launch.LaunchOp:
    name = reader.string()
    node = ""
    if reader.accept("node"):
        node = reader.string()
    attributes = reader.record() if reader.at("{") else EMPTY
    return launch.LaunchOp(name, node, attributes)


def _kernel(reader: Reader) -> launch.Kernel:
    op = reader.string()
    fields = reader.record()
    if unknown := set(fields) - _KERNEL_FIELDS:
        reader.fail(f"a signature has no field {min(unknown)!r}")
    params = fields.get("params", EMPTY)
    if not isinstance(params, Record):
        reader.fail("params must be a record")
    try:
        work = launch.Work(
            fields.integer("flops"),
            fields.integer("bytes_read"),
            fields.integer("bytes_written"),
        )
        known = fields.flag("known", default=True)
        return launch.Kernel(
            op, fields.text("dtype"), fields.text("math"), params, work, known
        )
    except VerifyError as problem:
        reader.fail(f"signature: {problem}")


def _task(reader: Reader, graph: launch.LaunchGraph, kind: launch.TaskKind) -> None:
    fields = reader.record()
    if unknown := set(fields) - _TASK_FIELDS:
        reader.fail(f"a task has no field {min(unknown)!r}")
    seconds = fields.get("seconds", math.nan)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        reader.fail("seconds must be a number")
    try:
        graph.task(
            kind,
            fields.integer("on"),
            op=fields.integer("op", -1),
            kernel=fields.integer("signature", -1),
            issue=fields.integer("issue", -1),
            after=fields.integers("after"),
            detail=fields.text("detail", ""),
            group=fields.text("group", ""),
            stated_s=float(seconds),
        )
    except VerifyError as problem:
        reader.fail(f"task: {problem}")
