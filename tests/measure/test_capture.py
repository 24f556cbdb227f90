"""Captures that fail, on what stands in for a GPU: PyTorch is left as it was."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
import torch
from tests.measure.test_design import GPU

from perfc.measure import capture
from perfc.measure.timing import Timer

HANDLE = (0, 7)
ENDS = ("_cuda_endAllocateToPool", "_cuda_releasePool")
REFUSED = "CUDA error: operation failed due to a previous error during capture"


@attrs.define
class _Cuda:
    """PyTorch's streams, graphs and allocator, as far as captures go.

    Attributes:
        underway: Pools of captures that the allocator believes to go on.
        broken: Whether something waited for the device during the capture.
        stream: The current one.
        log: What was called.

    """

    underway: list[tuple[int, int]] = attrs.field(factory=list[tuple[int, int]])
    broken: bool = False
    stream: str = "default"
    log: list[str] = attrs.field(factory=list[str])

    def synchronize(self) -> None:
        """Wait, which no capture survives."""
        if self.underway:
            self.broken = True
            msg = "CUDA error: operation not permitted when stream is capturing"
            raise RuntimeError(msg)

    def empty_cache(self) -> None:
        """Do as the allocator of PyTorch 2.13 does."""
        if self.underway:
            msg = "captures_underway.empty() INTERNAL ASSERT FAILED"
            raise RuntimeError(msg)

    def end_pool(self, device: int, pool: tuple[int, int]) -> None:
        """End what the allocator believes."""
        assert device == 0
        self.underway.remove(pool)

    def release_pool(self, device: int, pool: tuple[int, int]) -> None:
        """Free the pool's memory."""
        self.log.append(f"release {pool} on {device}")

    @contextmanager
    def on(self, stream: str) -> Generator[None]:
        """Make a stream the current one."""
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = before


@pytest.fixture(name="cuda")
def _cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Cuda]:
    cuda = _Cuda()

    class Graph:
        """A graph, whose `capture_end` gives up as PyTorch's does."""

        def capture_begin(self, pool: tuple[int, int]) -> None:
            assert cuda.stream == "side"
            cuda.underway.append(pool)

        def capture_end(self) -> None:
            assert cuda.stream == "side"
            if cuda.broken:
                raise RuntimeError(REFUSED)
            cuda.underway.clear()

        def reset(self) -> None:
            cuda.log.append("reset")

    fakes: dict[str, Any] = {
        "CUDAGraph": Graph,
        "Stream": lambda: "side",
        "stream": cuda.on,
        "graph_pool_handle": lambda: HANDLE,
        "current_device": lambda: 0,
        "synchronize": cuda.synchronize,
        "empty_cache": cuda.empty_cache,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    for name, fake in zip(ENDS, (cuda.end_pool, cuda.release_pool), strict=True):
        monkeypatch.setattr(f"torch._C.{name}", fake)
    capture.capture_stream.cache_clear()
    yield cuda
    capture.capture_stream.cache_clear()


def test_a_failed_capture_harms_nothing(cuda: _Cuda) -> None:
    """What the call said is raised, and the allocator told that it is over."""
    said = "not permitted when stream is capturing"
    with (
        pytest.raises(RuntimeError, match=said),
        capture.captured(torch.cuda.CUDAGraph()),
    ):
        torch.cuda.synchronize()
    assert cuda.stream == "default"
    assert cuda.log == [f"release {HANDLE} on 0", "reset"]
    torch.cuda.empty_cache()


def test_older_versions_call_it_otherwise(
    cuda: _Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before PyTorch 2.8."""
    before = "torch._C._cuda_endAllocateCurrentStreamToPool"
    monkeypatch.delattr(f"torch._C.{ENDS[0]}")
    monkeypatch.setattr(before, cuda.end_pool, raising=False)
    with pytest.raises(RuntimeError), capture.captured(torch.cuda.CUDAGraph()):
        torch.cuda.synchronize()
    torch.cuda.empty_cache()


def test_an_allocator_that_has_ended_already(
    cuda: _Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the call said is raised, not that."""

    def ended(*_: object) -> None:
        cuda.underway.clear()
        msg = "endAllocateToPool: not called on a pool that is used"
        raise RuntimeError(msg)

    monkeypatch.setattr(f"torch._C.{ENDS[0]}", ended)
    with (
        pytest.raises(RuntimeError, match="not permitted when stream is capturing"),
        capture.captured(torch.cuda.CUDAGraph()),
    ):
        torch.cuda.synchronize()
    assert cuda.log == ["reset"]


def test_a_capture_may_fail_at_its_end(cuda: _Cuda) -> None:
    """Where no call said anything, the end of the capture does."""
    with (
        pytest.raises(RuntimeError, match="previous error"),
        capture.captured(torch.cuda.CUDAGraph()),
    ):
        cuda.broken = True
    assert cuda.stream == "default"
    torch.cuda.empty_cache()


def test_a_capture_that_works_is_ended_by_pytorch(cuda: _Cuda) -> None:
    """Nothing is done twice."""
    with capture.captured(torch.cuda.CUDAGraph()):
        assert cuda.underway == [HANDLE]
        assert cuda.stream == "side"
    assert (cuda.underway, cuda.stream, cuda.log) == ([], "default", [])


def test_an_interrupt_ends_the_capture(cuda: _Cuda) -> None:
    """Rows are written after it, and the device is asked again."""
    with pytest.raises(KeyboardInterrupt), capture.captured(torch.cuda.CUDAGraph()):
        raise KeyboardInterrupt
    assert (cuda.underway, cuda.stream) == ([], "default")


def test_a_slow_call_is_not_repeated_for_long(
    cuda: _Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that takes a third of a second is timed once; a quick one as often."""
    now, took = [0.0], [0.0]

    def elapsed(enqueue: Callable[[], None]) -> float:
        enqueue()
        now[0] += took[0]
        return took[0] * 1e6

    def nothing(*_: object) -> list[object]:
        return []

    monkeypatch.setattr("perfc.measure.timing._device_us", elapsed)
    monkeypatch.setattr("perfc.measure.timing.time.perf_counter", lambda: now[0])
    monkeypatch.setattr("perfc.measure.clocks.ClockReader._open_nvml", nothing)
    repeats: list[int] = []
    for took[0] in (1.0, 0.08, 0.01):
        (timed,) = Timer(GPU, 0.02).time([lambda: None], capturable=False)
        repeats.append(timed.n)

    assert [1, 4, 5] == repeats
    assert not cuda.log


def test_calls_that_wait_are_timed_without_a_graph(
    cuda: _Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call finds PyTorch as it was."""

    def elapsed(enqueue: Callable[[], None]) -> float:
        enqueue()
        return 9.0

    def nothing(*_: object) -> list[object]:
        return []

    monkeypatch.setattr("perfc.measure.timing._device_us", elapsed)
    monkeypatch.setattr("perfc.measure.clocks.ClockReader._open_nvml", nothing)
    timer = Timer(GPU, 0.0)
    for _ in range(2):
        found = timer.time([torch.cuda.synchronize], capturable=True)
        assert [timed.timing for timed in found] == ["event"]
        cuda.broken = False
        torch.cuda.empty_cache()
