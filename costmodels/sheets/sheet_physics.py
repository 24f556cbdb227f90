"""What the numbers of a target sheet say about each other.

The mistakes known here are those that tables of GPUs are full of: sparse peaks,
GB for GiB, and link rates of both directions added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import attrs

from perfc.costmodels.machine import MATH_MODES
from perfc.costmodels.sheets.sheet_fields import (
    FP32_SUM_MODES,
    MEMORY_OF,
    NVLINK_GB_PER_S_PER_LINK,
    OF_HOST,
    PCIE_GB_PER_S_PER_LANE,
    TENSOR_CLOCK_MODES,
    XGMI_GB_PER_S_PER_LINK,
    FieldValue,
    host_link_gb_per_s,
)

Fields: TypeAlias = Mapping[str, FieldValue]

GIB_PER_GB = 2**30 / 1e9
"""1.0737: how far off a number is when GB stands where GiB belongs."""

_FLOP_PER_CLOCK_PER_SM = """
mode        6.0 6.1 6.2  7.0  7.2  7.5  8.0  8.6  8.7  8.9  9.0  10.0 12.0
fp64         64   8   8   64   64    4   64    4    4    4  128   128    4
fp64_tensor   -   -   -    -    -    -  128    -    -    -  256   128    -
fp32        128 256 256  128  128  128  128  256  256  256  256   256  256
tf32          -   -   -    -    -    - 1024  512 1024  512 2048  4096  512
fp16          -   -   - 1024 1024 1024 2048 1024 2048 1024 4096  8192 1024
bf16          -   -   -    -    -    - 2048 1024 2048 1024 4096  8192 1024
fp16_vector 256   4 512  256  256  256  512  256  512  256  512   512  256
bf16_vector   -   -   -    -    -    -  256  256  256  256  512   512  256
fp8           -   -   -    -    -    -    -    -    - 2048 8192 16384 2048
nvfp4         -   -   -    -    -    -    -    -    -    -    - 32768 4096
int8          - 1024  -  512 2048 2048 4096 2048 4096 2048 8192 16384 2048
"""


def _columns(table: str) -> Mapping[str, Mapping[str, int]]:
    header, *rows = (line.split() for line in table.strip().splitlines())
    return {
        capability: {row[0]: int(row[at]) for row in rows if row[at] != "-"}
        for at, capability in enumerate(header)
        if at
    }


_OF_AMD = """
mode        gfx908 gfx90a gfx942
fp64            64    128    128
fp64_tensor      -    256    256
fp32           128    128    256
fp32_tensor    256    256    256
tf32             -      -   1024
fp16          1024   1024   2048
bf16           512   1024   2048
fp16_vector    256    256    256
bf16_vector    128    128    256
fp8              -      -   4096
int8          1024   1024   4096
"""

FLOP_PER_CLOCK_PER_SM = {**_columns(_FLOP_PER_CLOCK_PER_SM), **_columns(_OF_AMD)}
"""Dense FLOP per clock and SM by compute capability, an FMA counting as two.

