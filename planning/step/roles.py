"""Tasks of a sharded step that a plan changes, and what each then takes.

`shard-embeddings` names its ops for the sharding group and for what they do:
`table_wise.indices.all_to_all`, `row_wise.lookup.embedding_bag`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from perfc.costmodels import Target, find_cost_models, price
from perfc.costmodels.kernels import Floats
from perfc.ir import Kernel, LaunchGraph
from perfc.ir.launch import HOST_KINDS
from perfc.ir.ops.collective import COLLECTIVES

SHARDING_GROUPS = ("table_wise", "row_wise", "table_row_wise")
"""Sharding groups, as `shard-embeddings` names them: column-wise parts go with whole
tables, grids with tables whose rows a node shares."""

MEASURES = ("lookup_s", "update_s", "parts", "indices", "columns", "joined")
"""What a part adds to its rank: seconds of both passes, lists of bags, indices of one
rank's batch, columns of pooled rows, and its share of a piece that the model's own
columns are joined of."""


class Role(enum.Enum):
    """What a task does in an exchange."""

    LOOKUP = "lookup_s"
    UPDATE = "update_s"
    LENGTHS = "parts"
    INDICES = "indices"
    ROWS = "columns"
    JOINED = "joined"
    SPREAD = "spread"
    CAST = "cast"

    __hash__ = object.__hash__


def role_of(node: str, kernel: Kernel) -> tuple[str, Role] | None:
    """Return the sharding group and the role of a kernel; None if plans keep it.

    Args:
        node: The op that it belongs to.
        kernel: The kernel.

    """
    group, _, rest = node.partition(".")
    if group not in SHARDING_GROUPS:
        return None
    what = rest.partition(".")[0]
    if kernel.op in COLLECTIVES:
        sent = {"lengths": Role.LENGTHS, "indices": Role.INDICES, "output": Role.ROWS}
        return (group, sent[what]) if what in sent else None
    if kernel.op == "memcpy":
        copied = {"lengths": Role.LENGTHS, "indices": Role.INDICES}
        return (group, copied[rest]) if rest in copied else None
    if what == "input":
        return group, Role.SPREAD if "bucketize" in rest else Role.LOOKUP
    if what == "lookup":
        backward = rest.startswith("lookup.embedding_bag.")
        return group, Role.UPDATE if backward else Role.LOOKUP
    return (group, Role.CAST) if what == "quantize" else None


_POINTS = 49
_DECADES = 4.0


@attrs.frozen(eq=False)
class Curve:
    """Seconds of a collective by its size, as a multiple of a reference.

    Attributes:
        log_sizes: Logarithms of sizes, ascending.
        log_seconds: Logarithms of seconds.

    """

    log_sizes: Floats
    log_seconds: Floats

    @classmethod
    def of(cls, kernel: Kernel, target: Target) -> Curve:
        """Price a collective for sizes far around its own."""
        log_sizes = np.linspace(-_DECADES, _DECADES, _POINTS) * np.log(10.0)
        scaled = [_scaled(kernel, float(size)) for size in np.exp(log_sizes)]
        models, _ = find_cost_models()
        seconds = price(scaled, target, models).seconds
        return cls(log_sizes, np.log(seconds))

    def seconds(self, sizes: Floats) -> Floats:
        """Return seconds; beyond the known sizes they grow as the size does."""
        log_sizes = np.log(np.maximum(sizes, 1e-30))
        beyond = np.maximum(log_sizes - self.log_sizes[-1], 0.0)
        known = np.interp(log_sizes, self.log_sizes, self.log_seconds)
        found: Floats = np.exp(known + beyond)
        return found


def _scaled(kernel: Kernel, factor: float) -> Kernel:
    """Return a collective of other bytes."""
    size = max(1, round(kernel.params.integer("bytes") * factor))
    work = attrs.evolve(
        kernel.work,
        bytes_read=round(kernel.work.bytes_read * factor),
        bytes_written=round(kernel.work.bytes_written * factor),
    )
    return attrs.evolve(kernel, params=kernel.params.updated(bytes=size), work=work)


@attrs.frozen(eq=False)
class Task:
    """A task that plans change, or at which ranks meet.

    Attributes:
        number: Its number in the launch graph.
        seconds: What it takes in the reference.
        group: Its sharding group; empty for a collective that plans keep.
        role: What it does; None for such.
        rest_s: What the other tasks of its role take.
        kernel: Its signature; None for a task of the host.

    """

    number: int
    seconds: float
    group: str
    role: Role | None
    rest_s: float
    kernel: Kernel | None

    @property
    def is_collective(self) -> bool:
        """Whether all ranks meet at it."""
        return self.kernel is not None and self.kernel.op in COLLECTIVES


def tasks_of(graph: LaunchGraph, duration_s: Sequence[float]) -> list[Task]:
    """Return the tasks to keep of a schedule: of each role of an op the longest."""
    found: dict[object, list[Task]] = {}
    for number, kernel_number in enumerate(graph.kernel):
        if kernel_number < 0:
            continue
        kernel, op = graph.kernels[kernel_number], graph.ops[graph.op[number]]
        named = role_of(op.node, kernel)
        if named is None and kernel.op not in COLLECTIVES:
            continue
        group, role = named or ("", None)
        alone = role not in (Role.LOOKUP, Role.UPDATE)
        task = Task(number, float(duration_s[number]), group, role, 0.0, kernel)
        found.setdefault(number if alone else (group, role), []).append(task)
    kept = [_longest(tasks) for tasks in found.values()]
    kept += _joins(graph, duration_s)
    return sorted(kept, key=lambda task: task.number)


def _joins(graph: LaunchGraph, duration_s: Sequence[float]) -> Iterator[Task]:
    """Yield where the host has cut gradients into pieces, to send them back.

    It is the first thing that it does for the collective of each sharding group.
    """
    waited: dict[str, int] = {}
    for number, op in enumerate(graph.op):
        if op < 0 or graph.kind[number] not in HOST_KINDS:
            continue
        group, _, rest = graph.ops[op].node.partition(".")
        back = rest.startswith("output.") and rest.endswith(_SENT_BACK)
        if group in SHARDING_GROUPS and back and group not in waited:
            waited[group] = number
            yield Task(number, float(duration_s[number]), group, Role.JOINED, 0.0, None)


_SENT_BACK = (".all_to_all.all_to_all", ".reduce_scatter.all_gather")


def slice_seconds(graph: LaunchGraph, duration_s: Sequence[float]) -> float:
    """Return the host's seconds to view one piece of a tensor; 0 if it never does."""
    sliced = {n for n, op in enumerate(graph.ops) if op.name == "aten::slice"}
    seconds = [
        float(duration_s[number])
        for number, op in enumerate(graph.op)
        if op in sliced and graph.kind[number] in HOST_KINDS
    ]
    return math.fsum(seconds) / len(sliced) if sliced else 0.0


def _longest(tasks: Sequence[Task]) -> Task:
    longest = max(tasks, key=lambda task: task.seconds)
    rest_s = math.fsum(task.seconds for task in tasks) - longest.seconds
    return attrs.evolve(longest, rest_s=rest_s)
