"""What the layers of a model take on one GPU, by an analysis of a step there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import attrs
import numpy as np

from perfc.ir import Graph, Node, TaskKind, TensorType, Value
from perfc.ir.launch import BUSY_KINDS
from perfc.ir.node_kinds import is_constant
from perfc.ir.support import US, UnsupportedModelError
from perfc.passes import task_mask
from perfc.passes.graphs import OPTIMIZER, is_training_step, typed
from perfc.passes.parallel import Layers, Stages
from perfc.passes.timing import TimeErrors
from perfc.planning.networks import Crossing, LayerPrices
from perfc.tools.reports import Report, Results

_FORWARD = ("forward", "loss", "")
_BACKWARD = "backward"


@attrs.frozen(eq=False, kw_only=True)
class LayerTable:
    """Layers of a model at one size, on one kind of GPU.

    Attributes:
        names: What each begins with: a module, or else a node.
        prices: What they take, nothing compressed.
        crossing: Types of the tensors that cross before each layer.
        low: 5th percentile of the time, as a share of it.
        high: 95th percentile.
        errors: Of the time.
        work_watts: What a GPU draws while it works, above `lasting_watts`; None where
            no sheet says it.
        lasting_watts: What it, and its share of its node, draws in any case.

    """

    names: tuple[str, ...]
    prices: LayerPrices
    crossing: tuple[tuple[TensorType, ...], ...]
    low: float
    high: float
    errors: TimeErrors
    work_watts: float | None
    lasting_watts: float

    @classmethod
    def of(cls, report: Report) -> LayerTable:
        """Share out a step on one GPU over its layers.

        Each layer has of a phase's time what its kernels, or the host for them, take of
        all: the sum over layers is the step that was analyzed. The optimizer goes by
        the bytes of parameters.
        """
        results = report.results
        graph = results.program.classes[0].ops
        if graph is None:
            msg = f"{report.results.program} is given as launches: it has no layers"
            raise UnsupportedModelError(msg)
        numbers = dict(results.program.bound)
        everywhere = frozenset(node for node in graph if is_constant(node))
        layers = Layers.of(graph, everywhere, numbers)
        cut = Stages.cut(graph, len(layers.nodes), {}, numbers, lambda: None)
        sizes = _Sizes(graph, cut.of, len(layers.nodes), numbers)
        low_us, high_us = report.interval_us
        work_watts, lasting_watts = _watts(report)
        return cls(
            names=tuple(_name(nodes[0]) for nodes in layers.nodes),
            prices=sizes.prices(report, _node_seconds(results)),
            crossing=tuple(tuple(types) for types in sizes.crossing()),
            low=low_us / report.time_us,
            high=high_us / report.time_us,
            errors=report.errors,
            work_watts=work_watts,
            lasting_watts=lasting_watts,
        )

    def sizes(self) -> Crossing:
        """Return the bytes that cross each cut, 0 at both ends."""
        floats: dict[float, np.ndarray] = {}
        others, tensors = np.zeros((2, len(self.crossing) + 1))
        for cut, types in enumerate(self.crossing[1:], start=1):
            for type_ in types:
                into = others
                if type_.dtype.is_float:
                    element_bytes = type_.dtype.bits / 8
                    into = floats.setdefault(element_bytes, np.zeros_like(others))
                    tensors[cut] += 1
                into[cut] += float(type_.nbytes)
        return Crossing(floats, others, tensors)


@attrs.frozen(eq=False)
class _Sizes:
    """A graph whose nodes are in layers.

    Attributes:
        graph: The graph.
        of: The layer of each node of forward and backward.
        count: How many layers.
        numbers: Of symbols.

    """

    graph: Graph
    of: Mapping[Node, int]
    count: int
    numbers: Mapping[str, int]

    def prices(self, report: Report, seconds: Mapping[str, float]) -> LayerPrices:
        """Return the prices of layers."""
        phases = {entry["phase"]: entry["time_us"] / US for entry in report.phases}
        forward = self._spread(seconds, backward=False)
        backward = self._spread(seconds, backward=True)
        parameters = self._parameters()
        kinds = report.memory["by_kind"]
        training = is_training_step(self.graph)
        update = parameters if training else np.zeros(self.count)
        gradients = parameters if training else np.zeros(self.count)
        states = _scaled(parameters, kinds["optimizer_state"])
        # The most that a node of each layer makes.
        passing = np.zeros(self.count)
        for node, layer in self.of.items():
            made = math.fsum(float(self._type(value).nbytes) for value in node.results)
            passing[layer] = max(passing[layer], made)
        # The layer in which most memory is in use.
        places = {node.name: layer for node, layer in self.of.items()}
        place = places.get(report.memory_use.node, self.count - 1)
        held = kinds["parameters"] + kinds["optimizer_state"]
        held += kinds["saved_for_backward"]
        passing[place] = max(passing[place], report.memory_use.peak_bytes - held)
        return LayerPrices(
            forward_s=_scaled(forward, sum(phases.get(p, 0.0) for p in _FORWARD)),
            backward_s=_scaled(backward, phases.get(_BACKWARD, 0.0)),
            update_s=_scaled(update, phases.get(OPTIMIZER, 0.0)),
            lasting_bytes=parameters + states + gradients,
            saved_bytes=_scaled(self._saved(), kinds["saved_for_backward"]),
            passing_bytes=passing,
            gradient_bytes=gradients,
            encode_s=np.zeros(self.count + 1),
            decode_s=np.zeros(self.count + 1),
        )

    def crossing(self) -> Iterator[list[TensorType]]:
        """Yield tensors made before each layer and read there or later, in forward."""
        found: list[list[TensorType]] = [[] for _ in range(self.count)]
        for node, layer in self.of.items():
            if node.location.phase == _BACKWARD:
                continue
            for value in node.results:
                readers = [self.of[n] for n in self._readers(value)]
                for place in range(layer + 1, max(readers, default=layer) + 1):
                    found[place].append(self._type(value))
        yield from found

    def _readers(self, value: Value) -> Iterator[Node]:
        for node in self.graph.readers(value):
            if node in self.of and node.location.phase != _BACKWARD:
                yield node

    def _type(self, value: Value) -> TensorType:
        return typed(value).bind(self.numbers)

    def _spread(self, seconds: Mapping[str, float], *, backward: bool) -> np.ndarray:
        found = np.zeros(self.count)
        for node, layer in self.of.items():
            if (node.location.phase == _BACKWARD) == backward:
                found[layer] += seconds.get(node.name, 0.0)
        return found

    def _parameters(self) -> np.ndarray:
        """Return the bytes of parameters that each layer is the first to read."""
        found = np.zeros(self.count)
        for value in self.graph.parameters:
            readers = [self.of[n] for n in self._readers(value)]
            if readers:
                found[min(readers)] += float(self._type(value).nbytes)
        return found

    def _saved(self) -> np.ndarray:
        """Return the bytes of each layer's results that backward reads."""
        found = np.zeros(self.count)
        for node, layer in self.of.items():
            if node.location.phase == _BACKWARD:
                continue
            for value in node.results:
                readers = self.graph.readers(value)
                if any(n.location.phase == _BACKWARD for n in readers):
                    found[layer] += float(self._type(value).nbytes)
        return found


