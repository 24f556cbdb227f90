"""From an op graph to its launch graph, and again at other sizes.

Ops are lowered *site* by site: an op applied to operands of given types and
layouts. Types are kept as the graph has them, symbols included, so the sites of
a graph are the same at every batch. A `Recipe` remembers them; at other sizes it
works out their kernels again and, where every site still launches what it did,
puts them into the launch graph that it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs

from perfc.ir import (
    AnnotationKey,
    AttrValue,
    Expr,
    Graph,
    Kernel,
    LaunchGraph,
    LaunchOp,
    MemorySpace,
    Node,
    Record,
    TaskKind,
    TensorType,
    Value,
    VerifyError,
    evaluate,
)
from perfc.passes.eager import (
    DEVICE_SYNC,
    STREAM_SYNC,
    Eager,
    Launch,
    Layout,
    Settings,
    Site,
    Tensor,
    dtype_name,
)
from perfc.passes.eager_launches import FREE, eager_launches
from perfc.passes.eager_movement import memcpy_launch

THREAD = "main"
STREAM = "compute"
_MAYBE_NOTHING = frozenset({"identity", "cast", "cast_like"})


Slot: TypeAlias = Tensor
"""What is known of a value at every size: a tensor whose type may have symbols."""


@attrs.define(eq=False)
class Binding:
    """The numbers of the symbols, and what tensors and records become by them.

    Attributes:
        numbers: Symbol and number.
        settings: What is assumed of PyTorch and of the device.
        fixed: Tensors without symbols, the same at every binding.

    """

    numbers: Mapping[str, int]
    settings: Settings
    fixed: dict[Slot, Tensor] = attrs.field(factory=dict[Slot, Tensor])
    _types: dict[TensorType, TensorType] = attrs.field(
        factory=dict[TensorType, TensorType], init=False
    )
    _tensors: dict[Slot, Tensor] = attrs.field(factory=dict[Slot, Tensor], init=False)
    _copies: dict[TensorType, Launch] = attrs.field(
        factory=dict[TensorType, Launch], init=False
    )

    def type(self, type_: TensorType) -> TensorType:
        """Return *type_* with numbers for symbols."""
        found = self._types.get(type_)
        if found is None:
            found = self._types[type_] = type_.bind(self.numbers)
        return found

    def tensor(self, slot: Slot) -> Tensor:
        """Return what the rules know of a value."""
        found = self.fixed.get(slot) or self._tensors.get(slot)
        if found is None:
            type_ = self.type(slot.type)
            found = Tensor(type_, slot.layout, slot.parameter, slot.known)
            tensors = self.fixed if type_ is slot.type else self._tensors
            tensors[slot] = found
        return found

    def copy_kernel(self, slot: Slot, *, pinned: bool) -> Launch | None:
        """Return the copy of an input, or None if there is nothing to copy."""
        type_ = self.type(slot.type)
        found = self._copies.get(type_)
        if found is None:
            nbytes = int(type_.nbytes)
            if type_.space is not MemorySpace.DEVICE or not nbytes:
                return None
            dtype = dtype_name(type_.dtype)
            found = memcpy_launch(nbytes, "h2d", pinned=pinned, dtype=dtype)
            self._copies[type_] = found
        return found

    def eager(self, key: SiteKey) -> Eager:
        """Return what eager PyTorch does at a site, at these sizes."""
        op, attributes, operands, results = key
        site = Site(
            op,
            bind_record(attributes, self.numbers),
            tuple([self.tensor(slot) for slot in operands]),
            tuple([self.type(slot.type) for slot in results]),
            self.settings,
        )
        return eager_launches(site)


SiteKey: TypeAlias = tuple[str, Record, tuple[Slot, ...], tuple[Slot, ...]]
"""Op, attributes, operands, results."""


@attrs.frozen(eq=False)
class Lowered:
    """What a site, or the copy of an input, became.

    Attributes:
        name: Name of the op for the host.
        launches: What it launches.
        kernels: Index of the kernel of each launch.
        layouts: How its results lie in memory.

    """

    name: str
    launches: tuple[Launch, ...]
    kernels: tuple[int, ...] = ()
    layouts: tuple[Layout, ...] = ()

    def same_tasks(self, launches: Sequence[Launch]) -> bool:
        """Whether *launches* are the same calls and tasks, kernels apart."""
        if len(launches) != len(self.launches):
            return False
        return all(
            (a.call, a.kind, a.detail, a.waits) == (b.call, b.kind, b.detail, b.waits)
            for a, b in zip(launches, self.launches, strict=True)
        )


@attrs.frozen(eq=False)
class Recipe:
    """How a graph was lowered: enough to lower it again at other sizes.

    Attributes:
        graph: The launch graph that was made.
        numbers: The numbers of the symbols it was made for.
        copies: Inputs and their copies, None for one that is not copied.
        sites: Sites and what they became.
        pinned: Whether the inputs are in pinned memory.
        fixed: Tensors without symbols.

    """

    graph: LaunchGraph
    numbers: Mapping[str, int]
    copies: Mapping[Slot, Lowered | None]
    sites: Mapping[SiteKey, Lowered]
    pinned: bool
    fixed: dict[Slot, Tensor]

    def repeat(self, binding: Binding) -> LaunchGraph | None:
        """Return the launch graph at other sizes; None if its tasks are others."""
        if binding.numbers == self.numbers:
            return self.graph
        binding.fixed = self.fixed
        found: dict[int, Kernel] = {}
        for slot, copy in self.copies.items():
            launch = binding.copy_kernel(slot, pinned=self.pinned)
            if (launch is None) != (copy is None):
                return None
            if launch and copy and not _note(found, copy, (launch,)):
                return None
        for key, lowered in self.sites.items():
            eager = binding.eager(key)
            if eager.name != lowered.name or eager.layouts != lowered.layouts:
                return None
            if not _note(found, lowered, eager.launches):
                return None
        return self.graph.with_kernels([found[i] for i in range(len(found))])


def _note(
    found: dict[int, Kernel], lowered: Lowered, launches: Sequence[Launch]
) -> bool:
    """Note the new kernels; False if tasks differ, or two kernels want one place."""
    if not lowered.same_tasks(launches):
        return False
    for launch, index in zip(launches, lowered.kernels, strict=True):
        kernel = found.setdefault(index, launch.kernel)
        if kernel is not launch.kernel and kernel != launch.kernel:
            return False
    return True


RECIPES: AnnotationKey[Mapping[object, Recipe]] = AnnotationKey(
    "launch.recipes", Graph, per_scenario=False
)
"""How a graph was lowered, by the options it was lowered with."""


@attrs.define(eq=False)
class Lowering:
    """Makes one launch graph; equal sites are worked out once.

    Attributes:
        name: Name of the graph.
        binding: The numbers of the symbols.
        known: Values whose elements are known before running.
        pinned: Whether the inputs are in pinned memory.
        graph: The launch graph.

    """

    name: str
    binding: Binding
    known: frozenset[Value]
    pinned: bool = True
    graph: LaunchGraph = attrs.field(init=False)
    _thread: int = attrs.field(init=False)
    _stream: int = attrs.field(init=False)
    _slots: dict[Value, Slot] = attrs.field(factory=dict[Value, Slot], init=False)
    _plain: dict[TensorType, Slot] = attrs.field(
        factory=dict[TensorType, Slot], init=False
    )
    _layouts: dict[tuple[Slot, Layout], Slot] = attrs.field(
        factory=dict["tuple[Slot, Layout]", Slot], init=False
    )
    _copies: dict[Slot, Lowered | None] = attrs.field(
        factory=dict["Slot", "Lowered | None"], init=False
    )
    _sites: dict[SiteKey, Lowered] = attrs.field(
        factory=dict["SiteKey", Lowered], init=False
    )

    def __attrs_post_init__(self) -> None:
        """Make the thread and the stream."""
        self.graph = LaunchGraph(self.name)
        self._thread = self.graph.thread(THREAD)
        self._stream = self.graph.stream(STREAM)

    def recipe(self) -> Recipe:
        """Return how it was done."""
        return Recipe(
            self.graph,
            dict(self.binding.numbers),
            self._copies,
            self._sites,
            self.pinned,
            self.binding.fixed,
        )

    def copy_inputs(self, graph: Graph) -> None:
        """Copy each input that the graph reads on the device."""
        for value in graph.inputs:
            slot = self._slot(value)
            if slot not in self._copies:
                launch = self.binding.copy_kernel(slot, pinned=self.pinned)
                self._copies[slot] = (
                    self._interned("aten::to", (launch,)) if launch else None
                )
            copy = self._copies[slot]
            if copy is not None:
                self._emit(copy, value.name)

    def lower(self, graph: Graph) -> None:
        """Lower every node, in order."""
        weights: dict[TensorType | None, Slot] = {}
        for value in graph.parameters:
            slot = weights.get(value.type)
            if slot is None:
                slot = attrs.evolve(self._result(value), parameter=True)
                weights[value.type] = slot
            self._slots[value] = slot
        for node in graph:
            if node.op in FREE or self._is_known(node):
                continue
            if node.op in _MAYBE_NOTHING and self._is_nothing(node):
                self._slots[node.results[0]] = self._slot(node.operands[0])
                continue
            lowered = self._lowered(node)
            name = node.results[0].name if node.results else node.location.name
            self._emit(lowered, name)

    def synchronize(self) -> None:
        """Wait for everything on the device."""
        graph = self.graph
        last = _last_device_task(graph)
        op = graph.add_op(LaunchOp(DEVICE_SYNC))
        graph.task(TaskKind.SYNC, self._thread, op=op, after=last, detail=DEVICE_SYNC)

    def _is_known(self, node: Node) -> bool:
        """Whether all results are shape arithmetic: Python integers in eager."""
        for value in node.results:
            if value not in self.known:
                return False
        return bool(node.results)

    def _is_nothing(self, node: Node) -> bool:
        """Whether the result is the operand: exporters write casts to its own type."""
        x, y = self._slot(node.operands[0]), self._result(node.results[0])
        return node.op == "identity" or x.type.dtype == y.type.dtype

    def _lowered(self, node: Node) -> Lowered:
        slots = self._slots
        operands = tuple([slots.get(v) or self._slot(v) for v in node.operands])
        results = tuple([self._result(value) for value in node.results])
        key = (node.op, node.attributes, operands, results)
        found = self._sites.get(key)
        if found is None:
            eager = self.binding.eager(key)
            found = self._interned(eager.name, eager.launches, eager.layouts)
            self._sites[key] = found
        laid_out = zip(results, found.layouts, strict=True) if found.layouts else ()
        results = tuple([self._laid_out(*pair) for pair in laid_out]) or results
        slots.update(zip(node.results, results, strict=True))
        return found

    def _laid_out(self, slot: Slot, layout: Layout) -> Slot:
        if layout is slot.layout:
            return slot
        found = self._layouts.get((slot, layout))
        if found is None:
            found = attrs.evolve(slot, layout=layout)
            self._layouts[slot, layout] = found
        return found

    def _interned(
        self,
        name: str,
        launches: tuple[Launch, ...],
        layouts: tuple[Layout, ...] = (),
    ) -> Lowered:
        kernels = tuple([self.graph.intern(launch.kernel) for launch in launches])
        return Lowered(name, launches, kernels, layouts)

    def _emit(self, lowered: Lowered, name: str) -> None:
        graph, thread, stream = self.graph, self._thread, self._stream
        op = graph.add_op(LaunchOp(lowered.name, name))
        for launch, kernel in zip(lowered.launches, lowered.kernels, strict=True):
            task = graph.launch(
                launch.kind,
                thread,
                stream,
                op=op,
                kernel=kernel,
                call=launch.call,
                detail=launch.detail,
                stated_s=launch.stated_s,
            )
            if launch.waits:
                graph.task(
                    TaskKind.SYNC, thread, op=op, after=(task,), detail=STREAM_SYNC
                )

    def _slot(self, value: Value) -> Slot:
        """Return what is known of a value that no lowered node made."""
        slot = self._slots.get(value)
        if slot is None:
            slot = self._result(value)
            if value in self.known:
                slot = attrs.evolve(slot, known=True)
            self._slots[value] = slot
        return slot

    def _result(self, value: Value) -> Slot:
        type_ = value.type
        if type_ is None:
            msg = f"value {value} has no type; run shape-inference first"
            raise VerifyError(msg)
        slot = self._plain.get(type_)
        if slot is None:
            slot = self._plain[type_] = Slot(type_)
        return slot


def _last_device_task(graph: LaunchGraph) -> tuple[int, ...]:
    for task in range(len(graph) - 1, -1, -1):
        if graph.kernel[task] != -1:
            return (task,)
    return ()


def bind_record(record: Record, bindings: Mapping[str, int]) -> Record:
    """Put numbers in place of the symbols of an attribute record."""
    if not record.is_symbolic:
        return record
    return Record({name: _bind(value, bindings) for name, value in record.items()})


def _bind(value: AttrValue, bindings: Mapping[str, int]) -> AttrValue:
    match value:
        case Expr():
            number: int = evaluate(value, bindings)
            return number
        case Record():
            return bind_record(value, bindings)
        case tuple():
            return tuple(_bind(item, bindings) for item in value)
        case _:
            return value
