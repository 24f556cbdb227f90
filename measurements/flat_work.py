"""Compulsory work of measured rows whose sizes are plain numbers, many at once.

Work is compulsory: every operand read once, every result written once. What an
implementation moves besides is the model's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import Floats
from perfc.measurements.schema import MeasurementError
from perfc.measurements.sizes import Sizes

Amounts: TypeAlias = tuple[Floats, Floats, Floats]
"""Flops, bytes read, bytes written; shape (rows,) each."""

FlatWork: TypeAlias = Callable[[Sizes, float, str], Amounts]
"""Counts the work of rows from sizes, bytes of an element and the dtype."""

_GEMM_BYTES: Mapping[str, tuple[float, float, float]] = {
    "fp8": (1, 1, 2),
    "fp8_dynamic": (2, 1, 2),
    "fp8_block": (2, 1, 2),
    "int8": (1, 1, 2),
    "w8a16": (2, 1, 2),
    "w4a16": (2, 0.5, 2),
    "nvfp4": (0.5, 0.5, 2),
}
"""Bytes of elements of A, B, C where they differ: quantised GEMMs write 16 bits."""

_BACKWARD_GEMMS = 2.5
"""Attention's gradients take five GEMMs where forward takes two."""

_PHASES = ("forward", "backward")
_LAYOUTS = ("nn", "nt", "tn", "tt")
_CONV_PHASES = ("forward", "backward_data", "backward_weight")
_COPIES = ("h2d", "d2h", "d2d")


def _backward(sizes: Sizes) -> NDArray[np.bool_]:
    phase: NDArray[np.bool_] = sizes.word("phase", "forward", _PHASES) != "forward"
    return phase


def _gemm(sizes: Sizes, size: float, dtype: str) -> Amounts:
    b, m, n, k = (sizes.whole(name) for name in "bmnk")
    of_a, of_b, of_c = _GEMM_BYTES.get(dtype, (size, size, size))
    sizes.word("phase", "forward", (*_CONV_PHASES, "backward"))
    sizes.word("layout", "nn", _LAYOUTS)
    bias = np.where(sizes.flag("bias"), n * of_c, 0.0)
    read = b * (m * k * of_a + k * n * of_b) + bias
    return 2 * b * m * n * k, read, b * m * n * of_c


def _conv2d(sizes: Sizes, size: float, dtype: str) -> Amounts:
    """Return the work of convolutions: read two of three tensors, write the third."""
    window, side = sizes.whole("kernel"), sizes.whole("size")
    reach = side + 2 * sizes.whole("padding") - window
    _check(window > 0, "the window has no taps", {"kernel": window})
    _check(reach >= 0, "the window is larger than the padded image", {"kernel": window})
    out = np.floor(reach / np.maximum(sizes.whole("stride"), 1)) + 1
    columns, channels = sizes.whole("c_out"), sizes.whole("c_in")
    groups = sizes.whole("groups", 1)
    each = np.maximum(groups, 1)
    shares = (groups > 0) & (channels % each == 0) & (columns % each == 0)
    given = {"groups": groups, "c_in": channels, "c_out": columns}
    _check(shares, "groups do not share the channels", given)
    pixels = sizes.whole("n") * out * out
    depth = channels / each * window**2
    image = sizes.whole("n") * channels * side**2
    tensors = (pixels * columns, image, depth * columns)
    phase = sizes.word("phase", "forward", _CONV_PHASES)
    written = np.select([phase == name for name in _CONV_PHASES], tensors)
    read = sum(tensors) - written
    return 2 * pixels * depth * columns, size * read, size * written


def _elementwise(sizes: Sizes, size: float, dtype: str) -> Amounts:
    elements = sizes.whole("rows") * sizes.whole("cols")
    read = size * elements * sizes.whole("tensor_inputs", 1)
    written = size * elements
    if "bytes" in sizes.columns:
        written = np.maximum(sizes.whole("bytes") - read, 0)
    return elements, read, written


