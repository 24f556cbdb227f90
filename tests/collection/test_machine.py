"""What a manifest says of the machine, whatever the machine tells."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.collection.fake_nvml import UUID, NVMLError, fake_nvml, see_a_gpu

import perfc
from perfc.measure.device import Device, open_device

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
machine: Any = importlib.import_module("collection.machine")
nvml: Any = importlib.import_module("collection.nvml")

H100 = Device(
    kind="cuda",
    target="h100-sxm-80g",
    name="NVIDIA H100 80GB HBM3",
    driver="driver 580.95.05, runtime 13.0",
    dtypes=("fp32",),
    memory_bytes=80 << 30,
    cache_bytes=50 << 20,
)
SMI = f"""
==============NVSMI LOG==============

Timestamp                                 : Thu Nov 26 12:00:00 2026
Driver Version                            : 580.95.05

GPU 00000000:04:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Serial Number                         : 1652922012345
    GPU UUID                              : GPU-{UUID}
    GPU PDI                               : 0x9e1d0d2b4e1c8d3f
    Board ID                              : 0x400
    Platform Info
        Chassis Serial Number             : 1821023456
        GPU Fabric GUID                   : 0x1a2b3c4d5e6f7081
    Fabric
        ClusterUUID                       : 00000000-0000-0000-0000-000000000001
    GPU Power Readings
        Current Power Limit               : 700.00 W
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4242
            Name                          : /srv/somebody/python3
  an unusual line with {UUID.upper()} in it
"""


@pytest.fixture
def without_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no command be found."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("PERFC_COMMIT", raising=False)


def _command(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.usefixtures("without_commands")
def test_a_cpu_without_any_command(tmp_path: Path) -> None:
    """The host is described, the commit is unknown, and there is nothing of a GPU."""
    device = open_device("cpu")

    made = machine.describe(device, tmp_path)

    expected = {
        "schema": "perfc.collection/2",
        "target": "cpu",
        "device": device.name,
        "memory_bytes": None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "perfc": perfc.__version__,
        "perfc_commit": "unknown",
        "gpu": None,
        "nvidia_smi": "",
    }
    assert expected == {key: made[key] for key in expected}
    assert os.cpu_count() == made["host"]["cores"]
    assert f"{platform.system()} {platform.release()}" == made["host"]["kernel"]
    assert made["software"]["torch"].startswith(torch.__version__.partition("+")[0])
    assert made == json.loads(json.dumps(made))
    assert platform.node() not in json.dumps(made)


def test_an_unusual_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system has no file or function for is null."""

    def nothing(_: Path) -> str:
        return ""

    monkeypatch.setattr(machine, "_read", nothing)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)

    found = machine.host()

    names = ("usable_cores", "cpu_quota", "governor", "max_mhz", "memory_bytes")
    assert dict.fromkeys((*names, "virtualised")) == {
        name: found[name] for name in (*names, "virtualised")
    }


