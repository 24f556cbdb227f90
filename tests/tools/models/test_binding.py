"""How the symbols of a model get numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import perfc
from perfc.ir import PerfcError, Program, single
from perfc.ir.support import UnboundSymbolError
from perfc.ir.text import parse_graph
from perfc.tools.models.binding import Dimensions, batch_size, bind_dimensions

BAG = 'tables = [{rows = 9, dim = 4}], mode = "sum", has_offsets = true'
"""Attributes of a bag of one table."""


def _program(inputs: str, body: str = "", parameters: str = "") -> Program:
    text = f"graph @g({inputs}) {{\n{parameters}{body}  return\n}}\n"
    return single(parse_graph(text))


def _bag(indices: str, offsets: str, *, last: bool = False) -> Program:
    """A model of one bag and a dense input."""
    attributes = BAG + (", include_last_offset = true" if last else "")
    return _program(
        f"%i: i64[{indices}], %o: i64[{offsets}], %w: f32[9,4]",
        f"  %y = embedding_bag(%w, %i, %o) {{{attributes}}} : ?\n",
    )


def _bound(
    program: Program,
    batch: int,
    *,
    pooling: int | None = None,
    dims: Mapping[str, int] | None = None,
) -> dict[str, int]:
    wanted = Dimensions(batch, pooling, dims or {})
    return bind_dimensions(program, wanted).bindings


def test_the_first_dimension_of_inputs_is_the_batch() -> None:
    """All symbols that stand first are the batch; the others are not."""
    program = _program("%x: f32[n,s], %z: i64[3*m]")

    assert {"n": 8, "m": 8, "s": 5} == _bound(program, batch=8, dims={"s": 5})


def test_lookups_default_to_one_a_bag() -> None:
    """An open number of indices is the batch, and a note says so."""
    bound = bind_dimensions(_bag("nnz", "n"), Dimensions(batch=8))

    assert {"n": 8, "nnz": 8} == bound.bindings
    (note,) = bound.diagnostics
    assert "pooling-assumed" == note.code
    assert "nnz=8; set it with --pooling or --dim" in note.message


def test_pooling() -> None:
    """With `--pooling` it is a multiple of the batch, and nothing is assumed."""
    bound = bind_dimensions(_bag("nnz", "n"), Dimensions(batch=8, pooling=3))

    assert {"n": 8, "nnz": 24} == bound.bindings
    assert () == bound.diagnostics


def test_a_dim_beats_pooling() -> None:
    """What `--dim` says of a number of indices stands."""
    assert {"n": 8, "nnz": 5} == _bound(_bag("nnz", "n"), batch=8, dims={"nnz": 5})


def test_bounds_are_the_batch_plus_one() -> None:
    """A list of bounds has one more element than there are bags."""
    program = _bag("nnz", "k", last=True)

    bound = bind_dimensions(program, Dimensions(batch=8))

    assert {"k": 9, "nnz": 8} == bound.bindings
    assert 8 == batch_size(bound)


def test_one_lookup_a_bag_in_the_file() -> None:
    """A symbol that counts both indices and bags is the batch."""
    assert {"n": 8} == _bound(_bag("n", "n"), batch=8)


def test_lookups_of_several_tables() -> None:
    """Indices that tables share are as many times more."""
    tables = "tables = [{rows = 9, dim = 4}, {rows = 9, dim = 4}]"
    program = _program(
        "%i: i64[nnz], %o: i64[2*n], %v: f32[9,4], %w: f32[9,4], %x: f32[n,3]",
        f'  %y = embedding_bag(%v, %w, %i, %o) {{{tables}, mode = "sum", '
        "has_offsets = true} : ?\n",
    )

    assert {"n": 8, "nnz": 48} == _bound(program, batch=8, pooling=3)


def test_binding_anew_replaces_the_note() -> None:
    """A model that is bound twice says what was assumed last, once."""
    model = perfc.load(
        Path(__file__).parents[2] / "fixtures/onnx/bag_dynamo_sum_offsets.onnx", batch=4
    )

    (note,) = model.bind(16).program.diagnostics

    assert "nnz=16" in note.message
    assert 16 == model.bind(16).batch
    assert 4 == model.batch


@pytest.mark.parametrize(
    ("inputs", "read", "expected"),
    [
        ("%x: f32[7,3], %e: i64[20]", "%x, %e", None),
        ("%x: f32[n,3], %e: i64[20]", "%x, %e", None),
        ("%x: f32[7,3], %e: i64[20], param %w: f32[9,3]", "%w, %e", 7),
        ("%x: f32[7,3], %e: i64[20], param %e2: i64[20]", "%x, %e2", 7),
    ],
)
def test_nodes_of_a_graph_network_are_no_samples(
    inputs: str, read: str, expected: int | None
) -> None:
    """Where an input says which rows of another are read, rows are no samples."""
    program = _program(inputs, f"  %y = gather({read}) {{axis = 0}} : ?\n")
    dims = {"n": 7} if "[n," in inputs else {}

    assert expected == batch_size(bind_dimensions(program, Dimensions(dims=dims)))


@pytest.mark.parametrize("batch", [None, 4])
def test_a_fixed_batch(batch: int | None) -> None:
    """A model that fixes its batch takes that one, or none."""
    bound = bind_dimensions(_program("%x: f32[4,3]"), Dimensions(batch=batch))

    assert {} == bound.bindings
    assert 4 == batch_size(bound)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (_program("%i: i64[12], %x: f32[4,3]"), 4),
        (_bag("12", "4"), 4),
        (_bag("12", "5", last=True), 4),
        (_program("%x: f32[7]"), 7),
        (_program("%x: f32[]"), None),
        (_program(""), None),
    ],
)
def test_what_a_fixed_batch_is(program: Program, expected: int | None) -> None:
    """It is the rows of an input, the number of bags, or the length of a list."""
    assert expected == batch_size(program)


@pytest.mark.parametrize(
    ("program", "wanted", "message"),
    [
        (
            _program("%x: f32[4,3]"),
            Dimensions(batch=8),
            "--batch 8: the model has a fixed batch of 4; export it with a dynamic",
        ),
        (_program(""), Dimensions(batch=8), "--batch 8: the model has no batch"),
        (
            _program("%x: f32[n,3]"),
            Dimensions(batch=8, dims={"n": 7}),
            "--dim n=7: 'n' is the batch, so it has to be 8",
        ),
        (
            _bag("nnz", "k", last=True),
            Dimensions(batch=8, dims={"k": 7}),
            "--dim k=7: 'k' is the batch plus one, so it has to be 9",
        ),
        (
            _program("%x: f32[n,3]"),
            Dimensions(batch=8, dims={"m": 7}),
            "--dim m: program g has no such dimension; it has n",
        ),
        (
            _program("%x: f32[4,3]"),
            Dimensions(dims={"m": 7}),
            "has no such dimension; it has none: every size is fixed",
        ),
        (
            _program("%x: f32[n,3]"),
            Dimensions(batch=8, pooling=2),
            "--pooling 2: the model leaves no number of lookups open",
        ),
    ],
)
def test_contradictions(program: Program, wanted: Dimensions, message: str) -> None:
    """What the model and the user say has to agree."""
    with pytest.raises(PerfcError, match=message):
        bind_dimensions(program, wanted)


@pytest.mark.parametrize(
    ("program", "advice"),
    [
        (
            _program("%x: f32[n,s]"),
            "number: n (the batch), s; add --batch N --dim s=N",
        ),
        (_program('%x: f32[4,"a b"]'), "number: a b; add --dim 'a b'=N"),
        (_bag("nnz", "n"), "number: n (the batch); add --batch N"),
        (_bag("nnz", "k", last=True), "number: k; add --batch N"),
        (
            _program("%x: f32[4]", '  %y = unknown(%x) {op = "a"} : f32[u]\n'),
            "number that depend on data: u; add --dim u=N",
        ),
        (
            _program("%x: f32[4,s]", '  %y = unknown(%x) {op = "a"} : f32[u]\n'),
            "number: s; add --dim s=N",
        ),
        (
            _program("%x: f32[4,a,b,c,d,e,f,g]"),
            (
                "number: a, b, c, d, e, f, … (7 in all); add --dim a=N --dim b=N "
                "--dim c=N --dim d=N --dim e=N --dim f=N"
            ),
        ),
    ],
)
def test_missing(program: Program, advice: str) -> None:
    """The inputs' symbols are asked for first: most others follow from them."""
    with pytest.raises(UnboundSymbolError) as caught:
        bind_dimensions(program, Dimensions())

    assert f"dimensions without a {advice}" == str(caught.value)
