"""`perfc validate` as it is typed."""

from __future__ import annotations

import math
from pathlib import Path

import attrs
import pytest
from tests.measurements.rows import measured
from tests.tools.command import Command

from perfc.costmodels import cost_models, load_target, price
from perfc.measurements import (
    MEASUREMENTS,
    Measurement,
    kernel_of,
    split_of,
    write_rows,
)

FIELDS = (
    *("target", "op", "dtype", "timing", "rows", "skipped", "skipped_reasons"),
    *("mape", "gmae", "geomean_ape", "p50", "p90", "p95", "max", "bias"),
    *("coverage90", "width90"),
)


def _row(target: str, op: str = "softmax", *, factor: float = 1.0) -> Measurement:
    """Return a row that took *factor* of what perfc says of the kernel alone."""
    row = measured(op, rows=4096, cols=1024) if op == "softmax" else measured(op)
    row = attrs.evolve(row, target=target, timing="kernel", source="perfc measure")
    if op != "softmax":
        return row
    (seconds,) = price([kernel_of(row)], load_target(target), cost_models()).seconds
    return attrs.evolve(row, latency_us=float(seconds) * 1e6 * factor)


def _table(path: Path, *rows: Measurement) -> str:
    write_rows(path, rows, MEASUREMENTS)
    return str(path)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_errors_of_a_group(command: Command, tmp_path: Path, suffix: str) -> None:
    """The figures are those of predictions that are 25 % high and 20 % low."""
    rows = [_row("v100", factor=0.8), _row("v100", factor=1.25)]
    table = _table(tmp_path / f"rows{suffix}", *rows)

    (group,) = command("validate", table, "--format", "json").report["groups"]

    assert set(FIELDS) == set(group)
    assert ("v100", "softmax", "fp32", "kernel", 2) == tuple(
        group[name] for name in FIELDS[:5]
    )
    assert {
        "mape": 0.225,
        "gmae": 0.25,
        "geomean_ape": math.sqrt(0.25 * 0.2),
        "p50": 0.225,
        "max": 0.25,
        "bias": 0.025,
    } == pytest.approx({name: group[name] for name in _NUMBERS})
    assert 0.2 < group["p90"] < group["p95"] < 0.25


_NUMBERS = ("mape", "gmae", "geomean_ape", "p50", "max", "bias")


def test_an_exact_prediction_has_a_geometric_mean(
    command: Command, tmp_path: Path
) -> None:
    """An error of zero counts as 0.1 %."""
    table = _table(tmp_path / "rows.csv", _row("v100"))

    (group,) = command("validate", table, "--format", "json").report["groups"]

    assert 0.001 == pytest.approx(group["geomean_ape"])
    assert 1.0 == group["coverage90"]


def test_rows_outside_of_the_interval_are_counted(
    command: Command, tmp_path: Path
) -> None:
    """A row of a hundredth of the predicted time is not inside."""
    table = _table(tmp_path / "rows.csv", _row("v100"), _row("v100", factor=0.01))

    (group,) = command("validate", table, "--format", "json").report["groups"]

    assert 0.5 == group["coverage90"]
    assert 0 < group["width90"] < 4


def test_what_is_unknown_is_skipped_and_named(command: Command, tmp_path: Path) -> None:
    """What perfc cannot price has a reason each; metrics of no rows are null."""
    rows = [
        _row("v100"),
        attrs.evolve(_row("v100"), target="abacus"),
        _row("v100", "juggle"),
        attrs.evolve(_row("v100"), dtype="fp3"),
        attrs.evolve(_row("v100"), latency_us=0.0),
        attrs.evolve(measured("gemm", "bf16", b=1, m=8, n=8, k=8), target="v100"),
        attrs.evolve(measured("softmax", rows=4), target="v100", timing="kernel"),
        attrs.evolve(measured("all_reduce", bytes=8), target="v100", timing="nccl"),
    ]
    table = _table(tmp_path / "rows.csv", *rows)

    outcome = command("validate", table, "--format", "json")
    groups = outcome.report["groups"]

    assert 0 == outcome.code
    assert (1, 7) == (
        sum(group["rows"] for group in groups),
        sum(group["skipped"] for group in groups),
    )
    reasons = {reason for group in groups for reason in group["skipped_reasons"]}
    assert {
        "unknown target abacus",
        "unknown op juggle",
        "unknown dtype fp3",
        "took no time",
        "v100-sxm2-16g has no bf16",
        "kernel 'softmax' lacks cols",
        "kernel 'all_reduce' lacks ranks",
    } == {reason.partition(";")[0] for reason in reasons}
    (unknown,) = [group for group in groups if group["op"] == "juggle"]
    assert [None] * 10 == [unknown[name] for name in FIELDS[7:]]


_SIZES = '"{""rows"": 64, ""cols"": 64}"'
_BAG = (
    '"{""batch"": 8, ""tables"": [{""rows"": 9, ""dim"": 8, ""pooling"": 2}], '
    '""popularity"": ""%s"", ""phase"": ""%s""}"'
)


