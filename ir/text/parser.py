"""Read perfc assembly: op graphs, launch graphs and programs of both.

`parse_program` accepts any of:

    graph @g(%x: f32[B,13], param %w: f32[64,13]) { ... }
    launches @t { ... }
    program @p { bind B = 4; ranks [0, 1] { graph @g(...) {...} } ... }
"""

from __future__ import annotations

import functools
import re

from perfc.ir.core import BUFFER, CONST, PARAM, Graph, Value
from perfc.ir.location import LOCATION_FIELDS, NOWHERE, Location
from perfc.ir.program import Program, RankClass, single
from perfc.ir.record import EMPTY
from perfc.ir.support import ParseError, PerfcError, paused_collector, spend
from perfc.ir.text.dim_parser import parse_dims
from perfc.ir.text.launch_parser import parse_launches
from perfc.ir.text.reader import Reader
from perfc.ir.types import MAX_RANK, MemorySpace, TensorType, parse_dtype

_LASTING = {PARAM: "parameter", BUFFER: "buffer", CONST: "const", "state": "state"}
"""Values that stay from iteration to iteration, by keyword."""
_TYPE = re.compile(r"([a-z0-9.]+)\[(.*)\](?:@([a-z]+))?")


@paused_collector()
def parse_graph(text: str) -> Graph:
    """Read one op graph."""
    reader = Reader(text)
    graph = _graph(reader)
    reader.expect_end()
    return graph


@paused_collector()
def parse_program(text: str) -> Program:
    """Read a program, or one graph as the program of rank 0."""
    reader = Reader(text)
    if reader.at("program"):
        program = _program(reader)
    elif reader.at("launches"):
        program = single(parse_launches(reader))
    else:
        program = single(_graph(reader))
    reader.expect_end()
    return program


def _program(reader: Reader) -> Program:
    reader.expect("program")
    name = reader.name("symbol")
    bindings: dict[str, int] = {}
    classes: list[RankClass] = []
    reader.expect("{")
    while reader.accept("bind"):
        symbol = reader.word()
        reader.expect("=")
        bindings[symbol] = reader.integer()
    while not reader.accept("}"):
        reader.expect("ranks")
        ranks: list[int] = []
        reader.expect("[")
        while not reader.accept("]"):
            ranks.append(reader.integer())
            if not reader.accept(","):
                reader.expect("]")
                break
        reader.expect("{")
        ops = _graph(reader) if reader.at("graph") else None
        launches = (
            parse_launches(reader) if ops is None or reader.at("launches") else None
        )
        reader.expect("}")
        classes.append(RankClass(tuple(ranks), ops, launches))
    if not classes:
        reader.fail("a program needs at least one rank class")
    return Program(name, tuple(classes), tuple(bindings.items()))


def _graph(reader: Reader) -> Graph:
    reader.expect("graph")
    graph = Graph(reader.name("symbol"))
    _arguments(reader, graph)
    _body(reader, graph)
    return graph


def _arguments(reader: Reader, graph: Graph) -> None:
    reader.expect("(")
    while not reader.accept(")"):
        kind = next((word for word in _LASTING if reader.accept(word)), "")
        name = reader.name("value")
        reader.expect(":")
        type_ = _type(reader)
        if not kind:
            graph.add_input(name, type_)
        elif type_ is None:
            reader.fail(f"{_LASTING[kind]} %{name} needs a type")
        elif kind == "state":
            graph.add_state(name, type_)
        else:
            graph.add_parameter(name, type_, kind)
        if not reader.accept(","):
            reader.expect(")")
            break


def _body(reader: Reader, graph: Graph) -> None:
    reader.expect("{")
    while not reader.accept("return"):
        _node(reader, graph)
    if not reader.at("}"):
        graph.outputs.extend(_values(reader, graph))
    reader.expect("}")


def _values(reader: Reader, graph: Graph) -> list[Value]:
    values = [_value(reader, graph)]
    while reader.accept(","):
        values.append(_value(reader, graph))
    return values


def _value(reader: Reader, graph: Graph) -> Value:
    name = reader.name("value")
    found = graph.find(name)
    if found is None:
        reader.fail(f"%{name} is not defined before this line")
    return found


def _node(reader: Reader, graph: Graph) -> None:
    # A node takes many times the memory of its text, so the budget is spent first.
    reader.nodes += 1
    spend("nodes", reader.nodes)
    results: list[str] = []
    if reader.at_kind("value"):
        results.append(reader.name("value"))
        while reader.accept(","):
            results.append(reader.name("value"))
        reader.expect("=")
    op = reader.word()
    reader.expect("(")
    operands: list[Value] = []
    if not reader.accept(")"):
        operands = _values(reader, graph)
        reader.expect(")")
    attributes = reader.record() if reader.at("{") else EMPTY
    regions = _regions(reader, graph, op) if reader.at("region") else ()
    types = _result_types(reader, len(results)) if results else []
    location = _location(reader) if reader.accept("loc") else NOWHERE
    # The graph checks its own rules; only the reader knows the line that breaks one.
    try:
        node = graph.add(
            op, operands, results, attributes, regions=regions, location=location
        )
    except PerfcError as error:
        reader.fail(str(error))
    for value, type_ in zip(node.results, types, strict=True):
        value.type = type_


def _regions(reader: Reader, graph: Graph, op: str) -> tuple[Graph, ...]:
    regions: list[Graph] = []
    while reader.accept("region"):
        region = Graph(op, graph)
        _arguments(reader, region)
        _body(reader, region)
        regions.append(region)
    return tuple(regions)


def _result_types(reader: Reader, count: int) -> list[TensorType | None]:
    reader.expect(":")
    types = [_type(reader)]
    while len(types) < count:
        reader.expect(",")
        types.append(_type(reader))
    return types


def _type(reader: Reader) -> TensorType | None:
    if reader.accept("?"):
        return None
    text = reader.take("type")
    try:
        return _cached_type(text)
    except PerfcError as error:
        reader.fail(str(error))


def parse_type(text: str) -> TensorType:
    """Read `f32[B,13]@host`."""
    if (match := _TYPE.fullmatch(text)) is None:
        msg = f"not a type: {text!r}"
        raise ParseError(msg)
    dims = parse_dims(match[2])
    if len(dims) > MAX_RANK:
        msg = f"a tensor of {len(dims)} dimensions; at most {MAX_RANK} are possible"
        raise ParseError(msg)
    spaces = {space.value: space for space in MemorySpace}
    if match[3] is not None and match[3] not in spaces:
        msg = f"unknown memory space {match[3]!r}; known: {', '.join(spaces)}"
        raise ParseError(msg)
    space = spaces[match[3]] if match[3] else MemorySpace.DEVICE
    return TensorType(parse_dtype(match[1]), dims, space).checked()


# A model repeats few types many times.
_cached_type = functools.lru_cache(maxsize=4096)(parse_type)


def _location(reader: Reader) -> Location:
    record = reader.record()
    fields = {k: v for k, v in record.items() if isinstance(v, str)}
    if len(fields) != len(record) or not set(fields) <= set(LOCATION_FIELDS):
        reader.fail(f"a location has {', '.join(LOCATION_FIELDS)}, all text")
    return Location(**fields)
