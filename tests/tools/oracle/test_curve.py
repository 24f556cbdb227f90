"""The time over a size: pieces, their bottlenecks and formulas."""

from __future__ import annotations

import functools
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfc import Oracle, PerfcError, edits
from perfc.tools.oracle import curve as curve_module
from perfc.tools.oracle.curve import Curve

SMALL = "dlrm-default:tables=3,rows=1000"
UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
TERM = re.compile(r"(-?[\d.e+-]+) (ns|us|ms|s)")


@functools.cache
def oracle() -> Oracle:
    """Return an oracle that tests ask, and leave as it is."""
    return Oracle(SMALL, "a100", batch=64)


@functools.cache
def wide() -> Curve:
    """Return a curve with several bottlenecks."""
    return oracle().curve("batch", 1, 65536)


def at(batch: int) -> edits.Bind:
    """Return the edit to a batch."""
    return edits.Bind(batch=batch)


def read(formula: str) -> tuple[float, float]:
    """Return what a formula says: offset and slope in microseconds."""
    amounts = [float(number) * UNITS[unit] for number, unit in TERM.findall(formula)]
    if " * " not in formula:
        return amounts[0], 0.0
    offset, slope = amounts
    return offset, -slope if " - " in formula else slope


def test_pieces_cover_the_range() -> None:
    """Without gaps, in order; neighbours differ by their bottleneck."""
    pieces = wide().pieces
    bottlenecks = [(piece.bound, piece.largest[0]) for piece in pieces]

    assert (1, 65536) == (pieces[0].low, pieces[-1].high)
    assert [p.high + 1 for p in pieces[:-1]] == [p.low for p in pieces[1:]]
    assert all(one != other for one, other in pairwise(bottlenecks))
    assert len({piece.bound for piece in pieces}) > 1


def test_both_ends_are_exact() -> None:
    """Times, and what bounds them, are those of the report there."""
    for piece in wide().pieces:
        for batch, time_us in ((piece.low, piece.low_us), (piece.high, piece.high_us)):
            report = oracle().report(at(batch))

            assert report.time_us == pytest.approx(time_us, rel=1e-9)
            assert report.time_us == pytest.approx(piece.time_us(batch), rel=1e-9)
            assert report.bound == piece.bound


def test_what_takes_most_of_the_path() -> None:
    """Parts are named by the breakdown of the report, the longest first."""
    for piece in wide().pieces:
        rows = oracle().report(at(piece.high)).breakdown
        longest = [row for row in rows if row["kind"] not in {"copy", "launch", "idle"}]

        assert longest[0]["detail"] == piece.largest[0]


def test_formulas_are_lines_through_the_ends() -> None:
    """The text says what the numbers say, to its five digits."""
    for piece in wide().pieces:
        offset, slope = read(piece.formula)

        assert offset == pytest.approx(piece.offset_us, rel=1e-4)
        assert slope == pytest.approx(piece.slope_us, rel=1e-4, abs=1e-12)
        assert piece.formula.endswith("batch") == bool(piece.slope_us)


def test_formulas_are_off_by_what_they_say() -> None:
    """Inside a piece times differ from the formula by about the deviation."""
    for piece in wide().pieces:
        inside = np.unique(np.linspace(piece.low, piece.high, 30).astype(int))
        times = oracle().batch({"batch": inside})["time_us"]
        off = np.abs([piece.time_us(n) for n in inside.tolist()] / times - 1)

        assert off.max() <= 2 * piece.deviation + 0.01


def test_a_short_range_is_looked_at_number_by_number() -> None:
    """Borders are where the bottleneck of the reports changes."""
    border = wide().pieces[0].high
    found = oracle().curve("batch", border - 5, border + 6)

    assert [border] == [piece.high for piece in found.pieces][:-1]
    assert wide().pieces[0].bound == found.pieces[0].bound
    assert wide().pieces[1].largest[0] == found.pieces[1].largest[0]


