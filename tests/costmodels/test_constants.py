"""Constants of the models: files that say what each is and where it is from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import pytest

from perfc.costmodels.constants import (
    CONSTANTS_FOLDER,
    Constant,
    constant_files,
    constants,
    read_constants,
)
from perfc.ir import PerfcError

ROOT = Path(__file__).parents[2]
_MODELS = ("conv", "memcpy", "walk")

GOOD = """
on = ["gpu"]

[share]
value = 0.31
kind = "single"
source = '''one
H100'''
rows = "copies"
on = ["9.0"]

[lanes]
value = 64
kind = "published"
source = "a manual"
but = ["Hopper"]

[rates]
value = { Volta = 19.1, Hopper = [1, 2.5] }
kind = "assumed"
source = "chosen"
by = "architecture"
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """Return a file of three constants."""
    path = tmp_path / "room.toml"
    path.write_text(GOOD)
    return path


def test_constants_are_typed(good: Path) -> None:
    """A number is a float, a whole one an int where that is asked for."""
    room = read_constants(good)

    assert (0.31, 64.0, 64) == (
        room.number("share"),
        room.number("lanes"),
        room.integer("lanes"),
    )
    assert isinstance(room.number("lanes"), float)


def test_a_constant_says_where_it_is_from(good: Path) -> None:
    """Kind, source in one line, rows, and devices: its own, or those of the file."""
    room = read_constants(good)
    share, lanes = room.entries["share"], room.entries["lanes"]

    assert ("single", "one H100", "copies", ("9.0",)) == (
        share.kind,
        share.source,
        share.rows,
        share.on,
    )
    assert ("published", "", ("gpu",)) == (lanes.kind, lanes.rows, lanes.on)
    assert (("Hopper",), ()) == (lanes.but, share.but)


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("share", ("gpu", "Hopper", "9.0"), 0.31),
        ("share", ("gpu", "Volta", "7.0"), None),
        ("lanes", ("cpu",), None),
        ("lanes", ("gpu", "Volta", "7.0"), 64),
        ("lanes", ("gpu", "Hopper", "9.0"), None),
        ("rates", ("gpu", "Hopper", "9.0"), {"Hopper": (1, 2.5)}),
        ("rates", ("gpu", "Turing", "7.5"), None),
    ],
)
def test_a_part_is_of_a_device(
    good: Path, name: str, words: tuple[str, ...], expected: object
) -> None:
    """Constants of other devices are left out, as are entries of a table by device."""
    assert expected == read_constants(good).entries[name].part(words)


def test_a_constant_sets_the_time_of_kernels() -> None:
    """Any of its entries does: its models, and all that it says of the kernel."""
    entries = ("conv|gemm math=fp32|tf32 axis=0", "memcpy bytes<=8")
    constant = Constant("c", 1.0, "assumed", "x", "", sets=entries)
    kernels: tuple[dict[str, object], ...] = (
        {"math": "tf32", "axis": 0},
        {"math": "bf16", "axis": 0},
        {"math": "tf32"},
        {"bytes": 8},
        {"bytes": 9.0},
        {},
    )

    found = {m: [constant.sets_time_of(m, k.get) for k in kernels] for m in _MODELS}

    assert {
        "conv": [True, False, False, False, False, False],
        "memcpy": [False, False, False, True, False, False],
        "walk": [False] * 6,
    } == found


def test_values_cannot_be_changed(good: Path) -> None:
    """Tables and lists are frozen, down to the last number."""
    rates = read_constants(good).entries["rates"].value

    assert {"Volta": 19.1, "Hopper": (1, 2.5)} == rates
    assert isinstance(rates, MappingProxyType)


