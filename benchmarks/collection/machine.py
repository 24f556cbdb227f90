"""What a manifest says of a machine: all that measured times depend on.

Everything is optional: what a machine does not tell is null, and nothing here raises.
What names one machine or board (serial numbers, UUIDs, its host) is left out.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import perfc
from collection.nvml import Nvml, open_nvml
from perfc.measure.device import Device

SCHEMA = "perfc.collection/2"
COMMIT_VARIABLE = "PERFC_COMMIT"
UNKNOWN = "unknown"

_COMMAND_SECONDS = 10.0
_CHUNK = 1 << 20
_PACKAGES = (
    *("torch", "triton", "numpy", "pyarrow", "pandas", "onnx", "transformers"),
    *("attrs", "click", "networkx", "nvidia-ml-py"),
)
_CUBLAS = ("nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cublas-cu11")
_VARIABLES = (
    *("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING"),
    *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
    *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
    *("TORCH_CUDNN_SDPA_DEPRIORITIZED", "TORCH_BLAS_PREFER_CUBLASLT"),
    *("MKL_NUM_THREADS", "OMP_NUM_THREADS"),
    *("TEARDOWN_CUPTI", "DISABLE_CUPTI_LAZY_REINIT"),
)
"""Environment variables that change which kernels run, and how quickly."""

_NAMES_A_BOARD = re.compile(
    r"uuid|guid|serial|\bpdi\b|host ?id|board id|\bname\s*:\s*/", re.IGNORECASE
)
"""Pattern of lines that name a board, or a program on it, whose name is a path."""

_IDENTIFIER = re.compile(
    r"\b(?:GPU-|MIG-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE
)
_LEFT_OUT = "(left out)"


def describe(device: Device, root: Path, commit: str = "") -> dict[str, Any]:
    """Describe the machine and what runs on it: the part of a manifest that stays.

    Args:
        device: What is measured.
        root: Of perfc's tree.
        commit: Of the tree, where somebody knows it.

    """
    nvml = open_nvml() if device.is_cuda else None
    return {
        "schema": SCHEMA,
        "target": device.target,
        "device": device.name,
        "driver": device.driver,
        "memory_bytes": device.memory_bytes if device.is_cuda else None,
        "source": device.source,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "perfc": perfc.__version__,
        "perfc_commit": commit_of(root, commit),
        "date": datetime.now(UTC).date().isoformat(),
        "host": host(),
        "software": software(),
        "environment": {k: os.environ[k] for k in _VARIABLES if k in os.environ},
        "gpu": gpu(nvml) if device.is_cuda else None,
        "nvidia_smi": smi_text() if device.is_cuda else "",
    }


def commit_of(root: Path, given: str = "") -> str:
    """Return the commit of a tree, which need be no checkout.

    It is what is *given*, or `PERFC_COMMIT` in the environment, or a file `COMMIT` at
    the root, or what git says of a checkout; or `unknown`.
    """
    said = given or os.environ.get(COMMIT_VARIABLE, "") or _read(root / "COMMIT")
    if said.strip():
        return said.strip().splitlines()[0]
    if not (root / ".git").exists():  # git would describe a repository around it
        return UNKNOWN
    return _output(["git", "describe", "--always", "--dirty"], root).strip() or UNKNOWN


def host() -> dict[str, Any]:
    """Describe the processor and the system."""
    cpu = _read(Path("/proc/cpuinfo"))
    model = re.search(r"^model name\s*:\s*(.+)$", cpu, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", cpu, re.MULTILINE)
    memory = re.search(
        r"^MemTotal:\s*(\d+) kB", _read(Path("/proc/meminfo")), re.MULTILINE
    )
    frequency = Path("/sys/devices/system/cpu/cpu0/cpufreq")
    fastest = _read(frequency / "cpuinfo_max_freq").strip()
    return {
        "cpu": model[1].strip() if model else platform.processor() or None,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": _usable_cores(),
        "cpu_quota": _read(Path("/sys/fs/cgroup/cpu.max")).strip() or None,
        "governor": _read(frequency / "scaling_governor").strip() or None,
        "max_mhz": int(fastest) / 1e3 if fastest.isdecimal() else None,
        "memory_bytes": int(memory[1]) << 10 if memory else None,
        "virtualised": "hypervisor" in flags[1].split() if flags else None,
        "kernel": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "torch_threads": torch.get_num_threads(),
    }


def _usable_cores() -> int | None:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return None


def software() -> dict[str, str | None]:
    """Return versions of packages and libraries, null where one is not there."""
    library: Any = torch.backends.cudnn
    cudnn = library.version() if torch.version.cuda else None
    return {
        **{name: _version(name) for name in _PACKAGES},
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": None if cudnn is None else str(cudnn),
        "cublas": _cublas(),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cublas() -> str | None:
    """Return the version of cuBLAS: of its package, or what the library itself says."""
    if torch.version.cuda is None:
        return None
    packaged = next(filter(None, map(_version, _CUBLAS)), None)
    if packaged is not None:
        return packaged
    try:
        library = ctypes.CDLL(f"libcublasLt.so.{torch.version.cuda.partition('.')[0]}")
        function = library.cublasLtGetVersion
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_size_t
    return str(function())


def gpu(nvml: Nvml | None) -> dict[str, Any]:
    """Describe the GPU by PyTorch and NVML, null where neither tells."""
    return {**_by_torch(), **_by_nvml(nvml)}


def _by_torch() -> dict[str, Any]:
    try:
        cuda: Any = torch.cuda
        found = cuda.get_device_properties(0)
    except (RuntimeError, AssertionError):  # a lost device; a PyTorch without CUDA
        return {"name": None}
    return {
        "name": str(found.name),
        "capability": f"{found.major}.{found.minor}",
        "sms": int(found.multi_processor_count),
        "l2_bytes": int(found.L2_cache_size),
        "memory_bytes": int(found.total_memory),
    }


def _by_nvml(nvml: Nvml | None) -> dict[str, Any]:
    if nvml is None:
        return {"nvml": False}
    sm, memory = nvml.constant("NVML_CLOCK_SM", 1), nvml.constant("NVML_CLOCK_MEM", 2)
    limits = nvml.ask("PowerManagementLimitConstraints") or (None, None)
    told = nvml.ask("MemoryInfo")
    return {
        "nvml": True,
        "driver": _text(nvml.system("DriverVersion")),
        "vbios": _text(nvml.ask("VbiosVersion")),
        "power_limit_watts": _watts(nvml.ask("PowerManagementLimit")),
        "enforced_power_limit_watts": _watts(nvml.ask("EnforcedPowerLimit")),
        "default_power_limit_watts": _watts(nvml.ask("PowerManagementDefaultLimit")),
        "least_power_limit_watts": _watts(limits[0]),
        "most_power_limit_watts": _watts(limits[1]),
        "persistence_mode": _flag(nvml.ask("PersistenceMode")),
        "mig": _flag(nvml.ask("MigMode")),
        "ecc": _flag(nvml.ask("EccMode")),
        "max_sm_mhz": nvml.ask("MaxClockInfo", sm),
        "max_memory_mhz": nvml.ask("MaxClockInfo", memory),
        "application_sm_mhz": nvml.ask("ApplicationsClock", sm),
        "application_memory_mhz": nvml.ask("ApplicationsClock", memory),
        "board_memory_bytes": None if told is None else int(told.total),
        "pcie_generation": nvml.ask("CurrPcieLinkGeneration"),
        "most_pcie_generation": nvml.ask("MaxPcieLinkGeneration"),
        "pcie_lanes": nvml.ask("CurrPcieLinkWidth"),
    }


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1e3


def _flag(state: int | Sequence[int] | None) -> bool | None:
    """Read a mode, or the first of (current, pending)."""
    if state is None:
        return None
    return bool(state if isinstance(state, int) else state[0])


def _text(said: str | bytes | None) -> str | None:
    return said.decode() if isinstance(said, bytes) else said


def smi_text() -> str:
    """Return `nvidia-smi -q` without what names the board; empty where it fails."""
    return anonymous(_output(["nvidia-smi", "-q"]))


def anonymous(text: str) -> str:
    """Leave out of `key : value` lines what names a board or a program that runs."""
    lines = (_anonymous_line(line) for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines)


def _anonymous_line(line: str) -> str:
    key, colon, _ = line.partition(":")
    if colon and _NAMES_A_BOARD.search(line):
        return f"{key}: {_LEFT_OUT}"
    return _IDENTIFIER.sub(_LEFT_OUT, line)


def _output(command: Sequence[str], folder: Path | None = None) -> str:
    """Return the output of a command; empty if it is not there, fails or hangs."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            check=True,
            text=True,
            errors="replace",
            timeout=_COMMAND_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