def test_one_number() -> None:
    """A range of one number is its time."""
    last: Any = np.int64(64)
    (piece,) = oracle().curve("batch", 64, last).pieces

    assert oracle().time_us == pytest.approx(piece.low_us, rel=1e-12)
    assert (64, 64, 0.0) == (piece.low, piece.high, piece.deviation)
    assert oracle().time_us == pytest.approx(read(piece.formula)[0], rel=1e-4)


def test_a_symbol_of_the_model() -> None:
    """Any symbol has a curve, by its name or as columns name it."""
    asked = Oracle("bert-base:layers=1", "v100", batch=1)
    with pytest.raises(PerfcError, match=r"no such dimension; it has"):
        asked.curve("sequence_of_nothing", 1, 4)
    names = {name for s in asked.model.symbols or () if s for name in s.every}
    name = min(names)
    one, other = asked.curve(name, 1, 8), asked.curve(f"dim:{name}", 1, 8)

    assert one.pieces == other.pieces
    assert name == one.name


def test_of_the_step_as_it_stands() -> None:
    """What is applied holds: a slower host, a duration that is set."""
    edited = Oracle(SMALL, "a100", batch=64)
    edited.apply(edits.Target(**{"host.speed": 0.5}), edits.Duration("gemm", us=40.0))
    (piece, *_) = edited.curve("batch", 8, 16).pieces

    assert edited.ask(at(8)) == pytest.approx(piece.low_us, rel=1e-9)


def test_borders_that_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the budget pieces still cover the range, and a remark says which."""
    monkeypatch.setattr(curve_module, "_BUDGET", 10)
    found = oracle().curve("batch", 1, 65536)

    assert (1, 65536) == (found.pieces[0].low, found.pieces[-1].high)
    pairs = pairwise(found.pieces)
    assert all(one.high + 1 == other.low for one, other in pairs)
    assert {"border"} == {remark.code for remark in found.diagnostics}
    assert "is not looked for" in str(found)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("batsch", 1, 2), "--dim batsch: program dlrm-default has no such dimension"),
        (("batch", 5, 2), "Oracle.curve('batch'): low=5 is above high=2"),
        (("batch", 1, 2.5), "high=2.5 is a float: expected a whole number"),
        (("batch", 0, 2), "low=0: expected at least 1"),
        (("batch", 1, 2**50), "expected at most"),
        (("batch", True, 2), "low=True is a bool: expected a whole number"),
        ((7, 1, 2), "Oracle.curve: 7 is no size"),
        (("", 1, 2), "Oracle.curve: '' is no size"),
        (("dim:", 1, 2), "Oracle.curve: 'dim:' is no size"),
    ],
)
def test_what_means_nothing(asked: tuple[Any, ...], said: str) -> None:
    """One line says what was expected."""
    with pytest.raises(PerfcError, match=re.escape(said)) as caught:
        oracle().curve(*asked)

    assert 1 == str(caught.value).count("\n") + 1


def test_a_model_of_one_batch(tmp_path: Path) -> None:
    """A batch that the model fixes has no curve."""
    path = tmp_path / "fixed.perfc"
    text = "graph @fixed(%x: f32[4,4]) {\n  %y = relu(%x) : f32[4,4]\n  return %y\n}\n"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(PerfcError, match="batch"):
        Oracle(str(path), "a100").curve("batch", 1, 2)


def test_it_is_data() -> None:
    """A table, JSON and one line."""
    found = wide()
    document = json.loads(found.to_json())

    assert "perfc.curve/1" == document["schema"]
    assert [p.formula for p in found.pieces] == [
        p["formula"] for p in document["pieces"]
    ]
    assert 2 + len(found.pieces) == str(found).count("\n")
    assert repr(found).startswith("<Curve dlrm-default on a100-sxm-80g, eager: ")
    assert 1 == repr(found).count("\n") + 1
