"""What streams wait for: as newer traces say, or by rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.traces.synthetic import AUTOGRAD, MAIN, Made

from perfc.ir import TaskKind
from perfc.traces import Recorded
from perfc.traces.kineto import read_trace
from perfc.traces.nesting import CLOCKS_US
from perfc.traces.recording import record

COMPUTE, COMM, SIDE = 7, 20, 22
BACKWARD = "autograd::engine::evaluate_function: AddmmBackward0"


def _recorded(made: Made, tmp_path: Path) -> Recorded:
    return record(read_trace(made.write(tmp_path / "t.json")))


def _awaited(found: Recorded) -> dict[str, list[str]]:
    """Return what waits on its stream, and for which kernels, by name."""
    graph = found.graph

    def name(task: int) -> str:
        return graph.kernels[graph.kernel[task]].op

    waits: dict[str, list[str]] = {}
    for task, kind in enumerate(graph.kind):
        if kind is TaskKind.WAIT and graph.after[task]:
            waits[name(task + 1)] = [name(after) for after in graph.after[task]]
    return waits


def _collective(made: Made, start: float, name: str, *, tid: object = MAIN) -> None:
    """Add what a process group of PyTorch does for a collective."""
    made.op("record_param_comms", start, 40, tid=tid)
    made.call("cudaStreamWaitEvent", start + 2, 1, tid=tid)
    made.label("nccl:all_to_all", start + 5, 30, tid=tid)
    made.call("cudaStreamWaitEvent", start + 6, 1, tid=tid)
    made.launch(start + 10, 5, start + 20, 30, stream=COMM, tid=tid, name=name)
    made.call("cudaStreamWaitEvent", start + 18, 1, tid=tid)


def _waited(made: Made, start: float, *, tid: object = MAIN) -> None:
    """Add the `wait()` of a collective."""
    made.op("record_param_comms", start, 5, tid=tid)
    made.call("cudaStreamWaitEvent", start + 2, 1, tid=tid)


def _kernel(made: Made, start: float, name: str, **where: object) -> None:
    made.op("aten::mm", start, 20, tid=where.get("tid", MAIN))
    made.launch(start + 5, 5, start + 15, 3, name=name, **where)  # type: ignore[arg-type]


def test_streams_and_events_that_a_trace_names(tmp_path: Path) -> None:
    """The stream, and the work that was there when the event was recorded."""
    made = Made()
    _kernel(made, 0, "a", stream=SIDE)
    record_call = made.call("cudaEventRecord", 22, 1)
    _kernel(made, 30, "b", stream=SIDE)
    wait = made.call("cudaStreamWaitEvent", 60, 1)
    made.add(
        "cuda_sync",
        "Stream Wait Event",
        60,
        1,
        correlation=wait,
        device=0,
        stream=COMPUTE,
        wait_on_stream=SIDE,
        wait_on_cuda_event_record_corr_id=record_call,
    )
    _kernel(made, 70, "c", stream=SIDE)
    _kernel(made, 100, "d")

    assert {"d": ["a"]} == _awaited(_recorded(made, tmp_path))


def _told_wait(
    made: Made, start: float, waits: int, awaited: int, record_call: int
) -> None:
    """Add a wait of a stream that the trace names."""
    call = made.call("cudaStreamWaitEvent", start, 1)
    made.add(
        "cuda_sync",
        "Stream Wait Event",
        start,
        1,
        correlation=call,
        device=0,
        stream=waits,
        wait_on_stream=awaited,
        wait_on_cuda_event_record_corr_id=record_call,
    )


def test_an_event_is_recorded_on_the_stream_that_is_waited_for(tmp_path: Path) -> None:
    """Not on the one that its thread launched to last, nor for what came later."""
    made = Made()
    _kernel(made, 0, "a", stream=SIDE)
    _kernel(made, 30, "b")
    record_call = made.call("cudaEventRecord", 55, 1)
    _kernel(made, 60, "c", stream=SIDE)
    _told_wait(made, 90, COMPUTE, SIDE, record_call)
    _kernel(made, 100, "d")

    assert {"d": ["a"]} == _awaited(_recorded(made, tmp_path))


def test_an_event_after_a_wait_stands_for_it(tmp_path: Path) -> None:
    """A stream that was told to wait, and given nothing since, passes that on."""
    made = Made()
    _kernel(made, 0, "a", stream=SIDE)
    first = made.call("cudaEventRecord", 25, 1)
    _told_wait(made, 30, COMPUTE, SIDE, first)
    second = made.call("cudaEventRecord", 35, 1)
    _told_wait(made, 40, COMM, COMPUTE, second)
    _kernel(made, 50, "b", stream=COMM)

    assert {"b": ["a"]} == _awaited(_recorded(made, tmp_path))


def test_collectives_wait_only_for_what_is_told(tmp_path: Path) -> None:
    """In a trace that names waits, a collective without one waits for nothing.

    Kineto leaves out the first wait of a stream that has done nothing yet: then the
    rule holds.
    """
    made = Made()
    _kernel(made, 0, "a")
    made.op("record_param_comms", 30, 40)
    made.call("cudaStreamWaitEvent", 32, 1)
    made.launch(40, 5, 60, 9, stream=COMM, name="ncclKernel_AllReduce")
    _told_wait(made, 80, COMPUTE, COMM, -1)
    _kernel(made, 90, "b")
    made.op("c10d::allreduce_", 120, 20)
    made.launch(125, 5, 400, 9, stream=COMM, name="ncclKernel_AllGather")

    assert {
        "ncclKernel_AllReduce": ["a"],
        "b": ["ncclKernel_AllReduce"],
    } == _awaited(_recorded(made, tmp_path))


def test_kernels_of_a_cuda_graph_wait_as_they_ran(tmp_path: Path) -> None:
    """A launch of several streams: what ended last before a kernel is waited for."""
    made = Made()
    call = made.call("cudaGraphLaunch", 0, 5)
    for start, length, stream, name in (
        (10, 10, COMPUTE, "fork"),
        (20, 30, COMM, "ncclKernel_AllReduce"),
        (21, 10, COMPUTE, "beside"),
        (50, 10, COMPUTE, "join"),
    ):
        made.work(call, start, length, stream=stream, name=name)

    assert {"ncclKernel_AllReduce": ["fork"], "join": ["ncclKernel_AllReduce"]} == (
        _awaited(_recorded(made, tmp_path))
    )


def test_a_collective_waits_for_what_was_launched_before(tmp_path: Path) -> None:
    """It needs what the thread's stream computes."""
    made = Made()
    _kernel(made, 0, "a")
    _collective(made, 30, "ncclSendRecv")

    assert {"ncclSendRecv": ["a"]} == _awaited(_recorded(made, tmp_path))


