"""Type rules of the ops, and folding."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ir.ops.op_values import (
    BOOL,
    F32,
    I64,
    TABLES,
    f32,
    i64,
    infer,
    infer_types,
    record,
)
from tests.ir.strategies import ATTRIBUTES, dtypes

from perfc.ir import AttrValue, PerfcError, Record, TensorType
from perfc.ir.dims import Dim, Expr, symbol
from perfc.ir.opdef import Abstract, OpDef
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.ops.embedding import bags
from perfc.ir.ops.reduction import reduced_axes
from perfc.ir.ops.rules import UNKNOWN_DIM
from perfc.ir.support import VerifyError
from perfc.ir.text import parse_type

_ELEMENTS = st.none() | st.lists(
    st.integers(-3, 9) | st.just(2**62) | st.sampled_from(["B", "?"]).map(symbol),
    max_size=4,
).map(tuple)
_DIMS = st.integers(0, 5) | st.just(2**40) | st.sampled_from(["B", "?"]).map(symbol)


@st.composite
def _abstracts(draw: st.DrawFn) -> Abstract:
    """An operand as it can be: folded elements fit the shape."""
    elements = draw(_ELEMENTS)
    if elements is not None:
        shape = draw(st.sampled_from([(len(elements),), (1, len(elements))]))
        if len(elements) == 1:
            shape = draw(st.sampled_from([(), shape]))
        return Abstract(TensorType(I64, shape), elements)
    dtype = draw(st.sampled_from([F32, I64]) | dtypes())
    return Abstract(TensorType(dtype, tuple(draw(st.lists(_DIMS, max_size=4)))))


def _value_of(kinds: tuple[type, ...]) -> st.SearchStrategy[Any]:
    small = st.integers(-3, 4)
    known: dict[type, st.SearchStrategy[Any]] = {
        int: small,
        float: st.floats(),
        bool: st.booleans(),
        str: st.sampled_from(["sum", "prod", "max", ""]),
        tuple: st.lists(small, max_size=4).map(tuple)
        | st.lists(small | ATTRIBUTES, max_size=3).map(tuple)
        | st.just(TABLES[:1]),
        type(None): st.none(),
        type(F32): st.sampled_from([F32, I64]),
        Expr: st.just(symbol("B")),
    }
    return st.one_of([known[kind] for kind in kinds])


@pytest.mark.parametrize("op", list(BUILTIN_OPS), ids=[op.name for op in BUILTIN_OPS])
@settings(max_examples=30)
@given(data=st.data())
def test_rules_never_crash(op: OpDef, data: st.DataObject) -> None:
    """On anything the verifier lets pass, a rule answers or raises `PerfcError`."""
    least, most = op.arity
    most = least + 3 if most is None else most
    operands = data.draw(st.lists(_abstracts(), min_size=least, max_size=most))
    values = {name: data.draw(_value_of(k)) for name, k in op.attributes.items()}
    attributes = Record(values)
    with contextlib.suppress(PerfcError):
        results = op.infer(attributes, operands)
        for result in results:
            if result is None or result.elements is None:
                continue
            numel = result.type.numel
            assert not isinstance(numel, int) or len(result.elements) == numel
        types = [result.type.checked() for result in results if result is not None]
        if op.results is None or len(types) == op.results:
            op.work(attributes, [operand.type for operand in operands], types)


def _fold(name: str, *operands: tuple[Dim, ...], **items: AttrValue) -> object:
    known = [Abstract(i64(len(elements)), elements) for elements in operands]
    return infer(name, Record(items), known)[0].elements


B = symbol("B")


_FOLDED = [
    (_fold("add", (1, B), (2,)), (3, B + 2)),
    (_fold("sub", (5,), (1, 2)), (4, 3)),
    (_fold("mul", (B, 2), (3, 4)), (3 * B, 8)),
    (_fold("div", (B, 7), (2, 2)), (B // 2, 3)),
    (_fold("div", (1,), (0,)), None),
    (_fold("mul", (2**40,), (2**40,)), None),
    (_fold("equal", (1, 2), (1,)), (1, 0)),
    (_fold("less", (1, 2), (2,)), (1, 0)),
    (_fold("greater", (B, 2), (2,)), None),
    (_fold("div", (-7, 7), (2, -2)), (-3, -3)),
    (_fold("mod", (B, 7), (2, 4)), (B - 2 * (B // 2), 3)),
    (_fold("mod", (-213, 213), (32, -32)), (11, -11)),
    (_fold("fmod", (-7, 7), (4, -4)), (-3, 3)),
    (_fold("clip", (-7, 3, 9), min=0.0, max=8.0), (0, 3, 8)),
    (_fold("clip", (-7, 3, 9), min=0.0, open=True), None),
    (_fold("clip", (-7, 3, 9), min=0.5), None),
    (_fold("pow", (3,), (2,)), (9,)),
    (_fold("maximum", (B, 2), (B + 1, 1)), (B + 1, 2)),
    (_fold("minimum", (B, 2), (B + 1, 1)), (B, 1)),
    (_fold("neg", (B,)), (-B,)),
    (_fold("abs", (-1,)), (1,)),
    (_fold("sign", (-5, 0, 5)), (-1, 0, 1)),
    (_fold("relu", (-1,)), (0,)),
    (_fold("relu", (B,)), None),
    (_fold("floor", (B,)), (B,)),
    (_fold("xor", (1, 0), (1,)), (0, 1)),
    (_fold("less_equal", (1, 2), (1,)), (1, 0)),
    (_fold("where", (1, 0), (5,), (6, 7)), (5, 7)),
    (_fold("where", (B,), (5,), (6,)), None),
    (_fold("cast", (1, B), dtype=I64), (1, B)),
    (_fold("cast", (1, B), dtype=F32), (1, B)),
    (_fold("cast", (0, 3), dtype=BOOL), (0, 1)),
    (_fold("tile", (1, B), (2,)), (1, B, 1, B)),
    (_fold("pad", (4, B), (1, 2), value=0), (0, 4, B, 0, 0)),
    (_fold("pad", (4, B), (1, 2)), None),
    (_fold("nonzero", (4, 0, 1)), (0, 2)),
    (_fold("cumsum", (4, B)), (4, B + 4)),
    (_fold("scatter_elements", (4, B, 6), (1, -1), (7, 8)), (4, 7, 8)),
    (_fold("concat", (1,), (B, 2), axis=0), (1, B, 2)),
    (_fold("gather", (4, B, 6), (1, -1), axis=0), (B, 6)),
    (_fold("slice", (4, 5, 6), (1,), (2**62,), (0,), (1,)), (5, 6)),
    (_fold("slice", (4, 5, 6), (2,), (-9,), (0,), (-1,)), (6, 5, 4)),
    (_fold("reduce", (4, B), kind="prod"), (4 * B,)),
    (_fold("reduce", (4, B), kind="sum"), (B + 4,)),
    (_fold("reduce", (4, 7), kind="min"), (4,)),
    (_fold("reduce", (4, 7), kind="mean"), None),
    (_fold("identity", (4, B)), (4, B)),
    (_fold("fill", (2,), dtype=I64, value=7), (7, 7)),
    (_fold("shape", (4, 5, 6)), (3,)),
]


@pytest.mark.parametrize(
    ("found", "expected"), _FOLDED, ids=map(str, range(len(_FOLDED)))
)
def test_folding(found: object, expected: object) -> None:
    """Shape arithmetic on known elements gives known elements, or none at all."""
    assert expected == found


def test_folding_in_any_rank() -> None:
    """A matrix that exporters make of pads is cut, turned and gathered from."""
    x = Abstract(i64(2, 3), (1, 2, 3, 4, B, 6))
    at = [Abstract(i64(1), (number,)) for number in (-1, -9, 0, -1)]
    ones = Abstract(i64(1), (1,))

    assert (4, B, 6, 1, 2, 3) == infer("slice", Record(), [x, *at])[0].elements
    assert (1, 4, 2, B, 3, 6) == _only(infer("transpose", record(perm=(1, 0)), [x]))
    assert (2, B) == _only(infer("gather", record(axis=1), [x, ones]))
    assert (4, B, 6) == _only(infer("gather", record(axis=0), [x, ones]))
    wide = Abstract(i64(2), (2, 2))
    column = Abstract(i64(2, 1), (7, B))
    assert (7, 7, B, B) == _only(infer("expand", Record(), [column, wide]))


def _only(results: list[Abstract]) -> tuple[Dim, ...] | None:
    return results[0].elements


def test_folding_in_two_directions() -> None:
    """A row against a column has more elements than either; it is not folded."""
    row = Abstract(i64(1, 2), (1, 2))
    column = Abstract(i64(2, 1), (1, 2))
    (result,) = infer("add", Record(), [row, column])

    assert Abstract(i64(2, 2)) == result


@pytest.mark.parametrize(
    ("name", "attributes", "operands", "problem"),
    [
        ("reshape", {}, ["f32[8]", "i64[1]=3"], "cannot reshape"),
        ("reshape", {}, ["f32[B]", "i64[2]=-1,-1"], "more than one -1"),
        ("reshape", {}, ["f32[8]", "i64[100]"], "cannot be a shape: 100 dimensions"),
        ("fill", {"dtype": F32}, ["i64[1099511627776]"], "cannot be a shape"),
        ("flatten", {"axis": 4}, ["f32[8]"], "axis 4 is out of range"),
        ("transpose", {"perm": (0, 0)}, ["f32[8,8]"], "is not a permutation"),
        ("squeeze", {"axes": (0,)}, ["f32[8]"], "squeezed dimension and 1 differ"),
        ("unsqueeze", {"axes": (0, 0)}, ["f32[8]"], "name one place twice"),
        ("expand", {}, ["f32[8]", "i64[99]"], "cannot be a shape: 99 dimensions"),
        ("concat", {"axis": 0}, ["f32[8]", "f32[8,1]"], "ranks differ"),
        ("concat", {"axis": 0}, ["f32[8,1]", "f32[8,2]"], "dimensions 1 of"),
        ("concat", {"axis": 0}, ["f32[]"], "axis 0 is out of range for rank 0"),
        ("split", {"axis": 0, "sizes": (3, 4)}, ["f32[8]"], "differ: 7 and 8"),
        ("split", {"axis": 0, "sizes": (9, -1)}, ["f32[8]"], "negative dimension"),
        ("split", {"axis": 0, "sizes": (8, "x")}, ["f32[8]"], "a list of dimensions"),
        ("slice", {}, ["f32[8]", *["i64[1]=1"] * 2, "i64[1]=0", "i64[1]=0"], "is 0"),
        ("slice", {}, ["f32[8]", *["i64[1]=1"] * 3, "i64[0]="], "differ in number"),
        ("slice", {}, ["f32[8]", *["i64[1]=0"] * 2, "i64[1]=B", "i64[1]=1"], "got B"),
        ("gather", {"axis": 0}, ["i64[1]=4", "i64[1]=1"], "index out of range"),
        ("gather_nd", {}, ["f32[8]", "i64[2,2]"], "do not fit f32[8]"),
        ("linear", {}, ["f32[8,3]", "f32[4]"], "expected a matrix as weight"),
        ("linear", {}, ["f32[8,3]", "f32[4,3]", "f32[5]"], "cannot broadcast"),
        ("matmul", {}, ["f32[]", "f32[4]"], "cannot multiply scalars"),
        ("conv", {}, ["f32[8,3]", "f32[4,3]"], "cannot convolve"),
        ("conv", {"groups": 0}, ["f32[1,3,9]", "f32[4,3,3]"], "0 groups"),
        ("conv", {"groups": 2}, ["f32[1,3,9]", "f32[4,3,3]"], "input channels differ"),
        ("conv", {"stride": (1, 1)}, ["f32[1,3,9]", "f32[4,3,3]"], "do not fit a 1-d"),
        ("conv", {"stride": (0,)}, ["f32[1,3,9]", "f32[4,3,3]"], "must be positive"),
        ("conv", {}, ["f32[1,3,9]", "f32[4,3,K]"], "the window of f32[4,3,K] is not"),
        ("pool", {"window": (2, 2)}, ["f32[1,3,9]"], "a 2-d window does not fit"),
        ("constant", {"dtype": F32, "shape": (2,), "elements": (1,)}, [], "1 and 2"),
        ("constant", {"dtype": F32, "shape": (-2,)}, [], "negative dimension"),
        ("range", {}, ["i64[]=0", "i64[]=9", "i64[]=0"], "the step of a range is 0"),
        (
            "embedding_bag",
            {"tables": TABLES[:1], "mode": "median"},
            ["f32[100,16]", "i64[8,2]"],
            "mode 'median' is none of sum, mean, max",
        ),
        (
            "embedding_bag",
            {"tables": TABLES, "mode": "sum"},
            ["f32[100,16]", "i64[8,2]"],
            "2 operands do not fit 2 tables",
        ),
        (
            "embedding_bag",
            {"tables": TABLES[:1], "mode": "sum"},
            ["f32[100,16]", "i64[8]"],
            "need offsets, or a second dimension",
        ),
        (
            "embedding_bag",
            {"tables": TABLES[:1], "mode": "sum", "has_offsets": True},
            ["f32[100,16]", "i64[8]", "i64[]"],
            "offsets i64[] are not a list",
        ),
        (
            "embedding_bag",
            {"tables": (Record({"rows": 3}),), "mode": "sum"},
            ["f32[100,16]", "i64[8,2]"],
            "a table has no 'dim'",
        ),
    ],
    ids=str,
)
def test_refused(
    name: str, attributes: dict[str, AttrValue], operands: list[str], problem: str
) -> None:
    """Operands that do not go together are refused, with the reason."""
    abstracts = list(map(_operand, operands))
    with pytest.raises(VerifyError) as caught:
        _checked(infer(name, Record(attributes), abstracts))

    assert problem in str(caught.value)


def _checked(results: list[Abstract]) -> None:
    for result in results:
        result.type.checked()


def _operand(text: str) -> Abstract:
    type_, known, elements = text.partition("=")
    dims: list[Dim] = [
        symbol(item) if item.isalpha() else int(item)
        for item in elements.split(",")
        if item
    ]
    return Abstract(parse_type(type_), tuple(dims) if known else None)


def test_unknown_elements() -> None:
    """A shape that depends on data has dimensions without a name."""
    (reshaped,) = infer_types("reshape", Record(), [f32(8), i64(2)])
    (sliced,) = infer_types("slice", Record(), [f32(8, 9), *[i64(1)] * 4])

    assert (UNKNOWN_DIM, UNKNOWN_DIM) == reshaped.shape
    assert (UNKNOWN_DIM, UNKNOWN_DIM) == sliced.shape


def test_views_stay_where_they_are() -> None:
    """A view of a pinned tensor is pinned."""
    pinned = parse_type("f32[8,2]@pinned")
    views: tuple[tuple[str, dict[str, AttrValue]], ...] = (
        ("transpose", {"perm": (1, 0)}),
        ("split", {"axis": 0, "sizes": (4, 4)}),
        ("flatten", {"axis": 0}),
    )
    for name, items in views:
        for type_ in infer_types(name, Record(items), [pinned]):
            assert pinned.space == type_.space


def test_ceil_mode() -> None:
    """A pool in ceil mode also has the last, partly filled window."""
    attributes: dict[str, AttrValue] = {"kind": "max", "window": (2,), "stride": (2,)}
    floor, _ = infer_types("pool", Record(attributes), [f32(1, 1, 5)])
    attributes["ceil_mode"] = True
    ceil, _ = infer_types("pool", Record(attributes), [f32(1, 1, 5)])
    attributes |= {"stride": (3,), "padding": (0, 1)}
    padded, _ = infer_types("pool", Record(attributes), [f32(1, 1, 6)])

    assert (2, 3) == (floor.shape[2], ceil.shape[2])
    # No window begins in the padding behind the image.
    assert 2 == padded.shape[2]


def test_bags() -> None:
    """Bags are counted by offsets, or by the first dimension of the indices."""
    attributes = record(tables=TABLES, has_offsets=True)
    tables = [f32(100, 16), f32(50, 8)]

    assert B == bags(attributes, [*tables, i64(symbol("N")), i64(2 * B)])
    assert 7 == bags(record(tables=TABLES), [*tables, i64(7, 3)])
    last = attributes.updated(include_last_offset=True)
    assert 4 == bags(last, [*tables, i64(symbol("N")), i64(9)])


def test_reduced_axes() -> None:
    """No axes mean all of them."""
    assert (0, 1, 2) == reduced_axes(Record(), 3)
    assert (2,) == reduced_axes(record(axes=(-1,)), 3)
    assert () == reduced_axes(record(axes=()), 3)
