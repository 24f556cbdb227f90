"""Collectives in a launch graph: streams of their own, and who waits for whom.

As `ProcessGroupNCCL` does it. A collective goes to the stream of its communicator. If
something on the device has computed its operand, an event is recorded on the compute
stream and the communication stream waits for it: for all that was issued before, as in
PyTorch. After the kernel another event is recorded. The compute stream waits for that
one right before the first kernel that reads the result, be it through views; nothing
else waits. The host never does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from perfc.ir import Graph, LaunchGraph, LaunchOp, Node, TaskKind, Value, node_kinds
from perfc.ir.choices import COMM_STREAM
from perfc.ir.launch import OFF_DEVICE
from perfc.passes.lowering import eager
from perfc.passes.lowering.recipe import Lowered


@attrs.define(eq=False)
class Communication:
    """The communication of one launch graph in the making.

    Attributes:
        graph: The launch graph.
        thread: The host's thread.
        compute: The stream of everything but collectives.

    """

    graph: LaunchGraph
    thread: int
    compute: int
    _streams: dict[str, int] = attrs.field(factory=dict[str, int], init=False)
    _met: Counter[str] = attrs.field(factory=Counter[str], init=False)
    _pending: dict[Value, Mapping[int, int]] = attrs.field(
        factory=dict["Value", "Mapping[int, int]"], init=False
    )
    """Events that a value waits for: by stream, the last task that records one."""
    _awaited: dict[int, int] = attrs.field(factory=dict[int, int], init=False)
    """The last of each stream that the compute stream has waited for."""
    _resident: set[Value] = attrs.field(factory=set["Value"], init=False)
    """Values that are on the device before the iteration, and views of them."""

    def begin(self, graph: Graph) -> None:
        """Note what is there before the first node runs."""
        self._resident.update(graph.parameters, graph.states)

    def view(self, node: Node) -> None:
        """Follow a node that launches nothing: its results wait as its operands do."""
        if not self._pending.keys().isdisjoint(node.operands):
            events = self._events(node.operands)
            for value in node.results if events else ():
                self._pending[value] = events
        if self._resident.issuperset(node.operands):
            self._resident.update(node.results)

    def wait(self, node: Node) -> None:
        """Let the compute stream wait for the collectives that a node reads."""
        if self._pending.keys().isdisjoint(node.operands):
            return
        events = self._events(node.operands)
        if not events:
            return
        op = self.graph.add_op(LaunchOp(eager.WORK_WAIT, node.name))
        for stream, record in events.items():
            self._call(op, eager.STREAM_WAIT, TaskKind.WAIT, self.compute, (record,))
            self._awaited[stream] = record

    def note_written(self, node: Node) -> None:
        """Note what a node that launches something has changed."""
        if node.has_effect:
            self._resident.difference_update(node.operands)
            for value in node.operands:
                self._pending.pop(value, None)

    def launch(self, node: Node, lowered: Lowered) -> None:
        """Issue a collective, or what runs on a stream of its own without others."""
        graph = self.graph
        op = graph.add_op(LaunchOp(lowered.name, node.name))
        stream = self._stream(node.attributes.text("stream", COMM_STREAM))
        # Wait for what has computed the operands, unless it ran on this stream.
        for value in node.operands:
            if value not in self._resident and value not in self._pending:
                event = self._call(
                    op, eager.EVENT_RECORD, TaskKind.RECORD, self.compute
                )
                self._call(op, eager.STREAM_WAIT, TaskKind.WAIT, stream, (event,))
        for value in node.operands:
            for other, record in self._pending.get(value, {}).items():
                if other != stream:
                    self._call(op, eager.STREAM_WAIT, TaskKind.WAIT, stream, (record,))
        meeting = self._meeting(node)
        for launch, kernel in zip(lowered.launches, lowered.kernels, strict=True):
            self._issue(op, stream, launch, kernel, meeting)
        end = self._call(op, eager.EVENT_RECORD, TaskKind.RECORD, stream)
        for value in node.results:
            self._pending[value] = {stream: end}
        self._resident.difference_update(node.operands)

    def spread(self, node: Node, lowered: Lowered) -> None:
        """Issue a node of which others than the device do a part.

        Kernels of the node wait for what is awaited of it; who reads its results waits
        for the rest of that.
        """
        graph, before, awaited = self.graph, -1, dict[int, int]()
        op = graph.add_op(LaunchOp(lowered.name, node.name))
        for launch, kernel in zip(lowered.launches, lowered.kernels, strict=True):
            if launch.stream:
                stream = self._stream(launch.stream, OFF_DEVICE)
                before = self._aside(op, stream, launch, kernel, before)
                if launch.awaited:
                    awaited[stream] = before
                continue
            if awaited:
                ends = tuple(awaited.values())
                self._call(op, eager.STREAM_WAIT, TaskKind.WAIT, self.compute, ends)
                awaited.clear()
            before = graph.launch(
                launch.kind,
                self.thread,
                self.compute,
                op=op,
                kernel=kernel,
                call=launch.call,
                detail=launch.detail,
            )
        for value in node.results if awaited else ():
            self._pending[value] = awaited

    def _aside(
        self, op: int, stream: int, launch: eager.Launch, kernel: int, before: int
    ) -> int:
        """Issue what runs elsewhere, or begin with it where nothing issues it."""
        graph, after, issue = self.graph, tuple[int, ...](), -1
        if launch.after is eager.Waits.COMPUTE:
            after = (self._call(op, eager.EVENT_RECORD, TaskKind.RECORD, self.compute),)
        elif launch.after is eager.Waits.PREVIOUS:
            after = (before,)
        if launch.after is not eager.Waits.AHEAD:
            issue = graph.task(TaskKind.CALL, self.thread, op=op, detail=launch.call)
        return graph.task(
            launch.kind,
            stream,
            op=op,
            kernel=kernel,
            issue=issue,
            after=after,
            detail=launch.detail,
        )

    def _meeting(self, node: Node) -> str:
        """Say which collective of a communicator this is; "" if it is none."""
        if not node_kinds.is_collective(node):
            return ""
        group = node.attributes.text("group")
        number = self._met[group]
        self._met[group] += 1
        return f"{group}#{number}"

    def _events(self, values: Iterable[Value]) -> dict[int, int]:
        """Return the events that the compute stream has yet to wait for, by stream."""
        found: dict[int, int] = {}
        for value in values:
            for stream, record in self._pending.get(value, {}).items():
                if record > max(self._awaited.get(stream, -1), found.get(stream, -1)):
                    found[stream] = record
        return found

    def _stream(self, name: str, device: int = 0) -> int:
        if name not in self._streams:
            self._streams[name] = self.graph.stream(name, device)
        return self._streams[name]

    def _call(
        self,
        op: int,
        call: str,
        kind: TaskKind,
        stream: int,
        after: tuple[int, ...] = (),
    ) -> int:
        issue = self.graph.task(TaskKind.CALL, self.thread, op=op, detail=call)
        return self.graph.task(kind, stream, op=op, issue=issue, after=after)

    def _issue(
        self, op: int, stream: int, launch: eager.Launch, kernel: int, group: str
    ) -> None:
        graph = self.graph
        issue = graph.task(TaskKind.CALL, self.thread, op=op, detail=launch.call)
        graph.task(
            launch.kind,
            stream,
            op=op,
            kernel=kernel,
            issue=issue,
            detail=launch.detail,
            group=group,
        )
