"""What eager PyTorch allocates besides the results of its ops.

Buffers that a kernel of their own fills, such as copies made contiguous, are in the
launch graph as tasks with the detail `scratch`. Those here belong to a kernel that
writes a result, too: outputs of the ATen function that its caller drops. They are
freed at the end of the op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from perfc.costmodels import Device
from perfc.ir import Record, TensorType
from perfc.passes.lowering.eager.embedding import FEW_INDICES, distinct
from perfc.passes.lowering.eager.site import bound

MIB = 2**20
_INDEX_BYTES = 8
_STATISTIC_BYTES = 4
_IMAGE = 4

ScratchRule: TypeAlias = Callable[
    [Record, tuple[TensorType, ...], tuple[TensorType, ...]], int
]
"""(attributes, operand types, result types), all bound -> bytes."""


def _pool(
    attributes: Record,
    operands: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
) -> int:
    """`max_pool2d_with_indices`: an int64 per result, unless that is kept."""
    out, *places = results
    if places or attributes.text("kind") != "max" or out.rank != _IMAGE:
        return 0
    return bound(out.numel) * _INDEX_BYTES


def _layer_norm(
    attributes: Record,
    operands: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
) -> int:
    """`native_layer_norm`: mean and reciprocal deviation of every row."""
    rows = math.prod(map(bound, results[0].shape[: attributes.integer("axis")]))
    return 2 * rows * _STATISTIC_BYTES


def _embedding_bag(
    attributes: Record,
    operands: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
) -> int:
    """`_embedding_bag`: the bag of every index, and the size of every bag."""
    tables = len(attributes.records("tables"))
    if tables > 1:  # the fused lookup of fbgemm returns the rows alone
        return 0
    indices, bags = operands[tables], results[0].shape[0]
    return bound(indices.nbytes) + bound(bags) * _INDEX_BYTES


_LISTS_OF_A_SORT = 9
"""Lists of indices: numbered, sorted, the sort's own, where runs and parts begin."""

_FUSED_BYTES = 72
"""Bytes of a lookup in fbgemm: keys, bags, sorted, the sort's own copies, the runs."""

_LIVE_ROWS: Mapping[str, int] = {"adagrad": 3, "rowwise_adagrad": 2, "adam": 6}
"""How many tensors like the summed rows a step holds at once; SGD holds none."""


def _summed_runs(lookups: int, table: TensorType) -> int:
    """`embedding_backward_cuda_kernel`: lists, and a sum for as many parts as could be.

    Nothing is read back, so there is room for one partial sum a lookup, in fp32.
    """
    row = bound(table.shape[1]) * max(_STATISTIC_BYTES, table.dtype.bits // 8)
    return lookups * (_LISTS_OF_A_SORT * _INDEX_BYTES + row)


def _embedding_backward(
    attributes: Record,
    operands: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
) -> int:
    lookups = bound(operands[1].numel)
    if attributes.flag("sparse") or lookups <= FEW_INDICES:
        return 0
    return _summed_runs(lookups, results[0])


def _embedding_bag_backward(
    attributes: Record,
    operands: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
) -> int:
    """What sorts the lookups, and the bag of each, which the forward op saved."""
    lookups = bound(operands[1].numel)
    fused = len(attributes.records("tables")) > 1 or "optimizer" in attributes
    if fused:
        return lookups * _FUSED_BYTES
    saved = lookups * _INDEX_BYTES
    if attributes.flag("sparse") or attributes.text("mode") == "max":
        return saved
    return saved + _summed_runs(lookups, results[0])


def _sparse_step(
    attributes: Record,
    operands: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
) -> int:
    """Indices while they are sorted, or rows once equal indices are summed."""
    table, indices, rows = operands[:3]
    lookups = bound(indices.numel)
    live = _LIVE_ROWS.get(attributes.text("kind"), 0)
    if not live or not lookups:
        return 0
    popularity = attributes.text("popularity", "")
    touched = distinct(bound(table.shape[0]), lookups, popularity)
    summed = touched * (bound(rows.nbytes) // lookups)
    return max(summed + 4 * _INDEX_BYTES * lookups, live * summed)


SCRATCH: Mapping[str, ScratchRule] = {
    "pool": _pool,
    "layer_norm": _layer_norm,
    "embedding_bag": _embedding_bag,
    "embedding_backward": _embedding_backward,
    "embedding_bag_backward": _embedding_bag_backward,
    "sparse_optimizer_step": _sparse_step,
}
"""Bytes by op name."""

_LARGE_WORKSPACE = frozenset({"9", "10", "12"})


def blas_workspace_bytes(device: Device) -> int:
    """Return the workspace that PyTorch keeps for BLAS on one stream.

    `parseChosenWorkspaceSize` in `aten/src/ATen/cuda/CublasHandlePool.cpp`: 32 MiB
    on Hopper and Blackwell, `:4096:2:16:8` before; 128 MiB on gfx94 and gfx95, 32
    MiB on other AMD GPUs. cublasLt shares it by default. A CPU has none.
    """
    version = device.compute_capability
    if device.synchronous:
        return 0
    if not device.runs_cuda:
        return (128 if version.startswith(("gfx94", "gfx95")) else 32) * MIB
    if version.partition(".")[0] in _LARGE_WORKSPACE:
        return 32 * MIB
    return 8 * MIB + 128 * 2**10