def test_a_gpu_that_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits are in watts, modes are true or false, what it does not know is null."""
    see_a_gpu(monkeypatch)
    library = fake_nvml(
        PowerManagementLimit=700_000,
        PowerManagementLimitConstraints=[200_000, 700_000],
        PersistenceMode=1,
        MigMode=[0, 1],
        EccMode=[1, 1],
        MaxClockInfo={1: 1980, 2: 2619}.get,
        ApplicationsClock=NVMLError("not supported"),
        MemoryInfo=NVMLError("lost"),
        CurrPcieLinkGeneration=5,
        CurrPcieLinkWidth=16,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)

    found = machine.gpu(nvml.open_nvml())

    expected = {
        "name": "NVIDIA H100 80GB HBM3",
        "capability": "9.0",
        "sms": 132,
        "l2_bytes": 50 << 20,
        "memory_bytes": 80 << 30,
        "nvml": True,
        "driver": "580.95.05",
        "vbios": None,
        "power_limit_watts": 700.0,
        "enforced_power_limit_watts": None,
        "default_power_limit_watts": None,
        "least_power_limit_watts": 200.0,
        "most_power_limit_watts": 700.0,
        "persistence_mode": True,
        "mig": False,
        "ecc": True,
        "max_sm_mhz": 1980,
        "max_memory_mhz": 2619,
        "application_sm_mhz": None,
        "application_memory_mhz": None,
        "board_memory_bytes": None,
        "pcie_generation": 5,
        "most_pcie_generation": None,
        "pcie_lanes": 16,
    }
    assert expected == found


@pytest.mark.usefixtures("without_commands")
def test_a_gpu_that_nobody_tells_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without NVML, `nvidia-smi` and an answer of the driver there are nulls."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "pynvml", None)

    made = machine.describe(H100, tmp_path)

    assert ({"name": None, "nvml": False}, "") == (made["gpu"], made["nvidia_smi"])
    assert made == json.loads(json.dumps(made))


def test_a_driver_that_nvml_does_not_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no NVML then, and no error; neither for a GPU that it does not know."""
    see_a_gpu(monkeypatch)
    library: Any = fake_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", library)

    def fails(*_: object) -> None:
        raise NVMLError

    monkeypatch.setattr(library, "nvmlDeviceGetHandleByUUID", fails)
    assert nvml.open_nvml() is None
    see_a_gpu(monkeypatch)
    monkeypatch.setattr(library, "nvmlInit", fails)
    assert nvml.open_nvml() is None


def test_what_nvidia_smi_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept without serial numbers, UUIDs and programs; empty if it fails."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "said.txt").write_text(SMI)
    _command(tmp_path, "nvidia-smi", f"cat {tmp_path}/said.txt")

    said = machine.smi_text()

    hidden = (
        *("1652922012345", "0x9e1d0d2b4e1c8d3f", "1821023456", "0x1a2b3c4d5e6f7081"),
        *("-0000-", UUID[:8], UUID[:8].upper(), "somebody"),
    )
    assert [] == [text for text in hidden if text in said]
    assert len(SMI.splitlines()) == len(said.splitlines())
    kept = ("NVIDIA H100 80GB HBM3", "580.95.05", "700.00 W", "4242", "unusual line")
    assert all(text in said for text in kept)
    assert "    Serial Number                         : (left out)\n" in said

    _command(tmp_path, "nvidia-smi", "echo half; exit 9")
    assert "" == machine.smi_text()
    _command(tmp_path, "nvidia-smi", "exec sleep 60")
    monkeypatch.setattr(machine, "_COMMAND_SECONDS", 0.1)
    begin = time.monotonic()
    assert "" == machine.smi_text()
    assert time.monotonic() - begin < 30


def test_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given, in the environment, in a file, or what git says, in this order."""
    monkeypatch.delenv("PERFC_COMMIT", raising=False)
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
    for arguments in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "x")):
        subprocess.run([*git, *arguments], cwd=checkout, check=True)

    found = machine.commit_of(checkout)
    assert (True, set[str]()) == (len(found) >= 7, {*found} - {*"0123456789abcdef"})
    copied = checkout / "copy"  # of a tree, in a repository of something else
    copied.mkdir()
    assert "unknown" == machine.commit_of(copied)
    (copied / "COMMIT").write_text("abc1234\n")
    (checkout / "COMMIT").write_text("abc1234\nmore\n")
    assert "abc1234" == machine.commit_of(copied) == machine.commit_of(checkout)
    monkeypatch.setenv("PERFC_COMMIT", "def5678")
    assert "def5678" == machine.commit_of(checkout)
    assert "9999999" == machine.commit_of(checkout, "9999999")


@pytest.mark.usefixtures("without_commands")
def test_a_checkout_without_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit is unknown, and so is that of one that git cannot read."""
    (tmp_path / ".git").mkdir()

    assert "unknown" == machine.commit_of(tmp_path)
    _command(tmp_path, "git", "exit 128")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "unknown" == machine.commit_of(tmp_path)