def _said(path: Path, old: str, new: str) -> str:
    """Return the error of the file with one line changed."""
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(PerfcError) as caught:
        read_constants(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("value = 64\n", "", "lanes: value missing"),
        ('source = "a manual"\n', "", "lanes: source missing"),
        ('"a manual"', '" "', "lanes: source is empty; say who says so, or why"),
        ('rows = "copies"', "", "share: kind is single, so rows is expected to say to"),
        ('"a manual"', '"a"\nrows = "b"', "lanes: kind is published, so rows is exp"),
        ('"published"', '"guess"', "lanes: kind is one of fitted, published, single,"),
        ("rows", "row", "share: row is not known; a constant has value, kind, source,"),
        ("= 64", '= "64"', "lanes: value is of numbers, not '64'"),
        ("= 64", "= [true]", "lanes: value is of numbers, not [True]"),
        ('"architecture"', '"maker"', "rates: by is one of architecture, compute_cap"),
        ('["9.0"]', '"9.0"', "share: on is a list of words, not '9.0'"),
        ('["Hopper"]', "9", "lanes: but is a list of words, not 9"),
        ("[lanes]", "[share]", "cannot be read as constants: Cannot declare"),
        ('on = ["gpu"]', "lane = 64", "lane: value, kind, source missing"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(
    good: Path, old: str, new: str, expected: str
) -> None:
    """It names the file and the entry, and says what is expected."""
    said = _said(good, old, new)

    assert said.startswith(f"room.toml: {expected}")
    assert "\n" not in said


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    """A room without constants is named."""
    with pytest.raises(PerfcError, match=r"^no\.toml: cannot be read as constants: "):
        read_constants(tmp_path / "no.toml")


@pytest.mark.parametrize(
    ("read", "name", "expected"),
    [
        ("number", "shar", "no constant 'shar'; known are lanes, rates, share"),
        ("number", "rates", "rates: expected a number, found {'Volta': 19.1, "),
        ("integer", "share", "share: expected a whole number, found 0.31"),
        ("numbers", "share", "share: expected a list of numbers, found 0.31"),
        ("table", "share", "share: expected a table, found 0.31"),
        ("table", "rates", "rates: expected a number, found (1, 2.5)"),
        ("lists", "rates", "rates: expected a list of numbers, found 19.1"),
        ("pair", "lanes", "lanes: expected a list of numbers, found 64"),
    ],
)
def test_a_misspelled_or_mistyped_constant_is_one_line(
    good: Path, read: str, name: str, expected: str
) -> None:
    """It names the file and the constant."""
    with pytest.raises(PerfcError) as caught:
        getattr(read_constants(good), read)(name)

    assert str(caught.value).startswith(f"room.toml: {expected}")


def test_a_pair_is_two(tmp_path: Path) -> None:
    """A list of any other length is refused."""
    path = tmp_path / "room.toml"
    path.write_text('[p]\nvalue = [1, 2, 3]\nkind = "assumed"\nsource = "x"\n')
    with pytest.raises(PerfcError, match=r"p: expected two numbers, found \(1\.0, "):
        read_constants(path).pair("p")


def test_shipped_files_are_read() -> None:
    """Each has constants with sources, or reading it would be an error."""
    assert constant_files() == sorted(p.stem for p in CONSTANTS_FOLDER.iterdir())
    assert {} == {name: 0 for name in constant_files() if not list(constants(name))}


def _words(source: str) -> Iterator[str]:
    """Yield the texts that stand in code; of those with a name in braces, with `*`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        if isinstance(node, ast.JoinedStr):
            yield f"{ast.unparse(node)[2:].partition('{')[0]}*"


def test_every_constant_is_read_by_code() -> None:
    """What no model reads would be printed as if one did."""
    folders = [ROOT / name for name in ("costmodels", "traces", "tools")]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    words = {word for path in files for word in _words(path.read_text("utf-8"))}
    begins = {word[:-1] for word in words if word.endswith("_*")}

    def is_read(name: str) -> bool:
        ends = (name.removeprefix(b) for b in begins if name.startswith(b))
        return name in words or not words.isdisjoint(ends)

    unread = [f"{f}.{c.name}" for f in constant_files() for c in constants(f)]
    assert [] == [name for name in unread if not is_read(name.partition(".")[2])]
