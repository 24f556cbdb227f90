"""What the host pays around its calls."""

from __future__ import annotations

import math
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfc
from perfc.costmodels import HostProfile, PerName, Target, load_profile, load_target
from perfc.fitting.profile_file import ProfileHead, profile_text
from perfc.ir import (
    NO_WORK,
    Kernel,
    LaunchGraph,
    LaunchOp,
    PerfcError,
    Record,
    TaskKind,
    UsageError,
)
from perfc.ir.launch import verify_launches
from perfc.ir.record import EMPTY
from perfc.ir.text import parse_program
from perfc.passes import LAUNCHES, LowerKernels, PassManager, ShapeInference
from perfc.passes.facts import HOSTED, HostedLaunches
from perfc.passes.timing import Overhead, host_launches

PROFILE = HostProfile(
    name="test",
    t1_s=1.0,
    t2_s=PerName(10.0, {"aten::linear": 20.0}),
    t3_s=PerName(100.0, {}),
    t5_s=PerName(1000.0, {}),
    t0_s=PerName(5.0, {"aten::view": 7.0}),
    calls_s=PerName(0.5, {"cudaMemcpyAsync": 0.25, "cudaStreamSynchronize": 0.125}),
    graph_node_s=0.03125,
    compiled_s={"graph": 2000.0, "kernel": 200.0, "call": 2.0},
    sigma_shared=0.2,
    sigma_independent=0.3,
    source="a test",
    date="2026-01-01",
    software="none",
)
KERNEL = Kernel("test.op", "fp32", "fp32", EMPTY, NO_WORK)


def graph_of(*ops: tuple[str, int]) -> LaunchGraph:
    """Build a launch graph of ops by name and number of launches."""
    graph = LaunchGraph("t")
    thread, stream = graph.thread(), graph.stream()
    kernel = graph.intern(KERNEL)
    for name, count in ops:
        op = graph.add_op(LaunchOp(name))
        for _ in range(count):
            call = graph.task(TaskKind.CALL, thread, op=op, detail="cudaLaunchKernel")
            graph.task(TaskKind.KERNEL, stream, op=op, kernel=kernel, issue=call)
    return graph


def host_tasks(hosted: HostedLaunches) -> list[tuple[str, float]]:
    """List detail and seconds of the host tasks."""
    verify_launches(hosted.graph)
    return [
        (detail, float(seconds))
        for detail, seconds in zip(hosted.graph.detail, hosted.host_s, strict=True)
        if not math.isnan(seconds)
    ]


def run(
    text: str, overhead: Overhead, target: str | Target | None = None
) -> HostedLaunches:
    """Run the passes up to `overhead` on a program of one rank class."""
    program = parse_program(text)
    manager = PassManager((ShapeInference(), LowerKernels(inputs="device"), overhead))
    system = load_target(target) if isinstance(target, str) else target
    analysis = manager.run(program, system)
    (hosted,) = analysis.annotations.get(HOSTED, program, None)
    return hosted


def test_segments_of_an_op() -> None:
    """T1, T2, T4, T5 between launches, T3."""
    hosted = host_launches(graph_of(("aten::linear", 2)), PROFILE)

    assert [
        ("T1", 1.0),
        ("T2", 20.0),
        ("cudaLaunchKernel", 0.5),
        ("T5", 1000.0),
        ("cudaLaunchKernel", 0.5),
        ("T3", 100.0),
    ] == host_tasks(hosted)


def test_op_without_launches() -> None:
    """A view costs T1 and its whole duration, which the paper counts as T5."""
    hosted = host_launches(graph_of(("aten::view", 0), ("aten::t", 0)), PROFILE)

    assert [("T1", 1.0), ("T5", 7.0), ("T1", 1.0), ("T5", 5.0)] == host_tasks(hosted)


def test_borders_of_phases_are_no_t1() -> None:
    """Where a profile knows them, phases and threads change at a price of their own."""
    between = {"begin": 2.0, "phase": 3.0, "hand_over": 4.0, "hand_back": 6.0}
    between["end"] = 8.0
    profile = attrs.evolve(PROFILE, between_s=between)
    graph = graph_of(*[("aten::t", 0)] * 7)
    phases = ["", "forward", "forward", "loss", "backward", "optimizer", ""]

    hosted = host_launches(graph, profile, phases)
    without = host_launches(graph, PROFILE, phases)

    times = [us for detail, us in host_tasks(hosted) if detail == "T1"]
    assert [1.0, 2.0, 1.0, 3.0, 4.0, 6.0, 1.0, 8.0] == times
    assert [1.0] * 7 == [us for detail, us in host_tasks(without) if detail == "T1"]


