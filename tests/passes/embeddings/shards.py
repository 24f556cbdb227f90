"""Sharded workloads, and what to ask of them."""

from __future__ import annotations

from collections.abc import Iterator

from perfc.frontends.workloads import build_workload
from perfc.ir import Graph, Node, Program, TensorType, Work
from perfc.ir.copying import bound_copy
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.program import RankClass
from perfc.ir.text import parse_program
from perfc.ir.verification import verify
from perfc.passes import Pass, PassManager, ShapeInference, ShardEmbeddings
from perfc.passes.training import Training

BATCH, RANKS = 16, 4
MODEL = "dlrm-ddp:tables=6,rows=1000,dim=16,pooling=4"


def sharded(model: str = MODEL, optimizer: str = "", **options: object) -> Program:
    """Shard a workload, with its training step if there is an optimizer."""
    settings = {"ranks": RANKS, "per_node": 2, **options}
    sharding = ShardEmbeddings(**settings)  # type: ignore[arg-type]
    passes: list[Pass] = [ShapeInference(), sharding, ShapeInference()]
    if optimizer:
        passes.append(Training(optimizer=optimizer))
    program = PassManager(passes).run(build_workload(model)).program
    for rank in program.classes:
        verify(ops_of(rank), BUILTIN_OPS)
    return program.bind({"batch": BATCH})


def ops_of(rank: RankClass) -> Graph:
    """Return the op graph of a rank class."""
    assert rank.ops is not None
    return rank.ops


def graph_of(program: Program, rank: int) -> Graph:
    """Return the op graph of one rank."""
    (found,) = [c for c in program.classes if rank in c.ranks]
    return ops_of(found)


def nodes_of(graph: Graph, op: str, phase: str = "forward") -> list[Node]:
    """Return the nodes of an op in one phase."""
    return [n for n in graph if n.op == op and n.location.phase == phase]


def type_of(value: object) -> TensorType:
    """Return the type of a value, with the batch bound."""
    type_ = getattr(value, "type", None)
    assert isinstance(type_, TensorType)
    return type_.bind({"batch": BATCH})


def work_of(node: Node) -> Work:
    """Return what a node has to do, with the batch bound."""
    operands, results = map(type_of, node.operands), map(type_of, node.results)
    return BUILTIN_OPS[node.op].work(node.attributes, [*operands], [*results])


def tables_of(graph: Graph) -> Iterator[int]:
    """Yield the bytes of the tables of a graph."""
    for node in nodes_of(graph, "embedding_bag"):
        for value in node.operands[: len(node.attributes.records("tables"))]:
            yield int(type_of(value).nbytes)


def node_named(graph: Graph, name: str) -> Node:
    """Return the one node of a name."""
    (found,) = [node for node in graph if node.name == name]
    return found


def exchanged_bytes(node: Node) -> int:
    """Return the bytes that the slowest rank sends or gets."""
    stated = node.attributes.get("bytes")
    if stated is None:
        return int(type_of(node.operands[0]).nbytes)
    bound = parse_program(
        f'graph @g(%x: f32[batch]) {{ %y = all_to_all(%x) {{group = "g", ranks = 2, '
        f"bytes = <{stated}>}} : f32[batch] return %y }}"
    )
    (found,) = [
        n.attributes["bytes"]
        for n in bound_copy(ops_of(bound.classes[0]), {"batch": BATCH})
    ]
    assert isinstance(found, int)
    return found
