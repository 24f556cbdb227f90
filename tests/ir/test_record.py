"""Attribute records."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.ir.strategies import RECORDS

from perfc.ir import DTYPES, AttrValue, Record
from perfc.ir.dims import symbol
from perfc.ir.record import EMPTY, format_attribute, format_items
from perfc.ir.support import VerifyError
from perfc.ir.text import parse_graph


@given(RECORDS)
def test_records_read_back(record: Record) -> None:
    """A record is read back from its text, and is equal and as hashable."""
    text = f"graph @g() {{ f() {record!r} return }}"
    (node,) = parse_graph(text)

    assert record == node.attributes
    assert hash(record) == hash(node.attributes)


def test_equality() -> None:
    """Two records are equal when their items are, in any order."""
    one, other = Record({"a": 1, "b": (2,)}), Record({"b": (2,), "a": 1})

    assert one == other
    assert hash(one) == hash(other)
    assert one != Record({"a": 1})
    assert {"a": 1, "b": (2,)} != one
    assert (2, ["a", "b"]) == (len(one), list(one))


def test_updated() -> None:
    """A changed copy leaves the record as it was."""
    record = Record({"a": 1})

    assert Record({"a": 2, "b": "x"}) == record.updated(a=2, b="x")
    assert 1 == record["a"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "true"),
        (-3, "-3"),
        (1e-07, "1e-07"),
        (float("-inf"), "-inf"),
        (float("nan"), "nan"),
        ('a"\n\\', '"a\\"\\n\\\\"'),
        (symbol("B") + 1, "<B + 1>"),
        (DTYPES["bf16"], "!bf16"),
        ((1, (2,), ()), "[1, [2], []]"),
        (Record({"a b": EMPTY}), '{"a b" = {}}'),
    ],
    ids=str,
)
def test_text(value: object, text: str) -> None:
    """Each kind of value has its own spelling."""
    assert text == format_attribute(value)


def test_numpy_floats() -> None:
    """A numpy float prints as the number it is."""
    numpy = pytest.importorskip("numpy")

    assert "x = 0.5" == format_items({"x": numpy.float64(0.5)})


def test_typed_access() -> None:
    """Typed access returns the value; `none` and a missing one are the default."""
    inner = Record({"x": 1})
    items: dict[str, AttrValue] = {
        "i": 3,
        "s": "t",
        "f": True,
        "d": DTYPES["f32"],
        "l": (1, 2),
        "n": None,
    }
    record = Record({**items, "r": (inner,), "e": (symbol("B"), 4)})

    assert (3, 7, 7) == (
        record.integer("i"),
        record.integer("n", 7),
        record.integer("missing", 7),
    )
    assert ("t", "u") == (record.text("s"), record.text("missing", "u"))
    assert (True, False) == (record.flag("f"), record.flag("missing"))
    assert DTYPES["f32"] == record.dtype("d")
    assert ((1, 2), (9,)) == (record.integers("l"), record.integers("n", (9,)))
    assert ((inner,), ()) == (record.records("r"), record.records("missing"))
    assert (symbol("B"), 4) == record.dims("e")


@pytest.mark.parametrize(
    ("method", "value", "problem"),
    [
        ("integer", None, "attribute 'a' is missing, expected an integer"),
        ("integer", True, "attribute 'a' is true, expected an integer"),
        ("text", 1, "attribute 'a' is 1, expected a string"),
        ("flag", 1, "attribute 'a' is 1, expected true or false"),
        ("dtype", "f32", "attribute 'a' is \"f32\", expected an element type"),
        ("integers", (1, "x"), "attribute 'a' is [1, \"x\"], expected a list of"),
        ("integers", (True,), "attribute 'a' is [true], expected a list of integers"),
        ("records", (1,), "attribute 'a' is [1], expected a list of records"),
        ("dims", (0.5,), "attribute 'a' is [0.5], expected a list of dimensions"),
        ("dims", None, "attribute 'a' is missing, expected a list of dimensions"),
    ],
)
def test_wrong_kinds(method: str, value: object, problem: str) -> None:
    """A value of the wrong kind is an error that names it, never dropped."""
    record = Record({"a": value})  # type: ignore[dict-item]
    with pytest.raises(VerifyError) as caught:
        getattr(record, method)("a")

    assert str(caught.value).startswith(problem)


def test_symbolic() -> None:
    """A symbol is found however deep it stands."""
    inner = Record({"a": (1, (symbol("B"),))})

    assert Record({"r": (inner,)}).is_symbolic
    assert not Record({"r": (Record({"a": (1, "B")}),)}).is_symbolic