def test_wait_of_a_collective_lets_the_next_launch_wait(tmp_path: Path) -> None:
    """The stream launched to next needs what the collective brought."""
    made = Made()
    _kernel(made, 0, "a")
    _collective(made, 30, "ncclSendRecv")
    _kernel(made, 100, "b")
    _waited(made, 150)
    _kernel(made, 160, "c", stream=SIDE)

    found = _awaited(_recorded(made, tmp_path))

    assert {"ncclSendRecv": ["a"], "c": ["ncclSendRecv"]} == found


def test_gradient_buckets_are_waited_for_at_the_end_of_backward(tmp_path: Path) -> None:
    """Bare waits are for the oldest bucket each; a `wait()` in between is for none."""
    made = Made()
    _kernel(made, 0, "a")
    for number, start in enumerate((100, 200)):
        made.op(BACKWARD, start, 90, tid=AUTOGRAD)
        _collective(made, start + 20, f"ncclAllReduce{number}", tid=AUTOGRAD)
    made.op(BACKWARD, 400, 90, tid=AUTOGRAD)
    _collective(made, 410, "ncclSendRecv", tid=AUTOGRAD)
    _waited(made, 470, tid=AUTOGRAD)
    _kernel(made, 500, "b", tid=AUTOGRAD)
    made.call("cudaStreamWaitEvent", 900, 1)
    made.call("cudaStreamWaitEvent", 902, 1)
    _kernel(made, 1000, "c")

    found = _awaited(_recorded(made, tmp_path))

    assert ["ncclSendRecv"] == found["b"]
    assert ["ncclAllReduce0", "ncclAllReduce1"] == found["c"]