CUDA C++ Programming Guide (arithmetic throughput) and NVIDIA's whitepapers; for AMD's
GPUs, named by their LLVM target, the tables of FLOPS/clock/CU in the ROCm documentation
of MI100, MI250 and MI300X (fp32 on CDNA 2 without packed instructions, as AMD prints
it; the vector rates of 16-bit types are not printed: v_pk_fma_f16 on 64 lanes, and
bf16 in fp32). A GeForce has `gpu.fp32_sum_share` of these where sums are kept in fp32.
The rates of a compute capability that is not here go unchecked.
"""


@attrs.frozen
class Problem:
    """What is wrong with one field."""

    field: str
    expected: str
    found: str
    advice: str

    def __str__(self) -> str:
        return (
            f"{self.field}: expected {self.expected}, found {self.found}; {self.advice}"
        )


def find_contradictions(fields: Fields) -> Iterator[Problem]:
    """Yield problems of fields that contradict, or hold another quantity than asked."""
    for check in _CHECKS:
        yield from check(fields)


def _number(fields: Fields, name: str) -> float:
    return float(fields[name])


def _rate_problems(fields: Fields) -> Iterator[Problem]:
    capability = str(fields["gpu.compute_capability"])
    per_clock = FLOP_PER_CLOCK_PER_SM.get(capability)
    if per_clock is None:
        return
    sms = _number(fields, "gpu.sm_count")
    sm_clock = _number(fields, "gpu.sm_clock_mhz")
    tensor_clock = float(fields.get("gpu.tensor_clock_mhz", sm_clock))
    for mode in MATH_MODES:
        name = f"gpu.rates_tflops.{mode}"
        if name not in fields:
            continue
        found = f"{_number(fields, name):g}"
        if mode not in per_clock:
            expected = f"no such mode on compute capability {capability}"
            yield Problem(name, expected, found, "remove it")
            continue
        clock_mhz = tensor_clock if mode in TENSOR_CLOCK_MODES else sm_clock
        share = float(fields.get("gpu.fp32_sum_share", 1))
        flop = per_clock[mode] * (share if mode in FP32_SUM_MODES else 1)
        dense = sms * flop * clock_mhz * 1e6 / 1e12
        ratio = _number(fields, name) / dense
        expected = (
            f"about {dense:.4g} ({sms:g} SMs x {flop:g} FLOP/clock x {clock_mhz:g} MHz)"
        )
        if not 0.75 <= ratio <= 1.1:  # noqa: PLR2004 -- sheets round and use own clocks
            yield Problem(name, expected, found, _advice(mode, ratio, share))


def _advice(mode: str, ratio: float, share: float) -> str:
    """Return advice on a rate, by its ratio to the one expected."""
    if mode in FP32_SUM_MODES and share < 1 and _near(ratio, 1 / share, 0.15):
        return "sparse, or summed in fp16? give the dense rate with fp32 sums"
    if mode in TENSOR_CLOCK_MODES and _near(ratio, 2, 0.15):
        return "a sparse peak? give the dense rate"
    if mode in FP32_SUM_MODES and _near(ratio, 0.5, 0.15):
        return "a GeForce? add gpu.fp32_sum_share = 0.5"
    return "check the rate, its unit and clock"


def _near(value: float, mark: float, relative: float) -> bool:
    return abs(value / mark - 1) <= relative


def _core_problems(fields: Fields) -> Iterator[Problem]:
    lanes = _number(fields, "gpu.lanes_per_sm")
    sms = _number(fields, "gpu.sm_count")
    clock_mhz = _number(fields, "gpu.sm_clock_mhz")
    fp32 = _number(fields, "gpu.rates_tflops.fp32")
    from_lanes = 2 * lanes * sms * clock_mhz * 1e6 / 1e12
    if not _near(fp32, from_lanes, 0.1):
        expected = (
            f"about {from_lanes:.4g} (2 FLOP x SMs x lanes_per_sm x sm_clock_mhz)"
        )
        advice = "correct the rate, the lanes or the boost clock"
        yield Problem("gpu.rates_tflops.fp32", expected, f"{fp32:g}", advice)
    for name in ("gpu.base_clock_mhz", "gpu.tensor_clock_mhz"):
        if name in fields and _number(fields, name) > clock_mhz:
            expected = f"at most sm_clock_mhz = {clock_mhz:g}"
            advice = "sm_clock_mhz is the boost clock"
            yield Problem(name, expected, f"{fields[name]:g}", advice)


def _bandwidth_problems(fields: Fields) -> Iterator[Problem]:
    name = "gpu.memory_gb_per_s"
    found = _number(fields, name)
    bus_bytes = _number(fields, "gpu.memory_bus_bits") / 8
    nominal = bus_bytes * _number(fields, "gpu.memory_data_rate_gt_per_s")
    expected = f"about {nominal:.5g} GB/s (memory_bus_bits / 8 x data rate)"
    ratio = found / nominal
    if _near(ratio, 1, 0.035):
        return
    if _near(ratio, 1 / GIB_PER_GB, 0.01) or _near(ratio, GIB_PER_GB, 0.01):
        advice = "GiB/s for GB/s? give 10^9 bytes per second"
    elif _near(ratio, 2, 0.035) or _near(ratio, 0.5, 0.035):
        advice = "the data rate is twice the memory clock (DDR)"
    else:
        advice = "correct the bandwidth, the bus width or the data rate"
    yield Problem(name, expected, f"{found:g}", advice)


def _capacity_problems(fields: Fields) -> Iterator[Problem]:
    name = "gpu.memory_gib"
    gib = _number(fields, name)
    for marketed, unit in ((gib / GIB_PER_GB, "GB"), (gib * GIB_PER_GB, "GiB of GB")):
        step = 8 if marketed > 32 else 4  # noqa: PLR2004 -- larger memories, larger chips
        whole = step * round(marketed / step)
        odd = gib % 4 != 0 if unit == "GB" else gib % 1 != 0
        if whole and odd and _near(marketed, whole, 0.0012):
            advice = f"{unit} for GiB? a {whole} GB GPU has {whole} GiB"
            yield Problem(name, f"{whole} GiB", f"{gib:g}", advice)
    usable = float(fields.get("gpu.memory_usable_gib", gib))
    least = 0.5 if fields.get(MEMORY_OF) == OF_HOST else 0.8
    if not least * gib <= usable <= gib:
        yield Problem(
            "gpu.memory_usable_gib",
            f"{least:.0%} to 100 % of memory_gib = {gib:g}".replace("%", " %", 1),
            f"{usable:g}",
            "give what a program can allocate, in GiB",
        )


def _hierarchy_problems(fields: Fields) -> Iterator[Problem]:
    for fast, slow in (
        ("gpu.l2_gb_per_s", "gpu.memory_gb_per_s"),
        ("host_link.h2d_gb_per_s", "host_link.pageable_gb_per_s"),
    ):
        if fast not in fields:  # a CPU has no host link
            continue
        if _number(fields, fast) < _number(fields, slow):
            expected = f"at least {slow} = {fields[slow]:g}"
            yield Problem(fast, expected, f"{fields[fast]:g}", "check both and units")
    if _number(fields, "gpu.l2_mib") >= 1024 * _number(fields, "gpu.memory_gib"):
        expected = "less than device memory"
        found = f"{fields['gpu.l2_mib']:g} MiB"
        yield Problem("gpu.l2_mib", expected, found, "check the unit")


def _link_problems(fields: Fields) -> Iterator[Problem]:
    if "host_link.pcie_generation" not in fields:
        return
    generation = int(fields["host_link.pcie_generation"])
    lanes = int(fields["host_link.pcie_lanes"])
    c2c = "host_link.c2c_gb_per_s" in fields
    if not c2c and generation not in PCIE_GB_PER_S_PER_LANE:
        return
    peak = host_link_gb_per_s(fields)
    bus = "NVLink-C2C" if c2c else f"PCIe {generation} x{lanes}"
    for key in ("h2d", "d2h", "pageable"):
        name = f"host_link.{key}_gb_per_s"
        if _number(fields, name) > 1.01 * peak:
            expected = f"at most {peak:.4g} GB/s ({bus}, one direction)"
            advice = "both directions added? give one"
            yield Problem(name, expected, f"{fields[name]:g}", advice)


def _peer_problems(fields: Fields) -> Iterator[Problem]:
    """Compare links between GPUs with what one link of their kind has."""
    generation = int(fields.get("nvlink.generation", 0))
    gpu = str(fields["gpu.compute_capability"])
    kinds = (
        ("nvlink", f"NVLink {generation}", NVLINK_GB_PER_S_PER_LINK.get(generation)),
        ("xgmi", f"Infinity Fabric of {gpu}", XGMI_GB_PER_S_PER_LINK.get(gpu)),
    )
    for section, kind, link_gb_per_s in kinds:
        name = f"{section}.gb_per_s_per_direction"
        if name not in fields or link_gb_per_s is None:
            continue
        links = int(fields[f"{section}.links"])
        nominal = links * link_gb_per_s
        ratio = _number(fields, name) / nominal
        if not _near(ratio, 1, 0.1):
            both = _near(ratio, 2, 0.1)
            advice = "both directions added? give one" if both else "check the links"
            expected = f"about {nominal:g} ({kind}, {links} links, one way)"
            yield Problem(name, expected, f"{fields[name]:g}", advice)


_CHECKS: tuple[Callable[[Fields], Iterator[Problem]], ...] = (
    _rate_problems,
    _core_problems,
    _bandwidth_problems,
    _capacity_problems,
    _hierarchy_problems,
    _link_problems,
    _peer_problems,
)
