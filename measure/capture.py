"""Capturing a CUDA graph, such that a capture that fails harms nothing after it.

A call that waits for the device ends a capture with an error, and PyTorch then leaves
the work of its `capture_end` undone: its allocator believes the capture to go on, and
refuses to empty its cache for as long as the process lives (`CUDAGraph::capture_end` of
PyTorch 2.13). `torch.cuda.graph`, besides, stays on its stream then.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

_FAILED: list[torch.cuda.CUDAGraph] = []
"""Kept: the allocator of pinned memory still asks them whether they capture."""

_END = "_cuda_endAllocateToPool"
_END_BEFORE = "_cuda_endAllocateCurrentStreamToPool"
"""What ends the allocator's part of a capture; before PyTorch 2.8 it was called so."""


@functools.cache
def capture_stream() -> Any:
    """Return the stream that all graphs are captured on.

    Libraries have a workspace by stream, which must not lie in the memory of a graph:
    calls run on this stream before they are captured.
    """
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


@contextmanager
def captured(graph: torch.cuda.CUDAGraph) -> Generator[None]:
    """Capture what is enqueued meanwhile; the device must be idle.

    Unlike `torch.cuda.graph` this does not empty PyTorch's cache first, which is slow.

    Raises:
        RuntimeError: something cannot be captured, as what waits for the device; the
            error is that of the call, if it raised one.

    """
    pool: Any = torch.cuda.graph_pool_handle()
    with torch.cuda.stream(capture_stream()):
        graph.capture_begin(pool=pool)
        try:
            yield
        except BaseException:
            with contextlib.suppress(RuntimeError):
                _end(graph, pool)
            raise
        _end(graph, pool)


def _end(graph: torch.cuda.CUDAGraph, pool: Any) -> None:
    try:
        graph.capture_end()
    except RuntimeError:
        cuda: Any = vars(torch)["_C"]  # no public function ends it
        device = torch.cuda.current_device()
        end = getattr(cuda, _END, None) or getattr(cuda, _END_BEFORE)
        with contextlib.suppress(RuntimeError):  # `capture_end` got past this already
            end(device, pool)
            cuda._cuda_releasePool(device, pool)
        _FAILED.append(graph)
        graph.reset()
        raise
