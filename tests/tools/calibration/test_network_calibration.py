"""`perfc calibrate --from` tables of whole networks: a board that perfc never saw."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.tools.command import Command

import perfc
from perfc.ir import PerfcError, Record
from perfc.measurements import TEST, WORKLOADS, WorkloadMeasurement, write_rows
from perfc.tools.calibration import calibrate_networks

BOARD = "jetson-tx2"
SLOWER = {"gpu.memory_gb_per_s": "40", "gpu.rates_tflops.fp32": "0.5"}
HEAD = "target,model,params,mode,runtime,dtype,batch,time_us,peak_memory_bytes,source"
LIBRARIES = 300 * 2**20


def _measured(chance: random.Random, network: str, prune: float) -> WorkloadMeasurement:
    """Return a row of a board that is slower than its sheet, with noise of 4 %."""
    report = _report(network, prune, BOARD, overrides=SLOWER)
    return WorkloadMeasurement(
        target=BOARD,
        model=network,
        params=Record({"image": 96, "prune": prune}),
        mode="training",
        runtime="eager",
        dtype="fp32",
        batch=16,
        time_us=report.time_us * chance.lognormvariate(0, 0.04),
        peak_memory_bytes=report.memory["peak_bytes"] + LIBRARIES,
        source="a slower board",
        split=TEST if round(prune * 10) % 2 else "",
    )


def _report(
    network: str, prune: float, target: str, batch: int = 16, **options: Any
) -> Any:
    model = perfc.load(f"{network}:image=96", batch=batch, mode="training", prune=prune)
    return perfc.analyze(model, target, **options)


@pytest.fixture(scope="module")
def rows() -> Sequence[WorkloadMeasurement]:
    """Return rows of three networks at eight levels; every second is for testing."""
    chance = random.Random(1)
    return [
        _measured(chance, network, level / 10)
        for network in ("resnet18", "mobilenet-v2", "squeezenet")
        for level in range(8)
    ]


@pytest.fixture(name="command")
def _command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_half_of_the_levels_tell_the_others(
    tmp_path: Path, rows: Sequence[WorkloadMeasurement], command: Command
) -> None:
    """Times of levels that were not fitted are within 9 % on average, memory 5 %."""
    table, profile = tmp_path / "nets.parquet", tmp_path / "board.toml"
    write_rows(table, rows, WORKLOADS)
    outcome = command("calibrate", "--from", str(table), "-o", str(profile))
    held = [row for row in rows if row.split == TEST]
    off: dict[str, list[float]] = {"time": [], "memory": [], "before": []}
    for row in held:
        prune = float(row.params["prune"])  # type: ignore[arg-type]  # a number
        told = _report(row.model, prune, str(profile))
        off["time"].append(abs(told.time_us / row.time_us - 1))
        off["memory"].append(
            abs(told.memory["peak_bytes"] / (row.peak_memory_bytes or 1) - 1)
        )
        before = _report(row.model, prune, BOARD).time_us
        off["before"].append(abs(before / row.time_us - 1))
    mean = {name: sum(values) / len(values) for name, values in off.items()}

    assert 0 == outcome.code
    assert "12 measured networks" in outcome.out
    assert "gpu.library_mib = 300" in outcome.out
    assert mean["time"] < 0.09 < mean["before"]
    assert mean["memory"] < 0.05


def test_a_host_that_is_slower_is_found(tmp_path: Path, command: Command) -> None:
    """Few images wait for the host, many for kernels: what says how fast both are."""
    slower = {**SLOWER, "host.speed": "0.2"}
    fitted: list[WorkloadMeasurement] = []
    held: list[tuple[str, float, int, float]] = []
    for level in range(4):
        for network in ("resnet18", "squeezenet"):
            for batch in (1, 16):
                report = _report(network, level / 5, BOARD, batch, overrides=slower)
                setting = network, level / 5, batch, report.time_us
                if level % 2:
                    held.append(setting)
                else:
                    fitted.append(_row(*setting))
    table, profile = tmp_path / "nets.parquet", tmp_path / "board.toml"
    write_rows(table, fitted, WORKLOADS)

    outcome = command("calibrate", "--from", str(table), "-o", str(profile))

    assert 0 == outcome.code
    speed = float(outcome.out.partition("host.speed = ")[2])
    assert speed == pytest.approx(0.2, rel=0.2)
    off = [
        abs(_report(network, prune, str(profile), batch).time_us / time_us - 1)
        for network, prune, batch, time_us in held
    ]
    assert sum(off) / len(off) < 0.09


def _row(network: str, prune: float, batch: int, time_us: float) -> WorkloadMeasurement:
    return WorkloadMeasurement(
        target=BOARD,
        model=network,
        params=Record({"image": 96, "prune": prune}),
        mode="training",
        runtime="eager",
        dtype="fp32",
        batch=batch,
        time_us=time_us,
        source="a board with a slower host",
    )


def test_what_was_right_stays(rows: Sequence[WorkloadMeasurement]) -> None:
    """Rows that are as predicted leave every factor at 1, and no memory aside."""
    exact: list[WorkloadMeasurement] = []
    for row in rows[:4]:
        prune = float(row.params["prune"])  # type: ignore[arg-type]  # a number
        report = _report(row.model, prune, BOARD)
        peak = report.memory["peak_bytes"]
        exact.append(
            attrs.evolve(
                row, time_us=report.time_us, peak_memory_bytes=peak, split="fit"
            )
        )
    found = calibrate_networks(exact)

    assert {} == found.fields
    assert [1.0] * len(found.fits) == pytest.approx(
        [fit.values["scale"] for fit in found.fits], rel=1e-6
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": TEST}, "0 measured networks to fit: expected 2 or more"),
        ({"target": "t4"}, "expected rows of one target, found of jetson-tx2, t4"),
        ({"model": "resnet19"}, "measured network resnet19"),
        ({"params": Record({"prune": 1.0})}, "expected a share of 0 or more, below 1"),
    ],
)
def test_rows_that_tell_nothing(
    rows: Sequence[WorkloadMeasurement], change: dict[str, Any], message: str
) -> None:
    """Each is one line."""
    changed = attrs.evolve(rows[0], **change)
    others = [changed] if "split" in change else [changed, rows[2]]

    with pytest.raises(PerfcError, match=message):
        calibrate_networks(others)


def test_one_row(
    tmp_path: Path, rows: Sequence[WorkloadMeasurement], command: Command
) -> None:
    """It is refused, and nothing is written."""
    table, profile = tmp_path / "nets.csv", tmp_path / "board.toml"
    write_rows(table, rows[:1], WORKLOADS)
    outcome = command("calibrate", "--from", str(table), "-o", str(profile))

    assert 1 == outcome.code
    assert "1 measured networks to fit: expected 2 or more" in outcome.error
    assert not profile.exists()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("jetson-tx2,resnet19,{}", "measured network resnet19"),
        ('jetson-tx2,resnet18,"{""prune"": 1}"', "expected a share of 0 or more"),
        ('jetson-tx2,resnet18,"{""cut"": 1}"', "cut"),
        ("jetson-tx9,resnet18,{}", "jetson-tx9"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    tmp_path: Path, command: Command, line: str, problem: str
) -> None:
    """As typed: the network or board that there is not, and no file is written."""
    table, profile = tmp_path / "nets.csv", tmp_path / "board.toml"
    rest = "training,eager,fp32,8,90000,5e8,made up"
    lines = [f"jetson-tx2,squeezenet,{{}},{rest.format(n, n * 2e4)}" for n in (4, 8)]
    table.write_text("\n".join([HEAD, *lines, ""]), encoding="utf-8")

    outcome = command("calibrate", "--from", str(table), "-o", str(profile))

    assert 0 == outcome.code
    assert profile.exists()


def test_networks_beside_other_tables(
    tmp_path: Path, rows: Sequence[WorkloadMeasurement], command: Command
) -> None:
    """One kind at a time."""
    table, log = tmp_path / "nets.csv", tmp_path / "all_reduce.log"
    write_rows(table, rows[:2], WORKLOADS)
    log.write_text("# nThread 1", encoding="utf-8")
    words = ("--from", str(table), "--from", str(log), "-o", str(tmp_path / "b.toml"))

    outcome = command("calibrate", *words)

    assert 2 == outcome.code
    assert "whole networks and other tables at once" in outcome.error
