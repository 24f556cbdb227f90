"""Samples with their sessions: read, and counted."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from perfc.ir import PerfcError, UsageError
from perfc.measurements import read_session_trace

SESSION, STAY = 8.0, 0.9


def _samples(count: int = 20_000) -> list[tuple[int, list[int], int]]:
    """Return samples: session, a list that stays, one that changes."""
    rng = random.Random(3)
    found: list[tuple[int, list[int], int]] = []
    number = 0
    while len(found) < count:
        number += 1
        listed = [rng.randrange(10**6) for _ in range(rng.randint(0, 5))]
        for place in range(rng.randint(1, int(2 * SESSION - 1))):
            if place and rng.random() >= STAY:
                listed = [rng.randrange(10**6) for _ in range(rng.randint(0, 5))]
            found.append((number, listed, len(found)))
    return found


def _write(path: Path) -> Path:
    samples = _samples()
    if path.suffix == ".csv":
        lines = [f"{s},{' '.join(map(str, u))},{i}" for s, u, i in samples]
        path.write_text("\n".join(["sid,user,item", *lines]) + "\n", "utf-8")
        return path
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    names = ("sid", "user", "item")
    columns = dict(zip(names, map(list, zip(*samples, strict=True)), strict=True))
    parquet.write_table(pyarrow.table(columns), path)
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_what_was_generated_is_measured(tmp_path: Path, name: str) -> None:
    """The mean session and how often lists stay, within 2 %."""
    trace = read_session_trace(_write(tmp_path / name), "sid")

    assert {"user", "item"} == set(trace.lists)
    assert trace.mean_session() == pytest.approx(SESSION, rel=0.02)
    assert trace.stay(["user"]) == pytest.approx(STAY, rel=0.02)
    assert trace.stay(["item"]) == 0.0
    assert trace.stay(["user", "item"]) == 0.0


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    """Of the same samples."""
    one = read_session_trace(_write(tmp_path / "t.csv"), "sid")
    two = read_session_trace(_write(tmp_path / "t.parquet"), "sid")

    assert one.mean_session(256) == two.mean_session(256)
    assert one.stay(["user"], 256) == two.stay(["user"], 256)


def test_batches_cut_sessions(tmp_path: Path) -> None:
    """A session that a batch cuts counts as its pieces."""
    path = tmp_path / "t.csv"
    path.write_text("sid,f\n" + "1,5\n" * 6 + "2,5\n" * 2, "utf-8")
    trace = read_session_trace(path, "sid")

    assert 4.0 == trace.mean_session()
    assert 8 / 3 == trace.mean_session(4)
    assert 2.0 == trace.mean_session(2)
    assert 1.0 == trace.mean_session(1)
    assert None is trace.stay(["f"], 1)


def test_samples_of_sessions_need_not_be_neighbours(tmp_path: Path) -> None:
    """The sample before is that of the same session."""
    path = tmp_path / "t.csv"
    path.write_text("sid,f\na,1\nb,2\na,1\nb,3\n", "utf-8")

    assert 0.5 == read_session_trace(path, "sid").stay(["f"])


def test_equal_lists_alone_are_equal(tmp_path: Path) -> None:
    """Order, length and places of items count."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    lists = [[1, 2], [2, 1], [1, 2], [1, 2, 0], [], None, [0], [0, 0], [[1], [2]][0]]
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"s": [1] * len(lists), "f": lists}), path)
    codes = read_session_trace(path, "s").lists["f"].tolist()
    expected = [tuple(each or ()) for each in lists]

    for one, mine in zip(expected, codes, strict=True):
        same = [mine == other for other in codes]
        assert [one == other for other in expected] == same


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("a,b\n1,2\n", "sid", "no column 'sid'"),
        ("sid,b\n", "sid", "no samples"),
        ("sid\n1\n", "sid", "no features"),
        ("sid,b\n1,2\n,3\n", "sid", "has no value 1 times"),
        ("sid,b\n1\n", "sid", "cells, expected 2"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, text: str, key: str, message: str) -> None:
    """One line says what is wrong."""
    path = tmp_path / "t.csv"
    path.write_text(text, "utf-8")

    with pytest.raises(PerfcError, match=message):
        read_session_trace(path, key)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    """Its name says so."""
    with pytest.raises(UsageError, match=r"\.parquet or \.csv"):
        read_session_trace(tmp_path / "t.txt", "sid")


def test_a_damaged_file(tmp_path: Path) -> None:
    """It is named."""
    pytest.importorskip("pyarrow")
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1" + b"x" * 100)

    with pytest.raises(PerfcError, match=r"t\.parquet"):
        read_session_trace(path, "sid")