def _watts(report: Report) -> tuple[float | None, float]:
    """Return watts of a GPU for its work, and in any case, as an analysis has joules.

    Of boards that nobody has measured, their share of a node draws the same throughout.
    """
    joules, time_s = report.summary["energy_j"], report.time_us / US
    if joules is None:
        return None, 0.0
    sustained = report.results.sustained
    if sustained is None or sustained.work_joules is None:
        return 0.0, joules / time_s
    return sustained.work_joules / time_s, sustained.idle_watts


def _scaled(values: np.ndarray, total: float) -> np.ndarray:
    """Return values in proportion that add up to a total; equal ones of none."""
    whole = float(values.sum())
    if not whole:
        return np.full(len(values), total / len(values))
    found: np.ndarray = values * (total / whole)
    return found


def _name(node: Node) -> str:
    return node.location.module or f"%{node.name}"


def _node_seconds(results: Results) -> dict[str, float]:
    """Return the seconds of each node: its kernels, or the host if slower."""
    graph = results.hosted[0].graph
    durations_s = results.class_tasks(results.schedule.durations_s, 0).tolist()
    device = task_mask(graph, BUSY_KINDS - {TaskKind.COLLECTIVE}).tolist()
    host = task_mask(graph, frozenset({TaskKind.HOST, TaskKind.CALL})).tolist()
    found: dict[str, list[float]] = {}
    tasks = zip(graph.op, durations_s, device, host, strict=True)
    for op, taken_s, on_device, on_host in tasks:
        if op >= 0:
            both = found.setdefault(graph.ops[op].node, [0.0, 0.0])
            both[0] += taken_s * on_device
            both[1] += taken_s * on_host
    return {name: max(both) for name, both in found.items()}
