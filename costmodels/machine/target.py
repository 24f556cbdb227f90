"""What the cost models know of a machine: GPU or CPU, host link, other links.

Everything here is in SI units (seconds, bytes, FLOP/s, Hz); a name carries its
unit where it is not obvious. Sheets (`targets/*.toml`) are in the units that
makers print; `load_target` converts once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from perfc.costmodels.machine.kernel_fit import KernelFits
from perfc.costmodels.machine.measured_rows import MeasuredKernels
from perfc.ir import PerfcError
from perfc.ir.support import brief
from perfc.ir.types import MathMode

if TYPE_CHECKING:
    from perfc.costmodels.machine.host_resources import HostResources, NodePower
    from perfc.costmodels.machine.measured_collectives import MeasuredCollective
    from perfc.costmodels.machine.power import Power
    from perfc.costmodels.machine.system import System
    from perfc.costmodels.machine.tier import Tier

T = TypeVar("T")

MATH_MODES: tuple[str, ...] = tuple(mode.value for mode in MathMode)
"""How a GPU can compute, each with its own peak rate.

`fp32` is FFMA without tensor cores. `tf32`, `fp16`, `bf16`, `fp8`, `nvfp4` and
`int8` are dense tensor-core rates (`int8` is DP4A on a GPU before Turing); sums are
kept in fp32, as PyTorch does, which halves the rate on GeForce. `fp64_tensor` and
`fp32_tensor` are full precision on tensor cores; AMD's are called matrix cores.
`fp16_vector` and `bf16_vector` are the elementwise rates, without tensor cores.
"""


class TargetError(PerfcError):
    """A target sheet cannot be read, or says something that cannot be."""


def _rates(value: Mapping[str, float]) -> Mapping[str, float]:
    """Copy, so that a record does not change with its maker's dict."""
    return dict(value)


def _values(value: Mapping[str, float | str]) -> Mapping[str, float | str]:
    return dict(value)


def _texts(value: Mapping[str, str]) -> Mapping[str, str]:
    return dict(value)


@attrs.frozen(kw_only=True)
class Memory:
    """One level of a GPU's memory."""

    name: str
    capacity_bytes: int
    bytes_per_s: float
    """Reading, all SMs together."""
    usable_bytes: int
    """What a program can allocate: less than the capacity in device memory."""


@attrs.frozen(kw_only=True)
class Device:
    """One GPU."""

    __repr__ = brief

    name: str
    vendor: str
    architecture: str
    compute_capability: str
    sm_count: int
    lanes_per_sm: int
    """fp32 FMA lanes: an SM does 2 FLOP a clock on each."""
    sm_clock_hz: float
    """Boost clock: the rates of the modes without tensor cores hold at it."""
    tensor_clock_hz: float
    """The clock at which the tensor-core rates hold."""
    base_clock_hz: float | None
    """Guaranteed clock, or None where the maker publishes none."""
    flops_per_s: Mapping[str, float] = attrs.field(converter=_rates, hash=False)
    """Dense rate of the whole GPU by math mode; a mode it has not is absent."""
    memories: tuple[Memory, ...]
    """Fastest first: the last cache, then device memory."""
    shared_memory_bytes_per_sm: int
    registers_per_sm: int
    """32-bit registers."""
    max_threads_per_sm: int
    warp_size: int
    """Threads that run in step: 32, or 64 where AMD calls them a wavefront."""
    kernel_floor_s: float
    """Duration of the smallest kernel on the GPU, without the gap after it."""
    stream_gap_s: float
    """Idle time between two kernels of a busy stream."""
    graph_gap_s: float
    """Idle time between two kernels of one CUDA graph."""
    synchronous: bool = False
    """Whether a kernel runs inside the call that launches it: the device is the host's
    own processor. Nothing is copied to it, and there are no streams to wait for."""
    has_host_memory: bool = False
    """Whether its memory is the host's, as on a system on a chip: inputs are there."""
    library_bytes: int = 0
    """What libraries hold of its memory besides what the model of memory counts."""

    @property
    def words(self) -> frozenset[str]:
        """What constants call it.

        `cpu` or `gpu`, `cuda` if CUDA's libraries run on it, its architecture, its
        compute capability.
        """
        kind = "cpu" if self.synchronous else "gpu"
        cuda = ("cuda",) if self.runs_cuda else ()
        return frozenset({kind, *cuda, self.architecture, self.compute_capability})

    @functools.cached_property
    def runs_cuda(self) -> bool:
        """Whether CUDA's libraries run on it, with which all models were fitted."""
        return self.vendor.casefold() == "nvidia"

    @property
    def fp32_gemms(self) -> str:
        """Math mode of fp32 GEMMs without TF32: rocBLAS takes AMD's matrix cores."""
        return "fp32_tensor" if "fp32_tensor" in self.flops_per_s else "fp32"

    @property
    def l2(self) -> Memory:
        """The last cache before device memory."""
        return self.memories[0]

    @property
    def memory(self) -> Memory:
        """Device memory."""
        return self.memories[-1]

    def peak(self, mode: str) -> float:
        """Return the dense FLOP/s in *mode*; never a stand-in for another mode."""
        rate = self.flops_per_s.get(mode)
        if rate is None:
            message = (
                f"target {self.name} has no math mode {mode!r}; "
                f"it has {', '.join(self.flops_per_s)}"
            )
            raise PerfcError(message)
        return rate


