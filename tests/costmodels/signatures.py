"""Kernel signatures for tests, with their compulsory work."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.costmodels.conv import CONV
from perfc.costmodels.embedding import EMBEDDING_BAG, EMBEDDING_TIERS, EMBEDDING_UPDATE
from perfc.costmodels.gemm import GEMM
from perfc.costmodels.kernels import CostModel
from perfc.costmodels.memcpy import MEMCPY
from perfc.costmodels.roofline import ROOFLINE
from perfc.costmodels.streaming import STREAMING
from perfc.ir import AttrValue, Kernel, Record, Work
from perfc.ir.kernels import ParamType, kernel_def

ALL_MODELS: tuple[CostModel, ...] = (
    GEMM,
    CONV,
    STREAMING,
    EMBEDDING_BAG,
    EMBEDDING_TIERS,
    EMBEDDING_UPDATE,
    MEMCPY,
    ROOFLINE,
)

SIZES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}


def gemm(
    m: int,
    n: int,
    k: int,
    *,
    b: int = 1,
    dtype: str = "fp32",
    math: str = "fp32",
    layout: str = "nn",
) -> Kernel:
    """Return the signature of a GEMM."""
    size = SIZES[dtype]
    params: dict[str, AttrValue] = {"b": b, "m": m, "n": n, "k": k, "layout": layout}
    work = Work(2 * b * m * n * k, size * b * (m * k + k * n), size * b * m * n)
    return Kernel("gemm", dtype, math, Record(params), work)


def over_rows(
    op: str, rows: int, cols: int, *, dtype: str = "fp32", inputs: int = 1
) -> Kernel:
    """Return the signature of a kernel that maps a matrix to a matrix."""
    count, size = rows * cols, SIZES[dtype]
    params: dict[str, AttrValue] = {"rows": rows, "cols": cols}
    if op == "elementwise":
        params |= {"kind": "add", "tensor_inputs": inputs}
    work = Work(count, inputs * size * count, size * count)
    return Kernel(op, dtype, "fp32", declared(op, params), work)


def declared(op: str, params: Mapping[str, AttrValue]) -> Record:
    """Return what a kernel may have of *params*, and small sizes that it needs."""
    declaration = kernel_def(op).declared
    needed = {
        p.name: p.choices[0] if p.choices else _LEAST[p.type]
        for p in declaration.params
        if p.is_required
    }
    given = {k: v for k, v in params.items() if k in declaration.by_name}
    return Record({**needed, **given})


_LEAST: Mapping[ParamType, AttrValue] = {
    ParamType.COUNT: 1,
    ParamType.NUMBER: 1,
    ParamType.WORD: "",
    ParamType.SIZES: (1, 1),
    ParamType.PER_AXIS: 1,
    ParamType.SHAPES: ((1, 1),),
    ParamType.RECORDS: (Record({"rows": 1, "dim": 1, "pooling": 1}),),
}


def conv(
    channels: int, columns: int, image: int, *, kernel: int, n: int = 32
) -> Kernel:
    """Return the signature of a `same` convolution with stride 1."""
    pixels, depth = n * image * image, channels * kernel**2
    params: dict[str, AttrValue] = {
        "n": n,
        "c_in": channels,
        "c_out": columns,
        "kernel": kernel,
        "size": image,
        "stride": 1,
        "padding": kernel // 2,
    }
    read = 4 * (pixels * channels + depth * columns)
    work = Work(2 * pixels * depth * columns, read, 4 * pixels * columns)
    return Kernel("conv2d", "fp32", "fp32", Record(params), work)


def bag(
    batch: int,
    tables: int,
    rows: int,
    pooling: int,
    dim: int,
    *,
    dtype: str = "fp32",
    **more: AttrValue,
) -> Kernel:
    """Return the signature of an embedding bag over equal tables."""
    size, lookups = SIZES[dtype], batch * tables * pooling
    table = Record({"rows": rows, "dim": dim, "pooling": pooling})
    params: dict[str, AttrValue] = {"batch": batch, "tables": (table,) * tables, **more}
    read = lookups * (dim * size + 8) + 8 * tables * (batch + 1)
    work = Work(lookups * dim, read, batch * tables * dim * size)
    return Kernel("embedding_bag", dtype, "fp32", Record(params), work)


def update(
    batch: int,
    tables: int,
    rows: int,
    pooling: int,
    dim: int,
    *,
    optimizer: str = "sgd",
    algorithm: str = "warp_per_row",
    popularity: str = "uniform",
) -> Kernel:
    """Return the signature of the update of equal tables; "" is the whole of it."""
    lookup = bag(batch, tables, rows, pooling, dim, popularity=popularity)
    params = lookup.params.updated(phase="backward", optimizer=optimizer)
    if algorithm:
        params = params.updated(algorithm=algorithm)
    lookups, touched = batch * tables * pooling, min(rows, batch * pooling) * tables
    moved = 4 * dim * touched
    work = Work(lookups * dim, 4 * dim * lookups + moved, moved)
    return Kernel("embedding_bag", "fp32", "fp32", params, work)


def copy(nbytes: int, kind: str = "h2d", *, pinned: bool = True) -> Kernel:
    """Return the signature of a copy."""
    params: dict[str, AttrValue] = {"bytes": nbytes, "kind": kind, "pinned": pinned}
    return Kernel("memcpy", "fp32", "fp32", Record(params), Work(0, nbytes, nbytes))


def unknown(nbytes: int, op: str = "acme::magic") -> Kernel:
    """Return the signature of an op that perfc has no model of."""
    return Kernel(op, "fp32", "fp32", Record(), Work(0, nbytes, nbytes), known=False)
