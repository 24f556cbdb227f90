"""`perfc calibrate` as it is typed."""

from __future__ import annotations

import csv
from pathlib import Path

import attrs
import pytest
from tests.fitting.rows import gemms, noisy
from tests.tools.command import SMALL, Command

from perfc.measurements import MEASUREMENTS, write_rows

_NAMES = [column.name for column in MEASUREMENTS.columns]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Rows of a V100 that takes twice as long as perfc says."""
    path = tmp_path / "rows.csv"
    law = noisy(lambda _, seconds: 2 * seconds)
    write_rows(path, gemms("v100", law), MEASUREMENTS)
    return path


def test_a_table_becomes_a_profile(
    command: Command, table: Path, tmp_path: Path
) -> None:
    """The errors before and after are printed, and the profile is a target."""
    output = tmp_path / "mine.toml"
    result = command("calibrate", "--from", str(table), "-o", str(output))

    assert 0 == result.code
    assert "v100-sxm2-16g: errors on rows that were not fitted" in result.out
    assert "gemm fp32" in result.out
    assert "calibrate" in output.read_text(encoding="utf-8")
    analyzed = command(
        "analyze", "dlrm-default:tables=2", "--batch", "64", "--target", str(output)
    )
    assert 0 == analyzed.code
    assert "v100-sxm2-16g" in analyzed.out


def test_rows_may_call_a_target_by_any_of_its_names(
    command: Command, tmp_path: Path
) -> None:
    """An alias makes the same profile as the name, and both are one machine."""
    law = noisy(lambda _, seconds: 2 * seconds)
    rows = gemms("v100", law)
    aliases = ("v100", "V100", "v100-sxm2")
    renamed = [
        attrs.evolve(row, target=aliases[number % 3]) for number, row in enumerate(rows)
    ]
    outputs = []
    for folder, said in (("name", rows), ("alias", renamed)):
        (tmp_path / folder).mkdir()
        path, output = tmp_path / folder / "rows.csv", tmp_path / folder / "mine.toml"
        write_rows(path, said, MEASUREMENTS)
        result = command("calibrate", "--from", str(path), "-o", str(output))
        assert 0 == result.code
        outputs.append((result.out, output.read_text(encoding="utf-8")))

    assert outputs[0] == outputs[1]


def test_a_model_of_measured_kernels_is_measured(
    command: Command, tmp_path: Path
) -> None:
    """The report says how much of the device's time was measured, and of which op.

    On a machine that `--set` describes nothing was, which is said.
    """
    rows, output = tmp_path / "rows.csv", tmp_path / "mine.toml"
    layers = [(128, 128), (512, 131), (512, 512), (256, 512), (1, 256)]
    first = gemms("v100", lambda _, seconds: seconds)[0]
    first = attrs.evolve(first, latency_us=100.0, split="fit")
    linear = first.params.updated(m=64, layout="nt", bias=True)
    of_layers = [
        attrs.evolve(first, params=linear.updated(n=n, k=k)) for n, k in layers
    ]
    write_rows(rows, of_layers, MEASUREMENTS)
    made = command("calibrate", "--from", str(rows), "-o", str(output))
    assert "measured: 5 kernels that no model prices any more" in made.out
    arguments = ("analyze", *SMALL, "--target", str(output), "--format", "json")
    report = command(*arguments).report
    other = command(*arguments, "--set", "gpu.sm_clock_mhz=1000").report

    found = [n for n in report["nodes"] if n["provenance"] == "measured"]
    assert {"measured"} == {node["cost_model"] for node in found}
    assert pytest.approx(100.0) in [node["duration_us"] for node in found]
    # Of two GEMMs the parts are joined by kernels that the rows include.
    assert 780 < report["coverage"]["time_by_provenance"]["measured"] < 800
    assert "measured" not in other["coverage"]["time_by_provenance"]
    assert "measured-unused" in {each["code"] for each in other["diagnostics"]}


def test_malformed_rows_are_left_out_by_reason(
    command: Command, table: Path, tmp_path: Path
) -> None:
    """As `validate` skips them: the profile is that of the other rows."""
    alone, among = tmp_path / "a" / "mine.toml", tmp_path / "b" / "mine.toml"
    for output in (alone, among):
        output.parent.mkdir()
    command("calibrate", "--from", str(table), "-o", str(alone))
    line = table.read_text(encoding="utf-8").splitlines()[1]
    damaged = tmp_path / "damaged.csv"
    text = table.read_text(encoding="utf-8")
    damaged.write_text(text + _without_time(line) * 2, encoding="utf-8")

    result = command("calibrate", "--from", str(damaged), "-o", str(among))

    assert 0 == result.code
    assert "left out: 2 rows, latency_us is not a number not below 0" in result.out
    assert alone.read_text(encoding="utf-8") == among.read_text(encoding="utf-8")


def test_a_table_of_malformed_rows_fits_nothing(
    command: Command, table: Path, tmp_path: Path
) -> None:
    """The error says what is wrong with how many."""
    header, line, *_ = table.read_text(encoding="utf-8").splitlines()
    table.write_text(f"{header}\n{_without_time(line) * 3}", encoding="utf-8")

    result = command("calibrate", "--from", str(table), "-o", str(tmp_path / "p.toml"))

    assert 1 == result.code
    assert (
        "perfc: error: no row to fit: 3 rows, latency_us is not a number not below 0\n"
        == result.err
    )


def _without_time(line: str) -> str:
    """Return a row of CSV whose time is a word."""
    time = csv.DictReader([",".join(_NAMES), line]).__next__()["latency_us"]
    assert 1 == line.count(f",{time},")
    return line.replace(f",{time},", ",abc,") + "\n"


def test_rows_of_a_throttling_device_are_left_out(
    command: Command, tmp_path: Path
) -> None:
    """How many is said; what they took changes nothing."""
    path, output = tmp_path / "rows.csv", tmp_path / "mine.toml"
    rows = gemms("v100", noisy(lambda _, seconds: 2 * seconds))
    slow = [
        attrs.evolve(row, latency_us=9 * row.latency_us, throttled=True) for row in rows
    ]
    printed: list[list[str]] = []
    for those in (rows, rows + slow):
        write_rows(path, those, MEASUREMENTS)
        done = command("calibrate", "--from", str(path), "-o", str(output))
        assert 0 == done.code
        printed.append(done.out.splitlines())

    assert [*printed[0], f"left out: {len(slow)} rows, throttled"] == printed[1]


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        (("--device", "cpu"), 1, "--device cpu: the rows are of v100-sxm2-16g"),
        (("--rows", "kept.csv"), 2, "--rows is of what is measured"),
        (("--seed", "7"), 2, "--seed is of what is measured"),
        (("-o", "mine.txt"), 2, "expected a name that ends in .toml"),
        (("--from", "none.csv"), 1, "cannot read none.csv"),
        (("--minutes", "0"), 2, "--minutes"),
    ],
)
def test_what_cannot_be_is_said(
    command: Command, table: Path, options: tuple[str, ...], code: int, expected: str
) -> None:
    """One line, the right code, and no profile."""
    output = table.with_name("mine.toml")
    result = command("calibrate", "--from", str(table), "-o", str(output), *options)

    assert code == result.code
    assert expected in result.err
    assert not output.exists()


@pytest.mark.parametrize("scale", [1e-6, 1e12])
def test_no_profile_is_written_that_could_not_be_read(
    command: Command, tmp_path: Path, scale: float
) -> None:
    """Rows in another unit are refused in one line; nothing is written."""
    rows, output = tmp_path / "rows.csv", tmp_path / "mine.toml"
    law = noisy(lambda _, seconds: scale * seconds)
    write_rows(rows, gemms("v100", law), MEASUREMENTS)

    result = command("calibrate", "--from", str(rows), "-o", str(output))

    assert 1 == result.code
    assert result.error.startswith("what was measured makes no profile: ")
    assert result.error.endswith("microseconds, and of this device?")
    assert not output.exists()


def test_a_profile_of_kernels_alone_leaves_the_host_as_it_was(
    command: Command, table: Path, tmp_path: Path
) -> None:
    """The report names both: what was measured, and whose host it is."""
    output = tmp_path / "mine.toml"
    command("calibrate", "--from", str(table), "-o", str(output))
    asked = ("analyze", *SMALL, "--target", str(output))

    target = command(*asked, "--format", "json").report["target"]

    assert ("mine", "server-2017") == (target["calibration"], target["profile"])
    title = " ".join(command(*asked).out.split("\n\n")[0].split())
    assert title.endswith("host profile server-2017 · calibrated by mine")


def test_minutes_are_a_number(command: Command, tmp_path: Path) -> None:
    """NaN is compared with no limit, so it would never be over."""
    result = command("calibrate", "--minutes", "nan", "-o", str(tmp_path / "a.toml"))

    assert 2 == result.code
    assert "'--minutes': nan is not a number" in result.error
