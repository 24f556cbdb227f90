"""What the profiler sees of many calls is told apart by where it is launched."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.measure.test_design import GPU

from perfc.ir import Record
from perfc.measure.call_profile import (
    profiled_calls,
    times_of,
    work_of,  # not public
)
from perfc.measure.case import Case, Tensors
from perfc.measure.clocks import Clock
from perfc.measure.fatal import DeviceFailedError
from perfc.measure.kernel_run import KernelRun
from perfc.measure.profiled import Trace
from perfc.measure.rounds import Prepared
from perfc.measure.suites import suite
from perfc.measure.timing import Timed

Event = Mapping[str, Any]


def _event(category: str, name: str, start: float, us: float, number: int = 0) -> Event:
    args = {"correlation": number} if number else {}
    times = {"ts": start, "dur": us}
    return {"ph": "X", "cat": category, "name": name, **times, "args": args}


def _trace(*events: Event) -> Trace:
    return Trace("", events, [1.0])


def test_kernels_belong_to_the_call_that_launched_them() -> None:
    """Not to the one that the host was in when they ran, which may be the next."""
    trace = _trace(
        _event("user_annotation", "perfc::1", 100.0, 50.0),
        _event("user_annotation", "perfc::0", 0.0, 50.0),
        _event("cuda_runtime", "cudaLaunchKernel", 40.0, 2.0, 7),
        _event("cuda_runtime", "cudaLaunchKernel", 110.0, 2.0, 8),
        _event("cuda_runtime", "cudaMemcpyAsync", 120.0, 2.0, 9),
        _event("kernel", "late", 105.0, 9.0, 7),
        _event("kernel", "one", 130.0, 3.0, 8),
        _event("gpu_memcpy", "two", 140.0, 4.0, 9),
        _event("kernel", "of nobody", 145.0, 4.0, 10),
    )

    assert [[("late", 9.0)], [("one", 3.0), ("two", 4.0)], []] == work_of(trace, 3)


def test_what_is_launched_between_calls_belongs_to_none() -> None:
    """As the warm-up before the first mark."""
    trace = _trace(
        _event("user_annotation", "perfc::0", 100.0, 50.0),
        _event("cuda_runtime", "cudaLaunchKernel", 90.0, 2.0, 7),
        _event("cuda_runtime", "cudaLaunchKernel", 160.0, 2.0, 8),
        _event("kernel", "before", 95.0, 1.0, 7),
        _event("kernel", "after", 165.0, 1.0, 8),
    )

    assert [[]] == work_of(trace, 1)


def test_a_call_takes_the_mean_of_its_repetitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each call is made five times; a kernel that is alone is named."""
    made: list[str] = []
    launches = [_event("cuda_runtime", "l", 1.0 + n, 0.5, n) for n in range(1, 6)]
    kernels = [_event("kernel", "sgemm", 10.0, 4.0 + n, n) for n in range(1, 6)]

    def traced(once: Any, *_: object, **__: object) -> Trace:
        once()
        mark = _event("user_annotation", "perfc::0", 0.0, 50.0)
        return _trace(mark, *launches, *kernels)

    monkeypatch.setattr("perfc.measure.call_profile.trace_of", traced)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    calls = [lambda: made.append("first"), lambda: made.append("second")]
    first, second = profiled_calls(calls, GPU, Clock(1980.0))

    assert ["first"] * 5 + ["second"] * 5 == made
    assert Timed("kernel", 7.0, None, None, 5, Clock(1980.0), kernel="sgemm") == first
    assert second is None


def test_what_takes_long_is_profiled_fewer_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pageable copy of a gigabyte once, a short kernel five times."""
    made: list[str] = []

    def traced(once: Any, *_: object, **__: object) -> Trace:
        once()
        return _trace(
            _event("user_annotation", "perfc::0", 0.0, 50.0),
            _event("cuda_runtime", "cudaMemcpyAsync", 1.0, 9.0, 1),
            _event("gpu_memcpy", "Memcpy DtoH", 2.0, 8.0, 1),
        )

    monkeypatch.setattr("perfc.measure.call_profile.trace_of", traced)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    times = [times_of(seconds) for seconds in (0.3, 0.004, 1e-6)]
    calls = [lambda n=n: made.append(n) for n in "abc"]
    copy, *_ = profiled_calls(calls, GPU, Clock(), times)

    assert [1, 2, 5] == times
    assert "abbccccc" == "".join(made)
    assert copy is not None
    assert (8.0, 1) == (copy.median_us, copy.n)


@pytest.mark.parametrize(
    ("dtype", "precision"), [("tf32", "high"), ("fp32", "highest")]
)
def test_a_profiled_call_computes_as_it_was_timed(dtype: str, precision: str) -> None:
    """In TF32 only where the row says so, without gradients."""
    found: list[tuple[str, bool]] = []

    def call() -> None:
        grad = torch.is_grad_enabled()
        found.append((torch.get_float32_matmul_precision(), grad))

    case = Case("gemm", dtype, Record({"b": 1, "m": 8, "n": 8, "k": 8}))
    Prepared(case, [call], False, 0, 0).profiled()()

    assert [(precision, False)] == found


@pytest.fixture(name="on_gpu")
def _on_gpu(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let cases run on the CPU as if it were a GPU; return how many were profiled."""
    profiled: list[int] = []

    def time(_: object, __: object, *, capturable: bool) -> list[Timed]:
        event = Timed("event", 20.0, 19.0, 21.0, 9, Clock(), host_us=8.0)
        graph = Timed("graph", 2.0, 2.0, 2.0, 11, Clock())
        return [event, graph] if capturable else [event]

    def seen(calls: Sequence[object], *_: object) -> list[Timed | None]:
        profiled.append(len(calls))
        found = Timed("kernel", 3.0, None, None, 5, Clock())
        return [found, *[None] * (len(calls) - 1)]

    def free(_: object) -> int:
        return 1 << 30

    def nothing(*_: object) -> None:
        pass

    monkeypatch.setattr("perfc.measure.case.Tensors.__init__", _on_cpu)
    monkeypatch.setattr("perfc.measure.device.Device.free_bytes", free)
    monkeypatch.setattr("perfc.measure.clocks.ClockReader._open_nvml", nothing)
    monkeypatch.setattr("perfc.measure.timing.Timer.time", time)
    monkeypatch.setattr("perfc.measure.kernel_run.profiled_calls", seen)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, nothing)
    return profiled


