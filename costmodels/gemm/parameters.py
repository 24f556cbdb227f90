"""Parameters of GEMMs: what the sheets of targets do not say."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

import attrs

from perfc.costmodels.constants import constants
from perfc.costmodels.fitted_files import fitted
from perfc.costmodels.machine import Target
from perfc.costmodels.sheets import as_known

SIMT_MODES = frozenset({"fp64", "fp32", "fp16_vector", "bf16_vector"})
"""Math modes without tensor cores."""

SIMT_FITTED_ON = frozenset({"7.0", "7.5", "8.0", "9.0"})
"""Compute capabilities of the GPUs that the SIMT parameters are fitted on."""

BATCHED_FITTED_ON = SIMT_FITTED_ON | {"6.0", "6.1"}
"""Compute capabilities that the parameters of batched GEMMs are fitted on.

Pascal's other GEMMs run Maxwell's kernels, and are left out
(`benchmarks/training/shipped_gemms.py`).
"""

TENSOR_FITTED_ON = frozenset({"8.0", "8.9", "9.0"})
"""Compute capabilities that the parameters of tensor cores are fitted on."""

TF32, UNALIGNED = "tf32", "unaligned"
"""Kernels on tensor cores that are not as those of 16 bits: of tf32, whose tiles hold
half as many numbers, and of lines that begin at no multiple of 16 bytes, which cannot
be copied asynchronously (CUTLASS, "Efficient GEMM": alignment of operands)."""

_CONSTANTS = constants("gemm")

UNALIGNED_EFFICIENCY = _CONSTANTS.table("unaligned_tile_efficiency")
"""Their `tile_efficiency` by architecture (`kernels_of`), where no rows have any: of 16
bits, in lines that begin at no multiple of 4 bytes."""

_UNALIGNED_ON = "Hopper"
"""The architecture on which those were measured."""

EIGHT_BITS = "fp8"
"""Kernels on tensor cores of 8 bits, with one scale for each operand."""

QUANTISED: Mapping[str, str] = MappingProxyType(
    {"fp8_dynamic": "rows", "fp8_block": "blocks"}
)
"""Types of GEMMs of 8 bits whose left operand comes in 16, by what has a scale of its
own: each row of it, or each block of a row."""

TENSOR_KERNELS = ("", TF32, UNALIGNED, EIGHT_BITS, *QUANTISED)
"""All that may have parameters of their own."""

NO_NETWORK = (TENSOR_KERNELS.index(TF32), TENSOR_KERNELS.index(UNALIGNED))
"""Kernels that no network of others corrects, by number."""

_ALL = "all"

_WIDE_LANES = 128
"""Lanes of an SM on which FMAs take every issue slot: loads, addresses and loops have
none beside them, as they have where there are 64. Pascal's were fitted with those."""

KERNELS_LIKE: Mapping[str, str] = MappingProxyType(
    {
        "10.0": "Hopper",
        "10.3": "Hopper",
        "12.0": "Ada Lovelace",
        "12.1": "Ada Lovelace",
    }
)
"""Architectures whose kernels those of GPUs without rows resemble.

By compute capability: 10.x computes asynchronously out of shared memory, as Hopper,
while tiles of 256 x 256 lie over two SMs, each of which loads one half; 12.x has
neither and issues each `mma` to a warp, as Ada (CUTLASS 4, "Blackwell SM100 GEMMs" and
"Blackwell SM120 GEMMs").
"""

MOST_PARTS = 32
"""Most parts that the sum of a GEMM is cut into."""


