"""From a trace to a launch graph that takes as long."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.traces.synthetic import AUTOGRAD, Made

from perfc.ir import TaskKind
from perfc.ir.launch import verify_launches
from perfc.tools.replay.replay import replay_alone
from perfc.traces import Gap, Recorded, recording
from perfc.traces.kineto import read_trace
from perfc.traces.recording import record

_LATENCY_US, _GAP_US, _TAIL_US = 5, 2, 6


def _recorded(made: Made, tmp_path: Path) -> Recorded:
    found = record(read_trace(made.write(tmp_path / "t.json")))
    verify_launches(found.graph)
    return found


def _details(found: Recorded, kind: TaskKind) -> list[str]:
    graph = found.graph
    return [graph.detail[t] for t, own in enumerate(graph.kind) if own is kind]


class _Machine:
    """A host and a stream, simulated on their own, that write down what they do."""

    def __init__(self) -> None:
        self.made = Made()
        self.now = 0.0
        self.free: float | None = None

    def op(self, before_us: int, launches: list[tuple[int, int, int]]) -> None:
        """Run an op of launches: host time before, of the call, and of the kernel."""
        start = self.now = self.now + before_us
        for host_us, call_us, kernel_us in launches:
            self.launch(host_us, call_us, kernel_us)
        self.now += 3
        self.made.op("aten::add", start, self.now - start)

    def launch(self, host_us: int, call_us: int, kernel_us: int) -> None:
        """Launch a kernel."""
        call = self.now + host_us
        self.now = call + call_us
        begin = self.now + _LATENCY_US
        if self.free is not None:
            begin = max(begin, self.free + _GAP_US)
        self.made.launch(call, call_us, begin, kernel_us)
        self.free = begin + kernel_us

    def sync(self) -> None:
        """Wait for the stream."""
        start = self.now + 1
        self.now = max(start, self.free or 0.0) + _TAIL_US
        self.made.call("cudaStreamSynchronize", start, self.now - start)


_LAUNCH = st.tuples(st.integers(1, 40), st.integers(1, 12), st.integers(1, 400))
_STEP = st.none() | st.tuples(st.integers(1, 90), st.lists(_LAUNCH, max_size=4))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(steps=st.lists(_STEP, max_size=25))
def test_what_ran_runs_again(
    tmp_path: Path, steps: list[tuple[int, list[tuple[int, int, int]]] | None]
) -> None:
    """Ops, launches, kernels and waits all begin when they did."""
    machine = _Machine()
    # An idle stream shows the latency, a busy one the gap.
    machine.op(20, [(1, 2, 500), (1, 2, 500), (1, 2, 5)])
    for step in steps:
        if step is None:
            machine.sync()
        else:
            machine.op(*step)
    found = _recorded(machine.made, tmp_path)

    (again,) = replay_alone([found])

    assert (found.launch_latency_us, found.stream_gap_us) == (_LATENCY_US, _GAP_US)
    assert again.simulated_us == pytest.approx(found.measured_us, abs=1e-6)
    assert again.start_us == pytest.approx(found.start_us, abs=1e-6)


def test_an_op_is_taken_apart(tmp_path: Path) -> None:
    """T2, T5, T3 around launches, T0 without any, T1 between ops."""
    made = Made()
    made.op("aten::linear", 10, 40)
    made.launch(15, 5, 25, 3)
    made.launch(26, 5, 36, 3)
    made.op("aten::view", 52, 3)
    made.op("aten::relu", 60, 20)
    made.launch(65, 5, 75, 3)

    found = _recorded(made, tmp_path)

    assert ["T2", "T5", "T3", "T1", "T0", "T1", "T2", "T3"] == _details(
        found, TaskKind.HOST
    )


def test_labels_are_no_ops(tmp_path: Path) -> None:
    """An annotation is looked through, and marks the gap that it begins in."""
    made = Made()
    made.label("## forward ##", 0, 100)
    made.op("aten::relu", 10, 20)
    made.launch(15, 5, 25, 3)
    made.label("Optimizer.step#SGD.step", 33, 60)
    made.op("aten::add_", 40, 20)
    made.launch(45, 5, 55, 3)
    made.op("aten::add_", 62, 20)
    made.launch(65, 5, 75, 3)

    found = _recorded(made, tmp_path)

    assert ["offset", "T2", "T3", "phase", "T2", "T3", "T1", "T2", "T3"] == _details(
        found, TaskKind.HOST
    )


def test_autograd_takes_over_and_hands_back(tmp_path: Path) -> None:
    """What one thread waits for the other is no time of its own."""
    made = Made()
    made.op("aten::sum", 0, 20)
    made.launch(5, 5, 15, 3)
    for start in (100, 200):
        name = "autograd::engine::evaluate_function: SumBackward0"
        made.op(name, start, 50, tid=AUTOGRAD)
        made.launch(start + 10, 5, start + 20, 3, tid=AUTOGRAD)
    made.op("aten::add_", 300, 20)
    made.launch(305, 5, 315, 3)
    found = _recorded(made, tmp_path)
    graph = found.graph

    spans = {
        graph.detail[task]: graph.stated_s[task] * 1e6
        for task, kind in enumerate(graph.kind)
        if kind is TaskKind.HOST
    }

    assert spans[Gap.HAND_OVER.value] == pytest.approx(80)
    assert spans[Gap.HAND_BACK.value] == pytest.approx(50)
    (again,) = replay_alone([found])
    assert again.start_us == pytest.approx(found.start_us)


def test_a_slower_backward_delays_the_other_thread(tmp_path: Path) -> None:
    """The hand-over is an edge: time added to one thread moves the other."""
    made = Made()
    made.op("aten::sum", 0, 20)
    made.launch(5, 5, 15, 3)
    made.op("autograd::engine::evaluate_function: X", 100, 50, tid=AUTOGRAD)
    made.launch(110, 5, 120, 3, tid=AUTOGRAD)
    made.op("aten::add_", 300, 20)
    made.launch(305, 5, 315, 3)
    found = _recorded(made, tmp_path)
    graph = found.graph
    inside = next(
        task
        for task, op in enumerate(graph.op)
        if op >= 0 and graph.ops[op].name.endswith("X") and graph.detail[task] == "T3"
    )

    graph.stated_s[inside] += 1e-3
    (again,) = replay_alone([found])

    assert again.simulated_us == pytest.approx(found.measured_us + 1000)


def test_a_copy_to_pageable_memory_blocks(tmp_path: Path) -> None:
    """The call of such a copy ends with it, however long the stream is busy."""
    made = Made()
    made.op("aten::mm", 0, 20)
    made.launch(5, 5, 15, 500)
    made.op("aten::item", 30, 500)
    made.copy(40, 484, 517, 2)
    made.copy(526, 0, 527, 1, name="Memcpy HtoD (Pinned -> Device)")
    found = _recorded(made, tmp_path)

    kernel = found.graph.kind.index(TaskKind.KERNEL)
    found.graph.stated_s[kernel] += 1e-3
    (again,) = replay_alone([found])

    assert "blocking copy" in _details(found, TaskKind.SYNC)
    assert again.simulated_us == pytest.approx(found.measured_us + 1000, abs=8)


@pytest.mark.parametrize("call", ["cudaDeviceSynchronize", "hipDeviceSynchronize"])
def test_a_wait_for_the_device_is_for_every_stream(tmp_path: Path, call: str) -> None:
    """CUDA and HIP alike."""
    made = Made()
    made.op("aten::mm", 0, 40)
    made.launch(5, 5, 15, 100)
    made.launch(15, 5, 25, 200, stream=9)
    made.call(call, 50, 180)
    found = _recorded(made, tmp_path)

    sync = found.graph.kind.index(TaskKind.SYNC)

    assert {100, 200} == {
        round(found.graph.stated_s[task] * 1e6) for task in found.graph.after[sync]
    }
    assert found.graph.stated_s[sync] * 1e6 == pytest.approx(5)


def test_launches_wait_for_room_in_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host of a busy device is held up by its queue, not by itself."""
    monkeypatch.setattr(recording, "QUEUE", 4)
    made = Made()
    now, free = 0.0, 0.0
    for number in range(20):
        held = max(0.0, 15 + 100 * (number - 3) - now) if number >= 4 else 0.0
        made.launch(now, 5 + held, 15 + 100 * number, 99)
        now += 6 + held
        free = 15 + 100 * number + 99
    found = _recorded(made, tmp_path)

    (again,) = replay_alone([found])

    assert again.simulated_us == pytest.approx(free, rel=0.01)
    calls = [t for t, kind in enumerate(found.graph.kind) if kind is TaskKind.CALL]
    assert max(found.graph.stated_s[t] for t in calls) * 1e6 == pytest.approx(5)
    assert again.start_us[calls[-1]] + 5 == pytest.approx(
        found.end_us[calls[-1]], rel=0.01
    )


