"""The fields of a target sheet: names, units, ranges, and what follows what."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import attrs

from perfc.costmodels.machine import FABRICS, MATH_MODES, TOPOLOGIES

FieldValue: TypeAlias = float | str
"""A number (an int where the field counts something) or a text."""

PCIE_GB_PER_S_PER_LANE: Mapping[int, float] = {
    1: 0.25,
    2: 0.5,
    3: 0.985,
    4: 1.969,
    5: 3.938,
    6: 7.563,
}
"""One direction, after line coding, by PCIe generation (PCI-SIG base specs)."""

NVLINK_GB_PER_S_PER_LINK: Mapping[int, float] = {1: 20, 2: 25, 3: 25, 4: 25, 5: 50}
"""One direction, by NVLink generation (NVIDIA NVLink pages and whitepapers)."""

XGMI_GB_PER_S_PER_LINK: Mapping[str, float] = {"gfx908": 46, "gfx90a": 50, "gfx942": 64}
"""One direction, by GPU: AMD's Infinity Fabric links are numbered by no generation.

AMD ROCm documentation (MI100: 23 GT/s of 2 bytes; MI200: 25 GT/s of 2 bytes) and the
MI300X data sheet (128 GB/s a link, both directions).
"""

FP32_SUM_MODES = frozenset({"tf32", "fp16", "bf16", "fp8"})
"""Tensor-core modes that are slower on GeForce because they sum in fp32."""

GRAPH_GAP_SOURCE = (
    "assumed: that of a stream; kernel models are fitted on replays of graphs less "
    "runtime.stream_gap_us, so a kernel and this gap are what a replay measures"
)
"""Source of the gap in a CUDA graph, in a sheet that does not give it."""

POWER_CAP = "gpu.power_cap_watts"
"""The field of a cap that the driver was told; else it is the board's, `power.tdp_w`.
"""

LAUNCH = "runtime.launch"
"""The field that says whether the host waits for what it launches."""

MEMORY_OF = "gpu.memory_of"
"""The field that says whether a GPU's memory is the host's, as on a system on a chip.
"""

OF_HOST = "host"

SYNCHRONOUS = "synchronous"
"""Value of `LAUNCH` on a CPU: a kernel runs inside the call that launches it."""

USD_PER_HOUR, USD = "price.usd_per_hour", "price.usd"
AMORTISED_HOURS = "price.amortised_hours"
"""Fields of what a target costs: `price_section.py`."""

CARBON = "carbon.g_per_kwh"
"""The field of the grams of CO2 equivalent that a kWh stands for where it runs."""

_OF_NO_TIME = ("price.", "carbon.")


def is_of_time(name: str) -> bool:
    """Whether the time of a step may depend on a field."""
    return not name.startswith(_OF_NO_TIME)


TENSOR_CLOCK_MODES = frozenset({"tf32", "fp16", "bf16", "fp8", "nvfp4", "int8"})
"""Modes whose rate holds at `gpu.tensor_clock_mhz` where the sheet has it."""


def _section(field: SheetField) -> str:
    return field.name.rpartition(".")[0]


@attrs.frozen(kw_only=True)
class SheetField:
    """One field that a sheet may have."""

    name: str
    """Dotted: section and key."""
    unit: str
    low: float = 0.0
    high: float = 0.0
    """The largest value that is not taken for a slip of the unit."""
    whole: bool = False
    text: bool = False
    choices: tuple[str, ...] = ()
    """What a text may be, where not anything."""
    required: bool = True
    section: str = attrs.field(
        default=attrs.Factory(_section, takes_self=True),
        init=False,
        eq=False,
        repr=False,
    )
    """The TOML table that holds the field."""

    @property
    def key(self) -> str:
        """The field's key in its table."""
        return self.name.rpartition(".")[2]

    def complaint(self, value: object) -> tuple[str, str] | None:
        """Return (expected, found) when *value* cannot be this field's."""
        if self.text:
            if self.choices:
                good = value in self.choices
                return None if good else (" or ".join(self.choices), shown(value))
            good = (
                isinstance(value, str) and value.strip() != "" and value.isprintable()
            )
            return None if good else ("a text of one line", shown(value))
        kind = "a whole number" if self.whole else "a number"
        expected = f"{kind} from {self.low:g} to {self.high:g} {self.unit}".rstrip()
        if isinstance(value, bool) or not isinstance(value, int | float):
            return expected, shown(value)
        if not self.low <= value <= self.high:  # refuses nan and inf too
            return expected, shown(value)
        if self.whole and value != int(value):
            return expected, shown(value)
        return None


