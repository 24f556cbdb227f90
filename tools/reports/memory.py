"""The `memory` of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfc.ir.support import Json
from perfc.passes import MemoryUse
from perfc.passes.memory import LASTING, Buffer, BufferKind

_LIVE = 20
"""Buffers that a report lists: so many that stay, and so many that do not."""


_KINDS: Mapping[BufferKind, str] = {
    BufferKind.PARAMETER: "parameters",
    BufferKind.CONSTANT: "parameters",
    BufferKind.OPTIMIZER: "optimizer_state",
    BufferKind.GRADIENT: "gradients",
    BufferKind.INPUT: "inputs",
    BufferKind.ACTIVATION: "other_results",
    BufferKind.SCRATCH: "workspaces",
    BufferKind.LIBRARY: "workspaces",
}
_SAVED = "saved_for_backward"
MEMORY_KINDS = tuple(dict.fromkeys([*_KINDS.values(), _SAVED]))
"""What memory at the peak is for, as people tell it apart."""

_BACKWARD = "backward"


def memory_report(use: MemoryUse, phases: Mapping[str, str]) -> Json:
    """Return the `memory` of a report.

    Every `…_bytes` but `reserved_bytes` is what PyTorch's allocator counts as
    allocated; `reserved_bytes` is what it has taken from the device for that.

    Args:
        use: Memory of the rank class that needs most.
        phases: The phase of each node, by its name.

    """
    passing = [b for b in use.live if b.kind not in LASTING]
    lasting = [b for b in use.live if b.kind in LASTING]
    return {
        "peak_bytes": use.peak_bytes,
        "parameters_bytes": use.parameters_bytes,
        "activations_bytes": use.activations_bytes,
        "gradients_bytes": use.gradients_bytes,
        "optimizer_bytes": use.optimizer_bytes,
        "library_bytes": use.library_bytes,
        "reserved_bytes": use.reserved_bytes,
        "at_node": use.node,
        "at_phase": use.phase,
        "by_kind": _by_kind(use, phases),
        "live_at_peak": [
            {"name": b.name, "kind": b.kind.value, "bytes": b.allocated_bytes}
            for b in (*passing[:_LIVE], *lasting[:_LIVE])
        ],
    }


def _by_kind(use: MemoryUse, phases: Mapping[str, str]) -> dict[str, int]:
    """Return the bytes of the peak, by `MEMORY_KINDS`."""
    in_backward = [phases.get(name) == _BACKWARD for name in use.nodes]
    sums = dict.fromkeys(MEMORY_KINDS, 0)
    for buffer in use.live:
        kind = _SAVED if _is_saved(buffer, in_backward) else _KINDS[buffer.kind]
        sums[kind] += buffer.allocated_bytes
    return sums


def _is_saved(buffer: Buffer, in_backward: Sequence[bool]) -> bool:
    if buffer.kind is not BufferKind.ACTIVATION or buffer.last >= len(in_backward):
        return False
    return in_backward[buffer.last] and not in_backward[buffer.first]
