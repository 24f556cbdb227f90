"""`perfc.tile_time_us`: a GEMM by a tile that a search proposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from perfc.costmodels import Target, load_target
from perfc.costmodels.gemm import Size, Tile, tensor_kernels_of_one, tile_second
from perfc.costmodels.kernels import OneSignature
from perfc.costmodels.pricing import at_least_bound_of_one
from perfc.ir import Kernel, Record, UsageError, Work
from perfc.tools.given import MAX_DIM, choice_of, read_dtype, read_target, whole

_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
"""Bytes of an element by dtype."""

_SIDES, _US = 3, 1e6
_read_size, _read_side = whole(MAX_DIM), whole(2**16)


def tile_time_us(  # noqa: PLR0913 - a GEMM, and a kernel
    target: str | Target,
    m: int,
    n: int,
    k: int,
    *,
    tile: Sequence[int],
    dtype: object = "bf16",
    batch: int = 1,
    warps: int = 4,
    stages: int = 3,
    split_k: int = 1,
    persistent: bool = False,
) -> float:
    """Return the microseconds of one GEMM by a kernel of a given tile.

        perfc.tile_time_us("a100", 4096, 4096, 4096, tile=(128, 128, 32), warps=8)

    It is for ranking tiles of one GEMM, as autotuners do: by perfc's tile model, whose
    parameters are fitted to libraries' kernels, and by what an SM holds, how long loads
    take and how often warps read shared memory. Corrections that are the same for all
    tiles are left out, so `perfc.analyze` is nearer to what a library takes. No row of
    a kernel of Triton was measured; what the model cannot tell apart takes the same.

    Args:
        target: An NVIDIA GPU: a name, the path of a sheet, or a loaded target.
        m: Rows of the result.
        n: Columns of it.
        k: The summed dimension.
        tile: Rows, columns and depth that a block computes in a step of its main loop:
            Triton's `(BLOCK_M, BLOCK_N, BLOCK_K)`.
        dtype: Of operands and result: `fp32` (without tensor cores), `tf32`, `bf16`,
            `fp16`, or PyTorch's or NumPy's type. Sums are of fp32.
        batch: GEMMs of a batch.
        warps: Warps of a block.
        stages: Buffers of the operands of a step; 1: nothing is loaded ahead.
        split_k: Into how many parts the sum is cut, each a block of its own.
        persistent: Whether blocks stay on their SMs and compute tile after tile.

    Returns:
        Microseconds on the GPU; infinity where no SM can hold such a block, because its
        operands exceed shared memory, its accumulators the registers, or its threads
        the most that there may be.

    Raises:
        UsageError: an argument means nothing, or the target is no NVIDIA GPU.
        PerfcError: there is no such target, or it does not compute in that type.

    """
    gpu = _gpu(target)
    mode = str(choice_of(tuple(_BYTES))("dtype", read_dtype("dtype", dtype)))
    sides = _sides(tile)
    peak, width = gpu.peak(mode), _BYTES[mode]
    sizes = {"batch": batch, "m": m, "n": n, "k": k}
    b, m, n, k = (_read_size(name, size) for name, size in sizes.items())
    counts = {"warps": warps, "stages": stages, "split_k": split_k}
    in_block, buffers, parts = (_read_side(name, n) for name, n in counts.items())
    asked = Tile(*sides, in_block, buffers, parts, bool(persistent))
    read, written = width * b * (m * k + k * n), width * b * m * n
    params: dict[str, Any] = {"b": b, "m": m, "n": n, "k": k, "layout": "nn"}
    work = Work(2 * b * m * n * k, read, written)
    stored = "fp32" if mode == "tf32" else mode
    one = OneSignature(Kernel("gemm", stored, mode, Record(params), work))
    own = 0 if mode == "fp32" else tensor_kernels_of_one(one, gpu)
    size = Size[float](b, m, n, k, read + written, peak)
    seconds = tile_second(size, asked, gpu, mode, own=own)
    return at_least_bound_of_one(seconds, one, gpu) * _US


def _sides(tile: object) -> tuple[int, int, int]:
    """Read the sides of a tile."""
    sides = (
        tuple(cast("Sequence[object]", tile))
        if isinstance(tile, Sequence) and not isinstance(tile, str | bytes)
        else ()
    )
    if len(sides) != _SIDES:
        msg = (
            f"tile={tile!r}: expected three numbers, rows, columns and depth, as "
            "tile=(128, 128, 32)"
        )
        raise UsageError(msg)
    rows, columns, depth = (_read_side("a side of tile", side) for side in sides)
    return rows, columns, depth


def _gpu(target: object) -> Target:
    """Read a target, which has to be a GPU with CUDA."""
    read = read_target("target", target)
    found = read if isinstance(read, Target) else load_target(read)
    if not found.device.runs_cuda:
        msg = f"target {found.name}: the tile model knows GPUs of NVIDIA only"
        raise UsageError(msg)
    return found
