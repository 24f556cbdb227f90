"""What the layers of a model take, of which stages are made."""

from __future__ import annotations

from perfc.ir import TaskKind
from perfc.ir.launch import BUSY_KINDS
from perfc.ir.location import Location
from perfc.passes import task_mask
from perfc.tools.reports import Results

_FORWARD = frozenset({"forward", "loss"})
_COMPUTE = BUSY_KINDS - {TaskKind.COLLECTIVE}


def layers_s(results: Results) -> tuple[float, ...]:
    """Return the seconds of each layer's kernels, in the order of forward.

    As `pipeline-parallel` sees layers: all nodes below the first number in the path of
    a module are one, a node of another module is by itself. What backward takes counts
    where the path says of which layer it is, else nowhere.
    """
    (graph,) = (rank.ops for rank in results.program.classes)
    if graph is None:
        return ()
    seconds = _node_seconds(results)
    found: list[float] = []
    place: dict[str, int] = {}
    last = ""
    for node in graph:
        name = _layer(node.location)
        if node.location.phase in _FORWARD:
            if not (name and name == last):
                found.append(0.0)
            found[-1] += seconds.get(node.name, 0.0)
            last = name
            place[name] = len(found) - 1
        elif node.location.phase == "backward" and name in place and name:
            found[place[name]] += seconds.get(node.name, 0.0)
    return tuple(found)


def _layer(location: Location) -> str:
    """Return the path of a module up to its first number; "" if there is none."""
    parts = location.module.split(".")
    for number, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: number + 1])
    return ""


def _node_seconds(results: Results) -> dict[str, float]:
    """Return the seconds of the kernels of each node."""
    graph = results.hosted[0].graph
    durations_s = results.class_tasks(results.schedule.durations_s, 0).tolist()
    computes = task_mask(graph, _COMPUTE).tolist()
    found: dict[str, float] = {}
    for op, taken_s, counts in zip(graph.op, durations_s, computes, strict=True):
        if counts and op >= 0:
            name = graph.ops[op].node
            found[name] = found.get(name, 0.0) + taken_s
    return found