def test_one_call_may_issue_many_kernels(tmp_path: Path) -> None:
    """The kernels of a CUDA graph follow one another after its launch."""
    made = Made()
    number = made.call("cudaGraphLaunch", 10, 40)
    for start in (60, 80, 100):
        made.work(number, start, 19)
    found = _recorded(made, tmp_path)

    (call,) = (t for t, k in enumerate(found.graph.kind) if k is TaskKind.CALL)

    assert [call] * 3 == [i for i in found.graph.issue if i >= 0]


@pytest.mark.parametrize("prefix", ["cuda", "hip"])
def test_launches_without_a_kernel_are_told(tmp_path: Path, prefix: str) -> None:
    """A graph whose kernels are not in the trace takes no time; a memset may be none.

    Nor does a function of the host's count, which some runtimes launch, too.
    """
    made = Made()
    made.launch(15, 5, 30, 50)
    for at, call in enumerate(
        ("GraphLaunch", "GraphLaunch", "LaunchKernel", "MemsetAsync", "LaunchHostFunc")
    ):
        made.call(f"{prefix}{call}", 100 + 10 * at, 5)

    found = _recorded(made, tmp_path)

    (message,) = (d.message for d in found.diagnostics if d.code == "trace-launches")
    assert message.startswith("3 launches have no kernel in the trace, ")
    assert message.endswith(f": {prefix}GraphLaunch 2, {prefix}LaunchKernel 1")