def _on_cpu(tensors: Any, _: object) -> None:
    tensors.kind = "cpu"
    tensors._generator = torch.Generator().manual_seed(0)
    tensors._pool = torch.randn(1 << 22)


def _run(path: Path) -> KernelRun:
    def small(cases: Sequence[Any]) -> list[Any]:
        ordered = sorted(cases, key=lambda pair: pair[0].memory_bytes(pair[1]))
        return ordered[:6]

    ops = ("gather", "optimizer_step")
    return KernelRun(GPU, "quick", path, ops=ops, choose=small)


def _silent(_: str) -> None:
    pass


def test_the_profiler_starts_once_for_many_shapes(
    tmp_path: Path, on_gpu: list[int]
) -> None:
    """What a graph holds is not profiled; what nobody sees has its event row alone."""
    run = _run(tmp_path / "rows.csv")

    run.measure(60.0, _silent)

    timings = {op: [r.timing for r in run.rows if r.op == op] for op in _ops(run)}
    steps = timings["optimizer_step"].count("event")
    assert [steps] == on_gpu
    assert 1 == timings["optimizer_step"].count("kernel")
    assert {"event", "graph"} == set(timings.get("gather", ["event", "graph"]))
    assert 0 == run.left
    assert all((r.rotated_bytes or 0) > 0 for r in run.rows)


def test_the_disk_is_waited_for_once_a_batch(
    tmp_path: Path, on_gpu: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six shapes, the first of them alone: two writes, whatever a flush takes."""
    del on_gpu
    waits: list[int] = []
    monkeypatch.setattr(os, "fsync", waits.append)
    run = _run(tmp_path / "rows.csv")

    run.measure(60.0, _silent)

    assert 6 == len({(row.op, row.params) for row in run.rows})
    assert 2 == len(waits)


def _ops(run: KernelRun) -> set[str]:
    return {row.op for row in run.rows}


def test_a_profiler_that_fails_leaves_the_other_rows(
    tmp_path: Path, on_gpu: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said, and the event rows stay; a GPU that failed with it is an error."""

    def fail(*_: object) -> list[object]:
        msg = "CUPTI is busy"
        raise RuntimeError(msg)

    monkeypatch.setattr("perfc.measure.kernel_run.profiled_calls", fail)
    said: list[str] = []
    _run(tmp_path / "rows.csv").measure(60.0, said.append)
    assert any("not profiled" in line and "CUPTI is busy" in line for line in said)

    monkeypatch.setattr(torch.cuda, "empty_cache", fail)
    again = _run(tmp_path / "again.csv")
    with pytest.raises(DeviceFailedError, match="the GPU failed at optimizer_step"):
        again.measure(60.0, _silent)
    assert {"event"} == {r.timing for r in again.rows if r.op == "optimizer_step"}
    assert not on_gpu


def test_operands_are_rotated_through_what_the_l2_holds(
    on_gpu: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many sets as it asks for, although the first call takes long."""
    del on_gpu
    now = [0.0]

    def slow_first(*_: object) -> object:
        now[0] += 5.0 if not made else 0.0
        made.append(1)
        return lambda: None

    made: list[int] = []
    monkeypatch.setattr("perfc.measure.rounds.time.monotonic", lambda: now[0])
    cases = suite("quick", GPU, ("gather",))
    family, case = min(cases, key=lambda pair: pair[0].memory_bytes(pair[1]))
    monkeypatch.setattr(type(family), "prepare", slow_first)
    prepared = Prepared.of(family, case, Tensors(GPU), GPU)

    assert 128 == len(prepared.calls)
    assert 128 * int(case.work.bytes) == prepared.rotated_bytes
