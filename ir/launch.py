"""The launch graph: what the host and the device really do, in issue order.

`lower-kernels` makes one from an op graph; a measured trace makes one directly.
It is a table of tasks (one list per column, so that a hundred thousand ops stay
small and passes over them are fast) on resources named (rank, device, thread or
stream). Tasks refer back to the ops they come from, many to one and one to many.

Rules of time, which `stream-schedule` implements and the tests simulate:

- tasks of one resource run one after another, in table order;
- a device task starts no earlier than its issuing call ends plus the launch
  latency, and no earlier than every task in `after` ends;
- a host task (a synchronisation, say) likewise waits for `after`;
- kernels, copies and collectives leave a small gap after a busy predecessor
  on the same stream, a smaller one if one call (of a CUDA graph) issued both;
  event records and waits take no time on the stream;
- the collective tasks that share a group start together, at the last arrival.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence

import attrs

from perfc.ir.kernels import check_params
from perfc.ir.record import EMPTY, Record
from perfc.ir.support import VerifyError, brief


class TaskKind(enum.Enum):
    """What a task is; the value is its spelling in perfc assembly."""

    HOST = "host"
    CALL = "call"
    SYNC = "sync"
    KERNEL = "kernel"
    COPY = "copy"
    RECORD = "record"
    WAIT = "wait"
    COLLECTIVE = "collective"

    # Identity is enough, and hashing the value is slow in a hot loop.
    __hash__ = object.__hash__


HOST_KINDS = frozenset({TaskKind.HOST, TaskKind.CALL, TaskKind.SYNC})
"""Kinds that occupy a host thread; the others occupy a stream."""

BUSY_KINDS = frozenset({TaskKind.KERNEL, TaskKind.COPY, TaskKind.COLLECTIVE})
"""Kinds that keep the device busy."""


OFF_DEVICE = -1
"""Device of a stream of what others do meanwhile: memories, cores, servers."""


class ResourceKind(enum.Enum):
    """A host thread or a device stream."""

    THREAD = "thread"
    STREAM = "stream"


@attrs.frozen
class Resource:
    """Something that runs one task at a time.

    Attributes:
        kind: Thread or stream.
        name: Unique among the resources of its rank, as `main` or `s7`.
        device: Index of the device, for a stream; `OFF_DEVICE` if it is on none.

    """

    kind: ResourceKind
    name: str
    device: int = 0


@attrs.frozen
class Work:
    """Arithmetic and unavoidable memory traffic.

    Fields are ints, numpy arrays or expressions: formulas are plain arithmetic.
    """

    flops: int
    bytes_read: int
    bytes_written: int

    @property
    def bytes(self) -> int:
        """Bytes moved, both ways."""
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
        )


NO_WORK = Work(0, 0, 0)
"""The work of what computes and moves nothing."""


@attrs.frozen(cache_hash=True)
class Kernel:
    """The signature of one kernel or copy: everything its cost depends on.

    Attributes:
        op: Canonical name, as in measured rows (`gemm`, `elementwise`, …).
        dtype: What its tensors are stored in, `fp32`, `bf16`, …
        math: Math mode, a key of the target's rates.
        params: What its declaration (`perfc.ir.kernels`) has, as in measured rows.
        work: Flops and bytes.
        known: False for an op without a model, costed by its bytes: nothing is
            declared of it.

    """

    __repr__ = brief

    op: str
    dtype: str
    math: str
    params: Record
    work: Work
    known: bool = True

    def __attrs_post_init__(self) -> None:
        """Hold the parameters against the kernel's declaration."""
        if self.known:
            check_params(self.op, self.params)


@attrs.frozen
class LaunchOp:
    """An op as the host sees it.

    Attributes:
        name: Name its overheads are known by, as `aten::linear`.
        node: Name of the op-graph node (or the trace event) it comes from.
        attributes: Anything else worth printing.

    """

    name: str
    node: str = ""
    attributes: Record = EMPTY


@attrs.frozen(eq=False)
class Splice:
    """How a launch graph differs from another: by ops that follow one another.

    Attributes:
        base: The other graph.
        ops: Its ops that have others in their place, or none.
        tasks: The tasks of those.
        end: Number of the first op after those that are in their place.
        moved: What takes the place of those tasks for others that wait for them.
        kernels: Number of each kernel of the other graph, -1 of one that is no more;
            None where all are what they were.

    """

    base: LaunchGraph
    ops: range
    tasks: range
    end: int
    moved: Mapping[int, int]
    kernels: Sequence[int] | None


