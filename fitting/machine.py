"""What measured rows say of a CPU's sheet: its rates, and the size of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from perfc.costmodels import Target, load_target
from perfc.fitting.observations import Observations
from perfc.measurements import TEST, Measurement

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_THREADS = re.compile(r"(\d+) threads")
_LANES = {"avx512f": 32, "avx2": 16}
_FEWEST_FAR = 3
"""Rows beyond the cache below which they say nothing of the memory."""


def machine_fields(rows: Iterable[Measurement]) -> dict[str, float]:
    """Return the fields of the machine's size that the rows and the system tell.

    Cores are the threads that PyTorch used, which the source of a row names, but for
    rows that are marked `test`; memory, cache and vector lanes are those of the machine
    at hand, where Linux tells.
    """
    fields: dict[str, float] = {}
    sources = {row.source for row in rows if row.split != TEST}
    counts = {int(n) for source in sources for n in _THREADS.findall(source)}
    if len(counts) == 1:
        fields["gpu.sm_count"] = counts.pop()
    sizes: list[int] = []
    for path in sorted(_CACHES.glob("index*/size")):
        found = re.fullmatch(r"(\d+)K", _read(path))
        sizes += [int(found[1])] if found else []
    if cache_mib := (max(sizes) / 1024 if sizes else None):
        fields["gpu.l2_mib"] = cache_mib
    if lanes := _lanes():
        fields["gpu.lanes_per_sm"] = lanes
    if memory_gib := _memory_gib():
        fields["gpu.memory_gib"] = memory_gib
        fields["gpu.memory_usable_gib"] = 0.95 * memory_gib
    return fields


def measured_rates(seen: Observations, target: Target) -> dict[str, float]:
    """Return the best rates that any fitted row reached, as fields of a sheet.

    The best, because no estimate may be faster than the bound that they make; how much
    less a kernel reaches, its coefficients say.
    """
    rows = seen.part(fitted=True)
    if not len(rows):
        return {}
    seconds = np.maximum(rows.measured_s - rows.offset_s, 1e-9)
    modes = np.array([kernel.math for kernel in rows.kernels.kernels])
    gemms = np.array([k.op in {"gemm", "conv2d"} for k in rows.kernels.kernels])
    flops = rows.kernels.flops / seconds
    fields: dict[str, float] = {}
    for mode in sorted(set(modes[gemms].tolist())):
        best = float(flops[gemms & (modes == mode)].max())
        fields[f"gpu.rates_tflops.{mode}"] = best * 1e-12
    moved = rows.kernels.bytes
    long_enough = seconds > rows.offset_s
    far = long_enough & (moved > target.device.l2.capacity_bytes)
    rate = moved / seconds * 1e-9
    if far.sum() >= _FEWEST_FAR:
        fields["gpu.memory_gb_per_s"] = float(rate[far].max())
    if long_enough.any():
        known = fields.get("gpu.memory_gb_per_s", 0.0)
        fields["gpu.l2_gb_per_s"] = max(float(rate[long_enough].max()), known)
    return fields


def calibrated_sheet(name: str, fields: Mapping[str, float]) -> Target:
    """Return the target of a sheet with measured fields."""
    return load_target(name, {field: repr(value) for field, value in fields.items()})


def _lanes() -> int | None:
    """Return the fp32 lanes of a core: two pipes of AVX-512, or of AVX2."""
    found = re.search(r"^flags\s*:(.*)$", _read(Path("/proc/cpuinfo")), re.MULTILINE)
    flags = set(found[1].split()) if found else set[str]()
    return next((n for flag, n in _LANES.items() if flag in flags), None)


def _memory_gib() -> float | None:
    found = re.search(
        r"^MemTotal:\s*(\d+) kB", _read(Path("/proc/meminfo")), re.MULTILINE
    )
    return int(found[1]) / 2**20 if found else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