@attrs.frozen(kw_only=True)
class GemmParameters:
    """What the sheets do not say; times that a kernel needs for itself in cycles."""

    tile_efficiency: float
    """Share of the peak that an endless GEMM reaches with 128 x 256 tiles."""
    tile_half: float
    """Tile intensity, m n / (m + n), at which half as much is reached as without
    loads."""
    full_outputs: float
    """Outputs of the tiles that an SM needs for its full rate."""
    fill_cycles: float
    """Start and end of `full_outputs` of tiles."""
    epilogue: float
    """Share of the time to write them that nothing hides."""
    memory_efficiency: float
    """Share of the sheet's memory rate."""
    rereads: float
    """How often small L2s lose the rows of a batched GEMM's first operand."""
    l2_efficiency: float
    """Share of the sheet's L2 rate."""
    streams_per_sm: float
    """Tiles per SM from which on the memory rate is reached."""
    start_cycles: float
    """Added to the target's kernel floor."""
    split_cycles: float
    """The second kernel of a split, or its last block's work."""
    k_step: float
    """Depth of one step of the main loop."""
    overlap: float
    """Norm by which computing, memory and loads overlap; the higher the better."""
    power_exponent: float
    """How the rate falls where the board's power does not suffice; 0: not."""
    short_power: float
    """Share of that exponent for short GEMMs."""
    biased_parts: float = MOST_PARTS
    """Most parts that a kernel which adds a bias cuts its sums into."""
    most_parts: float = MOST_PARTS
    """Most parts that any other kernel does; 1 where a library cuts no sums."""
    sigma_shared: float
    """Uncertainty of the logarithm, on GPUs of the same architecture."""
    sigma_independent: float
    """Scatter within a GPU on held-out rows."""


@functools.cache
def simt_parameters(*, wide: bool = False) -> GemmParameters:
    """Return the parameters without tensor cores, shared by all GPUs of as many lanes.

    Args:
        wide: Whether SMs have 128, as of Ampere's smaller chips, Ada and Hopper.

    """
    return GemmParameters(**fitted("gemm")["simt_wide" if wide else "simt"])


def is_wide(target: Target) -> bool:
    """Whether GEMMs without tensor cores have the parameters of wide SMs.

    A GPU that is imagined with other lanes keeps the kernels of the known one: more
    lanes must not make it slower.
    """
    device = as_known(target).device
    return device.lanes_per_sm >= _WIDE_LANES and device.architecture != "Pascal"


@functools.cache
def tensor_parameters(architecture: str, kernels: str = "") -> GemmParameters:
    """Return the parameters on tensor cores of an architecture.

    One that was not measured has those that fit all measured ones together.

    Args:
        architecture: Of the GPU.
        kernels: One of `TENSOR_KERNELS`, where those are told from the others.

    """
    known = fitted("gemm")["tensor"]
    own = known.get(architecture, known[_ALL])
    if kernels in QUANTISED:
        own = known.get(f"{architecture} {EIGHT_BITS}", own)
    return GemmParameters(**known.get(f"{architecture} {kernels}", own))


def kernels_of(target: Target) -> str:
    """Return the architecture whose kernels for tensor cores are those of a GPU."""
    device = target.device
    return KERNELS_LIKE.get(device.compute_capability, device.architecture)


def known_parameters(target: Target, own: int) -> GemmParameters:
    """Return parameters with what is not known of `TENSOR_KERNELS`, by their number.

    Of unaligned ones that were not measured as much is unknown as where they were; of
    tf32, as parameters of 16 bits are off on tf32 where both were measured.
    """
    architecture, kernels = kernels_of(target), TENSOR_KERNELS[own]
    if kernels == UNALIGNED and not has_own(architecture, kernels):
        return tensor_parameters(_UNALIGNED_ON, kernels)
    found = tensor_parameters(architecture, kernels)
    if kernels != TF32 or has_own(architecture, kernels):
        return found
    return attrs.evolve(
        found,
        sigma_shared=_CONSTANTS.number("sigma_other_type_shared"),
        sigma_independent=_CONSTANTS.number("sigma_other_type_independent"),
    )


def tensor_fitted_on(target: Target, own: int) -> frozenset[str]:
    """Return the compute capabilities that some of `TENSOR_KERNELS` are fitted on.

    None where those of 16 bits stand in for tf32: then nothing of it is fitted.
    """
    is_other = TENSOR_KERNELS[own] == TF32 and not has_own(kernels_of(target), TF32)
    return frozenset() if is_other else TENSOR_FITTED_ON


@functools.cache
def has_own(architecture: str, kernels: str) -> bool:
    """Whether some of `TENSOR_KERNELS` have parameters on an architecture."""
    return f"{architecture} {kernels}" in fitted("gemm")["tensor"]
