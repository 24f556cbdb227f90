"""The device that is measured: what it is, which target that is, what it has."""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path
from typing import Any

import attrs
import torch

from perfc.costmodels import target_of_device
from perfc.ir import PerfcError, UsageError

DEVICES = ("cuda", "cpu")

CPU_TARGET = "cpu"

_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Flags of /proc/cpuinfo: without any of them bf16 is emulated, slower than fp32."""

_AMPERE, _ADA = (8, 0), (8, 9)
_LINES = re.MULTILINE
_L2_OF_A_CORE = 1 << 20
"""Bytes of a core's L2 cache where the system does not tell."""


@attrs.frozen(kw_only=True)
class Device:
    """What rows are measured on.

    Attributes:
        kind: `cuda` or `cpu`, as PyTorch calls it.
        target: Name of the perfc target; of a GPU without one, its name in lower case.
        name: As the driver or the system calls it.
        driver: Version of the driver; of a CPU that of the kernel.
        dtypes: What GEMMs compute in fast enough to be worth measuring.
        memory_bytes: All memory that may be used.
        cache_bytes: The L2: inputs are rotated until they do not fit.

    """

    kind: str
    target: str
    name: str
    driver: str
    dtypes: tuple[str, ...]
    memory_bytes: int
    cache_bytes: int

    @property
    def is_cuda(self) -> bool:
        """Whether it is a GPU: calls return before their work is done."""
        return self.kind == "cuda"

    @property
    def source(self) -> str:
        """What rows say of where they come from: another source is another table."""
        return f"perfc measure, torch {torch.__version__}, {self.name}, {self.driver}"

    def synchronize(self) -> None:
        """Wait until all work is done."""
        if self.is_cuda:
            torch.cuda.synchronize()

    def free_bytes(self) -> int:
        """Return the bytes that can be allocated now."""
        if self.is_cuda:
            free, _ = torch.cuda.mem_get_info()
            cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
            return free + cached
        return _available_memory()


def open_device(kind: str) -> Device:
    """Return the device that PyTorch uses by that name."""
    if kind not in DEVICES:
        msg = f"device {kind!r}: expected {' or '.join(DEVICES)}"
        raise UsageError(msg)
    return _cuda() if kind == "cuda" else _cpu()


def _cuda() -> Device:
    if not torch.cuda.is_available():
        built = torch.version.cuda or torch.version.hip
        why = "sees no GPU" if built else "is built without CUDA"
        msg = f"--device cuda: PyTorch {torch.__version__} {why}; --device cpu works"
        raise PerfcError(msg)
    found = gpu_properties()
    name, capability = str(found.name), (int(found.major), int(found.minor))
    return Device(
        kind="cuda",
        target=target_of(name),
        name=name,
        driver=f"driver {_driver_version()}",
        dtypes=_cuda_dtypes(capability),
        memory_bytes=int(found.total_memory),
        cache_bytes=int(found.L2_cache_size),
    )


def gpu_properties() -> Any:
    """Return CUDA's properties of the GPU that is measured: the first."""
    cuda: Any = torch.cuda
    return cuda.get_device_properties(0)


def target_of(gpu: str) -> str:
    """Return the target of a GPU by its name; without one, the name as a word."""
    return target_of_device(gpu) or re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")


def _cuda_dtypes(capability: tuple[int, int]) -> tuple[str, ...]:
    if torch.version.hip is not None:
        return ("fp32", "fp16", "bf16")
    newer = ("tf32", "bf16") if capability >= _AMPERE else ()
    return ("fp32", "fp16", *newer, *(("fp8",) if capability >= _ADA else ()))


def _driver_version() -> str:
    """Return the version of the GPU's driver, as far as the system tells."""
    try:
        text = Path("/sys/module/nvidia/version").read_text(encoding="utf-8").strip()
    except OSError:
        text = ""
    runtime = torch.version.cuda or torch.version.hip or ""
    return f"{text or 'unknown'}, runtime {runtime}"


def _cpu() -> Device:
    threads = torch.get_num_threads()
    text = _read("/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.+)$", text, _LINES)
    name = model[1].strip() if model else platform.processor() or platform.machine()
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, _LINES)
    fast = flags is not None and not _BF16_FLAGS.isdisjoint(flags[1].split())
    return Device(
        kind="cpu",
        target=CPU_TARGET,
        name=f"{name}, {threads} threads",
        driver=f"{platform.system()} {platform.release()}",
        dtypes=("fp32", *(("bf16",) if fast else ())),
        memory_bytes=_available_memory(),
        cache_bytes=threads * _l2_of_a_core(),
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _l2_of_a_core() -> int:
    text = _read("/sys/devices/system/cpu/cpu0/cache/index2/size").strip()
    found = re.fullmatch(r"(\d+)K", text)
    return int(found[1]) << 10 if found else _L2_OF_A_CORE


def _available_memory() -> int:
    """Return the bytes that system, container and limit of the process have left."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB", _read("/proc/meminfo"), _LINES)
    available = int(found[1]) << 10 if found else 1 << 31
    limit = _read("/sys/fs/cgroup/memory.max").strip()
    used = _read("/sys/fs/cgroup/memory.current").strip()
    if limit.isdecimal() and used.isdecimal():
        available = min(available, max(int(limit) - int(used), 0))
    return min(available, _address_space_left())


def _address_space_left() -> int:
    """Return the bytes that `ulimit -v` leaves; without a limit, more than any has."""
    limit = re.search(r"^Max address space\s+(\d+)", _read("/proc/self/limits"), _LINES)
    held = re.search(r"^VmSize:\s*(\d+) kB", _read("/proc/self/status"), _LINES)
    if limit is None or held is None:
        return sys.maxsize
    return max(int(limit[1]) - (int(held[1]) << 10), 0)
