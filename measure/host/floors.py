"""What calls of the CUDA runtime take on an idle device, unprofiled.

Once PyTorch's profiler has run, calls stay slower for as long as CUPTI is attached,
which it is to the end of the process unless `TEARDOWN_CUPTI` is 1: what is profiled
comes last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch

from perfc.ir import AttrValue
from perfc.ir.support import US
from perfc.measure.capture import captured
from perfc.measure.device import Device
from perfc.measure.profiled import Trace, trace_of

_TIMES = 200
_WARM_UP = 20
_CHAINS = 20
_NODES = (1, 32, 256)
"""Kernels of the CUDA graphs that are launched: the launch grows with them."""

_BYTES = 4

Sample = tuple[Mapping[str, AttrValue], list[float]]
"""Parameters of a row, and its samples in microseconds."""


def floors(device: Device) -> list[Sample]:
    """Return the floors of launches, waits, copies and graphs; none on a CPU."""
    if not device.is_cuda:
        return []
    return [
        *_waits(),
        *(
            _copy(kind, pinned=pinned)
            for kind in ("h2d", "d2h")
            for pinned in (True, False)
        ),
        *(_graph(nodes) for nodes in _NODES),
        ({"type": "launch", "op": ""}, _launch_latencies(device)),
    ]


def _sampled(call: Callable[[], object]) -> list[float]:
    """Return the host's microseconds of a call, the device idle each time."""
    samples: list[float] = []
    for _ in range(_WARM_UP + _TIMES):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        samples.append((time.perf_counter() - start) * US)
    torch.cuda.synchronize()
    return samples[_WARM_UP:]


def host_us_of_an_op(device: Device) -> float:
    """Return the host's least microseconds for a short op, in chains of such ops."""
    one = torch.zeros(1, device=device.kind)
    took: list[float] = []
    for _ in range(_CHAINS):
        device.synchronize()
        start = time.perf_counter()
        for _ in range(_TIMES):
            one.add_(1)
        took.append((time.perf_counter() - start) * US / _TIMES)
    return min(took)


def _launch_latencies(device: Device) -> list[float]:
    """Return the times from a launch call to its kernel, on an idle stream."""
    one = torch.zeros(1, device="cuda")

    def launch() -> None:
        one.add_(1)

    trace = trace_of(launch, device, _TIMES, shapes=False)
    return latencies(trace)


def latencies(trace: Trace) -> list[float]:
    """Return the time from the start of each launch to that of its kernel."""
    starts: dict[object, float] = {}
    kernels: dict[object, float] = {}
    for event in trace.events:
        number = event.get("args", {}).get("correlation")
        if number is None or event.get("ph") != "X":
            continue
        if event.get("cat") == "kernel":
            kernels[number] = float(event["ts"])
        elif event.get("cat") in {"cuda_runtime", "cuda_driver"}:
            starts[number] = float(event["ts"])
    common = sorted(kernels.keys() & starts.keys(), key=lambda number: starts[number])
    return [max(kernels[number] - starts[number], 0.0) for number in common]


def _waits() -> Sequence[Sample]:
    stream = torch.cuda.current_stream()
    calls = {
        "cudaDeviceSynchronize": torch.cuda.synchronize,
        "cudaStreamSynchronize": stream.synchronize,
    }
    return [({"type": "sync", "op": op}, _sampled(call)) for op, call in calls.items()]


def _copy(kind: str, *, pinned: bool) -> Sample:
    """Copy a number, and wait for it."""
    there = torch.zeros(1, device="cuda")
    here = torch.zeros(1).pin_memory() if pinned else torch.zeros(1)
    source, goal = (here, there) if kind == "h2d" else (there, here)

    def copy() -> None:
        goal.copy_(source, non_blocking=pinned)
        torch.cuda.synchronize()

    params: dict[str, AttrValue] = {"type": "copy", "op": "cudaMemcpyAsync"}
    params |= {"kind": kind, "pinned": pinned, "bytes": _BYTES}
    return params, _sampled(copy)


def _graph(nodes: int) -> Sample:
    """Launch a captured graph of so many kernels."""
    one, graph = torch.zeros(1, device="cuda"), torch.cuda.CUDAGraph()
    one.add_(1)  # loads the kernel, which a capture cannot
    torch.cuda.synchronize()
    with captured(graph):
        for _ in range(nodes):
            one.add_(1)
    params: dict[str, AttrValue] = {"type": "graph_launch", "op": "cudaGraphLaunch"}
    return {**params, "nodes": nodes}, _sampled(graph.replay)
