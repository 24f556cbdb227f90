"""How libraries cut attention: tiles of queries, steps of keys, keys that are split."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import Flags, Maths, Number, Signatures, one_of
from perfc.costmodels.machine import Device, Target

TENSOR_MODES = ("bf16", "fp16", "fp8")
"""In which there is a flash kernel."""

WIDE_MODES: Collection[str] = ("fp32", "tf32")
"""In which the memory-efficient kernel computes alike: it asks for no permission."""

_CONSTANTS = constants("attention")

TF32_MATMULS = _CONSTANTS.number("tf32_matmuls")
"""Matmuls in TF32 that the memory-efficient kernel computes one of fp32 with, from
Ampere on; plain multiply-adds before."""

EFFICIENT_NAME = "efficient"
"""The memory-efficient kernel, as a parameter `algorithm`."""

_FLASH_SINCE = _CONSTANTS.number("flash_since")
"""Compute capability from which there is a flash kernel for NVIDIA's GPUs."""

HEAD_DIMS = _CONSTANTS.numbers("head_dims")
"""Sizes of heads that kernels are made for; others are padded."""


@attrs.frozen(kw_only=True)
class AttentionTiles:
    """How a library cuts the work.

    Attributes:
        narrow_size: Numbers of the largest heads that have tiles of their own.
        narrow: Queries of a tile and keys of a step, of such heads.
        wide: The same of larger heads.
        few_queries: Queries up to which the keys are spread over all SMs; 0: never.
        few_rows: Queries of a tile then, of narrow heads and of larger ones.
        splits: Whether prefill splits its keys over idle SMs.
        together: Blocks that an SM holds at once.
        waits: Loads that a step waits for with nothing to do, but for other blocks.

    """

    narrow_size: float
    narrow: tuple[float, float]
    wide: tuple[float, float]
    few_queries: float = 0.0
    few_rows: tuple[float, float] = (0.0, 0.0)
    splits: bool = False
    together: float = 1.0
    waits: float = 0.0


def _tiles(name: str, *, splits: bool = False) -> AttentionTiles:
    sizes = _CONSTANTS.table(f"tiles_{name}")
    return AttentionTiles(
        narrow_size=sizes["narrow_size"],
        narrow=(sizes["narrow_rows"], sizes["narrow_keys"]),
        wide=(sizes["wide_rows"], sizes["wide_keys"]),
        few_queries=sizes.get("few_queries", 0.0),
        few_rows=(sizes.get("few_rows_narrow", 0.0), sizes.get("few_rows_wide", 0.0)),
        splits=splits,
        together=sizes.get("together", 1.0),
        waits=sizes.get("waits", 0.0),
    )


FLASH_2 = _tiles("flash_2")
FLASH_3 = _tiles("flash_3", splits=True)
EFFICIENT_TILES = _tiles("efficient")
"""xFormers' kernel in PyTorch: keys are never split, and each step waits for its keys,
then for its values, which nothing loads ahead."""

TILES = {"Hopper": FLASH_3}
"""Tiles of flash attention by architecture; FlashAttention 2 elsewhere."""

FLASH_1_NAME = "flash-1"

OLDER_NAMES: Collection[str] = ("flash", FLASH_1_NAME, "flash-2")
"""PyTorch's own flash attention, which is version 2 on all GPUs, and older versions, as
a parameter `algorithm`."""

FLASH_1_TIME = _CONSTANTS.number("flash_1_time")
"""What version 1 takes over version 2, forward and backward together."""


def flash_tiles(device: Device) -> AttentionTiles:
    """Return the tiles of the newest flash attention on a GPU."""
    return TILES.get(device.architecture, FLASH_2)


def is_newest(kernels: Signatures[Number], target: Target) -> Flags | bool:
    """Whether flash attention is of the newest version for a GPU, not PyTorch's own."""
    newer = flash_tiles(target.device) is not FLASH_2
    return (one_of(kernels.text("algorithm"), OLDER_NAMES) ^ True) | (not newer)


def is_first(kernels: Signatures[Number], target: Target) -> Flags | bool:
    """Whether version 1 of flash attention computes it."""
    named = kernels.text("algorithm") == FLASH_1_NAME
    return named & (is_efficient(kernels, target) ^ True)


def is_efficient(kernels: Signatures[Number], target: Target) -> Flags | bool:
    """Whether the memory-efficient kernel computes it, not flash attention.

    It does in fp32, where it is named, and on GPUs that have no flash attention.
    """
    narrow = one_of(kernels.math, TENSOR_MODES)
    if not target.once(_has_flash):
        narrow = narrow & False
    return (kernels.text("algorithm") == EFFICIENT_NAME) | (narrow ^ True)


def _has_flash(target: Target) -> bool:
    device = target.device
    return not device.runs_cuda or float(device.compute_capability) >= _FLASH_SINCE


def fp32_flops_per_s(target: Target) -> float:
    """Return the rate of fp32 matmuls in the memory-efficient kernel, FLOP/s."""
    device = target.device
    tf32 = device.flops_per_s.get("tf32")
    if tf32 is None or not device.runs_cuda:
        return device.peak("fp32")
    return tf32 / TF32_MATMULS


def padded(head_dim: Number, maths: Maths[Number]) -> Number:
    """Return the size of heads that a kernel computes; larger ones as they are."""
    found = head_dim
    for size in reversed(HEAD_DIMS):
        found = maths.where(head_dim <= size, size, found)
    return found