def shown(value: object) -> str:
    """Return *value* as an error message quotes it: short, on one line."""
    kinds: dict[type, str] = {bool: "bool ", str: "text "}
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of thousands of digits
        text = "a value too long to print"
    if len(text) > 60:  # noqa: PLR2004 -- a line's worth
        text = text[:57] + "..."
    return kinds.get(type(value), "") + text


def quoted(key: str) -> str:
    """Return a key of a sheet as an error message names it."""
    bare = key.replace("_", "").replace("-", "").replace(".", "")
    return key if bare.isalnum() and bare.isascii() else shown(key)


DIRECT, STAGED = "direct", "host-memory"
PEERS: tuple[str, ...] = (DIRECT, STAGED)
"""How GPUs without links of their own reach each other over the bus: directly, or,
where the driver or the host does not let them, through the host's memory."""


def _text(
    name: str, choices: tuple[str, ...] = (), *, required: bool = True
) -> SheetField:
    return SheetField(name=name, unit="", text=True, choices=choices, required=required)


def _number(
    name: str, unit: str, low: float, high: float, *, required: bool = True
) -> SheetField:
    return SheetField(name=name, unit=unit, low=low, high=high, required=required)


def _count(
    name: str, unit: str, low: int, high: int, *, required: bool = True
) -> SheetField:
    return SheetField(
        name=name, unit=unit, low=low, high=high, whole=True, required=required
    )


