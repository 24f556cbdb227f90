"""A measured row as the kernel that cost models price: its sizes and least work.

Work is compulsory: every operand read once, every result written once. What an
implementation moves besides is the model's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from perfc.costmodels import distinct_rows
from perfc.ir import (
    OPTIMIZER_FLOPS,
    OPTIMIZER_STATES,
    Kernel,
    PerfcError,
    Record,
    Work,
)
from perfc.measurements.row import Measurement
from perfc.measurements.schema import MeasurementError

BYTES: Mapping[str, float] = {
    "fp64": 8,
    "fp32": 4,
    "tf32": 4,
    "bf16": 2,
    "fp16": 2,
    "fp8": 1,
    "fp8_dynamic": 1,
    "fp8_block": 1,
    "int8": 1,
    "w8a16": 1,
    "w4a16": 0.5,
    "nvfp4": 0.5,
}
"""Of an element, by dtype; of a weight where operands differ."""

_PRODUCT_BYTES: Mapping[str, tuple[float, float, float]] = {
    "fp8": (1, 1, 2),
    "fp8_dynamic": (2, 1, 2),
    "fp8_block": (1, 1, 2),
    "int8": (1, 1, 2),
    "w8a16": (2, 1, 2),
    "w4a16": (2, 0.5, 2),
    "nvfp4": (0.5, 0.5, 2),
}
"""Of an element of A, B and C where they differ: quantised products write 16 bits."""

_PRODUCT_MATH: Mapping[str, str] = {
    "fp8_dynamic": "fp8",
    "fp8_block": "fp8",
    "w8a16": "bf16",
    "w4a16": "bf16",
}
"""Where the mode is not called as the dtype: narrow weights are widened first."""

_INDEX_BYTES = 8
_BACKWARD_PRODUCTS = 2.5
"""Attention's gradients take five products where forward takes two."""


def bytes_of(dtype: str) -> float:
    """Return the bytes of an element.

    Raises:
        MeasurementError: there is no such dtype.

    """
    try:
        return BYTES[dtype]
    except KeyError:
        msg = f"unknown dtype {dtype!r}; known: {', '.join(BYTES)}"
        raise MeasurementError(msg) from None


def kernel_of(row: Measurement) -> Kernel:
    """Return the signature of a measured row, with its compulsory work.

    Raises:
        MeasurementError: the op or the dtype is unknown, or a size is missing.

    """
    work_of = _WORK.get(row.op)
    if work_of is None:
        msg = f"unknown op {row.op!r}; known: {', '.join(KERNEL_OPS)}"
        raise MeasurementError(msg)
    size = bytes_of(row.dtype)
    try:
        work = work_of(row.params, size, row.dtype)
    except (PerfcError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        msg = f"{row.op} {row.params}: {error}"
        raise MeasurementError(msg) from None
    if row.op in _PRODUCTS:
        mode = _PRODUCT_MATH.get(row.dtype, row.dtype)
    else:
        mode = "fp64" if row.dtype == "fp64" else "fp32"
    stored = "fp32" if row.dtype == "tf32" else row.dtype
    return Kernel(row.op, stored, mode, row.params, work)


def _work(flops: float, read: float, written: float) -> Work:
    return Work(round(flops), math.ceil(read), math.ceil(written))


def _phase(params: Record) -> str:
    return params.text("phase", "forward")


def _gemm(params: Record, size: float, dtype: str) -> Work:
    b, m, n, k = (params.integer(name) for name in "bmnk")
    of_a, of_b, of_c = _PRODUCT_BYTES.get(dtype, (size, size, size))
    bias = n * of_c if params.flag("bias") else 0
    read = b * (m * k * of_a + k * n * of_b) + bias
    return _work(2 * b * m * n * k, read, b * m * n * of_c)


def _conv2d(params: Record, size: float, dtype: str) -> Work:
    """Of three tensors each phase reads two and writes the third."""
    window, padding = params.integer("kernel"), params.integer("padding")
    out = (params.integer("size") + 2 * padding - window) // params.integer(
        "stride"
    ) + 1
    columns, channels = params.integer("c_out"), params.integer("c_in")
    pixels = params.integer("n") * out * out
    depth = channels // params.integer("groups", 1) * window**2
    image = params.integer("n") * channels * params.integer("size") ** 2
    tensors = {
        "forward": pixels * columns,
        "backward_data": image,
        "backward_weight": depth * columns,
    }
    written = tensors[_phase(params)]
    read = sum(tensors.values()) - written
    return _work(2 * pixels * depth * columns, size * read, size * written)


def _elementwise(params: Record, size: float, dtype: str) -> Work:
    elements = params.integer("rows") * params.integer("cols")
    read = size * elements * params.integer("tensor_inputs", 1)
    written = size * elements
    if "bytes" in params:
        written = max(params.integer("bytes") - read, 0)
    return _work(elements, read, written)


