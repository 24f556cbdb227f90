"""Power modes of a board, and a GPU whose memory is the host's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

import perfc
from perfc.costmodels import load_target
from perfc.costmodels.machine import TargetError
from perfc.costmodels.sheets import describe_modes
from perfc.ir import UsageError

BOARDS = ("jetson-tx2", "jetson-xavier", "jetson-orin")
SHEETS = Path(__file__).parents[3] / "costmodels" / "targets"


def _modes(board: str) -> list[str]:
    return list(dict.fromkeys(row[0].split(".")[1] for row in describe_modes(board)))


@pytest.mark.parametrize("board", BOARDS)
def test_without_a_mode_a_board_has_no_limit(board: str) -> None:
    """Its first mode is how its sheet has it, and no other mode is faster."""
    free, first, *others = (
        load_target(board, {"power.mode": mode} if mode else {})
        for mode in ("", *_modes(board))
    )

    assert free.device == first.device
    assert free.host == first.host
    for other in others:
        assert other.device.sm_clock_hz < free.device.sm_clock_hz
        assert other.device.memory.bytes_per_s <= free.device.memory.bytes_per_s
        assert (other.host.speed or 0) <= (free.host.speed or 0)


def test_what_a_mode_sets() -> None:
    """Rates follow the clock; what is set by hand wins against the mode."""
    free, saving = (
        load_target("jetson-xavier", {"power.mode": mode}) for mode in ("maxn", "10w")
    )
    chosen = load_target(
        "jetson-xavier", {"power.mode": "10w", "gpu.sm_clock_mhz": "700"}
    )

    assert (520e6, 4, 68.2e9) == (
        saving.device.sm_clock_hz,
        saving.device.sm_count,
        saving.device.memory.bytes_per_s,
    )
    assert 10 == saving.watts
    slower = 520 / 1377 * 4 / 8
    assert saving.device.peak("fp32") == pytest.approx(
        slower * free.device.peak("fp32")
    )
    assert attrs.evolve(chosen.device.memory) == saving.device.memory
    assert 700e6 == chosen.device.sm_clock_hz


@pytest.mark.parametrize("board", BOARDS)
def test_a_mode_is_a_time(board: str) -> None:
    """A step takes no shorter in a slower mode."""
    model = perfc.load("resnet18:image=64", batch=8)
    free, *slower = (
        perfc.analyze(model, board, overrides={"power.mode": mode}).time_us
        for mode in _modes(board)
    )

    assert all(free < time for time in slower)


@pytest.mark.parametrize(
    ("board", "message"),
    [
        ("jetson-tx2", "slow: no power mode of jetson-tx2; it has max-n, max-q, max-p"),
        ("t4", "slow: no power mode of t4; it has no power modes"),
    ],
)
def test_a_mode_that_a_board_has_not(board: str, message: str) -> None:
    """One line names the modes that there are."""
    with pytest.raises(UsageError, match=message):
        load_target(board, {"power.mode": "slow"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[modes.x]\nsm_clok_mhz = 3", r"modes\.x\.sm_clok_mhz: .*did you mean sm_clo"),
        ("[modes.x]\nsm_clock_mhz = 3", r"modes\.x\.sm_clock_mhz: expected \{ value"),
        (
            '[modes.x]\nsm_clock_mhz = { value = 3, source = "module" }',
            r"modes\.x\.sm_clock_mhz: expected a number from 50 to 10000 MHz",
        ),
        (
            '[modes.x]\nsm_clock_mhz = { value = 500, source = "nobody" }',
            r"modes\.x\.sm_clock_mhz\.source: expected an id of \[sources\]",
        ),
        ("[modes]\nx = 3", r"modes\.x: expected a table"),
    ],
)
def test_a_mode_that_cannot_be(tmp_path: Path, text: str, message: str) -> None:
    """The linter names the field."""
    sheet = (SHEETS / "jetson-tx2.toml").read_text("utf-8")
    head, sources = sheet.split("[modes.max-n]")[0], sheet.split("[sources]")[1]
    path = tmp_path / "mine.toml"
    path.write_text(f"{head}{text}\n[sources]{sources}", encoding="utf-8")

    with pytest.raises(TargetError, match=message):
        load_target(path)


@pytest.mark.parametrize("board", BOARDS)
def test_inputs_are_where_the_gpu_reads_them(board: str) -> None:
    """Nothing is copied, wherever inputs are said to be."""
    model = perfc.load("resnet18:image=64", batch=8)
    reports: list[Any] = [
        perfc.analyze(model, board, inputs=place)
        for place in ("host-pinned", "host-pageable", "device")
    ]

    assert 1 == len({report.time_us for report in reports})
    assert not [n for n in reports[0].nodes if "copy" in str(n["op"]).lower()]


def test_the_host_has_a_part_of_the_memory() -> None:
    """What a program may allocate is what the host leaves."""
    memory = load_target("jetson-tx2").device.memory

    assert memory.usable_bytes < 0.8 * memory.capacity_bytes
