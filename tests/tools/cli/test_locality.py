"""`perfc locality`: index traces of every form, what they say, and bad ones."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.costmodels.locality.lookup import drawn, misses
from tests.tools.command import Command

from perfc.costmodels import parse_popularity
from perfc.costmodels.locality import ZipfMandelbrot, reuse_histogram
from perfc.fitting.popularity_fit import fit_popularity, histogram_of
from perfc.fitting.stack_distance import miss_curve_of, stack_distances

POOLING = 5
FIRST = drawn(ZipfMandelbrot(1.1), 4000, 6000, seed=1)
SECOND = drawn(ZipfMandelbrot(0.7), 300, 6000, seed=2)


def locality(command: Command, path: Path, *options: str) -> dict[str, Any]:
    """Run the verb; return its JSON."""
    done = command("locality", str(path), "--format", "json", *options)
    assert (0, "") == (done.code, done.err)
    found: dict[str, Any] = json.loads(done.out)
    return found


def bags(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cut lookups into bags."""
    return rows.reshape(-1, POOLING)


def written(folder: Path, kind: str) -> Path:
    """Write both tables in one form."""
    path = folder / f"trace.{kind.partition('-')[0]}"
    both = np.concatenate([FIRST, SECOND])
    lengths = np.full((2, len(FIRST) // POOLING), POOLING)
    ends = np.arange(0, len(both) + 1, POOLING)
    if kind == "npz-lengths":
        np.savez(path, indices=both, lengths=lengths)
    elif kind == "npz-offsets":
        np.savez(path, indices=both, offsets=ends, tables=2)
    elif kind == "npz-bags":
        np.savez(path, t0=bags(FIRST), t1=bags(SECOND))
    elif kind == "npz-named":
        own = np.arange(0, len(FIRST), POOLING)
        arrays: dict[str, Any] = {"indices_t0": FIRST, "offsets_t0": own, "t1": SECOND}
        np.savez(path, **arrays, t1_offsets=own)
    elif kind == "csv":
        lines = [
            f"{' '.join(map(str, a))},{'|'.join(map(str, b))}"
            for a, b in zip(bags(FIRST).tolist(), bags(SECOND).tolist(), strict=True)
        ]
        path.write_text("t0,t1\n" + "\n".join(lines) + "\n", encoding="utf-8")
    else:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        columns = {"t0": bags(FIRST).tolist(), "t1": bags(SECOND).tolist()}
        parquet.write_table(pyarrow.table(columns), path)
    return path


KINDS = ["npz-lengths", "npz-offsets", "npz-bags", "npz-named", "csv", "parquet"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_form_says_the_same(command: Command, tmp_path: Path, kind: str) -> None:
    """Tables, lookups, rows and bags are read alike from every kind of file."""
    found = locality(command, written(tmp_path, kind), "--batch", "600")["tables"]

    assert ["t0", "t1"] == [table["name"] for table in found]
    for table, rows in zip(found, (FIRST, SECOND), strict=True):
        assert (len(rows), 5.0) == (table["lookups"], table["pooling"])
        assert len(np.unique(rows)) == table["rows_touched"]
        halves = [len(np.unique(half)) for half in np.split(rows, 2)]
        assert pytest.approx(np.mean(halves)) == table["unique_per_batch"]
        assert pytest.approx(3000 / np.mean(halves)) == table["reuse"]


def test_one_table_in_npy(command: Command, tmp_path: Path) -> None:
    """A list of rows is a table of one row a sample, a matrix one of bags."""
    flat, matrix = tmp_path / "flat.npy", tmp_path / "matrix.npy"
    np.save(flat, FIRST.astype(np.int32))
    np.save(matrix, bags(FIRST))

    (one,), (several,) = (
        locality(command, flat)["tables"],
        locality(command, matrix)["tables"],
    )

    assert ("flat", 6000, 1.0) == (one["name"], one["samples"], one["pooling"])
    assert (1200, 5.0) == (several["samples"], several["pooling"])


def test_caches_that_are_asked_for_hit_as_often(
    command: Command, tmp_path: Path
) -> None:
    """The cache for 70 % hits has them when the trace runs through it; one less not."""
    path = tmp_path / "rows.npy"
    np.save(path, FIRST)

    (table,) = locality(command, path, "--hits", "50,70,100")["tables"]
    half, most, never = (each["rows"] for each in table["cache_for_hits"])

    assert misses(FIRST, most) <= 0.3 * len(FIRST) < misses(FIRST, most - 1)
    assert misses(FIRST, half) <= 0.5 * len(FIRST) < misses(FIRST, half - 1)
    assert never is None
    for point in table["miss_curve"]:
        missed = misses(FIRST, point["rows"]) / len(FIRST)
        assert pytest.approx(missed) == point["miss_share"]


def test_the_file_is_what_analyze_reads(command: Command, tmp_path: Path) -> None:
    """Popularity goes from a trace to a prediction by a file, and by fitted text."""
    path, out = written(tmp_path, "npz-lengths"), tmp_path / "popularity.json"
    done = command("locality", str(path), "-o", str(out), "--target", "a100")

    assert (0, "") == (done.code, done.err)
    assert "L2 hits" in done.out
    model = ("analyze", "dlrm-default:tables=2,rows=4000", "--batch", "2048")
    options = ("--target", "a100", "--format", "json")
    times = [
        json.loads(command(*model, *options, *more).out)["summary"]["time_us"]
        for more in (["--popularity", str(out)], [])
    ]
    assert times[0] <= times[1]
    for table in json.loads(out.read_text(encoding="utf-8"))["tables"].values():
        assert str(parse_popularity(table["fitted"])) == table["fitted"]


@pytest.mark.parametrize(
    ("s", "q", "rows"), [(1.05, 0, 60_000), (0.8, 0, 30_000), (1.1, 500, 100_000)]
)
def test_fits_find_the_law(s: float, q: float, rows: int) -> None:
    """The law that lookups were drawn from is found again."""
    lookups = drawn(ZipfMandelbrot(s, q), rows, 300_000, seed=7)

    found = fit_popularity(histogram_of(lookups))

    assert pytest.approx(s, abs=0.04) == found.s
    assert pytest.approx(q, rel=0.25, abs=1.0) == found.q
    assert pytest.approx(rows, rel=0.15) == found.rows
    assert found.error < 2.5 * found.noise


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("lookups", [10, 500, 20_000])
@pytest.mark.parametrize("table", [3, 200, 10_000])
def test_the_simplest_law_is_taken(table: int, lookups: int, *, equal: bool) -> None:
    """Lookups that are uniform, at random or in turn, are fitted as uniform.

    Of random ones a few in a thousand pass for something else, by chance: these are
    always the same.
    """
    draws = np.random.default_rng(7).integers(0, table, lookups)
    found = fit_popularity(histogram_of(np.arange(lookups) % table if equal else draws))

    assert "uniform" == str(found.popularity)
    assert (0, 0) == (found.s, found.q)


def test_numbers_of_hits_are_grouped_within_bins_of_reuse() -> None:
    """Rows are in the bin of reuse that their hits say, grouped or not."""
    hits = np.arange(1, 70)
    grouped = histogram_of(np.repeat(hits, hits))
    found = reuse_histogram(grouped, 2**62, grouped.lookups)

    assert (1, 1, 2, 4, 8, 16, 32, 5) == found.rows[:8]


def test_seven_rows_in_turn(command: Command, tmp_path: Path) -> None:
    """A table whose seven rows are hit alike is called uniform, of seven rows."""
    save(tmp_path / "t.npz", t=np.arange(700) % 7)

    said = command("locality", str(tmp_path / "t.npz")).out

    assert "t  uniform of 7 rows, shares of lookups off by" in said


@given(st.lists(st.integers(0, 12), max_size=200))
def test_stack_distances(listed: list[int]) -> None:
    """A distance is how many other rows come between two lookups of a row."""
    rows = np.array(listed, dtype=np.int64)
    last: dict[int, int] = {}
    expected: list[int] = []
    for place, row in enumerate(listed):
        between = listed[last[row] + 1 : place] if row in last else None
        expected.append(-1 if between is None else len(set(between)))
        last[row] = place

    assert expected == stack_distances(rows).tolist()


def test_a_sample_of_rows_tells_the_curve() -> None:
    """A tenth of the rows tells hits of caches to 2 points."""
    rows = drawn(ZipfMandelbrot(0.9, 20), 60_000, 300_000, seed=3)
    whole, part = miss_curve_of(rows, 10**9), miss_curve_of(rows, 30_000)

    assert 1.0 == whole.rate
    assert pytest.approx(0.1, rel=0.01) == part.rate
    for cached in (300, 3000, 20_000, 60_000):
        expected = whole.hit_share(cached)
        assert pytest.approx(expected, abs=0.02) == part.hit_share(cached)


def test_the_keys_are_documented(command: Command, tmp_path: Path) -> None:
    """The reference lists each key."""
    page = (Path(__file__).parents[3] / "docs/reference/locality.md").read_text("utf-8")
    path = tmp_path / "t.npz"
    np.savez(path, t=np.arange(100) % 7)
    report = locality(command, path, "--target", "a100")
    (table,) = report["tables"]
    nested = (table["fitted"], *table["miss_curve"], *table["cache_for_hits"])
    keys = {key for document in (report, table, *nested) for key in document}

    assert set() == keys - set(re.findall(r"`([^`]+)`", page)) - {"tables"}


def test_without_a_fit(command: Command, tmp_path: Path) -> None:
    """A law is fitted only where it is wanted."""
    path = written(tmp_path, "npz-lengths")

    assert "fitted" not in command("locality", str(path), "--no-fit").out
    found = locality(command, path, "--no-fit")["tables"]
    assert [None, None] == [table["fitted"] for table in found]


def test_rows_that_never_repeat(command: Command, tmp_path: Path) -> None:
    """Where no row is looked up twice there is no law, and no cache hits."""
    path = tmp_path / "ünique rows.npy"
    np.save(path, np.arange(50))
    done = command("locality", str(path))

    assert (0, "") == (done.code, done.err)
    assert "none: no row is looked up twice" in done.out
    assert "never" in done.out


def save(path: Path, **arrays: Any) -> None:
    """Write arrays."""
    np.savez(path, **arrays)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "floats": ({"indices": np.ones(4), "lengths": np.ones(4, int)}, "of integers"),
    "negative": (
        {"indices": np.array([3, -1]), "lengths": np.array([2])},
        "looks up row -1",
    ),
    "no-offsets": ({"indices": np.arange(4)}, "need 'lengths' or 'offsets'"),
    "falling": (
        {"indices": np.arange(4), "offsets": np.array([0, 3, 1, 4])},
        "offsets of 'indices' fall",
    ),
    "beyond": (
        {"indices": np.arange(4), "offsets": np.array([0, 9])},
        "offsets of 'indices' fall",
    ),
    "few": (
        {"indices": np.arange(4), "lengths": np.array([1, 1])},
        "hold 2 rows, but there are 4 indices",
    ),
    "tables": (
        {"indices": np.arange(4), "offsets": np.arange(4), "tables": 3},
        "4 bags are not those of 3 tables",
    ),
    "half-a-table": (
        {"indices": np.arange(4), "offsets": np.arange(4), "tables": 1.5},
        "'tables' is 1-D of float64",
    ),
    "no-number-of-tables": (
        {"indices": np.arange(4), "offsets": np.arange(4), "tables": np.zeros(0, int)},
        "4 bags are not those of 0 tables",
    ),
    "overflowing": (
        {"indices": np.arange(3), "lengths": np.array([2**63 - 1, 2**63 - 1, 5])},
        f"hold {2**64 + 3} rows, but there are 3 indices",
    ),
    "unsigned": (
        {"t": np.array([2**63], np.uint64)},
        f"'t' looks up a row beyond {2**63 - 1}",
    ),
    "booleans": ({"t": np.array([True])}, "'t' is 1-D of bool"),
    "nameless": ({"": np.arange(3)}, "table 1 has no name"),
    "empty": (
        {"indices": np.array([], int), "lengths": np.zeros(3, int)},
        "no lookups",
    ),
    "matrix": ({"weights": np.ones((3, 3))}, "'weights' is 2-D of float64"),
    "cube": ({"t": np.ones((2, 2, 2), int)}, "'t' is 3-D of int64"),
    "objects": ({"t": np.array([{}])}, "cannot be read as .npz"),
    "nothing": ({}, "no array of indices; found nothing"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_arrays_of_another_shape(command: Command, tmp_path: Path, name: str) -> None:
    """An archive that is no index trace is refused in one line."""
    arrays, problem = BAD[name]
    path, out = tmp_path / f"{name}.npz", tmp_path / "out.json"
    save(path, **arrays)

    done = command("locality", str(path), "-o", str(out))

    assert (1, "") == (done.code, done.out)
    assert problem in done.err
    assert str(path) in done.err
    assert 1 == done.err.count("\n")
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("t.npz", b"PK\x03\x04 cut off", "cannot be read as .npz"),
        ("t.npz", b"", "cannot be read as .npz"),
        ("t.npy", b"\x93NUMPY", "cannot be read as .npy"),
        ("t.csv", b"", "no lookups"),
        ("t.csv", b"a,b\n1\n", "line 2: 1 cells; expected 2"),
        ("t.csv", b"a\nx\n", "cannot be read as .csv"),
        ("t.csv", b"a\n-4\n", "looks up row -4"),
        ("t.csv", b"a\n99999999999999999999\n", f"beyond {2**63 - 1}"),
        ("t.csv", b"a\n" + b"1 " * 70_000, "cannot be read as .csv"),
        ("t.csv", b"1,2\n3,4\n", "line 1 has no names of tables; found '1'"),
        ("t.csv", b"a,a\n3,4\n", "two tables are called 'a'"),
        ("t.csv", b"a,\n3,4\n", "table 2 has no name"),
        ("t.csv", b"a\n\xff\xfe\n", "cannot be read as .csv"),
        ("t.parquet", b"PAR1", "cannot be read as .parquet"),
        ("t.txt", b"1\n", "ends in one of .npz, .npy, .parquet, .csv"),
    ],
)
def test_damaged_files(
    command: Command, tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    """A damaged file is refused in one line."""
    path = tmp_path / name
    path.write_bytes(content)

    done = command("locality", str(path))

    assert (1, "", 1) == (done.code, done.out, done.err.count("\n"))
    assert problem in done.err


def test_names_behind_a_byte_order_mark(command: Command, tmp_path: Path) -> None:
    """A byte order mark is no part of the first table's name."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbfa\n1\n1\n")

    assert "a" == locality(command, path)["tables"][0]["name"]


def test_columns_of_parquet(command: Command, tmp_path: Path) -> None:
    """Lists of one length are bags, lists that are null are empty, and rows are not."""
    arrow, parquet = pytest.importorskip("pyarrow"), import_module("pyarrow.parquet")
    pair = arrow.list_(arrow.int64(), 2)
    columns = {
        "pairs": arrow.array([[1, 2], None, [2, 4]], pair),
        "lists": arrow.array([[1], None, [2, 4]]),
    }
    path, holes = tmp_path / "t.parquet", tmp_path / "holes.parquet"
    parquet.write_table(arrow.table(columns), path)
    parquet.write_table(arrow.table({"t": arrow.array([1, None])}), holes)

    found = locality(command, path, "--no-fit")["tables"]

    assert [("pairs", 4, 3), ("lists", 3, 3)] == [
        (table["name"], table["lookups"], table["samples"]) for table in found
    ]
    assert "'t' has no value 1 times" in command("locality", str(holes)).err


def test_truncated_archive(command: Command, tmp_path: Path) -> None:
    """An archive that was cut off is refused in one line."""
    path = written(tmp_path, "npz-lengths")
    path.write_bytes(path.read_bytes()[:3000])

    done = command("locality", str(path))

    assert (1, 1) == (done.code, done.err.count("\n"))


def test_folders_and_missing_files(command: Command, tmp_path: Path) -> None:
    """Neither a folder nor a file that is not there is a trace."""
    folder = tmp_path / "a.npz"
    folder.mkdir()

    assert "a folder" in command("locality", str(folder)).err
    assert "no such file" in command("locality", str(tmp_path / "b.npz")).err


@pytest.mark.parametrize("hits", ["", "0", "101", "x", "50,", "nan"])
def test_percentages(command: Command, tmp_path: Path, hits: str) -> None:
    """Hits are percentages above 0, up to 100."""
    done = command("locality", str(tmp_path / "b.npz"), "--hits", hits)

    assert 2 == done.code
    assert "expected percentages" in done.err
