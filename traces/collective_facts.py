"""What a trace tells of its collectives: which they are, how large, and among whom.

Since PyTorch 2.4 the profiler writes on each kernel of NCCL what was called, with how
many elements, by how many ranks ("Collective name", "In msg nelems", "Group size", …;
`torch/csrc/distributed/c10d/ParamCommsUtils.hpp`). Older ones mark the launch with a
label, `nccl:all_to_all`, and the shape of what is sent if shapes are recorded; their
group is then taken to be the whole world.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from perfc.ir import DTYPES, DType
from perfc.traces.events import CollectiveFacts, HostOp
from perfc.traces.inputs import RecordedTensor
from perfc.traces.owners import call_owners
from perfc.traces.recorded import Recorded

LABEL = "nccl:"
"""How the label around a launch begins."""

_KINDS: Mapping[str, str] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "send": "send_recv",
    "recv": "send_recv",
}
"""Ops by how the names of calls begin, without their underscores."""

_PER_RANK = frozenset({"all_gather"})
"""Ops of which one rank's input is a part of what is counted."""

_NARROW: Mapping[str, str] = {
    "byte": "u8",
    "char": "i8",
    "short": "i16",
    "int": "i32",
    "long": "i64",
    "half": "f16",
    "bfloat16": "bf16",
    "float": "f32",
    "double": "f64",
    "bool": "bool",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
}
"""Element types by the names of c10's scalar types."""


def kind_of(name: str) -> str:
    """Return the op that a call of `torch.distributed` is; "" for none that sends."""
    plain = name.lower().replace("_", "")
    return next((op for begin, op in _KINDS.items() if plain.startswith(begin)), "")


def stated_collective(args: Mapping[str, Any]) -> CollectiveFacts | None:
    """Return the facts that an event's arguments state; None if some are missing."""
    kind = kind_of(str(args.get("Collective name", "")))
    dtype = _NARROW.get(str(args.get("dtype", "")).lower())
    sent, received, ranks = (
        _count(args.get(key))
        for key in ("In msg nelems", "Out msg nelems", "Group size")
    )
    if not kind or dtype is None or not ranks or not sent:
        return None
    nbytes = max(sent, received) * DTYPES[dtype].bits // 8
    stride = _count(args.get("Global rank stride")) or 1
    return CollectiveFacts(kind, nbytes, DTYPES[dtype], ranks, stride)


def _count(value: object) -> int:
    """Return a whole number above 0; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return max(value, 0)


@attrs.frozen(eq=False)
class KnownCollectives:
    """The collectives of a trace.

    Attributes:
        facts: What is known of each, by task.
        assumed: Tasks whose group is taken to be the whole world.
        unknown: Tasks of which too little is known.

    """

    facts: Mapping[int, CollectiveFacts]
    assumed: frozenset[int]
    unknown: Sequence[int]


def known_collectives(recorded: Recorded) -> KnownCollectives:
    """Find out what each collective of a trace sends."""
    tasks = [task for task, work in recorded.works.items() if work.is_collective]
    facts = {
        task: found
        for task in tasks
        for found in [recorded.works[task].collective]
        if found is not None
    }
    labels = _labels(recorded, {t for t in tasks if t not in facts})
    world = recorded.trace.world_size or 0
    assumed: dict[int, CollectiveFacts] = {}
    for task, label in labels.items():
        found = _labelled(label, world)
        if found is not None:
            assumed[task] = found
    facts |= assumed
    unknown = [task for task in tasks if task not in facts]
    return KnownCollectives(facts, frozenset(assumed), unknown)


def _labels(recorded: Recorded, tasks: set[int]) -> dict[int, HostOp]:
    """Return the label around the launch of each task that has one."""
    if not tasks:
        return {}
    launched = {recorded.works[task].correlation: task for task in tasks}
    calls = [c for c in recorded.trace.calls if c.correlation in launched]
    labels = [op for op in recorded.trace.ops if op.name.startswith(LABEL)]
    owned = call_owners(calls, labels)
    return {launched[c.correlation]: op for c, op in owned if op is not None}


def _labelled(label: HostOp, world: int) -> CollectiveFacts | None:
    """Return the facts that a label tells, among all ranks; None if too few."""
    kind = kind_of(label.name.removeprefix(LABEL))
    pair = kind == "send_recv"
    ranks = 2 if pair else world
    sent = _tensors(label)
    if not kind or ranks < 2 or not sent:  # noqa: PLR2004 - a pair
        return None
    counts = [(math.prod(shape), dtype) for shape, dtype in sent]
    nbytes = sum(count * dtype.bits // 8 for count, dtype in counts)
    if not nbytes:
        return None
    times = ranks if kind in _PER_RANK else 1
    return CollectiveFacts(kind, nbytes * times, counts[0][1], ranks, 1)


def _tensors(label: HostOp) -> list[tuple[tuple[int, ...], DType]]:
    """Return shapes and types of what is sent; nothing if one is not told."""
    call = label.recorded
    first = call.arguments[0] if call is not None and call.arguments else None
    given = first if isinstance(first, tuple) else (first,)
    found = [
        (tensor.shape, tensor.dtype)
        for tensor in given
        if isinstance(tensor, RecordedTensor) and tensor.dtype is not None
    ]
    return found if len(found) == len(given) else []
