"""One kernel in place of several: what is launched, what it moves, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from perfc import PerfcError
from perfc.ir import Kernel, LaunchGraph, LaunchOp, Program, Record, TaskKind, Work
from perfc.ir.annotations import Annotations
from perfc.ir.program import RankClass
from perfc.passes import PassManager
from perfc.passes.facts import LAUNCHES
from perfc.passes.lowering import FuseOps
from perfc.tools import Report
from perfc.tools.analysis import run_of
from perfc.tools.request import AnalyzeOptions, Request

DLRM, GPT = "dlrm-default:tables=2,rows=1000", "gpt2:layers=1"


def report(name: str, *fusions: tuple[list[str], float], **options: Any) -> Report:
    """Return the report of a workload with ops fused."""
    asked = Request.of("test", AnalyzeOptions, options, model=name, target="a100")
    run = run_of(asked)
    passes = [*run.passes]
    place = next(
        (n for n, p in enumerate(passes) if p.name in {"capture-graph", "kernel-cost"}),
        1,
    )
    if fusions:
        passes.insert(place, FuseOps.of(fusions))
    run = type(run)(run.model, run.target, tuple(passes))
    return Report(run, run.analysis())


def node(found: Report, name: str) -> dict[str, Any]:
    """Return the entry of a node."""
    entries: list[dict[str, Any]] = [n for n in found.nodes if n["id"] == name]
    (entry,) = entries
    return entry


def test_loops_become_one_loop() -> None:
    """What one writes for another is not moved; what both read is read once."""
    act = "transformer.h.0.mlp.act.gelu"
    plain = report(GPT, batch=2)
    fused = report(GPT, ([act], 0.0), batch=2)
    size = 2 * 1024 * 3072 * 4
    launches = plain.summary["launches"] - fused.summary["launches"]
    (kernel,) = [k for k in fused.results.graphs[0].kernels if k.op == "triton_poi"]

    assert launches == 7
    assert kernel.params.integer("rows") == 2 * 1024 * 3072
    assert node(fused, act)["fuses"] == [act]
    assert node(fused, act)["bytes"] == 2 * size
    steps = [entry for entry in plain.nodes if entry["id"] == act]
    assert sum(entry["flops"] for entry in steps) == node(fused, act)["flops"]
    assert sum(entry["bytes"] for entry in steps) > 8 * size
    assert fused.time_us < plain.time_us


def test_a_gemm_takes_loops_along() -> None:
    """The GEMM stays what it is, and moves what comes and goes."""
    names = ["bot_l.0.linear", "bot_l.1.relu"]
    plain, fused = report(DLRM, batch=512), report(DLRM, (names, 0.0), batch=512)
    before = [node(plain, name) for name in names]
    after = node(fused, names[-1])
    saved = 2 * 512 * 512 * 4

    assert after["cost_model"] == "gemm"
    assert sum(entry["flops"] for entry in before) == after["flops"]
    assert sum(entry["bytes"] for entry in before) - saved == after["bytes"]
    assert after["module"] == "bot_l.*"
    assert {"bot_l.0.linear"}.isdisjoint(entry["id"] for entry in fused.nodes)


def test_a_split_sum_keeps_its_second_kernel() -> None:
    """What adds up the parts of a GEMM takes the loops behind it along."""
    names = ["bot_l.0.linear", "bot_l.1.relu"]
    plain, fused = report(DLRM, batch=64), report(DLRM, (names, 0.0), batch=64)
    (op,) = [
        n
        for n, op in enumerate(fused.results.graphs[0].ops)
        if "relu" in op.name and op.node == names[-1]
    ]
    graph = fused.results.graphs[0]
    kernels = [
        graph.kernels[kernel].op
        for kernel, own in zip(graph.kernel, graph.op, strict=True)
        if own == op and kernel >= 0
    ]

    assert kernels == ["gemm", "triton_poi"]
    assert plain.summary["launches"] - fused.summary["launches"] == 1


def test_a_kernel_of_known_duration() -> None:
    """It takes what it is said to take, whatever it replaces."""
    names = ["top_l.0.linear", "top_l.1.relu", "top_l.2.linear"]
    found = node(report(DLRM, (names, 12.5), batch=64), names[-1])

    assert found["duration_us"] == pytest.approx(12.5)
    assert found["cost_model"] == "stated"


def test_a_graph_has_fewer_nodes() -> None:
    """In a CUDA graph the kernels are fused before it is captured."""
    names = ["bot_l.0.linear", "bot_l.1.relu"]
    plain = report(DLRM, batch=64, runtime="cudagraph")
    fused = report(DLRM, (names, 0.0), batch=64, runtime="cudagraph")

    assert plain.summary["launches"] - fused.summary["launches"] == 1
    assert fused.time_us < plain.time_us


def test_memory_without_what_stays_in_registers() -> None:
    """What only the fused kernel reads takes no memory."""
    act = "transformer.h.0.mlp.act.gelu"
    names = ["transformer.h.0.mlp.c_fc.addmm", act]
    plain, fused = report(GPT, batch=2), report(GPT, (names, 0.0), batch=2)

    assert fused.memory_use.peak_bytes <= plain.memory_use.peak_bytes


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["bot_l.0.linear", "bot_l.3.relu"], "'bot_l.1.relu' .* runs between them"),
        (["bot_l.0.linear", "no_such"], "'no_such' launches nothing"),
        (["no_such"], "'no_such'"),
        (["dense", "indices_0"], "'dense' .* has a copy"),
        (
            ["bot_l.0.linear", "bot_l.1.relu", "bot_l.2.linear"],
            "2 kernels that are no loops over elements .'gemm'.",
        ),
    ],
)
def test_what_cannot_be_one_kernel(names: list[str], said: str) -> None:
    """One line names the op that is in the way."""
    with pytest.raises(PerfcError, match=said) as caught:
        report(DLRM, (names, 0.0), batch=64)

    assert "\n" not in str(caught.value)


def test_not_across_a_synchronisation() -> None:
    """No kernel spans a wait of the host."""
    with pytest.raises(PerfcError, match="synchronises"):
        _across_a_wait(["a", "b"])


def _across_a_wait(names: list[str]) -> None:
    graph = LaunchGraph("g")
    thread, stream = graph.thread(), graph.stream()
    params = Record({"kind": "add", "rows": 8, "cols": 8})
    kernel = graph.intern(Kernel("elementwise", "fp32", "fp32", params, Work(1, 1, 1)))
    for number, name in enumerate(names):
        op = graph.add_op(LaunchOp("aten::add", name))
        graph.launch(
            TaskKind.KERNEL,
            thread,
            stream,
            op=op,
            kernel=kernel,
            call="cudaLaunchKernel",
        )
        if not number:
            wait = graph.add_op(LaunchOp("cudaStreamSynchronize"))
            graph.task(TaskKind.SYNC, thread, op=wait, after=(1,))
    program = Program("p", (RankClass((0,), launches=graph),))
    facts = Annotations()
    facts.set(LAUNCHES, program, (graph,), None)
    passes = [FuseOps.of([(names, 3.0)])]
    PassManager(passes, given=frozenset({LAUNCHES})).run(program, None, None, facts)


@pytest.mark.parametrize(
    ("ops", "us"),
    [("", "0"), ("[3]", "0"), ("a b", "-1"), ('[["a"]]', "[1, 2]"), ("[", "0")],
)
def test_options_that_mean_nothing(ops: str, us: str) -> None:
    """One line says what was expected."""
    with pytest.raises(PerfcError, match="expected ids of nodes"):
        _ = FuseOps(ops, us).fusions


def test_options_as_text() -> None:
    """One fusion is ids with spaces; several are JSON."""
    assert FuseOps("a b", "2.5").fusions == [(("a", "b"), 2.5)]
    assert FuseOps.of([(("a",), 0.0), (("b", "c"), 1.5)]).fusions == [
        (("a",), 0.0),
        (("b", "c"), 1.5),
    ]
