"""Write launch graphs and programs as perfc assembly."""

from __future__ import annotations

import math
from collections.abc import Callable

from perfc.ir.launch import Kernel, LaunchGraph
from perfc.ir.program import Program, RankClass
from perfc.ir.record import AttrValue, Record, format_items
from perfc.ir.support import name_text, quote, word_text
from perfc.ir.text.printer import Comment, comment_text, print_graph

TaskComment = Callable[[LaunchGraph, int], str]
"""Text to print behind a task, without the slashes; empty for none."""


def print_launches(graph: LaunchGraph, comment: TaskComment | None = None) -> str:
    """Return the canonical text of *graph*, facts as trailing comments."""
    lines = [f"launches @{name_text(graph.name)} {{"]
    for resource in graph.resources:
        line = f"  {resource.kind.value} {quote(resource.name)}"
        lines.append(line + (f" device {resource.device}" if resource.device else ""))
    for op in graph.ops:
        line = f"  op {quote(op.name)}"
        line += f" node {quote(op.node)}" if op.node else ""
        line += f" {{{format_items(op.attributes)}}}" if op.attributes else ""
        lines.append(line)
    lines += [f"  signature {_kernel_text(kernel)}" for kernel in graph.kernels]
    for index in range(len(graph)):
        note = comment(graph, index) if comment is not None else ""
        lines.append(f"  {_task_text(graph, index)}{comment_text(note)}")
    return "\n".join([*lines, "}"]) + "\n"


def _kernel_text(kernel: Kernel) -> str:
    fields: dict[str, AttrValue] = {
        "dtype": kernel.dtype,
        "math": kernel.math,
        "flops": kernel.work.flops,
        "bytes_read": kernel.work.bytes_read,
        "bytes_written": kernel.work.bytes_written,
        "params": kernel.params,
    }
    if not kernel.known:
        fields["known"] = False
    return f"{quote(kernel.op)} {{{format_items(fields)}}}"


def _task_text(graph: LaunchGraph, index: int) -> str:
    fields: dict[str, AttrValue] = {"on": graph.resource[index]}
    for name, column in (
        ("op", graph.op),
        ("signature", graph.kernel),
        ("issue", graph.issue),
    ):
        if column[index] != -1:
            fields[name] = column[index]
    if graph.after[index]:
        fields["after"] = graph.after[index]
    if graph.detail[index]:
        fields["detail"] = graph.detail[index]
    if graph.group[index]:
        fields["group"] = graph.group[index]
    if not math.isnan(graph.stated_s[index]):
        fields["seconds"] = graph.stated_s[index]
    return f"{graph.kind[index].value} {{{format_items(Record(fields))}}}"


def print_program(
    program: Program,
    comment: Comment | None = None,
    task_comment: TaskComment | None = None,
) -> str:
    """Return the canonical text of *program*; one rank's graph stands alone."""
    texts = [_class_text(rank, comment, task_comment) for rank in program.classes]
    if _stands_alone(program):
        return "".join(texts)
    lines = [f"program @{name_text(program.name)} {{"]
    lines += [f"  bind {word_text(name)} = {number}" for name, number in program.bound]
    for rank, text in zip(program.classes, texts, strict=True):
        ranks = ", ".join(map(str, rank.ranks))
        lines.append(f"  ranks [{ranks}] {{")
        lines += [f"    {line}" for line in text.rstrip("\n").split("\n")]
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def _stands_alone(program: Program) -> bool:
    if program.bound or [rank.ranks for rank in program.classes] != [(0,)]:
        return False
    rank = program.classes[0]
    names = [g.name for g in (rank.ops, rank.launches) if g is not None]
    return names == [program.name]


def _class_text(
    rank: RankClass, comment: Comment | None, task_comment: TaskComment | None
) -> str:
    text = "" if rank.ops is None else print_graph(rank.ops, comment)
    if rank.launches is not None:
        text += print_launches(rank.launches, task_comment)
    return text
