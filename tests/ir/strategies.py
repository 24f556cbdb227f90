"""Hypothesis strategies: random dimensions, types, attributes, graphs, programs."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import strategies as st

from perfc.ir import (
    DTYPES,
    DType,
    Graph,
    Kernel,
    LaunchGraph,
    LaunchOp,
    Program,
    Record,
    TaskKind,
    TensorType,
    Value,
    Work,
)
from perfc.ir.dims import Dim, Expr, maximum, symbol
from perfc.ir.location import Location
from perfc.ir.program import RankClass
from perfc.ir.types import Granularity, MemorySpace, Scaling

NAMES = st.text(max_size=6) | st.sampled_from(
    ["max", "return", "region", "loc", "inf", "nan", "true", "bind", "?", "s0", "a.b"]
)
SYMBOLS = st.sampled_from(["B", "N", "s0", "?", "max", "batch size", 'q"]>,', "3x"])


def _larger(dims: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
    pair = st.tuples(dims, dims)
    number = st.integers(1, 7)
    return (
        pair.map(lambda p: p[0] + p[1])
        | pair.map(lambda p: p[0] - p[1])
        | pair.map(lambda p: p[0] * p[1])
        | pair.map(lambda p: maximum(p[0], p[1]))
        | st.tuples(dims, number).map(lambda p: p[0] // p[1])
        | st.tuples(dims, SYMBOLS.map(symbol)).map(lambda p: p[0] // p[1])
    )


DIMS: st.SearchStrategy[Dim] = st.recursive(
    st.integers(-9, 99) | SYMBOLS.map(symbol), _larger, max_leaves=6
)
"""Any dimension; divisors are symbols and positive numbers."""

SIZES: st.SearchStrategy[Dim] = st.integers(0, 9) | DIMS.filter(
    lambda dim: isinstance(dim, Expr)
)


@st.composite
def dtypes(draw: st.DrawFn) -> DType:
    """Any element type, scaled or not."""
    plain = DTYPES[draw(st.sampled_from(sorted(DTYPES)))]
    bits = st.integers(0, 128)
    row = st.builds(Scaling, st.just(Granularity.ROW), bits)
    block = st.builds(Scaling, st.just(Granularity.BLOCK), bits, st.integers(1, 999))
    return attrs.evolve(plain, scaling=draw(st.none() | row | block))


TYPES = st.builds(
    TensorType,
    dtypes(),
    st.lists(SIZES, max_size=4).map(tuple),
    st.sampled_from(MemorySpace),
)
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | DIMS
    | dtypes()
)
ATTRIBUTES: st.SearchStrategy[Any] = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(NAMES, inner, max_size=3).map(Record)
    ),
    max_leaves=5,
)
RECORDS = st.dictionaries(NAMES, ATTRIBUTES, max_size=3).map(Record)
LOCATIONS = st.builds(Location, *[st.text(max_size=4)] * 4)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph: odd names, any attributes, nested regions, types or none."""
    graph = Graph(draw(NAMES))
    for _ in range(draw(st.integers(0, 2))):
        graph.add_parameter(graph.fresh_name(draw(NAMES)), draw(TYPES))
    _fill(draw, graph, depth=2)
    return graph


def _fill(draw: st.DrawFn, graph: Graph, depth: int) -> None:
    for _ in range(draw(st.integers(0, 2))):
        graph.add_input(graph.fresh_name(draw(NAMES)), draw(st.none() | TYPES))
    for _ in range(draw(st.integers(0, 3))):
        regions: list[Graph] = []
        op = draw(NAMES)
        for _ in range(draw(st.integers(0, depth))):
            regions.append(Graph(op, graph))
            _fill(draw, regions[-1], depth - 1)
        count = draw(st.integers(0, 2))
        stems = [draw(NAMES) for _ in range(count)]
        results: list[str] = []
        for stem in stems:
            name = graph.fresh_name(stem)
            while name in results:
                name += "'"
            if graph.find(name) is None:
                results.append(name)
        node = graph.add(
            op,
            _choice(draw, graph),
            results,
            draw(RECORDS),
            regions=tuple(regions),
            location=draw(LOCATIONS),
        )
        for value in node.results:
            value.type = draw(st.none() | TYPES)
    graph.outputs.extend(_choice(draw, graph))


def _choice(draw: st.DrawFn, graph: Graph) -> list[Value]:
    """Pick visible values of *graph* and its parents."""
    values: list[Value] = []
    scope: Graph | None = graph
    while scope is not None:
        values.extend(scope.values())
        scope = scope.parent
    if not values:
        return []
    return draw(st.lists(st.sampled_from(values), max_size=3))


COUNTS = st.integers(0, 2**40)
_PARAMS = st.dictionaries(NAMES, st.integers() | st.text(max_size=4), max_size=2)
_DECLARED = {"m": COUNTS, "n": COUNTS, "k": COUNTS, "bias": st.booleans()}
KERNELS = st.one_of(
    st.builds(
        Kernel,
        *(NAMES, NAMES, NAMES, _PARAMS.map(Record)),
        st.builds(Work, COUNTS, COUNTS, COUNTS),
        st.just(value=False),
    ),
    st.builds(
        Kernel,
        *(st.just("gemm"), NAMES, NAMES, st.fixed_dictionaries(_DECLARED).map(Record)),
        st.builds(Work, COUNTS, COUNTS, COUNTS),
    ),
)
"""Kernels of no model with any parameters, and declared ones with theirs."""

DURATIONS = st.just(float("nan")) | st.floats(0, 1e6)


@st.composite
def launch_graphs(draw: st.DrawFn) -> LaunchGraph:
    """Any valid launch graph."""
    graph = LaunchGraph(draw(NAMES))
    graph.thread(draw(NAMES))
    graph.stream(draw(NAMES), draw(st.integers(0, 3)))
    for kernel in draw(st.lists(KERNELS, max_size=2)):
        graph.intern(kernel)
    for _ in range(draw(st.integers(0, 2))):
        graph.add_op(LaunchOp(draw(NAMES), draw(NAMES), draw(RECORDS)))
    host: list[int] = []
    for index in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(TaskKind))
        on_host = kind in {TaskKind.HOST, TaskKind.CALL, TaskKind.SYNC}
        before = st.lists(st.integers(0, max(index - 1, 0)), max_size=2 if index else 0)
        graph.task(
            kind,
            0 if on_host else 1,
            op=draw(st.integers(-1, len(graph.ops) - 1)),
            kernel=draw(st.integers(-1, len(graph.kernels) - 1)),
            issue=-1 if on_host else draw(st.sampled_from([-1, *host])),
            after=tuple(draw(before)),
            detail=draw(NAMES),
            group=f"g{index}" if kind is TaskKind.COLLECTIVE else "",
            stated_s=draw(DURATIONS),
        )
        if on_host:
            host.append(index)
    return graph


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Any program of one or two rank classes."""
    classes: list[RankClass] = []
    shapes: list[list[tuple[int, ...]]] = [[(0,)], [(1,)], [(0, 2), (1, 3)]]
    for ranks in draw(st.sampled_from(shapes)):
        ops = draw(st.none() | graphs())
        launches = draw(launch_graphs() if ops is None else st.none() | launch_graphs())
        classes.append(RankClass(ranks, ops, launches))
    bound = draw(st.dictionaries(NAMES, st.integers(0, 9), max_size=2))
    return Program(draw(NAMES), tuple(classes), tuple(bound.items()))