def test_a_side_stream_is_waited_for_once(tmp_path: Path) -> None:
    """Copies on their own stream are needed by the stream that waits for them."""
    made = Made()
    _kernel(made, 0, "main")
    _kernel(made, 30, "main")
    made.copy(60, 5, 70, 10, stream=SIDE, name="Memcpy HtoD (Pinned -> Device)")
    made.call("cudaStreamWaitEvent", 80, 1)
    _kernel(made, 90, "first")
    made.call("cudaStreamWaitEvent", 120, 1)
    _kernel(made, 130, "second")
    found = _recorded(made, tmp_path)

    assert {"first": ["memcpy"]} == _awaited(found)
    assert "stream with nothing to wait for" in " ".join(
        d.message for d in found.diagnostics
    )


def test_the_computing_stream_is_waited_for_if_an_event_says_so(tmp_path: Path) -> None:
    """A side stream waits for it only after a recorded event."""
    made = Made()
    for start in (0, 30, 60):
        _kernel(made, start, "main")
    made.call("cudaStreamWaitEvent", 100, 1)
    _kernel(made, 110, "free", stream=SIDE)
    _kernel(made, 140, "last")
    made.call("cudaEventRecord", 170, 1)
    made.call("cudaStreamWaitEvent", 172, 1)
    _kernel(made, 180, "bound", stream=SIDE)

    assert {"bound": ["last"]} == _awaited(_recorded(made, tmp_path))


def _side_copy(end: float) -> Made:
    """Return a copy that is guessed to be waited for by what began at 105."""
    made = Made()
    _kernel(made, 0, "main")
    _kernel(made, 30, "main")
    made.copy(60, 5, 70, end - 70, stream=SIDE, name="Memcpy HtoD (Pinned -> Device)")
    made.call("cudaStreamWaitEvent", 80, 1)
    _kernel(made, 90, "needs")
    return made


def _remarks(found: Recorded) -> list[str]:
    return [d.message for d in found.diagnostics if d.code == "trace-refuted"]


def test_work_did_not_wait_for_what_ended_later(tmp_path: Path) -> None:
    """A guess that the times of the recording refute is dropped, and counted."""
    found = _recorded(_side_copy(105 + CLOCKS_US + 1), tmp_path)

    assert {} == _awaited(found)
    message = (
        "1 guesses of what device work waited for are dropped: that ended over 50 us "
        "after the wait was over"
    )
    assert [message] == _remarks(found)


def test_clocks_may_disagree_on_what_was_waited_for(tmp_path: Path) -> None:
    """A guess is kept if clocks that disagree as they do explain the times."""
    found = _recorded(_side_copy(105 + CLOCKS_US), tmp_path)

    assert {"needs": ["memcpy"]} == _awaited(found)
    assert [] == _remarks(found)


