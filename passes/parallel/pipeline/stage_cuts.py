"""Cuts of a model into stages: between layers, evenly, where little crosses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from perfc.ir import Graph, Node, TensorType, UsageError, Value
from perfc.ir.copying import bind_record
from perfc.ir.ops import BUILTIN_OPS
from perfc.passes import graphs
from perfc.passes.parallel.pipeline.chunk_cuts import ChunkSteps, Costs
from perfc.passes.training import LOSS

FLOPS_PER_BYTE, LOW_FLOPS_PER_BYTE = 15, 150
"""Flops that take as long as a byte of memory, of 32 bits and of fewer: V100, A100 and
H100 do 10 to 20, and 139 to 295 (their data sheets)."""

LateSteps = Callable[[], ChunkSteps | None]
"""Makes what is done where stages are chunks of several places, if they are."""

_LOW_BITS = 16

CROSSING = 8
"""Bytes of memory that take as long as one that crosses: 3.35 TB/s and 450 GB/s of an
H100, 2.04 TB/s and 300 GB/s of an A100 (their data sheets)."""


def is_forward(node: Node) -> bool:
    """Whether a node is of forward, or of the loss after it."""
    return node.location.phase not in (graphs.BACKWARD, graphs.OPTIMIZER)


@attrs.frozen(eq=False)
class Layers:
    """Consecutive nodes of forward that are not taken apart.

    All nodes below the first number in the path of a module are one layer, as those of
    `transformer.h.0`, and a module without one is by itself. The loss belongs to the
    last layer.

    Attributes:
        graph: The graph.
        nodes: The nodes of each.
        work: The work of each, as bytes of memory; the work of backward is in
            proportion.
        crossing: Bytes that cross before each, none before the first.

    """

    graph: Graph
    nodes: Sequence[Sequence[Node]]
    work: Sequence[float]
    crossing: Sequence[int]

    @classmethod
    def of(
        cls, graph: Graph, everywhere: frozenset[Node], numbers: Mapping[str, int]
    ) -> Layers:
        """Find them; nodes *everywhere* are of none, *numbers* are of symbols."""
        layers: list[list[Node]] = []
        last = ""
        for node in graph:
            if node in everywhere or not is_forward(node):
                continue
            name = _layer(node)
            if layers and (node.location.phase == LOSS or name == last != ""):
                layers[-1].append(node)
            else:
                layers.append([node])
                last = name
        work = [sum(_work(node, numbers) for node in layer) for layer in layers]
        return cls(graph, layers, work, _crossing(graph, layers, numbers))

    def cut(self, stages: int, steps: LateSteps) -> list[int]:
        """Return the first layer of each stage, so that the slowest is fastest.

        What crosses does so while stages work: it counts where it takes longer. Of cuts
        that are as good, that with the least to send.

        Args:
            stages: How many stages.
            steps: Makes what is done where stages are chunks, to be over as soon as can
                be; asked once it is known that there are as many layers.

        """
        count = len(self.nodes)
        if count < stages:
            msg = f"{self.graph} has {count} layers, fewer than {stages} stages"
            raise UsageError(msg)
        costs = Costs.of(self.work, self.crossing, CROSSING)
        made = steps()
        ends = costs.cut(stages) if made is None else made.cut(costs)
        return list(ends[:-1])


def _layer(node: Node) -> str:
    parts = node.location.module.split(".")
    for place, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: place + 1])
    return node.location.module


def _bound(value: Value, numbers: Mapping[str, int]) -> TensorType:
    return graphs.typed(value).bind(numbers)


def _work(node: Node, numbers: Mapping[str, int]) -> float:
    opdef = BUILTIN_OPS[node.op]
    if opdef.view is not None:
        return 0.0
    work = opdef.work(
        bind_record(node.attributes, numbers),
        [_bound(value, numbers) for value in node.operands],
        [_bound(value, numbers) for value in node.results],
    )
    low = any(graphs.typed(value).dtype.bits <= _LOW_BITS for value in node.results)
    rate = LOW_FLOPS_PER_BYTE if low else FLOPS_PER_BYTE
    return float(work.bytes) + float(work.flops) / rate


def _crossing(
    graph: Graph, layers: Sequence[Sequence[Node]], numbers: Mapping[str, int]
) -> list[int]:
    """Return how many bytes are made before each layer, and read from there on."""
    layer_of = {node: n for n, layer in enumerate(layers) for node in layer}
    found = [0] * len(layers)
    for number, layer in enumerate(layers):
        for value in (value for node in layer for value in node.results):
            readers = [layer_of.get(node, number) for node in graph.readers(value)]
            for place in range(number + 1, max(readers, default=number) + 1):
                found[place] += int(_bound(value, numbers).nbytes)
    return found
