"""Element types and tensor types: text, sizes, checks."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.ir.strategies import TYPES

from perfc.ir import ParseError, TensorType
from perfc.ir.dims import evaluate, symbol
from perfc.ir.support import UnboundSymbolError, VerifyError
from perfc.ir.text import parse_type
from perfc.ir.types import parse_dtype


@given(TYPES)
def test_types_read_back(type_: TensorType) -> None:
    """Every type is read back from its text."""
    assert type_ == parse_type(str(type_))


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("f32[3,4]", 48),
        ("f32[]", 4),
        ("f32[0,4]", 0),
        ("bool[3]", 3),
        ("i4[3,3]", 5),  # packed: 36 bits
        ("i2[1]", 1),
        ("i8.rowx64[3,16]", 72),  # 16 elements and 8 bytes of scale a row
        ("i4.rowx32[2,5]", 14),  # a row of 20 bits and 32 ends on a byte
        ("f4e2m1.block16x8[2,32]", 36),
        ("f4e2m1.block16x8[2,33]", 40),  # the third block is not full
        ("i8.rowx64[]", 9),
    ],
)
def test_nbytes(text: str, nbytes: int) -> None:
    """Sizes count what is really stored, scales and partly filled bytes too."""
    assert nbytes == parse_type(text).nbytes


@given(TYPES)
def test_symbolic_nbytes(type_: TensorType) -> None:
    """The size of a symbolic type is that of the type once it has numbers."""
    bindings = dict.fromkeys(type_.symbols(), 4)
    shape = tuple(evaluate(dim, bindings) for dim in type_.shape)
    bound = TensorType(type_.dtype, shape, type_.space)

    assert bound.nbytes == evaluate(type_.nbytes, bindings)
    assert bound.numel == evaluate(type_.numel, bindings)
    assert bound.rank == type_.rank


def test_bind() -> None:
    """Binding puts numbers in place of symbols and checks the result."""
    type_ = parse_type("f32[B-4,2]@host")

    assert "f32[6,2]@host" == str(type_.bind({"B": 10}))
    assert parse_type("f32[2]") == parse_type("f32[2]").bind({})
    with pytest.raises(VerifyError, match=r"negative dimension in f32\[-1,2\]@host"):
        type_.bind({"B": 3})
    with pytest.raises(UnboundSymbolError, match="dimension 'B' has no value"):
        type_.bind({"C": 3})
    with pytest.raises(VerifyError, match="shape overflows"):
        type_.bind({"B": 2**60})


def test_dtype_of_numbers() -> None:
    """Only floats are floats."""
    assert parse_dtype("f8e4m3.block128x32").is_float
    assert not parse_dtype("i8.rowx64").is_float


def test_odd_symbol_names() -> None:
    """A symbol may have any name."""
    type_ = TensorType(parse_dtype("f32"), (symbol("a b],"), symbol("max") + 1))

    assert 'f32["a b],","max" + 1]' == str(type_)
    assert type_ == parse_type(str(type_))


_NO_DTYPES = (
    *("x32", "f32.", "f32.row", "f32.rowx", "f32.blockx8", "f32.block0x8"),
    *("f32.row4x8", "f32.rowx-1", "f32.rowx8x8", "f32.rowx" + "9" * 5000, "f32.rowx٣"),
)


@pytest.mark.parametrize("text", _NO_DTYPES, ids=map(str, range(len(_NO_DTYPES))))
def test_not_a_dtype(text: str) -> None:
    """Anything else is refused, with what would be right."""
    with pytest.raises(ParseError, match=r"unknown element type|not a scaling"):
        parse_dtype(text)


@pytest.mark.parametrize("text", ["", "f32", "f32[2", "f32[2]@", "f32[2]@disk", "[2]"])
def test_not_a_type(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ParseError, match=r"not a type|unknown (memory|element)"):
        parse_type(text)