_RANKS = '"{""bytes"": 1024, ""ranks"": %s, ""nodes"": %s}"'


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (f"softmax,fp32,{_SIZES},much,graph", "latency_us is no time"),
        (f"softmax,fp32,{_SIZES},nan,graph", "latency_us is no time"),
        (f"softmax,fp32,{_SIZES},-1,graph", "latency_us is no time"),
        (f"softmax,fp32,{_SIZES},,graph", "latency_us is no time"),
        (f"softmax,fp32,{_SIZES},1,dreamt", "unknown timing dreamt"),
        ('softmax,fp32,"{",1,graph', "params is '{', expected a JSON object"),
        ("softmax,fp32,[],1,graph", "params is '[]', expected a JSON object"),
        (
            f"embedding_bag,fp32,{_BAG % ('odd', 'forward')},1,graph",
            "'odd' is no popularity",
        ),
        (
            f"embedding_bag,fp32,{_BAG % ('zipf', 'later')},1,graph",
            'phase is "later", expected one of forward, backward, ',
        ),
        *(
            (
                f"all_reduce,fp32,{_RANKS % counts},1,nccl",
                "ranks is {}, nodes is {}: expected as many ranks".format(*counts),
            )
            for counts in ((16, 3), (16, 0), (0, 1), (2, 4))
        ),
    ],
)
def test_a_row_that_is_none_is_skipped(
    command: Command, tmp_path: Path, row: str, reason: str
) -> None:
    """One bad row has its reason; those around it are scored as without it."""
    good = f"v100,softmax,fp32,{_SIZES},5,graph,s,\n"
    table = _write(tmp_path / "rows.csv", f"{_HEAD}{good}v100,{row},s,\n{good}")

    outcome = command("validate", table, "--format", "json")
    groups = outcome.report["groups"]

    assert 0 == outcome.code
    assert (2, 1) == (
        sum(group["rows"] for group in groups),
        sum(group["skipped"] for group in groups),
    )
    (found,) = [name for group in groups for name in group["skipped_reasons"]]
    assert reason in found


def test_parquet_of_another_program(command: Command, tmp_path: Path) -> None:
    """Times that are missing are skipped; whole numbers may be written as 64.0."""
    pandas = pytest.importorskip("pandas")
    sizes = '{"rows": 64.0, "cols": 64.0}'
    row = dict(
        zip(
            _HEAD.strip().split(","),
            ["v100", "softmax", "fp32", sizes, 5.0, "graph", "s", ""],
            strict=True,
        )
    )
    table = pandas.DataFrame([row, {**row, "latency_us": None}, {**row, "dtype": None}])
    table.to_parquet(tmp_path / "rows.parquet")

    groups = command(
        "validate", str(tmp_path / "rows.parquet"), "--format", "json"
    ).report["groups"]

    assert {"latency_us is no time": 1, "unknown dtype ": 1} == {
        reason: count for g in groups for reason, count in g["skipped_reasons"].items()
    }
    assert 1 == sum(group["rows"] for group in groups)


def test_columns_of_structures(command: Command, tmp_path: Path) -> None:
    """A column of records is refused in one line."""
    pandas = pytest.importorskip("pandas")
    row = dict.fromkeys(_HEAD.strip().split(","), "x")
    table = pandas.DataFrame([{**row, "latency_us": 1.0, "params": {"rows": 4}}])
    table.to_parquet(tmp_path / "rows.parquet")

    error = command.refused(["validate", str(tmp_path / "rows.parquet")], 1)

    assert "column params is struct<rows: int64>, expected a JSON object" in error


def test_strict(command: Command, tmp_path: Path) -> None:
    """Exit code 4 if a row was skipped, 0 if none was."""
    whole = _table(tmp_path / "whole.csv", _row("v100"))
    part = _table(tmp_path / "part.csv", _row("v100"), _row("v100", "juggle"))

    codes = [command("validate", name, "--strict").code for name in (whole, part)]

    assert [0, 4] == codes


def test_tables_know_nothing_of_each_other(command: Command, tmp_path: Path) -> None:
    """Rows of several tables are scored as those of one that has them all."""
    rows = [_row("v100", factor=0.5), _row("t4"), _row("v100", factor=0.9)]
    whole = _table(tmp_path / "whole.csv", *rows)
    parts = [_table(tmp_path / f"{number}.csv", row) for number, row in enumerate(rows)]

    assert command("validate", whole).out == command("validate", *parts).out


def test_one_target(command: Command, tmp_path: Path) -> None:
    """`--target` leaves the rows of others out, and knows aliases."""
    table = _table(tmp_path / "rows.csv", _row("v100"), _row("t4"))

    outcome = command("validate", table, "--target", "v100-16g", "--format", "json")

    assert ["v100"] == [group["target"] for group in outcome.report["groups"]]


