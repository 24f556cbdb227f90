"""Clocks and throttling, where somebody tells: NVML, `nvidia-smi`, or nobody."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest
from tests.measure.test_design import GPU

from perfc.measure.clocks import Clock, ClockReader
from perfc.measure.device import open_device


class _NvmlError(Exception):
    """What NVML raises."""


@attrs.define
class _Nvml:
    """`pynvml`, of a driver that gives these reasons."""

    reasons: int
    NVMLError: type[Exception] = _NvmlError
    NVML_CLOCK_SM: int = 1

    def nvmlInit(self) -> None:  # noqa: N802 - its name
        """Do nothing."""

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        """Return the identity itself."""
        return uuid

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:  # noqa: N802
        """Return the clock of one GPU."""
        assert ("GPU-01234567-89ab", 1) == (handle, kind)
        return 1755

    def nvmlDeviceGetCurrentClocksThrottleReasons(  # noqa: N802
        self, handle: str
    ) -> int:
        """Return the reasons."""
        return self.reasons


class _NvmlOfAnOlderDriver(_Nvml):
    """`pynvml` that asks for more than the driver has."""

    def nvmlDeviceGetCurrentClocksEventReasons(  # noqa: N802
        self, handle: str
    ) -> int:
        """Refuse."""
        raise _NvmlError


@pytest.fixture
def uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a GPU have an identity, and nobody who tells of it."""
    properties = SimpleNamespace(uuid="01234567-89ab")

    def found(name: str) -> None:
        return None

    monkeypatch.setattr("perfc.measure.clocks.gpu_properties", lambda: properties)
    monkeypatch.setattr("shutil.which", found)


def test_a_cpu_tells_nothing() -> None:
    """No clock is no number, not zero."""
    assert Clock(None, None) == ClockReader(open_device("cpu")).read()


@pytest.mark.usefixtures("uuid")
@pytest.mark.parametrize(
    ("reasons", "throttled"),
    [(0x0, False), (0x1, False), (0x2, False), (0x4, True), (0x21, True), (0x80, True)],
)
def test_nvml(
    monkeypatch: pytest.MonkeyPatch, reasons: int, *, throttled: bool
) -> None:
    """Idle and chosen clocks are no throttling; power, heat and the board are."""
    monkeypatch.setitem(sys.modules, "pynvml", _Nvml(reasons))

    assert Clock(1755.0, throttled) == ClockReader(GPU).read()


@pytest.mark.usefixtures("uuid")
def test_nvml_of_an_older_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver does not know is left open; the rest is told."""
    monkeypatch.setitem(sys.modules, "pynvml", _NvmlOfAnOlderDriver(0))

    assert Clock(1755.0, None) == ClockReader(GPU).read()


@pytest.mark.usefixtures("uuid")
@pytest.mark.parametrize(
    ("answer", "clock"),
    [
        ('echo "1980, 0x0000000000000004"', Clock(1980.0, throttled=True)),
        (
            'case "$*" in *event*) exit 2;; esac; echo "1980, 0x0000000000000000"',
            Clock(1980.0, throttled=False),
        ),
        ('echo "[N/A], [N/A]"', Clock()),
        ("exit 9", Clock()),
    ],
    ids=["new", "old", "not told", "fails"],
)
def test_nvidia_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, clock: Clock
) -> None:
    """Without NVML the command is asked; what it does not tell is left open."""
    command = tmp_path / "nvidia-smi"
    command.write_text(f"#!/bin/sh\n{answer}\n")
    command.chmod(0o755)
    monkeypatch.setitem(sys.modules, "pynvml", None)

    def found(name: str) -> str:
        return str(command)

    monkeypatch.setattr("shutil.which", found)
    reader = ClockReader(GPU)

    assert clock == reader.read()
    assert clock == reader.read()
