"""What PyTorch runs on a CPU: one kernel an op, inside the op."""

from __future__ import annotations

import attrs
import pytest
from tests.passes.launch_graphs import TARGET, analyse, random_case
from tests.passes.lowered import kernels, launched, lower, one_op
from tests.passes.simulator import DeadlockError, Simulator

from perfc import analyze, load
from perfc.costmodels import NEW
from perfc.ir import TaskKind
from perfc.ir.launch import HOST_KINDS
from perfc.passes import LowerKernels

MODEL = "dlrm-default:embedding=bag,tables=2"


def _on_cpu(text: str) -> list[str]:
    return [kernel.op for kernel in kernels(lower(text, target="cpu"))]


@pytest.mark.parametrize(
    ("arguments", "node", "expected"),
    [
        (
            "%x: f32[8, 4096], %w: f32[64, 4096], %b: f32[64]",
            "linear(%x, %w, %b)",
            ["gemm"],
        ),
        (
            "%x: f32[8, 64, 28, 28], %w: f32[64, 64, 3, 3], %b: f32[64]",
            "conv(%x, %w, %b) {padding = [1, 1, 1, 1]}",
            ["conv2d"],
        ),
        ("%x: f32[512, 512]", "softmax(%x) {axis = -1}", ["softmax"]),
    ],
)
def test_an_op_is_one_kernel(arguments: str, node: str, expected: list[str]) -> None:
    """No parts of a split GEMM, no transforms of cuDNN, no bias of its own."""
    assert expected == _on_cpu(one_op(arguments, node))


def test_large_slices_are_selected_from_once() -> None:
    """No passes of several blocks: a processor walks through each slice."""
    found = _on_cpu("""graph @g(%x: f32[1,30000]) {
      %k = constant() {dtype = !i64, shape = [1], elements = [2]} : ?
      %v, %p = topk(%x, %k) {axis = 1} : ?, ?
      return %v, %p }""")

    assert ["topk", "sort"] == found


@pytest.mark.parametrize(("rows", "new"), [(16383, False), (16384, True)])
def test_large_results_are_mapped_anew(rows: int, *, new: bool) -> None:
    """From 32 MiB on, in inference too: the heap does not hold them."""
    (kernel,) = kernels(
        lower(one_op(f"%x: f32[{rows}, 512]", "relu(%x)"), target="cpu")
    )

    assert new == kernel.params.flag(NEW)


def test_nothing_is_copied_or_waited_for() -> None:
    """Inputs are where they are, and the last kernel ends the iteration."""
    program = one_op("%x: f32[512, 512]", "relu(%x)")
    graph = lower(program, LowerKernels(inputs="host-pinned"), target="cpu")

    assert [TaskKind.CALL, TaskKind.KERNEL] == graph.kind
    assert {"aten::relu"} == {op.name for op in graph.ops}


def test_optimizers_go_from_tensor_to_tensor() -> None:
    """What is one multi-tensor kernel on a GPU is an op for each tensor on a CPU."""
    graph = "%a: f32[64], %b: f32[32], %c: f32[64], %d: f32[32]"
    text = one_op(graph, "relu(%a)").replace(
        "%y = relu(%a) : ?",
        '%y, %z = foreach(%a, %b, %c, %d) {kind = "add", lists = 2, in_place = true}'
        " : ?, ?",
    )

    assert ["aten::add_", "aten::add_"] == [
        op.name for op in lower(text, target="cpu").ops
    ]
    on_gpu = launched(lower(text, target="v100"))
    assert {"aten::_foreach_add_": ["foreach"]} == on_gpu


def test_an_iteration_is_the_sum_of_host_and_kernels() -> None:
    """The host waits inside each call, so that nothing overlaps."""
    report = analyze(load(MODEL, batch=64, mode="training"), "cpu")
    graph = report.results.hosted[0].graph
    seconds = report.results.schedule.duration_s
    kinds = set(graph.kind)

    assert kinds <= HOST_KINDS | {TaskKind.KERNEL}
    assert pytest.approx(sum(seconds) * 1e6) == report.time_us
    assert {"cpu"} == set(report.results.costs[0].model)


def test_a_synchronous_device_runs_as_simulated() -> None:
    """Starts and ends agree with the simulator whose calls wait for their kernels."""
    device = attrs.evolve(
        TARGET.device, synchronous=True, stream_gap_s=0.0, graph_gap_s=0.0
    )
    runtime = attrs.evolve(TARGET.runtime, launch_latency_s=0.0)
    target = attrs.evolve(TARGET, device=device, runtime=runtime)
    compared = 0
    for seed in range(150):
        case = random_case(seed)
        simulator = Simulator(case.graphs, case.seconds, 0.0, 0.0, 0.0, True)
        try:
            simulator.run()
        except DeadlockError:
            continue
        schedule = analyse(case, target).schedule
        starts = [simulator.start_s[task] for task in case.flat()]
        assert pytest.approx(starts, rel=1e-9, abs=1e-18) == schedule.start_s
        compared += 1

    assert compared > 50