def _over_rows(flops_each: int, backward_reads: int) -> FlatWork:
    """Map a matrix to a matrix; backward reads the gradient and what was saved."""

    def work(sizes: Sizes, size: float, dtype: str) -> Amounts:
        elements = sizes.whole("rows") * sizes.whole("cols")
        backward = _backward(sizes)
        moved = size * elements
        read = np.where(backward, backward_reads, 1) * moved
        return flops_each * elements * (1 + backward), read, moved

    return work


def _reduction(sizes: Sizes, size: float, dtype: str) -> Amounts:
    rows, cols = sizes.whole("rows"), sizes.whole("cols")
    return rows * cols, size * rows * cols, size * rows


def _attention(sizes: Sizes, size: float, dtype: str) -> Amounts:
    batch, heads_each = sizes.whole("batch"), sizes.whole("heads")
    heads = batch * heads_each
    q_len, kv_len, width = map(sizes.whole, ("q_len", "kv_len", "head_dim"))
    given = "kv_heads" in sizes.columns
    shared = sizes.whole("kv_heads") if given else heads_each
    divides = heads_each % np.maximum(shared, 1) == 0
    named = {"kv_heads": shared, "heads": heads_each}
    _check(divides, "heads are no multiple of kv_heads", named)
    kv_heads = batch * shared
    flops = 4 * heads * q_len * kv_len * width
    queries, keys = heads * q_len * width, 2 * kv_heads * kv_len * width
    backward = _backward(sizes)  # reads the result and its gradient besides
    return (
        np.where(backward, _BACKWARD_GEMMS, 1) * flops,
        size * (np.where(backward, 3, 1) * queries + keys),
        size * np.where(backward, queries + keys, queries),
    )


def _memcpy(sizes: Sizes, size: float, dtype: str) -> Amounts:
    moved = sizes.whole("bytes")
    sizes.word("kind", "d2d", _COPIES)
    return np.zeros(len(moved)), moved, moved


def _sent(sizes: Sizes, size: float, dtype: str) -> Amounts:
    """Return collectives' work: read and write the larger of input and output."""
    moved = sizes.whole("bytes")
    ranks, nodes = sizes.whole("ranks"), sizes.whole("nodes", 1)
    held = (ranks > 0) & (nodes > 0) & (ranks % np.maximum(nodes, 1) == 0)
    places = {"ranks": ranks, "nodes": nodes}
    if "gpus_per_node" in sizes.columns:
        each = sizes.whole("gpus_per_node")
        held &= (each == 0) | (each * nodes == ranks)
        places["gpus_per_node"] = each
    expected = "expected as many ranks, at least one, on each node"
    _check(held, expected, places)
    return np.zeros(len(moved)), moved, moved


def _check(
    possible: NDArray[np.bool_], fault: str, given: Mapping[str, Floats]
) -> None:
    """Refuse sizes that contradict each other."""
    if not possible.all():
        row = int(np.flatnonzero(~possible)[0])
        found = ", ".join(f"{name} is {size[row]:.0f}" for name, size in given.items())
        msg = f"{found}: {fault}"
        raise MeasurementError(msg)


def _gathered(sizes: Sizes, size: float, dtype: str) -> Amounts:
    flops, read, written = _sent(sizes, size, dtype)
    return flops, read / sizes.whole("ranks"), written


def _scattered(sizes: Sizes, size: float, dtype: str) -> Amounts:
    flops, read, written = _sent(sizes, size, dtype)
    return flops, read, written / sizes.whole("ranks")


FLAT_WORK: Mapping[str, FlatWork] = {
    "gemm": _gemm,
    "conv2d": _conv2d,
    "elementwise": _elementwise,
    "softmax": _over_rows(5, 2),
    "layer_norm": _over_rows(9, 2),
    "batch_norm": _over_rows(5, 2),
    "reduction": _reduction,
    "attention": _attention,
    "memcpy": _memcpy,
    "all_gather": _gathered,
    "all_reduce": _sent,
    "all_to_all": _sent,
    "broadcast": _sent,
    "reduce_scatter": _scattered,
    "send_recv": _sent,
}
"""Functions that count the work of rows, by op."""