@attrs.define(eq=False)
class LaunchGraph:
    """Tasks in issue order, one list per column; grow it with the methods.

    Attributes:
        name: Name of the graph.
        resources: Threads and streams; tasks name them by index.
        kernels: Distinct kernel signatures; tasks name them by index.
        ops: Ops; tasks name them by index.
        kind: Kind of each task.
        resource: Index into `resources`.
        op: Index into `ops`, or -1.
        kernel: Index into `kernels`, or -1.
        issue: Index of the host call that enqueued a device task, or -1.
        after: Indices of other tasks that must end first.
        detail: `T1`…`T5`, the name of the runtime call, the copy's direction.
        group: Key that the tasks of one collective share, or "".
        stated_s: Seconds the source states (a test, a trace), NaN where none.
        base: The graph whose columns this one shares, see `with_kernels`.
        complete: Whether nothing may be added or changed any more, so that what
            is found out of its structure may be remembered.
        splice: How it differs from another, if that is known.

    """

    __repr__ = brief

    name: str
    resources: list[Resource] = attrs.field(factory=list[Resource], init=False)
    kernels: list[Kernel] = attrs.field(factory=list[Kernel], init=False, repr=False)
    ops: list[LaunchOp] = attrs.field(factory=list[LaunchOp], init=False, repr=False)
    kind: list[TaskKind] = attrs.field(factory=list[TaskKind], init=False, repr=False)
    resource: list[int] = attrs.field(factory=list[int], init=False, repr=False)
    op: list[int] = attrs.field(factory=list[int], init=False, repr=False)
    kernel: list[int] = attrs.field(factory=list[int], init=False, repr=False)
    issue: list[int] = attrs.field(factory=list[int], init=False, repr=False)
    after: list[tuple[int, ...]] = attrs.field(
        factory=list["tuple[int, ...]"], init=False, repr=False
    )
    detail: list[str] = attrs.field(factory=list[str], init=False, repr=False)
    group: list[str] = attrs.field(factory=list[str], init=False, repr=False)
    stated_s: list[float] = attrs.field(factory=list[float], init=False, repr=False)
    _kernel_index: dict[Kernel, int] = attrs.field(
        factory=dict[Kernel, int], init=False, repr=False
    )
    base: LaunchGraph | None = attrs.field(default=None, init=False, repr=False)
    complete: bool = attrs.field(default=False, init=False)
    splice: Splice | None = attrs.field(default=None, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.kind)

    def __str__(self) -> str:
        return f"@{self.name}"

    def thread(self, name: str = "main") -> int:
        """Declare a host thread and return its index."""
        self.resources.append(Resource(ResourceKind.THREAD, name))
        return len(self.resources) - 1

    def stream(self, name: str = "s0", device: int = 0) -> int:
        """Declare a device stream and return its index."""
        self.resources.append(Resource(ResourceKind.STREAM, name, device))
        return len(self.resources) - 1

    def add_op(self, op: LaunchOp) -> int:
        """Declare an op and return its index."""
        self.ops.append(op)
        return len(self.ops) - 1

    def intern(self, kernel: Kernel) -> int:
        """Return the index of *kernel*, adding it the first time."""
        index = self._kernel_index.get(kernel)
        if index is None:
            work = kernel.work
            for amount in (work.flops, work.bytes_read, work.bytes_written):
                if not 0 <= amount < math.inf:
                    msg = (
                        f"a kernel of {kernel.op} has work of {amount}, expected a "
                        "finite "
                        "number that is not negative"
                    )
                    raise VerifyError(msg)
            index = self._kernel_index[kernel] = len(self.kernels)
            self.kernels.append(kernel)
        return index

    @property
    def structure(self) -> LaunchGraph:
        """The graph whose tasks this one has: itself, but for `with_kernels`."""
        return self if self.base is None else self.base

    def emptied(self) -> LaunchGraph:
        """Return a graph without tasks; resources, kernels and ops are the same."""
        empty = LaunchGraph(self.name)
        empty.resources += self.resources
        empty.kernels += self.kernels  # as they are: tasks name them by index
        empty.ops += self.ops
        return empty

    def head(self, ops: int, tasks: int) -> LaunchGraph:
        """Return a graph of the first ops and tasks, to be grown, with all kernels."""
        head = LaunchGraph(self.name)
        head.resources += self.resources
        head.kernels += self.kernels
        head._kernel_index = {kernel: n for n, kernel in enumerate(head.kernels)}
        head.ops += self.ops[:ops]
        head.kind += self.kind[:tasks]
        head.resource += self.resource[:tasks]
        head.op += self.op[:tasks]
        head.kernel += self.kernel[:tasks]
        head.issue += self.issue[:tasks]
        head.after += self.after[:tasks]
        head.detail += self.detail[:tasks]
        head.group += self.group[:tasks]
        head.stated_s += self.stated_s[:tasks]
        return head

    def drop_kernels(self) -> list[int] | None:
        """Forget kernels that no task has.

        Returns:
            The new number of each, -1 of one that is no more; None if all stay.

        """
        used = {*self.kernel}
        numbers = [n for n in range(len(self.kernels)) if n in used]
        if len(numbers) == len(self.kernels):
            return None
        now = [-1] * len(self.kernels)
        for new, old in enumerate(numbers):
            now[old] = new
        self.kernel[:] = [now[n] if n >= 0 else n for n in self.kernel]
        self.kernels[:] = [self.kernels[n] for n in numbers]
        self._kernel_index = {k: n for n, k in enumerate(self.kernels)}
        return now

    def with_kernels(self, kernels: Sequence[Kernel]) -> LaunchGraph:
        """Return a graph of the same tasks, and signature for signature *kernels*.

        The columns are shared, not copied: both graphs are complete from now on.
        """
        if len(kernels) != len(self.kernels):
            msg = f"{self} has {len(self.kernels)} kernels, not {len(kernels)}"
            raise VerifyError(msg)
        other = LaunchGraph(self.name)
        other.resources, other.ops, other.kernels = self.resources, self.ops, [*kernels]
        other.kind, other.resource, other.op = self.kind, self.resource, self.op
        other.kernel, other.issue, other.after = self.kernel, self.issue, self.after
        other.detail, other.group = self.detail, self.group
        other.stated_s, other.base = self.stated_s, self.structure
        other.complete = self.complete = True
        return other

    def task(  # noqa: PLR0913 - one argument per column
        self,
        kind: TaskKind,
        resource: int,
        *,
        op: int = -1,
        kernel: int = -1,
        issue: int = -1,
        after: tuple[int, ...] = (),
        detail: str = "",
        group: str = "",
        stated_s: float = math.nan,
    ) -> int:
        """Append a task and return its index."""
        self._require_open()
        index = len(self.kind)
        self.kind.append(kind)
        self.resource.append(resource)
        self.op.append(op)
        self.kernel.append(kernel)
        self.issue.append(issue)
        self.after.append(after)
        self.detail.append(detail)
        self.group.append(group)
        self.stated_s.append(stated_s)
        return index

    def _require_open(self) -> None:
        if self.complete:
            msg = f"{self} is complete: no task can be added"
            raise VerifyError(msg)

    def launch(  # noqa: PLR0913 - two tasks
        self,
        kind: TaskKind,
        thread: int,
        stream: int,
        *,
        op: int,
        kernel: int,
        call: str,
        detail: str = "",
        stated_s: float = math.nan,
    ) -> int:
        """Append a host call and the device task it enqueues; return the latter."""
        self._require_open()
        index = len(self.kind)
        self.kind += (TaskKind.CALL, kind)
        self.resource += (thread, stream)
        self.op += (op, op)
        self.kernel += (-1, kernel)
        self.issue += (-1, index)
        self.after += ((), ())
        self.detail += (call, detail)
        self.group += ("", "")
        self.stated_s += (math.nan, stated_s)
        return index + 1