_FIELDS: tuple[SheetField, ...] = (
    _text("gpu.vendor"),
    _text("gpu.architecture"),
    _text("gpu.compute_capability"),
    _count("gpu.sm_count", "", 1, 4096),
    _count("gpu.lanes_per_sm", "", 1, 1024),
    _count("gpu.warp_size", "", 1, 128, required=False),
    _number("gpu.fp32_sum_share", "", 0.1, 1, required=False),
    _number("gpu.sm_clock_mhz", "MHz", 50, 10_000),
    _number("gpu.tensor_clock_mhz", "MHz", 50, 10_000, required=False),
    _number("gpu.base_clock_mhz", "MHz", 50, 10_000, required=False),
    _number("gpu.least_clock_mhz", "MHz", 10, 10_000, required=False),
    _number(POWER_CAP, "W", 1, 100_000, required=False),
    _text(MEMORY_OF, ("device", OF_HOST), required=False),
    _number("gpu.memory_gib", "GiB", 0.25, 16_384),
    _number("gpu.memory_usable_gib", "GiB", 0.25, 16_384, required=False),
    _number("gpu.library_mib", "MiB", 0, 1_000_000, required=False),
    _number("gpu.memory_gb_per_s", "GB/s", 1, 1_000_000),
    _count("gpu.memory_bus_bits", "bit", 8, 131_072),
    _number("gpu.memory_data_rate_gt_per_s", "GT/s", 0.05, 200),
    _number("gpu.l2_mib", "MiB", 0.03125, 16_384),
    _number("gpu.l2_gb_per_s", "GB/s", 1, 10_000_000),
    _number("gpu.shared_memory_kib_per_sm", "KiB", 1, 16_384),
    _count("gpu.registers_per_sm", "", 1024, 16_777_216),
    _count("gpu.max_threads_per_sm", "", 32, 65_536),
    *(
        _number(
            f"gpu.rates_tflops.{mode}",
            "TOPS" if mode == "int8" else "TFLOPS",
            0.001,
            1_000_000,
            required=mode == "fp32",
        )
        for mode in MATH_MODES
    ),
    _count("host_link.pcie_generation", "", 1, 8),
    _count("host_link.pcie_lanes", "", 1, 64),
    _number("host_link.c2c_gb_per_s", "GB/s", 1, 10_000, required=False),
    _number("host_link.h2d_gb_per_s", "GB/s", 0.01, 10_000),
    _number("host_link.d2h_gb_per_s", "GB/s", 0.01, 10_000),
    _number("host_link.pageable_gb_per_s", "GB/s", 0.01, 10_000),
    _number("host_link.latency_us", "us", 0.01, 10_000),
    _text("host_link.peers", PEERS, required=False),
    _count("nvlink.generation", "", 1, 16),
    _count("nvlink.links", "", 1, 1024),
    _number("nvlink.gb_per_s_per_direction", "GB/s", 0.1, 100_000),
    _count("xgmi.links", "", 1, 64),
    _number("xgmi.gb_per_s_per_direction", "GB/s", 0.1, 100_000),
    _number("power.tdp_w", "W", 1, 100_000),
    _number("power.burst_w", "W", 1, 200_000, required=False),
    _number("power.idle_w", "W", 0.1, 100_000, required=False),
    _number("power.busy_w", "W", 0.1, 100_000, required=False),
    _number("power.pj_per_byte", "pJ", 0.1, 100_000, required=False),
    *(
        _number(f"power.pj_per_flop.{mode}", "pJ", 0.001, 10_000, required=False)
        for mode in MATH_MODES
    ),
    _number("power.node_w", "W", 1, 1_000_000, required=False),
    _number("power.node_idle_w", "W", 0.1, 1_000_000, required=False),
    _number("power.host_w", "W", 1, 1_000_000, required=False),
    _number("power.host_idle_w", "W", 0.1, 1_000_000, required=False),
    _number(USD_PER_HOUR, "USD/h", 0.0001, 100_000, required=False),
    _number(USD, "USD", 0.01, 100_000_000, required=False),
    _number(AMORTISED_HOURS, "h", 1, 10_000_000, required=False),
    _number(CARBON, "g/kWh", 0, 10_000, required=False),
    _number("runtime.launch_latency_us", "us", 0.01, 10_000),
    _number("runtime.kernel_floor_us", "us", 0.01, 10_000),
    _number("runtime.stream_gap_us", "us", 0.001, 10_000),
    _number("runtime.graph_gap_us", "us", 0.0001, 10_000, required=False),
    _text(LAUNCH, ("asynchronous", SYNCHRONOUS), required=False),
    _text("host.overheads", required=False),
    _number("host.speed", "", 0.01, 100, required=False),
    _text("host.cpu", required=False),
    _count("host.sockets", "", 1, 64, required=False),
    _count("host.cores_per_socket", "", 1, 4096, required=False),
    _number("host.dram_gb", "GB", 0.25, 1_000_000, required=False),
    _number("host.dram_gb_per_s", "GB/s", 0.1, 1_000_000, required=False),
    _number("host.inter_socket_gb_per_s", "GB/s", 0.1, 100_000, required=False),
    _count("host.gpus_per_uplink", "", 1, 1024, required=False),
    _number("host.uplink_gb_per_s", "GB/s", 0.1, 10_000, required=False),
    _count("node.gpus", "", 1, 1024),
    _text("node.topology", TOPOLOGIES),
    _text("node.host", required=False),
    _text("network.fabric", FABRICS),
    _count("network.nics", "", 1, 1024),
    _number("network.nic_gbit_per_s", "Gbit/s", 0.001, 10_000),
    _number("network.latency_us", "us", 0.01, 10_000, required=False),
)

FIELDS: Mapping[str, SheetField] = {field.name: field for field in _FIELDS}
"""Every field a sheet may have but those of tiers, in the order in which it is shown.
"""

MODES = "modes"
"""The table of a sheet that has one for each power mode, by a name of its own."""

MODE = "power.mode"
"""What an override calls the power mode."""

TIERS = "tiers"
"""The table of a sheet that has one for each tier of memory, by a name of its own."""