def test_a_learnt_host_prices_the_borders_of_a_step(tmp_path: Path) -> None:
    """`--overheads` uses a trace's profile whole: begin, hand-overs, end of a step."""
    model = perfc.load("dlrm-ddp:tables=2,rows=100", batch=8, mode="training")
    head = ProfileHead(name="mine", source="a test", date="2026-01-01", software="none")
    base = load_profile("shared")
    between = {"begin": 1e-3, "hand_over": 2e-3, "hand_back": 3e-3, "end": 4e-3}

    host_us: list[float] = []
    for times in ({}, between):
        path = tmp_path / "host.toml"
        host = attrs.evolve(base, between_s=times)
        path.write_text(profile_text(head, host=host), encoding="utf-8")
        report = perfc.analyze(model, target="v100", overheads=str(path))
        host_us.append(report.summary["host_us"])

    assert host_us[1] - host_us[0] == pytest.approx(10e3 - 3e6 * base.t1_s, rel=1e-3)


def test_segments_belong_to_their_op() -> None:
    """Host segments carry the op they belong to; the order of ops stays."""
    hosted = host_launches(graph_of(("a", 1), ("b", 0), ("c", 2)), PROFILE)

    assert sorted(hosted.graph.op) == hosted.graph.op
    assert [0] * 5 + [1] * 2 + [2] * 8 == hosted.graph.op


def test_kernels_are_those_of_the_launches() -> None:
    """Signatures keep their numbers, device tasks their calls; they cost no host."""
    graph = graph_of(("a", 2), ("b", 1))
    graph.intern(Kernel("test.op", "bf16", "fp32", EMPTY, NO_WORK))
    hosted = host_launches(graph, PROFILE)

    assert graph.kernels == hosted.graph.kernels
    kinds = hosted.graph.kind
    tasks = [task for task, kind in enumerate(kinds) if kind is TaskKind.KERNEL]
    assert [TaskKind.CALL] * 3 == [kinds[hosted.graph.issue[task]] for task in tasks]
    assert all(math.isnan(hosted.host_s[task]) for task in tasks)


def test_blocking_copy() -> None:
    """The wait after a pageable copy is a call of the op: T3 follows it."""
    graph = LaunchGraph("t")
    thread, stream = graph.thread(), graph.stream()
    op = graph.add_op(LaunchOp("aten::to"))
    call = graph.task(TaskKind.CALL, thread, op=op, detail="cudaMemcpyAsync")
    copy = graph.task(
        TaskKind.COPY, stream, op=op, kernel=graph.intern(KERNEL), issue=call
    )
    graph.task(
        TaskKind.SYNC, thread, op=op, after=(copy,), detail="cudaStreamSynchronize"
    )
    hosted = host_launches(graph, PROFILE)

    assert [
        ("T1", 1.0),
        ("T2", 10.0),
        ("cudaMemcpyAsync", 0.25),
        ("cudaStreamSynchronize", 0.125),
        ("T3", 100.0),
    ] == host_tasks(hosted)
    assert (3,) == hosted.graph.after[4]


def test_event_call_is_no_launch() -> None:
    """No T5 comes before a call that puts no work on a stream."""
    graph = LaunchGraph("t")
    thread = graph.thread()
    op = graph.add_op(LaunchOp("a"))
    for call in ("cudaLaunchKernel", "cudaEventRecord"):
        graph.task(TaskKind.CALL, thread, op=op, detail=call)
    details = [detail for detail, _ in host_tasks(host_launches(graph, PROFILE))]

    assert ["T1", "T2", "cudaLaunchKernel", "cudaEventRecord", "T3"] == details


def test_bare_synchronisation() -> None:
    """Waiting for the device is no op of PyTorch: T1 and the call."""
    text = "graph @g() { %y = test.op() {us = 1} : f32[1]\n return %y }"
    hosted = run(text, Overhead())

    shared = load_profile("shared")
    assert [
        ("T1", shared.t1_s),
        ("cudaDeviceSynchronize", shared.calls_s.of("cudaDeviceSynchronize")),
    ] == host_tasks(hosted)[-2:]


LINEAR = (
    "graph @g(%x: f32[4,8], param %w: f32[2,8]) { %y = linear(%x, %w) : ? return %y }"
)


@pytest.mark.parametrize(
    ("overhead", "name"), [(Overhead(), "shared"), (Overhead("lin-v100"), "lin-v100")]
)
def test_profile_of_the_option(overhead: Overhead, name: str) -> None:
    """Without a target and an option the profile is `shared`."""
    hosted = run(LINEAR, overhead)

    profile = load_profile(name)
    assert ("T2", profile.t2_s.of("aten::linear")) == host_tasks(hosted)[1]
    assert profile.sigma_shared == hosted.sigma_shared
    assert profile.sigma_independent == hosted.sigma_independent


def test_profile_of_the_target() -> None:
    """A target names its own profile."""
    target = load_target("a100")
    hosted = run(LINEAR, Overhead(), "a100")

    profile = load_profile(target.host.overheads)
    assert ("T1", profile.t1_s) == host_tasks(hosted)[0]