def test_a_refuted_guess_leaves_the_others(tmp_path: Path) -> None:
    """Of two streams that work is guessed to wait for, one had ended."""
    made = Made()
    for start in (0, 30, 60):
        _kernel(made, start, "main")
    for start, length, stream in ((90, 10, SIDE), (100, 900, SIDE + 1)):
        name = "Memcpy HtoD (Pinned -> Device)"
        made.copy(start, 2, start + 5, length, stream=stream, name=name)
    made.call("cudaStreamWaitEvent", 120, 1)
    made.call("cudaStreamWaitEvent", 122, 1)
    _kernel(made, 130, "needs")

    found = _recorded(made, tmp_path)

    graph = found.graph
    awaited = [
        graph.resources[graph.resource[after]].name
        for task, kind in enumerate(graph.kind)
        if kind is TaskKind.WAIT
        for after in graph.after[task]
    ]
    assert [f"d0s{SIDE}"] == awaited
    assert ["1 guesses"] == [message[:9] for message in _remarks(found)]


def test_collectives_that_began_before_did_not_wait(tmp_path: Path) -> None:
    """What a collective is guessed to wait for is dropped in the same way."""
    made = Made()
    made.op("aten::mm", 0, 20)
    made.launch(5, 5, 15, 900, name="long")
    _collective(made, 30, "ncclSendRecv")

    found = _recorded(made, tmp_path)

    assert {} == _awaited(found)
    assert 1 == len(_remarks(found))


def test_waits_that_a_trace_names_are_never_dropped(tmp_path: Path) -> None:
    """What is told is in the program, whatever its clocks say."""
    made = Made()
    made.op("aten::mm", 0, 20)
    made.launch(5, 5, 15, 900, stream=SIDE, name="long")
    record_call = made.call("cudaEventRecord", 22, 1)
    _told_wait(made, 60, COMPUTE, SIDE, record_call)
    _kernel(made, 70, "b")

    found = _recorded(made, tmp_path)

    assert {"b": ["long"]} == _awaited(found)
    assert [] == _remarks(found)


@pytest.mark.parametrize(
    ("call", "returned_us", "waits"),
    [
        ("cudaStreamSynchronize", 500 - CLOCKS_US, ["long"]),
        ("cudaStreamSynchronize", 500 - CLOCKS_US - 1, []),
        ("cudaEventSynchronize", 500 - CLOCKS_US, ["long"]),
        ("cudaEventSynchronize", 500 - CLOCKS_US - 1, []),
        ("cudaDeviceSynchronize", 500 - CLOCKS_US - 1, []),
    ],
)
def test_a_call_that_returned_before_did_not_wait(
    tmp_path: Path, call: str, returned_us: float, waits: list[str]
) -> None:
    """Nor is the host held up by work that ended long after it went on."""
    made = Made()
    made.op("aten::mm", 0, 20)
    made.launch(5, 5, 15, 485, name="long")
    made.call("cudaEventRecord", 21, 1)
    made.call(call, 25, returned_us - 25)

    graph = (found := _recorded(made, tmp_path)).graph

    awaited = [
        graph.kernels[graph.kernel[after]].op
        for task, kind in enumerate(graph.kind)
        if kind is TaskKind.SYNC
        for after in graph.after[task]
    ]
    assert waits == awaited
    assert (0 if waits else 1) == len(_remarks(found))


def test_a_stream_goes_on_a_while_after_what_it_waited_for(tmp_path: Path) -> None:
    """As long as in the trace, on average; of a launch that is late it is not known."""
    made = Made()
    for at_us, lag_us, late_us in ((0, 3, 0), (500, 5, 0), (1000, 2, 300)):
        made.op("aten::mm", at_us, 20)
        made.launch(at_us + 5, 5, at_us + 15, 200, stream=SIDE, name="a")
        made.call("cudaStreamWaitEvent", at_us + 30, 1)
        made.op("aten::mm", at_us + 40 + late_us, 20)
        begin_us = at_us + 60 + late_us if late_us else at_us + 215 + lag_us
        made.launch(at_us + 45 + late_us, 5, begin_us, 10, name="b")

    _kernel(made, 5000, "c")

    graph = _recorded(made, tmp_path).graph

    waits = [s for s, kind in zip(graph.stated_s, graph.kind, strict=True)
             if kind is TaskKind.WAIT]  # fmt: skip
    assert pytest.approx([4e-6] * 3) == waits
