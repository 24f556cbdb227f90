"""Construction of the launch graph of an op graph, site by site (see `recipe.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from perfc import ir
from perfc.ir.launch import BUSY_KINDS, ResourceKind
from perfc.ir.location import ACCUMULATE_GRAD
from perfc.ir.node_kinds import has_trait, is_free
from perfc.ir.opdef import Trait
from perfc.ir.support import VerifyError, budget
from perfc.passes import graphs
from perfc.passes.lowering.eager import DEVICE_SYNC, STREAM_SYNC, Launch, Layout
from perfc.passes.lowering.recipe import (
    COPY,
    Binding,
    Lowered,
    Recipe,
    SiteKey,
    Slot,
    slot_of,
)

if TYPE_CHECKING:
    from perfc.passes.lowering.communication import Communication

THREAD = "main"
STREAM = "compute"


@attrs.define(eq=False)
class Lowering:
    """Makes one launch graph; equal sites are worked out once.

    Attributes:
        name: Name of the graph.
        binding: The numbers of the symbols.
        known: Values whose elements are known before running.
        graph: The launch graph.

    """

    name: str
    binding: Binding
    known: frozenset[ir.Value]
    graph: ir.LaunchGraph = attrs.field(init=False)
    _thread: int = attrs.field(init=False)
    _stream: int = attrs.field(init=False)
    _most_tasks: float = attrs.field(init=False)
    _communication: Communication | None = attrs.field(default=None, init=False)
    _slots: dict[ir.Value, Slot] = attrs.field(factory=dict[ir.Value, Slot], init=False)
    _copies: dict[Slot, Lowered | None] = attrs.field(
        factory=dict["Slot", "Lowered | None"], init=False
    )
    _sites: dict[SiteKey, Lowered] = attrs.field(
        factory=dict["SiteKey", Lowered], init=False
    )

    def __attrs_post_init__(self) -> None:
        """Make the thread and the stream."""
        self.graph = ir.LaunchGraph(self.name)
        self._thread = self.graph.thread(THREAD)
        self._stream = self.graph.stream(STREAM)
        self._most_tasks = budget("launches")

    def recipe(self, version: int) -> Recipe:
        """Return how *version* of the op graph was lowered; the graph is complete."""
        self.graph.complete = True
        return Recipe(
            self.graph,
            dict(self.binding.numbers),
            self.binding.settings,
            self._copies,
            self._sites,
            self.binding.fixed,
            version,
        )

    def copy_inputs(self, graph: ir.Graph, kept: frozenset[ir.Value]) -> None:
        """Copy inputs that the graph reads on the device, but those *kept* there."""
        if self._is_spread(graph):
            from perfc.passes.lowering.far_tables import kept_on_host  # noqa: PLC0415 - lazy

            kept |= kept_on_host(graph, on_cpu=False)  # nothing is copied to a CPU
        for value in graph.inputs:
            if value in kept:
                continue
            slot = self._slot(value)
            if slot not in self._copies:
                launch = self.binding.copy_kernel(slot)
                self._copies[slot] = self._interned(COPY, (launch,)) if launch else None
            copy = self._copies[slot]
            if copy is not None:
                self._emit(copy, value.name)

    def _is_spread(self, graph: ir.Graph) -> bool:
        if not graphs.placed_lookups(graph):
            return False
        from perfc.passes.lowering.far_tables import is_spread  # noqa: PLC0415 - lazy

        return is_spread(graph, on_cpu=self.binding.settings.on_cpu)

    def lower(self, graph: ir.Graph) -> None:
        """Lower every node, in order."""
        if graphs.communicates(graph) or self._is_spread(graph):
            from perfc.passes.lowering.communication import Communication  # noqa: PLC0415 - lazy

            self._communication = Communication(self.graph, self._thread, self._stream)
            self._communication.begin(graph)
        # Parameters of one type are one slot, so that layers that repeat are equal
        # sites, each of which is worked out once.
        weights: dict[ir.TensorType | None, Slot] = {}
        for value in (*graph.parameters, *graph.states):
            slot = weights.get(value.type)
            if slot is None:
                slot = slot_of(self._result(value).type, parameter=True)
                weights[value.type] = slot
            self._slots[value] = slot
        for node in graph:
            if is_free(node) or self._is_known(node):
                continue
            seconds = graphs.stated_host_s(node)
            if seconds is not None:
                # Keep the host busy for as long as the node states.
                name = node.attributes.text("op")
                op = self.graph.add_op(ir.LaunchOp(name, node.name))
                self.graph.task(
                    ir.TaskKind.HOST, self._thread, op=op, detail=name, stated_s=seconds
                )
                continue
            if self._is_no_call(node):
                self._pass_by(node)
                continue
            if has_trait(node, Trait.CONVERTS) and self._is_nothing(node):
                self._slots[node.results[0]] = self._slot(node.operands[0])
                self._pass_by(node)
                continue
            lowered = self._lowered(node)
            if self._communication is None:
                self._emit(lowered, node.name, _autograd_name(node))
            else:
                self._communicate(self._communication, node, lowered)

    def synchronize(self) -> None:
        """Wait for everything on the device."""
        graph = self.graph
        last = _last_device_tasks(graph)
        op = graph.add_op(ir.LaunchOp(DEVICE_SYNC))
        graph.task(
            ir.TaskKind.SYNC, self._thread, op=op, after=last, detail=DEVICE_SYNC
        )

    def _pass_by(self, node: ir.Node) -> None:
        """Follow a node that is no call."""
        if self._communication is not None:
            self._communication.view(node)

    def _communicate(
        self, communication: Communication, node: ir.Node, lowered: Lowered
    ) -> None:
        """Emit a node between collectives, or one of them."""
        if graphs.is_issued_in_order(node):
            communication.launch(node, lowered)
            return
        if any(launch.stream for launch in lowered.launches):
            communication.wait(node)
            communication.spread(node, lowered)
            return
        if lowered.launches:
            communication.wait(node)
            communication.note_written(node)
        else:
            communication.view(node)
        self._emit(lowered, node.name, _autograd_name(node))

    def _is_known(self, node: ir.Node) -> bool:
        """Whether all results are shape arithmetic: Python integers in eager."""
        for value in node.results:
            if value not in self.known:
                return False
        return bool(node.results)

    def _is_no_call(self, node: ir.Node) -> bool:
        """Whether Python has a tensor without a call: a view, or an input on hand."""
        # A view without a call was put in by a transform: eager PyTorch has no op for
        # it, which would cost the host time.
        if node.op == "copy" and node.attributes.get("input"):
            settings = self.binding.settings
            return settings.on_cpu or settings.inputs == "device"
        return node.op == "view" and not node.attributes.get("call")

    def _is_nothing(self, node: ir.Node) -> bool:
        """Whether the result is the operand: exporters write casts to its own type."""
        x, y = self._slot(node.operands[0]), self._result(node.results[0])
        return x.type.dtype == y.type.dtype

    def _lowered(self, node: ir.Node) -> Lowered:
        slots = self._slots
        operands = tuple([slots.get(v) or self._slot(v) for v in node.operands])
        results = tuple([self._result(value) for value in node.results])
        key = (node.op, node.attributes, operands, results)
        found = self._sites.get(key)
        if found is None:
            eager = self.binding.known_eager(key)
            found = self._interned(eager.name, eager.launches, eager.layouts)
            self._sites[key] = found
        laid_out = zip(results, found.layouts, strict=True) if found.layouts else ()
        results = tuple([self._laid_out(*pair) for pair in laid_out]) or results
        slots.update(zip(node.results, results, strict=True))
        return found

    def _laid_out(self, slot: Slot, layout: Layout) -> Slot:
        if layout is slot.layout:
            return slot
        return slot_of(slot.type, layout, parameter=slot.parameter, known=slot.known)

    def _interned(
        self,
        name: str,
        launches: tuple[Launch, ...],
        layouts: tuple[Layout, ...] = (),
    ) -> Lowered:
        kernels = tuple([self.graph.intern(launch.kernel) for launch in launches])
        return Lowered(name, launches, kernels, layouts)

    def _emit(self, lowered: Lowered, name: str, outer: str = "") -> None:
        """Launch it, as a part of the op that *outer* names."""
        graph, thread, stream = self.graph, self._thread, self._stream
        tasks = len(graph) + 2 * len(lowered.launches)
        if tasks > self._most_tasks:  # `spend` alone would ask for each node
            ir.spend("launches", tasks, name)
        op = graph.add_op(ir.LaunchOp(outer or lowered.name, name))
        for launch, kernel in zip(lowered.launches, lowered.kernels, strict=True):
            if launch.op:
                op = graph.add_op(ir.LaunchOp(launch.op, name))
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
                    ir.TaskKind.SYNC, thread, op=op, after=(task,), detail=STREAM_SYNC
                )

    def _slot(self, value: ir.Value) -> Slot:
        """Return the slot of a value that no lowered node made."""
        slot = self._slots.get(value)
        if slot is None:
            slot = self._result(value)
            if value in self.known:
                slot = slot_of(slot.type, known=True)
            self._slots[value] = slot
        return slot

    def _result(self, value: ir.Value) -> Slot:
        type_ = value.type
        if type_ is None:
            msg = f"value {value} has no type; run shape-inference first"
            raise VerifyError(msg)
        return slot_of(type_)


def fused_nodes(op: ir.LaunchOp) -> tuple[str, ...]:
    """Return the nodes that a generated kernel computes; none of another op."""
    return op.attributes.texts("nodes")


def _autograd_name(node: ir.Node) -> str:
    """Return the node of autograd that the host runs for it, where that is known."""
    return ACCUMULATE_GRAD if node.location.origin == ACCUMULATE_GRAD else ""


def _last_device_tasks(graph: ir.LaunchGraph) -> tuple[int, ...]:
    """Return the last task of each stream that keeps the device busy."""
    streams = sum(r.kind is ResourceKind.STREAM for r in graph.resources)
    last: dict[int, int] = {}
    for task in reversed(range(len(graph))):
        if graph.kind[task] in BUSY_KINDS:
            last.setdefault(graph.resource[task], task)
            if len(last) == streams:
                break
    return tuple(sorted(last.values()))