def test_a_profile_is_scored(command: Command, tmp_path: Path) -> None:
    """`--target FILE.toml` prices held-out rows with what was calibrated.

    Those whose kernels are in it are not compared with themselves: they are counted.
    """
    law = [attrs.evolve(row, latency_us=latency) for row, latency in _twice_as_long()]
    table = _table(tmp_path / "rows.csv", *law)
    profile = str(tmp_path / "mine.toml")
    command("calibrate", "--from", table, "-o", profile)

    before, after = (
        command("validate", table, "--target", name, "--format", "json").report
        for name in ("v100", profile)
    )

    assert 0.5 == pytest.approx(before["groups"][0]["mape"], rel=0.01)
    (group,) = after["groups"]
    assert group["mape"] < 0.06
    held = sum(split_of(row.op, row.params) == "fit" for row in law)
    assert {"measured: in the profile's own table": held} == group["skipped_reasons"]
    assert len(law) - held == group["rows"]
    assert 0 == command("validate", table, "--target", profile, "--strict").code


def _twice_as_long() -> list[tuple[Measurement, float]]:
    sizes = [(rows, cols) for rows in (512, 4096, 65536) for cols in (64, 512, 900)]
    rows = [
        attrs.evolve(
            measured("softmax", rows=r, cols=c),
            target="v100-sxm2-16g",
            timing="kernel",
            source="perfc measure",
        )
        for r, c in sizes
    ]
    kernels = [kernel_of(row) for row in rows]
    seconds = price(kernels, load_target("v100-sxm2-16g"), cost_models()).seconds
    return list(zip(rows, (2e6 * seconds).tolist(), strict=True))


def test_text(command: Command, tmp_path: Path) -> None:
    """A line a group, and below it what was skipped."""
    table = _table(tmp_path / "rows.csv", _row("v100"), _row("v100", "juggle"))

    lines = command("validate", table).out.splitlines()

    assert ["target", "op", "dtype", "timing", "rows", "skipped"] == lines[0].split()[
        :6
    ]
    assert ["v100", "juggle", "fp32", "kernel", "0", "1"] == lines[1].split()[:6]
    assert ["v100", "softmax", "fp32", "kernel", "1", "0", "0.0%"] == (
        lines[2].split()[:7]
    )
    assert ["skipped 1 rows:", "  1  unknown op juggle"] == lines[3:]


def _write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


_HEAD = "target,op,dtype,params,latency_us,timing,source,kernel\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column target"),
        ("a,b\n1,2\n", "no column target, op"),
        (_HEAD, "no rows"),
        (_HEAD + "v100,softmax,fp32,{},1\n", "row 1: 5 cells, expected 8"),
    ],
)
def test_tables_that_are_none(
    command: Command, tmp_path: Path, text: str, message: str
) -> None:
    """The error names the file and what is wrong with it."""
    table = _write(tmp_path / "rows.csv", text)

    error = command.refused(["validate", table], 1)

    assert error.startswith(table)
    assert message in error


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none.csv"], 1, "cannot read none.csv"),
        (["rows.txt"], 2, "expected a name that ends in .parquet or .csv"),
        ([], 2, "TABLE"),
        (["none.csv", "--format", "xml"], 2, "xml"),
    ],
)
def test_what_cannot_be_is_said(
    command: Command, arguments: list[str], code: int, message: str
) -> None:
    """One line and the right code."""
    assert message in command.refused(["validate", *arguments], code)


def test_no_row_of_the_target(command: Command, tmp_path: Path) -> None:
    """The error says whose rows there are; an unknown target is a usage error."""
    table = _table(tmp_path / "rows.csv", _row("v100"))

    of_t4 = command.refused(["validate", table, "--target", "t4"], 1)
    of_none = command.refused(["validate", table, "--target", "abacus"], 2)

    assert "no row of target t4; the rows are of v100" == of_t4
    assert "unknown target abacus" in of_none


def test_a_parquet_file_that_is_none(command: Command, tmp_path: Path) -> None:
    """Damaged bytes are one clear line."""
    table = _write(tmp_path / "rows.parquet", "PAR1 or not")

    assert "cannot be read as a Parquet file" in command.refused(["validate", table], 1)


def test_rows_of_others_are_warm(command: Command, tmp_path: Path) -> None:
    """A kernel that is repeated on the same operands finds them in L2, perfc's own not.

    The softmax of 16 MB is too large to stay beside five others in 96 MB of L2.
    """
    cold = _row("l40s")
    warm = attrs.evolve(cold, source="a benchmark that repeats")
    tables = [
        _table(tmp_path / f"{name}.csv", row)
        for name, row in (("cold", cold), ("warm", warm))
    ]

    of_cold, of_warm = (
        command("validate", table, "--format", "json").report["groups"][0]["bias"]
        for table in tables
    )

    assert 0 == pytest.approx(of_cold)
    assert of_warm < -0.1


def test_a_table_lists_some_of_many_reasons(command: Command, tmp_path: Path) -> None:
    """What was skipped for reasons of its own is counted together, and all in JSON."""
    rows = [measured("softmax", rows=-n, cols=8) for n in range(1, 51)]
    table = _table(tmp_path / "rows.csv", *rows)

    listed = command("validate", table).out.splitlines()
    (group,) = command("validate", table, "--format", "json").report["groups"]

    assert "  30  for 30 more reasons, which --format json tells" == listed[-1]
    assert 50 == len(group["skipped_reasons"])
