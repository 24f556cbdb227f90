"""What calls of the CUDA and HIP runtimes do to whoever calls."""

from __future__ import annotations

import enum
import functools
import re

from perfc.traces.events import DeviceKind, DeviceWork


class Waits(enum.Enum):
    """What a call waits for."""

    STREAM = "stream"
    EVENT = "event"
    DEVICE = "device"


_PREFIX = re.compile(r"(cuda|hip|cu)(?=[A-Z])")
_WAITS = {
    "StreamSynchronize": Waits.STREAM,
    "EventSynchronize": Waits.EVENT,
    "DeviceSynchronize": Waits.DEVICE,
    "CtxSynchronize": Waits.DEVICE,
    # It may only be given back when nothing uses it any more.
    "Free": Waits.DEVICE,
}
_MEMORY = frozenset(
    {"Malloc", "Free", "HostAlloc", "MallocHost", "FreeHost", "MemCreate"}
)
_BLOCKING_COPIES = frozenset({"Memcpy", "Memcpy2D", "MemcpyWithStream"})
_KERNELS = frozenset({"GraphLaunch", "LaunchCooperativeKernel"})
_STAGED_BYTES = 1 << 16
"""Smaller copies out of pageable memory are staged: the call returns before they ran
(CUDA runtime API, "API synchronization behavior")."""


@functools.cache  # a trace has some dozens of calls, each thousands of times
def _plain(name: str) -> str:
    return _PREFIX.sub("", name, count=1).split("_")[0]


def waits_for(name: str) -> Waits | None:
    """Return the work that the call waits for, None if it returns at once."""
    return _WAITS.get(_plain(name))


def runs_kernels(name: str) -> bool:
    """Whether the call lets the device run kernels: one, or those of a graph.

    Copies and memsets of nothing are no work of the device's.
    """
    plain = _plain(name)
    return "LaunchKernel" in plain or plain in _KERNELS


def is_memory(name: str) -> bool:
    """Whether the call takes memory from the driver, or gives it back."""
    return _plain(name) in _MEMORY


def holds_up(name: str) -> bool:
    """Whether the call takes time that is no overhead of the op around it."""
    plain = _plain(name)
    return plain in _WAITS or plain in _MEMORY


def is_stream_wait(name: str) -> bool:
    """Whether the call makes a stream wait for an event."""
    return _plain(name) == "StreamWaitEvent"


def is_record(name: str) -> bool:
    """Whether the call records an event on a stream."""
    return _plain(name).startswith("EventRecord")


def blocks(call: str, work: DeviceWork) -> bool:
    """Whether the call that issued *work* returns only when it is done."""
    if work.kind is not DeviceKind.COPY:
        return False
    if _plain(call) in _BLOCKING_COPIES:
        return True
    if "Pageable" not in work.name:
        return False
    return work.name.startswith("Memcpy DtoH") or work.size_bytes > _STAGED_BYTES