def test_work_without_a_call_runs_where_it_ran(tmp_path: Path) -> None:
    """Kernels launched before the trace began keep the stream busy, and are counted."""
    made = Made()
    made.work(9999, 0, 300)
    made.op("aten::mm", 10, 20)
    made.launch(15, 5, 301, 50)
    found = _recorded(made, tmp_path)

    (again,) = replay_alone([found])

    assert "trace-unmatched" in {d.code for d in found.diagnostics}
    assert again.simulated_us == pytest.approx(351, abs=1.5)


def test_steps_lie_between_their_marks(tmp_path: Path) -> None:
    """An iteration is measured and simulated from mark to mark."""
    made = Made()
    for number in range(3):
        begin = 1000 * number
        made.op(f"ProfilerStep#{number + 5}", begin, 990)
        made.op("aten::mm", begin + 10, 900)
        made.launch(begin + 15, 5, begin + 25, 100 * number + 50)
    found = _recorded(made, tmp_path)

    (again,) = replay_alone([found], steps=range(6, 8))

    assert [5, 6, 7] == [step.number for step in found.steps]
    assert [("ProfilerStep#6", 1000), ("ProfilerStep#7", 990)] == [
        (step.name, step.measured_us) for step in again.steps
    ]
    assert again.simulated_us == pytest.approx(again.measured_us, abs=85)


def test_what_follows_the_last_step_is_none_of_it(tmp_path: Path) -> None:
    """A call long after the last mark does not lengthen the step."""
    made = Made()
    for number in range(2):
        made.op(f"ProfilerStep#{number}", 1000 * number, 1000)
        made.op("aten::mm", 1000 * number, 100)
        made.launch(1000 * number + 15, 5, 1000 * number + 25, 10)
    made.call("cudaDeviceSynchronize", 60_000, 10)
    found = _recorded(made, tmp_path)

    (again,) = replay_alone([found], steps=[0, 1])

    assert [1000, 1000] == pytest.approx([s.simulated_us for s in again.steps])
    assert ["T2", "T3", "end", "T2", "T3", "end", "offset"] == _details(
        found, TaskKind.HOST
    )


def test_calls_of_two_runs_do_not_issue_each_others_work(tmp_path: Path) -> None:
    """A correlation that two calls have belongs to the first."""
    made = Made()
    made.launch(10, 5, 20, 100)
    made.correlation = 0
    made.call("cudaLaunchKernel", 200, 5)

    found = _recorded(made, tmp_path)

    assert found.graph.kind.count(TaskKind.KERNEL) == 1
    assert ["1 launches have the correlation of an earlier one"] == [
        d.message.split(",")[0]
        for d in found.diagnostics
        if d.code == "trace-correlations"
    ]


def test_steps_of_a_thread_that_launches_nothing_are_said(tmp_path: Path) -> None:
    """Steps that cannot be placed are left out, not shown as empty."""
    made = Made()
    made.op("ProfilerStep#1", 0, 100, tid=77)
    made.launch(10, 5, 20, 10)

    found = _recorded(made, tmp_path)

    assert not found.steps
    assert "1 steps are left out" in " ".join(d.message for d in found.diagnostics)