TIER_FIELDS: tuple[SheetField, ...] = (
    _text("device", required=False),
    _count("count", "", 1, 1024, required=False),
    _number("capacity_gb", "GB", 0.001, 10_000_000),
    _count("granularity_b", "B", 1, 16_777_216),
    _count("bus_granularity_b", "B", 1, 16_777_216, required=False),
    _number("read_iops", "1/s", 1, 1e10, required=False),
    _number("write_iops", "1/s", 1, 1e10, required=False),
    _number("read_latency_us", "us", 0.001, 1_000_000),
    _number("read_latency_p99_us", "us", 0.001, 10_000_000, required=False),
    _number("read_gb_per_s", "GB/s", 0.001, 100_000),
    _number("write_gb_per_s", "GB/s", 0.001, 100_000, required=False),
    _number("knee", "", 0.5, 100, required=False),
    _number("cache_gb", "GB", 0, 1_000_000, required=False),
    _number("power_read_w", "W", 0.001, 100_000, required=False),
    _number("power_idle_w", "W", 0.001, 100_000, required=False),
    _number("dwpd", "1/day", 0.001, 100_000, required=False),
    _number("usd_per_gb", "USD/GB", 0.001, 100_000, required=False),
)
"""What a tier may have, by key: of one drive or module, of which there are `count`."""


@functools.lru_cache(maxsize=64)
def fields_of_tier(tier: str) -> Mapping[str, SheetField]:
    """Return the fields that a tier may have, by dotted name."""
    named = (attrs.evolve(f, name=f"{TIERS}.{tier}.{f.name}") for f in TIER_FIELDS)
    return {field.name: field for field in named}


def fields_with(tiers: Iterable[str]) -> Mapping[str, SheetField]:
    """Return every field a sheet with these tiers may have, in the order shown."""
    found = [fields_of_tier(tier) for tier in tiers]
    if not found:
        return FIELDS
    return {k: f for fields in (FIELDS, *found) for k, f in fields.items()}


def field_of(name: str) -> SheetField | None:
    """Return the field of a dotted name; None if no sheet has it."""
    table, _, rest = name.partition(".")
    tier, _, key = rest.partition(".")
    if table == TIERS and tier and key:
        return fields_of_tier(tier).get(name)
    return FIELDS.get(name)


def tiers_in(names: Iterable[str]) -> list[str]:
    """Return the tiers that dotted names of fields are of, in their order."""
    begin = f"{TIERS}."
    ours = (name for name in names if name.startswith(begin))
    return list(dict.fromkeys(name.split(".")[1] for name in ours))


def is_possible(name: str, value: object) -> bool:
    """Whether a field of a sheet can have a value."""
    field = field_of(name)
    return field is not None and field.complaint(value) is None


OPTIONAL_SECTIONS = frozenset(
    {"nvlink", "xgmi", "power.pj_per_flop"}
    | {"price", "carbon", "host", "node", "network"}
)
"""May be left out as a whole; one that is there has its required fields."""

_ASYNCHRONOUS_ONLY = frozenset(
    {
        "gpu.shared_memory_kib_per_sm",
        "gpu.registers_per_sm",
        "gpu.max_threads_per_sm",
        "runtime.launch_latency_us",
        "runtime.kernel_floor_us",
        "runtime.stream_gap_us",
    }
)
"""What a CPU has not: one thread a core, and nothing between its kernels."""


def is_synchronous(fields: Mapping[str, object]) -> bool:
    """Whether these are the fields of a CPU: kernels run inside their calls."""
    return fields.get(LAUNCH) == SYNCHRONOUS


def is_required(field: SheetField, *, synchronous: bool) -> bool:
    """Whether a sheet must have a field of a section that it has.

    A CPU has no link to itself, and nothing lies between its kernels.
    """
    return field.required and not (synchronous and field.name in _ASYNCHRONOUS_ONLY)


def is_optional_section(section: str, *, synchronous: bool) -> bool:
    """Whether a sheet may leave a section out as a whole."""
    return section in OPTIONAL_SECTIONS or (synchronous and section == "host_link")


Level: TypeAlias = Callable[[Mapping[str, FieldValue]], float]
"""A quantity that a sheet's fields give."""