@attrs.frozen(kw_only=True)
class Host:
    """The computer that launches the kernels."""

    overheads: str = "shared"
    """Name of the built-in overhead profile."""
    speed: float | None = None
    """How fast it is beside the host of the profile; None if that is not known."""


@attrs.frozen(kw_only=True)
class HostLink:
    """The way between host memory and device memory.

    The rates are what large copies reach, in one direction.
    """

    name: str
    h2d_bytes_per_s: float
    """Rate from pinned host memory."""
    d2h_bytes_per_s: float
    """Rate to pinned host memory."""
    pageable_bytes_per_s: float
    """Rate from or to pageable host memory, in both directions alike."""
    latency_s: float
    """Duration of the smallest copy on the GPU."""
    peak_bytes_per_s: float
    """The bus's nominal rate in one direction."""


@attrs.frozen(kw_only=True)
class Link:
    """The way from one GPU to its peers in the same node."""

    name: str
    bytes_per_s: float
    """One direction, all lanes or sub-links together, nominal."""
    sub_links: int


@attrs.frozen(kw_only=True)
class RuntimeConstants:
    """Times of the driver and the launch path that belong to a machine."""

    launch_latency_s: float
    """Time from the end of the launch call to the kernel's start, idle stream."""


@attrs.frozen(kw_only=True)
class Target:
    """A machine to predict for, and where each of its numbers comes from."""

    __repr__ = brief

    name: str
    """What it is called in reports. Kernels go by `device.name`: a system's are priced
    as those of the sheet of its GPUs."""
    aliases: tuple[str, ...]
    device: Device
    host: Host
    host_link: HostLink
    links: tuple[Link, ...]
    """To other GPUs, fastest first; empty where only the host link leads there."""
    system: System | None = None
    """The nodes and the network around the GPU, where it is named with them."""
    runtime: RuntimeConstants
    watts: float
    """Power limit of the board."""
    power: Power | None = None
    """What it draws; None where nobody has measured it."""
    resources: HostResources | None = None
    """What the ranks of a node share; None where the sheet does not say it."""
    node_power: NodePower | None = None
    """Watts of a node; None where the sheet does not say them."""
    tiers: tuple[Tier, ...] = ()
    """Memories besides those of the device and the host, fastest first."""
    usd_per_hour: float | None = None
    """What an hour of one GPU costs; None if nobody says."""
    g_per_kwh: float | None = None
    """Grams of CO2 equivalent that a kWh stands for; None if nobody says."""
    fields: Mapping[str, float | str] = attrs.field(
        converter=_values, hash=False, repr=False
    )
    """The sheet's fields in the sheet's units, after overrides."""
    sources: Mapping[str, str] = attrs.field(converter=_texts, hash=False, repr=False)
    """Citation by field; `--set` for an overridden one."""
    spec_sha256: str
    """Digest of the name, of `fields` and of what a profile adds: equal digests give
    equal predictions."""
    profile: str = ""
    """Name of the profile that it was calibrated with; empty for a sheet alone."""
    fits: KernelFits = attrs.field(factory=KernelFits, repr=False)
    """What the profile says of kernels."""
    measured: MeasuredKernels = attrs.field(factory=MeasuredKernels, repr=False)
    """Kernels that were timed on the machine of the profile."""
    collectives: tuple[MeasuredCollective, ...] = attrs.field(
        default=(), eq=False, repr=False
    )
    """What the profile says of collectives."""
    unset: Target | None = attrs.field(default=None, eq=False, repr=False)
    """Target without the fields that were set by hand; None: there are none."""
    measured_unused: int = 0
    """How many of them say nothing here, because fields were set by hand."""

    _once: dict[Callable[[Target], Any], Any] = attrs.field(
        factory=dict[Callable[["Target"], Any], Any], init=False, eq=False, repr=False
    )

    def once(self, make: Callable[[Target], T]) -> T:
        """Return *make* of this target, worked out when first asked for."""
        try:
            found: T = self._once[make]
        except KeyError:
            found = self._once[make] = make(self)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was worked out: closures do not go to other processes."""
        return {**attrs.asdict(self, recurse=False), "_once": {}}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take the fields of another process."""
        for name, value in state.items():
            object.__setattr__(self, name, value)

    @functools.cached_property
    def is_calibrated(self) -> bool:
        """Whether a profile says anything of kernels."""
        return bool(self.fits or self.measured)

    def peak(self, mode: str) -> float:
        """Return the device's dense FLOP/s in *mode*."""
        return self.device.peak(mode)