def verify_launches(graph: LaunchGraph) -> None:
    """Raise `VerifyError` at the first broken invariant of *graph*."""
    names: set[tuple[ResourceKind, str]] = set()
    for resource in graph.resources:
        if (resource.kind, resource.name) in names:
            kind = resource.kind.value
            msg = f"{graph} has two {kind}s called {resource.name!r}"
            raise VerifyError(msg)
        names.add((resource.kind, resource.name))
    for index in range(len(graph)):
        if (problem := _task_problem(graph, index)) is not None:
            msg = f"task {index} of {graph}: {problem}"
            raise VerifyError(msg)


_LONGEST_S = 1e12
"""What a task may take: sums of so many, and their squares, stay far below infinity."""


def _task_problem(graph: LaunchGraph, index: int) -> str | None:
    if not 0 <= graph.resource[index] < len(graph.resources):
        return f"no resource {graph.resource[index]}"
    kind = graph.kind[index]
    resource = graph.resources[graph.resource[index]]
    on_host = kind in HOST_KINDS
    if on_host != (resource.kind is ResourceKind.THREAD):
        place = "thread" if on_host else "stream"
        return f"a {kind.value} task belongs on a {place}, not on {resource.name}"
    if not -1 <= graph.op[index] < len(graph.ops):
        return f"no op {graph.op[index]}"
    if not -1 <= graph.kernel[index] < len(graph.kernels):
        return f"no kernel {graph.kernel[index]}"
    if (problem := _edge_problem(graph, index)) is not None:
        return problem
    if (kind is TaskKind.COLLECTIVE) != bool(graph.group[index]):
        return "a collective, and only a collective, has a group"
    stated_s = graph.stated_s[index]
    if not (math.isnan(stated_s) or 0 <= stated_s <= _LONGEST_S):
        return f"duration {stated_s} s, expected 0 to {_LONGEST_S:g}"
    return None


def _edge_problem(graph: LaunchGraph, index: int) -> str | None:
    issue = graph.issue[index]
    if issue != -1:
        if not 0 <= issue < index:
            return f"issued by task {issue}, which does not come before it"
        if graph.kind[issue] not in HOST_KINDS:
            return f"issued by task {issue}, which is not a host task"
    if late := [task for task in graph.after[index] if not 0 <= task < index]:
        return f"waits for task {late[0]}, which does not come before it"
    return None