@attrs.frozen(kw_only=True)
class Proportion:
    """Fields that grow with a level."""

    level: Level
    followers: tuple[str, ...]


def _level_of(name: str, absent: float | None = None) -> Level:
    """Return the level that a field gives; *absent* is its level if left out."""
    if absent is None:
        return lambda fields: float(fields[name])
    return lambda fields: float(fields.get(name, absent))


def _tensor_clock(fields: Mapping[str, FieldValue]) -> float:
    return float(fields.get("gpu.tensor_clock_mhz", fields["gpu.sm_clock_mhz"]))


def host_link_gb_per_s(fields: Mapping[str, FieldValue]) -> float:
    """Return the nominal rate between host and device, in one direction.

    1 for a CPU, which has no such link, and for who says a part of one only.
    """
    if not {"host_link.pcie_generation", "host_link.pcie_lanes"} <= fields.keys():
        return 1.0
    if "host_link.c2c_gb_per_s" in fields:
        return float(fields["host_link.c2c_gb_per_s"])
    generation = int(fields["host_link.pcie_generation"])
    lane = PCIE_GB_PER_S_PER_LANE.get(generation, 2.0 ** (generation - 3))
    return lane * float(fields["host_link.pcie_lanes"])


def _nvlink_link(fields: Mapping[str, FieldValue]) -> float:
    generation = int(fields.get("nvlink.generation", 1))
    return NVLINK_GB_PER_S_PER_LINK.get(generation, 50 * 2.0 ** (generation - 5))


def _rates(*, tensor: bool) -> tuple[str, ...]:
    return tuple(
        f"gpu.rates_tflops.{mode}"
        for mode in MATH_MODES
        if (mode in TENSOR_CLOCK_MODES) is tensor
    )


COPIES = ("host_link.h2d_gb_per_s", "host_link.d2h_gb_per_s")
"""What large copies to the device and back reach."""
_BANDWIDTH = ("gpu.memory_gb_per_s",)

_BOARD_WATTS = ("power.tdp_w", "power.burst_w", "power.idle_w", "power.busy_w")

PROPORTIONS: tuple[Proportion, ...] = (
    Proportion(
        level=_level_of("gpu.sm_clock_mhz"),
        followers=("gpu.tensor_clock_mhz", "gpu.l2_gb_per_s", *_rates(tensor=False)),
    ),
    Proportion(level=_tensor_clock, followers=_rates(tensor=True)),
    Proportion(
        level=_level_of("gpu.fp32_sum_share", 1),
        followers=tuple(f"gpu.rates_tflops.{mode}" for mode in sorted(FP32_SUM_MODES)),
    ),
    Proportion(
        level=_level_of("gpu.sm_count"),
        followers=(*_rates(tensor=False), *_rates(tensor=True), *_BOARD_WATTS),
    ),
    Proportion(
        level=_level_of("gpu.lanes_per_sm"), followers=("gpu.rates_tflops.fp32",)
    ),
    Proportion(level=_level_of("gpu.memory_bus_bits"), followers=_BANDWIDTH),
    Proportion(level=_level_of("gpu.memory_data_rate_gt_per_s"), followers=_BANDWIDTH),
    Proportion(level=_level_of("gpu.memory_gib"), followers=("gpu.memory_usable_gib",)),
    Proportion(level=host_link_gb_per_s, followers=COPIES),
    Proportion(
        level=_level_of("runtime.stream_gap_us", 1), followers=("runtime.graph_gap_us",)
    ),
    Proportion(level=_nvlink_link, followers=("nvlink.gb_per_s_per_direction",)),
    Proportion(
        level=_level_of("nvlink.links", 1),
        followers=("nvlink.gb_per_s_per_direction",),
    ),
    Proportion(
        level=_level_of("xgmi.links", 1), followers=("xgmi.gb_per_s_per_direction",)
    ),
)
"""What follows what, causes before effects.

A sheet gives its rates at its own clocks, widths and counts. Overriding one of
those scales the rates that depend on it, unless they are overridden themselves.
"""
