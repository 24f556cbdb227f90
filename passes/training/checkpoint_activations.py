"""The pass `checkpoint-activations`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import ClassVar

import attrs

from perfc.ir import AnyKey, Graph, Node, Program, UsageError, Value, node_kinds
from perfc.ir.dims import Dim
from perfc.ir.opdef import Trait
from perfc.passes.base import PassContext, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.graphs import (
    BACKWARD,
    FORWARD,
    gathers,
    is_between_stages,
    is_training_step,
)


@attrs.frozen
class CheckpointActivations(Transform):
    """Keep only the inputs of segments of forward; run them again in backward.

    As `torch.utils.checkpoint` does: where backward first needs what was computed
    inside a segment, the segment runs once more, up to the last result or statistic
    of a norm that backward needs, and backward reads what that makes. What leaves a
    segment is kept, because whoever reads it keeps it. Parameters that `fsdp` gathers
    are read as they are: whether they are gathered again is for `regather` to say. Run
    it after the pass `training`, and before `regather` and `pipeline-parallel`.

    Attributes:
        modules: Each module whose path fits is a segment, as `encoder.layer.*`: a
            star stands for one part of a path.
        every: Or: so many ops of forward are a segment.

    """

    name: ClassVar[str] = "checkpoint-activations"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    modules: str = ""
    every: int = 0

    def run(self, program: Program, ctx: PassContext) -> None:
        """Change every op graph."""
        if bool(self.modules) == (self.every > 0) or self.every < 0:
            msg = (
                f"{self.name} takes either modules=PATTERN, as "
                "modules=encoder.layer.*, or every=N ops"
            )
            raise UsageError(msg)
        graphs = [rank.ops for rank in program.classes if rank.ops is not None]
        if any(is_between_stages(node) for graph in graphs for node in graph):
            msg = (
                f"{self.name} comes before pipeline-parallel, not after it: forward "
                "of one microbatch follows backward of others there"
            )
            raise UsageError(msg)
        for graph in graphs:
            self._checkpoint(graph, ctx)

    def _checkpoint(self, graph: Graph, ctx: PassContext) -> None:
        if not is_training_step(graph):
            msg = (
                f"{graph} has no backward pass to compute anything again in; give "
                f"--mode training, or the pass training before {self.name}"
            )
            raise UsageError(msg)
        if any(gathers(graph, BACKWARD)):
            msg = f"{graph} gathers parameters again: {self.name} comes before regather"
            raise UsageError(msg)
        gathering = {node for nodes in gathers(graph) for node in nodes}
        known: Mapping[Value, tuple[Dim, ...]] = ctx.get(ELEMENTS, graph)
        nodes = [
            node
            for node in graph
            if node.location.phase == FORWARD
            and not node_kinds.is_constant(node)
            and node not in gathering
            and not all(value in known for value in node.results)
        ]
        segments = self._by_count(nodes) if self.every else self._by_module(nodes)
        if not segments:
            msg = f"no module of {graph} fits modules={self.modules!r}"
            raise UsageError(msg)
        _recompute(graph, segments)

    def _by_count(self, nodes: Sequence[Node]) -> list[Sequence[Node]]:
        starts = range(0, len(nodes), self.every)
        return [nodes[start : start + self.every] for start in starts]

    def _by_module(self, nodes: Iterable[Node]) -> list[Sequence[Node]]:
        """Collect nodes by module; each run of a module is a segment of its own."""
        segments: list[list[Node]] = []
        last = ""
        for node in nodes:
            module = self._segment_of(node.location.module)
            if not module:
                continue
            if module != last:
                segments.append([])
            last = module
            segments[-1].append(node)
        return list(segments)

    def _segment_of(self, module: str) -> str:
        """Return the start of a path that fits the pattern part by part, or ""."""
        wanted, parts = self.modules.split("."), module.split(".")
        if len(parts) < len(wanted):
            return ""
        if not all(map(fnmatchcase, parts, wanted)):
            return ""
        return ".".join(parts[: len(wanted)])


def _recompute(graph: Graph, segments: Sequence[Sequence[Node]]) -> None:
    """Put a copy of each segment before the first node that needs it."""
    starts: dict[Node, _Segment] = {}
    for nodes in segments:
        segment = _Segment.of(graph, nodes)
        if segment is not None:
            starts.setdefault(segment.readers[0], segment)

    def step(node: Node) -> None:
        while (segment := starts.pop(node, None)) is not None:
            segment.run_again(graph)

    graph.rewrite(step)


@attrs.frozen(eq=False)
class _Segment:
    """Nodes that run again, and who reads what they make.

    Attributes:
        nodes: The nodes, up to the last one whose result backward reads.
        needed: What backward reads of it, and nobody keeps.
        readers: The nodes of backward that do, in order.

    """

    nodes: Sequence[Node]
    needed: frozenset[Value]
    readers: Sequence[Node]

    @classmethod
    def of(cls, graph: Graph, nodes: Sequence[Node]) -> _Segment | None:
        """Find what backward needs of *nodes*; None if that is nothing."""
        inside, returned = set(nodes), set(graph.outputs)
        needed: set[Value] = set()
        readers: dict[Node, None] = {}
        for value in (value for node in nodes for value in node.results):
            uses = [use.node for use in graph.uses(value) if use.node not in inside]
            later = [node for node in uses if node.location.phase == BACKWARD]
            if later and len(later) == len(uses) and value not in returned:
                needed.add(value)
                readers.update(dict.fromkeys(later))
        if not needed:
            return None
        order = {node: place for place, node in enumerate(graph)}
        made = {value.producer for value in needed}
        # Statistics are no results: only running the whole op again makes them.
        last = max(
            order[node]
            for node in nodes
            if node in made or node_kinds.has_trait(node, Trait.STATISTICS)
        )
        again = [node for node in nodes if order[node] <= last]
        return cls(again, frozenset(needed), sorted(readers, key=order.__getitem__))

    def run_again(self, graph: Graph) -> None:
        """Write the nodes once more; let backward read what they make."""
        made: dict[Value, Value] = {}
        for node in self.nodes:
            names = [graph.fresh_name(f"{v.name}.again") for v in node.results]
            copy = graph.add(
                node.op,
                [made.get(value, value) for value in node.operands],
                names,
                node.attributes,
                location=attrs.evolve(node.location, phase=BACKWARD),
            )
            for old, new in zip(node.results, copy.results, strict=True):
                new.type = old.type
                made[old] = new
        for reader in self.readers:
            for index, value in enumerate(reader.operands):
                if value in self.needed:
                    graph.set_operand(reader, index, made[value])