@pytest.mark.parametrize("name", ["", "lin-v100"])
def test_a_host_of_known_speed(name: str) -> None:
    """The target's host says how fast it is beside the profile, whichever it is."""
    target = load_target("a100", {"host.speed": "1.5"})
    hosted = run(LINEAR, Overhead(name), target)

    profile = load_profile(name or "shared").at_speed(1.5)
    assert ("T1", profile.t1_s) == host_tasks(hosted)[0]
    assert profile.sigma_shared == hosted.sigma_shared


def test_unknown_profile() -> None:
    """An unknown profile is the caller's mistake."""
    with pytest.raises(UsageError, match="unknown host profile 'fast'"):
        run(LINEAR, Overhead("fast"))


def test_missing_profile_file(tmp_path: Path) -> None:
    """A path that leads nowhere is named."""
    with pytest.raises(PerfcError, match="cannot read the host profile"):
        run(LINEAR, Overhead(str(tmp_path / "p.toml")))


GIVEN = """launches @t {
  thread "main" stream "s0"
  signature "test.op" {dtype = "fp32", math = "fp32", flops = 0, bytes_read = 4,
    bytes_written = 4}
  host {on = 0, detail = "T1", seconds = 0.001}
  call {on = 0, detail = "cudaLaunchKernel"}
  kernel {on = 1, signature = 0, issue = 1, seconds = 0.002}
  sync {on = 0, after = [2], detail = "cudaDeviceSynchronize", seconds = 0.003}
}"""


def test_given_launches_keep_their_host_tasks() -> None:
    """A trace has its host times; only calls without one take the profile's."""
    hosted = run(GIVEN, Overhead("lin-v100"))

    assert [
        ("T1", 0.001),
        ("cudaLaunchKernel", pytest.approx(4e-6)),
        ("cudaDeviceSynchronize", 0.003),
    ] == host_tasks(hosted)
    assert 4 == len(hosted.graph)


def test_given_host_task_without_time() -> None:
    """A host segment of a trace cannot be guessed."""
    with pytest.raises(PerfcError, match=r"task 0 of @t: a host task .* \(T1\)"):
        run(GIVEN.replace(", seconds = 0.001", ""), Overhead())


@pytest.mark.parametrize(("name", "join_s"), [("shared", 0.0), ("lin-v100", 33.76e-6)])
def test_a_host_that_says_what_joining_parts_takes(name: str, join_s: float) -> None:
    """A second launch within a library's call costs what the host's profile says."""
    text = GIVEN.replace("kernel {on = 1,", 'kernel {detail = "parts", on = 1,')
    hosted = run(text, Overhead(name))

    call, seconds = host_tasks(hosted)[1]
    assert "cudaLaunchKernel" == call
    assert pytest.approx(join_s) == seconds


def test_launches_are_required() -> None:
    """The pass says what it reads."""
    assert {LAUNCHES} == Overhead.requires


@given(st.lists(st.tuples(st.sampled_from(["a", "aten::view"]), st.integers(0, 4))))
def test_host_time_is_the_sum_of_the_parts(ops: list[tuple[str, int]]) -> None:
    """The host thread takes the sum over its ops, whatever they are."""
    hosted = host_launches(graph_of(*ops), PROFILE)

    expected = sum(
        1.0
        + (10.0 + 0.5 * n + 1000.0 * (n - 1) + 100.0 if n else PROFILE.t0_s.of(name))
        for name, n in ops
    )
    assert pytest.approx(expected) == sum(seconds for _, seconds in host_tasks(hosted))


def test_python_of_a_compiled_graph() -> None:
    """A graph, each generated kernel and each outside call cost their own Python.

    A linear layer is called as `addmm`, which takes 0.77 of its time before the launch.
    """
    graph = LaunchGraph("t")
    thread, stream = graph.thread(), graph.stream()
    kernel = graph.intern(KERNEL)
    graph.add_op(LaunchOp("region", "", Record({"compiled": "graph"})))
    for name, role in (("triton_poi_fused_relu", "kernel"), ("aten::linear", "call")):
        op = graph.add_op(LaunchOp(name, "", Record({"compiled": role})))
        graph.launch(
            TaskKind.KERNEL, thread, stream, op=op, kernel=kernel, call="cuLaunchKernel"
        )
    hosted = host_launches(graph, PROFILE)

    segments = zip(hosted.graph.op, hosted.graph.detail, hosted.host_s, strict=True)
    expected = [
        (0, "T1", 2000.0),
        (1, "T1", 200.0),
        (1, "cuLaunchKernel", 0.5),
        (2, "T1", 2.0),
        (2, "T2", 0.77 * 20.0),
        (2, "cuLaunchKernel", 0.5),
        (2, "T3", 100.0),
    ]
    assert expected == [segment for segment in segments if segment[2] == segment[2]]