def _over_rows(flops_each: int, backward_reads: int) -> Callable[..., Work]:
    """Map a matrix to a matrix; backward reads the gradient and what was saved."""

    def work(params: Record, size: float, dtype: str) -> Work:
        elements = params.integer("rows") * params.integer("cols")
        backward = _phase(params) != "forward"
        reads = backward_reads if backward else 1
        moved = size * elements
        return _work(flops_each * elements * (1 + backward), reads * moved, moved)

    return work


def _reduction(params: Record, size: float, dtype: str) -> Work:
    rows, cols = params.integer("rows"), params.integer("cols")
    return _work(rows * cols, size * rows * cols, size * rows)


def _attention(params: Record, size: float, dtype: str) -> Work:
    heads = params.integer("batch") * params.integer("heads")
    q_len, kv_len, width = map(params.integer, ("q_len", "kv_len", "head_dim"))
    kv_heads = params.integer("batch") * params.integer(
        "kv_heads", params.integer("heads")
    )
    flops = 4 * heads * q_len * kv_len * width
    queries, keys = heads * q_len * width, 2 * kv_heads * kv_len * width
    if _phase(params) == "forward":
        return _work(flops, size * (queries + keys), size * queries)
    read = size * (3 * queries + keys)  # with the result and its gradient
    return _work(_BACKWARD_PRODUCTS * flops, read, size * (queries + keys))


def _embedding_bag(params: Record, size: float, dtype: str) -> Work:
    batch = params.integer("batch")
    work = Work(0, 0, 0)
    for table in params.records("tables"):
        rows, dim = table.integer("rows"), table.integer("dim")
        lookups = batch * table.integer("pooling")
        pooled, listed = size * batch * dim, _INDEX_BYTES * (lookups + batch + 1)
        if _phase(params) == "forward":
            work += _work(lookups * dim, size * lookups * dim + listed, pooled)
        else:
            work += _update(params, size, (rows, dim, lookups), pooled + listed)
    return work


def _update(
    params: Record, size: float, table: tuple[int, int, int], read: float
) -> Work:
    """Rows that are touched are read and written, with their states.

    Without an optimizer the gradient of the whole table is written.
    """
    rows, dim, lookups = table
    kind = params.text("optimizer", "")
    if not kind:
        return _work(lookups * dim, read, size * rows * dim)
    sizes = (np.array([float(number)]) for number in (rows, lookups))
    touched = float(distinct_rows(*sizes)[0])
    states = OPTIMIZER_STATES[kind]
    of_row = dim * (1 + states.count("element")) + states.count("row")
    moved = size * touched * of_row
    flops = lookups * dim + OPTIMIZER_FLOPS[kind] * touched * dim
    return _work(flops, read + moved, moved)


def _gather(params: Record, size: float, dtype: str) -> Work:
    """Rows that `indices` name, along the first axis."""
    count = math.prod(params.integers("indices"))
    elements = count * math.prod(params.integers("shape")[1:])
    read = size * elements + _INDEX_BYTES * count
    return _work(0, read, size * elements)


def _concat(params: Record, size: float, dtype: str) -> Work:
    shapes = params["shapes"]
    if not isinstance(shapes, tuple):
        msg = "shapes is no list"
        raise MeasurementError(msg)
    listed = Record({str(i): shape for i, shape in enumerate(shapes)})
    elements = sum(math.prod(listed.integers(name)) for name in listed)
    return _work(0, size * elements, size * elements)


def _transpose(params: Record, size: float, dtype: str) -> Work:
    elements = math.prod(params.integers("shape"))
    return _work(0, size * elements, size * elements)


def _optimizer_step(params: Record, size: float, dtype: str) -> Work:
    elements, kind = params.integer("elements"), params.text("kind")
    states = len(OPTIMIZER_STATES.get(kind, ("element", "element")))
    read, written = 2 + states, 1 + states
    flops = OPTIMIZER_FLOPS[kind] * elements
    return _work(flops, size * read * elements, size * written * elements)


def _memcpy(params: Record, size: float, dtype: str) -> Work:
    return _work(0, params.integer("bytes"), params.integer("bytes"))


_WORK: Mapping[str, Callable[[Record, float, str], Work]] = {
    "gemm": _gemm,
    "conv2d": _conv2d,
    "elementwise": _elementwise,
    "softmax": _over_rows(5, 2),
    "layer_norm": _over_rows(9, 2),
    "batch_norm": _over_rows(5, 2),
    "reduction": _reduction,
    "attention": _attention,
    "embedding_bag": _embedding_bag,
    "gather": _gather,
    "concat": _concat,
    "transpose": _transpose,
    "optimizer_step": _optimizer_step,
    "memcpy": _memcpy,
}

_PRODUCTS = frozenset({"gemm", "conv2d", "attention"})

KERNEL_OPS = tuple(_WORK)
"""Ops of measured rows that are kernels or copies; collectives are not."""
