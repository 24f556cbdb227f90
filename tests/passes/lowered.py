"""Lowering graphs written as text, and looking at what comes of it."""

from __future__ import annotations

from perfc.costmodels import load_target
from perfc.ir import AttrValue, Kernel, LaunchGraph, Program, Record
from perfc.ir.launch import verify_launches
from perfc.ir.text import parse_program
from perfc.passes import LAUNCHES, LowerKernels, PassManager, ShapeInference


def lower(
    program: Program | str, options: LowerKernels | None = None, target: str = ""
) -> LaunchGraph:
    """Lower a program of one rank class; inputs on the device unless asked."""
    if isinstance(program, str):
        program = parse_program(program)
    manager = PassManager((ShapeInference(), options or LowerKernels(inputs="device")))
    system = load_target(target) if target else None
    analysis = manager.run(program, system)
    (graph,) = analysis.annotations.get(LAUNCHES, program, None)
    verify_launches(graph)
    return graph


def one_op(arguments: str, node: str) -> str:
    """Write a graph of one node."""
    return f"graph @g({arguments}) {{ %y = {node} : ?\n return %y }}"


def kernels(graph: LaunchGraph) -> list[Kernel]:
    """List the kernels in the order of their tasks."""
    return [graph.kernels[k] for k in graph.kernel if k != -1]


def record(**items: AttrValue) -> Record:
    """Write a record."""
    return Record(items)


def names(graph: LaunchGraph) -> list[str]:
    """List the ops but for the final synchronisation."""
    return [op.name for op in graph.ops[:-1]]


def launched(graph: LaunchGraph) -> dict[str, list[str]]:
    """Map each op name to the canonical names of its kernels."""
    found: dict[str, list[str]] = {name: [] for name in names(graph)}
    for op, kernel in zip(graph.op, graph.kernel, strict=True):
        if kernel != -1:
            found[graph.ops[op].name].append(graph.kernels[kernel].op)
    return found


LINEAR = one_op(
    "%x: f32[8,13], param %w: f32[64,13], param %b: f32[64]", "linear(%x, %w, %b)"
)
