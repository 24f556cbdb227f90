"""The printer and the parser are inverses, and the parser survives anything."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ir.strategies import graphs, launch_graphs, programs

from perfc.ir import Graph, LaunchGraph, ParseError, PerfcError, Program, single
from perfc.ir.program import RankClass
from perfc.ir.text import (
    parse_graph,
    parse_program,
    print_graph,
    print_launches,
    print_program,
)

_WORDS = st.sampled_from(
    [
        "graph",
        "@g",
        "(",
        "%x",
        ":",
        "f32[2]",
        "param",
        ")",
        "{",
        "}",
        "return",
        ",",
        "=",
        "relu",
        "[",
        "]",
        "<",
        ">",
        "!",
        "?",
        "loc",
        "region",
        "program",
        "ranks",
        "bind",
        "launches",
        "thread",
        '"s0"',
        "kernel",
        "on",
        "1",
        "-2.5e9",
        "inf",
        "//",
        "\n",
        '"\\',
    ]
)


def _contents(graph: Graph) -> list[object]:
    """Everything a graph says, as plain comparable data."""
    found: list[object] = [
        [(v.name, v.type) for v in graph.inputs],
        [(v.name, v.type) for v in graph.parameters],
        [v.name for v in graph.outputs],
    ]
    for node in graph:
        found += [
            node.op,
            [v.name for v in node.operands],
            [(v.name, v.type) for v in node.results],
            node.attributes,
            node.location,
            [_contents(region) for region in node.regions],
        ]
    return found


@settings(max_examples=50)
@given(graphs())
def test_graphs_read_back(graph: Graph) -> None:
    """A graph is read back as it was, regions, attributes and locations included."""
    text = print_graph(graph)
    again = parse_graph(text)

    assert (graph.name, _contents(graph)) == (again.name, _contents(again))
    assert text == print_graph(again)


@given(launch_graphs())
def test_launch_graphs_read_back(graph: LaunchGraph) -> None:
    """A launch graph is read back column by column."""
    text = print_launches(graph)
    again = parse_program(text).classes[0].launches

    assert again is not None
    assert text == print_launches(again)
    for column in ("name", "resources", "kernels", "ops", "kind", "after", "issue"):
        assert getattr(graph, column) == getattr(again, column)
    assert list(map(repr, graph.stated_s)) == list(map(repr, again.stated_s))


@settings(max_examples=50)
@given(programs())
def test_programs_read_back(program: Program) -> None:
    """A program is read back with its name, its ranks and its bindings."""
    text = print_program(program)
    again = parse_program(text)

    assert text == print_program(again)
    assert (program.name, program.bound) == (again.name, again.bound)
    assert [r.ranks for r in program.classes] == [r.ranks for r in again.classes]


@given(st.text() | st.lists(_WORDS).map(" ".join))
def test_random_text(text: str) -> None:
    """Text that is no program is a `PerfcError`, never anything else."""
    with contextlib.suppress(PerfcError):
        parse_program(text)


@settings(max_examples=50)
@given(graphs(), st.data())
def test_damaged_text(graph: Graph, data: st.DataObject) -> None:
    """A program with a piece cut out is read, or is a `PerfcError`."""
    text = print_graph(graph)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    with contextlib.suppress(PerfcError):
        parse_program(text[:start] + text[end:])


def _body(line: str) -> str:
    return f"graph @g(%x: f32[8]) {{\n{line}\nreturn\n}}"


_BROKEN = [
    (_body("%y = f() {a = " + "[" * 9999), "line 2: attributes are nested too deep"),
    (_body("%y = f() {a = " + "{b = " * 9999), "line 2: attributes are nested"),
    (_body("f() " + "region() { f() " * 9999), "regions nested more than 40 deep"),
    ("graph @g(%x: f32[" + "(" * 9999 + "]) {", "it is nested too deep"),
    ("graph @g(%x: f32[" + "max(" * 9999 + "]) {", "it is nested too deep"),
    ("graph @g(%x: f32[" + "-" * 99999 + "B]) {", "it is too long"),
    ("graph @g(%x: f32[" + "2" * 5000 + "]) {", "unexpected '2222"),
    ("graph @g(%x: f32[" + "9*" * 5000 + "9]) {", "it is too large"),
    ("graph @g(%x: f32[B" + "//2" * 5000 + "]) {", "a dimension is nested too deep"),
    ("graph @g(%x: f32[" + "*".join(["(A+B+C+D)"] * 50) + "]) {", "is too long"),
    ("graph @g(%x: i8.rowx" + "9" * 5000 + "[2]) {", "not a scaling"),
    ("graph @g(%x: f32[" + "1," * 99 + "1]) {", "100 dimensions; at most 64"),
    (_body("f() {a = " + "2" * 5000 + "}"), "line 2: a number is too long"),
    (_body("f() {a = 1, a = 2}"), "line 2: a is given twice"),
    (_body("f(x)"), "line 2: expected a value, found 'x'"),
    (_body("f(%x) {dtype = f16}"), "a value (an element type is !f16), found 'f16'"),
    (_body("f() loc{where = 3}"), "line 2: a location has name, module, source"),
    (_body("f() {a = <B/2>}"), "line 2: not a dimension: 'B/2'"),
    (_body("f() {a = <B//0>}"), "it divides by zero"),
    (_body("f() {a = !f33}"), "line 2: unknown element type 'f33'"),
    ("graph @g(param %x: ?) {", "line 1: parameter %x needs a type"),
    ("graph @g(%x: f32[2]@disk) {", "unknown memory space 'disk'"),
    ("graph @g() { return } x", "line 1: expected the end, found 'x'"),
    ("graph @g() {", "line 1: expected a word, found the end"),
    ("program @p {}", "line 1: a program needs at least one rank class"),
    ("program @p {bind B = true}", "line 1: expected an integer"),
    ("launches @t {\nthread 3", "line 2: expected a string, found '3'"),
    ("launches @t {\nfly {}", "line 2: unknown task kind 'fly'"),
    ("launches @t {\nhost {at = 1}", "line 2: a task has no field 'at'"),
    ("launches @t {\nhost {}", "task: attribute 'on' is missing"),
    ("launches @t {\nhost {on = 0, seconds = true}", "seconds must be a number"),
    ('launches @t {\nsignature "a" {}', "signature: attribute 'flops' is missing"),
    ('launches @t {\nsignature "a" {b = 1}', "a signature has no field 'b'"),
    ('launches @t {\nsignature "a" {params = 1}', "params must be a record"),
]


@pytest.mark.parametrize(
    ("text", "problem"), _BROKEN, ids=map(str, range(len(_BROKEN)))
)
def test_errors(text: str, problem: str) -> None:
    """An error names the line and what is wrong with it, however deep or long."""
    with pytest.raises(PerfcError) as caught:
        parse_program(text)

    assert problem in str(caught.value)


def test_equal_signatures() -> None:
    """A signature that stands twice would shift the numbers of the others."""
    line = 'signature "a" {dtype = "f", math = "f", flops = 0, bytes_read = 0, '
    line += "bytes_written = 0, known = false}\n"
    with pytest.raises(ParseError, match="line 3: the same signature stands twice"):
        parse_program("launches @t {\n" + line + line + "}")


def test_words_that_begin_like_numbers() -> None:
    """Names that start with `inf` or `nan` are names."""
    text = "graph @g() {\n  infer() {nano = inf, info = nan}\n  return\n}\n"

    assert text == print_graph(parse_graph(text))


def test_program_name_is_kept() -> None:
    """A program that is not called like its only graph prints its own name."""
    program = Program("model", (RankClass((0,), Graph("main")),))

    assert "model" == parse_program(print_program(program)).name
    assert print_program(single(Graph("g"))).startswith("graph @g")


def test_comments_are_one_line() -> None:
    """A fact with a line break cannot break the text."""
    graph = parse_graph("graph @g(%x: f32[2]) { relu(%x) return }")

    text = print_graph(graph, lambda node: f"{node.op}\nreturn %nope")

    assert _contents(graph) == _contents(parse_graph(text))
