"""What a trace holds, whoever wrote it: ops, calls, device work, in microseconds.

Times count from the first event of the trace.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

import attrs

from perfc.costmodels.machine import Multiprocessors
from perfc.ir import Diagnostic, DType, Kernel, PerfcError
from perfc.ir.support import brief
from perfc.traces.inputs import RawInputs, RecordedOp

Thread: TypeAlias = tuple[int | str, int | str]
"""Process and thread."""

Stream: TypeAlias = tuple[int, int]
"""Device and stream."""

Dims: TypeAlias = tuple[tuple[int, ...], ...]


class Timed(Protocol):
    """Something that begins and ends."""

    start_us: float
    end_us: float


def delay(events: Iterable[Timed], by_us: float) -> None:
    """Let events begin and end later by as much."""
    for event in events:
        event.start_us += by_us
        event.end_us += by_us


class TraceError(PerfcError):
    """A file is no trace, or is damaged."""


class TooManyEventsError(TraceError):
    """A trace has more events than its reader wants to hold."""


LOADER = "enumerate(DataLoader)"
"""How PyTorch calls the time in which a data loader is asked for a batch. Some traces
have it as an op and some as a label; here it is an op."""


class DeviceKind(enum.Enum):
    """What a device does."""

    KERNEL = "kernel"
    COPY = "copy"
    MEMSET = "memset"


@attrs.frozen
class Place:
    """Place in the model where something was called.

    Attributes:
        module: The modules around it, outermost first, as
            `ViTModel_0.ViTEncoder_0.ViTLayer_3`; "" where the trace does not tell.
        source: The line of the model that called it, as `vit.py(170): forward`; ""
            where the trace does not tell.

    """

    module: str = ""
    source: str = ""


NOWHERE = Place()


@attrs.define(eq=False)
class Frame:
    """A call of a function of Python, or of a module.

    Attributes:
        name: `file(line): function`, or the name of the module.
        start_us: When it began.
        end_us: When it ended.
        thread: Where it ran.
        is_module: Whether it is a module.

    """

    name: str
    start_us: float
    end_us: float
    thread: Thread
    is_module: bool


@attrs.define(eq=False)
class HostOp:
    """One call of one op of the framework.

    Attributes:
        name: Name, as `aten::addmm`.
        start_us: When it began.
        end_us: When it ended.
        thread: Where it ran.
        inputs: Its arguments, None where the trace has none.
        is_label: Whether it only marks a stretch of time: a step, a module, a phase.
        number: How the profiler numbers it, in the order of their starts; -1 if it
            does not.
        sequence: What autograd numbers it by, the same for an op and its gradient; -1
            where the trace does not tell.
        is_gradient: Whether it is the gradient.
        place: Where it was called.

    """

    name: str
    start_us: float
    end_us: float
    thread: Thread
    inputs: RawInputs | RecordedOp | None
    is_label: bool
    number: int = -1
    sequence: int = -1
    is_gradient: bool = False
    place: Place = NOWHERE

    @property
    def dims(self) -> Dims:
        """Shapes of its arguments, `()` for one that is no tensor; empty if none."""
        return () if self.inputs is None else self.inputs.shapes()

    @property
    def recorded(self) -> RecordedOp | None:
        """The call with its arguments, None where the trace has none."""
        return None if self.inputs is None else self.inputs.op(self.name)


@attrs.define(eq=False)
class RuntimeCall:
    """One call of the CUDA or HIP runtime or driver.

    Attributes:
        name: Name, as `cudaLaunchKernel`.
        start_us: When it began.
        end_us: When it returned.
        thread: Who called.
        correlation: Number that the device work it issued has, too; -1 for none.
        place: Where it was called, as calls of Python around it tell.

    """

    name: str
    start_us: float
    end_us: float
    thread: Thread
    correlation: int
    place: Place = NOWHERE


@attrs.frozen
class Shape:
    """How a kernel was cut into blocks, and what a block holds on to.

    Attributes:
        blocks: Blocks of the grid.
        threads: Threads of a block.
        registers: 32-bit registers of a thread; 0 where the trace does not tell.
        shared_bytes: Shared memory of a block; 0 where the trace does not tell.

    """

    blocks: int
    threads: int
    registers: int
    shared_bytes: int


@attrs.frozen
class CollectiveFacts:
    """What a collective sends, and among whom.

    Attributes:
        kind: Its op, as measured rows call it: `all_reduce`, ….
        bytes: Size as nccl-tests count it: the whole input or result, whichever is
            larger.
        dtype: Its element type.
        ranks: Members of its group.
        stride: How far apart neighbours are in the numbering of all ranks.

    """

    kind: str
    bytes: int
    dtype: DType
    ranks: int
    stride: int = 1


@attrs.define(eq=False)
class DeviceWork:
    """A kernel, a copy or a memset.

    Attributes:
        kind: Which of them.
        name: Name of the kernel, or direction of the copy as the trace writes it.
        start_us: When it began.
        end_us: When it ended.
        stream: Where it ran.
        correlation: Number of the call that issued it; -1 if the trace does not tell.
        size_bytes: Bytes copied or set; 0 for a kernel.
        identity: Group and number of a collective, the same on every rank; "" where the
            trace does not tell.
        shape: Grid and blocks of a kernel; None where the trace does not tell.
        collective: What a collective sends; None where its event does not tell.
        signature: What was priced, in a trace of a prediction; None in a measured one.

    """

    kind: DeviceKind
    name: str
    start_us: float
    end_us: float
    stream: Stream
    correlation: int
    size_bytes: int
    identity: str
    shape: Shape | None = None
    collective: CollectiveFacts | None = None
    signature: Kernel | None = None

    @property
    def is_collective(self) -> bool:
        """Whether it waits for other ranks."""
        return self.kind is DeviceKind.KERNEL and is_collective_kernel(self.name)


def is_collective_kernel(name: str) -> bool:
    """Whether a kernel is one of NCCL or RCCL."""
    return name.startswith(("nccl", "rccl", "void nccl", "mscclKernel"))


@attrs.frozen
class SyncRecord:
    """What newer traces say of a call that waits.

    Attributes:
        stream: The stream that waits, or that the host waits for; None if not told.
        awaited: The stream of the event waited for; None if not told.
        record: Correlation of the call that recorded the event, -1 if not told.

    """

    stream: Stream | None
    awaited: Stream | None
    record: int


@attrs.define(eq=False)
class Step:
    """An iteration as the profiler marked it.

    Attributes:
        name: As `ProfilerStep#7`.
        number: Its number, 7.
        start_us: When it began on the host.
        end_us: When it ended on the host.
        thread: The thread it was marked on.

    """

    name: str
    number: int
    start_us: float
    end_us: float
    thread: Thread


@attrs.define(eq=False)
class Trace:
    """A measured trace.

    Attributes:
        file: Where it was read.
        devices: Names of the devices, by number.
        rank: Rank of the process, None if the trace does not tell.
        world_size: Number of ranks, None if the trace does not tell.
        origin_us: When the first event began, by the clock of the host.
        ops: Ops, in order of their starts.
        calls: Runtime calls, in order of their starts.
        works: Device work, in order of their starts.
        syncs: What the trace says of waiting calls, by correlation.
        steps: Steps, in order.
        diagnostics: What is missing or was left out.
        delay_us: How much later it began than the trace that its times count from.
        windowed: Whether it is a window of a longer trace: calls before it are left
            out, of their work what still runs in it is there.
        multiprocessors: Those of its first device; None if it does not tell.

    """

    __repr__ = brief

    file: str
    devices: Mapping[int, str]
    rank: int | None
    world_size: int | None
    origin_us: float
    ops: Sequence[HostOp]
    calls: Sequence[RuntimeCall]
    works: Sequence[DeviceWork]
    syncs: Mapping[int, SyncRecord]
    steps: Sequence[Step]
    diagnostics: tuple[Diagnostic, ...]
    delay_us: float = 0.0
    windowed: bool = False
    multiprocessors: Multiprocessors | None = None

    @property
    def event_count(self) -> int:
        """How many events it holds."""
        lists = (self.ops, self.calls, self.works, self.syncs, self.steps)
        return sum(map(len, lists))

    @property
    def device(self) -> str:
        """The name of the device that worked first, "" if none did.

        A device of another number has the name of all if they have one.
        """
        if not self.works:
            return ""
        names = {*self.devices.values()}
        shared = names.pop() if len(names) == 1 else ""
        return self.devices.get(self.works[0].stream[0], shared)

    def delay(self, by_us: float) -> None:
        """Let every event begin later by as much."""
        self.delay_us += by_us
        delay(self.ops, by_us)
        delay(self.calls, by_us)
        delay(self.works, by_us)
        delay(self.steps, by_us)
