"""What GEMMs on a CPU do: of matrices and vectors, convolutions, attention.

A GEMM's rate ramps with its work: MKL and oneDNN take one core below some hundred
thousand flops, whose registers and prefetchers are not busy yet. How the ramp goes
differs between libraries and processors; its pieces are lines between `RAMP_FLOPS`.
Columns are computed in vectors, the last of which is padded, or taken in
`COLUMN_PIECES`, each of which reads the left operand again. A bias is written to the
result first, which the GEMM then adds to (`addmm_impl_cpu_` in
`aten/src/ATen/native/LinearAlgebra.cpp`): by one core if it is small, out of whose
cache the others then take it. Batches of GEMMs of under `NAIVE` multiplications are
loops of PyTorch's own (`baddbmm_cpu_kernel`).
"""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.constants import constants
from perfc.costmodels.cpu.conv import conv_amounts, is_depthwise
from perfc.costmodels.kernels import ARRAYS, Floats, KernelTable, executed_share
from perfc.costmodels.machine import Target, sizes_of_gemm
from perfc.ir import Kernel

GRAIN = 32768
"""Elements that a thread has at least (`at::internal::GRAIN_SIZE`)."""

RAMP_FLOPS = constants("cpu").lists("ramp_flops")
"""Flops of a call that each piece of the ramp stands for: from, to."""

SMALL_FLOPS = constants("cpu").number("small_flops")
"""GEMMs below it are one core's work."""

ALONE_FLOPS = constants("cpu").number("alone_flops")
"""For each lane of a vector: MKL leaves smaller GEMMs to one core."""

FEW_ROWS = (4, 48)
"""Rows, from and below, for which MKL reads a right operand along k as it is.

It reads many of the operand's lines at once; fewer rows are dot products, for
more it is packed.
"""

SHALLOW = 8
"""Depth below which writing the result takes longer than computing it."""

COLUMNS = 16
"""Columns that are taken at once: a vector of AVX-512, two of AVX2."""

COLUMN_PIECES = np.array([count.bit_count() for count in range(COLUMNS)])
"""Pieces of 8, 4, 2 and 1 that so many columns are taken in."""

TAIL = 8
"""Elements of a vector of AVX2, which PyTorch's copies are compiled for."""

NAIVE = 400
"""Multiplications of one GEMM of a batch below which no library is called."""

FIRST_ITEMS = constants("cpu").number("first_items")
"""Elements of a matrix times a vector that are slower than those after."""


def gemm_amounts(
    kernels: KernelTable, target: Target, share: Floats, lanes: int
) -> dict[str, Floats]:
    """Return the amounts of GEMMs, seconds at coefficient 1, 0 of other kernels.

    Shape (kernels,) each.

    Args:
        kernels: Of any op.
        target: A CPU.
        share: Of its cores that work on each kernel, shape (kernels,).
        lanes: fp32 numbers of a vector.

    """
    sizes = np.array([sizes_of_gemm(k) for k in kernels.kernels], dtype=np.float64)
    found = _Gemms.of(kernels, sizes.reshape(-1, 4), target, share)
    flops_s, peak_s = found.flops_s, found.peak_s
    return {
        "slowdown": flops_s,
        # A size of 0 has no flops.
        "m_half": flops_s / np.maximum(found.m, 1.0),
        "n_half": flops_s / np.maximum(found.n, 1.0),
        "k_half": flops_s / np.maximum(found.k, 1.0),
        "matrix_us": 1e-6 * found.batch / found.cores,
        **_ramp(kernels.flops, flops_s * share),
        **_cores(found, lanes),
        **_operands(found, lanes),
        **_results(found, lanes),
        **_vectors(found),
        **conv_amounts(kernels, peak_s, lanes),
    }


@attrs.frozen(eq=False)
class _Gemms:
    """Sizes and kinds of GEMMs, shape (kernels,) each.

    Attributes:
        batch: GEMMs of a batch, 0 of a single one.
        m: Rows.
        n: Columns.
        k: Depth.
        layouts: How the operands lie, `nn` where nothing is said.
        bias: Whether one is added.
        gemm: Whether it is a GEMM, no convolution and no attention.
        vector: Whether it is a matrix times a vector.
        peak_s: Seconds at the cores' rate.
        flops_s: The same of GEMMs; 0 of vectors and of groups.
        cores: That work on it.

    """

    batch: Floats
    m: Floats
    n: Floats
    k: Floats
    layouts: NDArray[np.str_]
    bias: NDArray[np.bool_]
    gemm: NDArray[np.bool_]
    vector: NDArray[np.bool_]
    peak_s: Floats
    flops_s: Floats
    cores: Floats

    @classmethod
    def of(
        cls, kernels: KernelTable, sizes: Floats, target: Target, share: Floats
    ) -> _Gemms:
        """Return the GEMMs of the kernels."""
        rates = target.device.flops_per_s
        # Integers go the ways of fp32, and gain what was measured (`int8.py`).
        modes = ("fp32" if k.math == "int8" else k.math for k in kernels.kernels)
        rate = np.array([rates.get(mode, np.inf) for mode in modes])
        flops_s = kernels.flops / (rate * share)
        attention = np.flatnonzero([k.op == "attention" for k in kernels.kernels])
        if len(attention):
            signatures = kernels.take(attention).signatures
            flops_s[attention] *= executed_share(signatures, ARRAYS)
        vector = by_vectors(kernels)
        grouped = np.array([is_depthwise(k) for k in kernels.kernels], dtype=np.bool_)
        params = [kernel.params for kernel in kernels.kernels]
        gemm = np.array([k.op == "gemm" for k in kernels.kernels], dtype=np.bool_)
        batch, m, n, k = sizes.T
        return cls(
            batch,
            m,
            n,
            k,
            np.array([each.get("layout", "nn") for each in params], dtype=np.str_),
            gemm & np.array([each.flag("bias") for each in params], dtype=np.bool_),
            gemm,
            vector,
            flops_s,
            np.where(vector | grouped, 0.0, flops_s),
            share * target.device.sm_count,
        )

    def alone(self, lanes: int) -> NDArray[np.bool_]:
        """Whether it is so small that one core does it."""
        return 2 * self.m * self.n * self.k < ALONE_FLOPS * lanes

    @property
    def matrices_s(self) -> Floats:
        """A nanosecond for each GEMM that a core computes."""
        each_s = np.maximum(self.batch, 1) / self.cores * 1e-9
        return np.where(self.gemm & ~self.vector, each_s, 0.0)


def _ramp(flops: Floats, peak_s: Floats) -> dict[str, Floats]:
    """Return the seconds of the flops in each piece of the ramp at all cores' rate."""
    each_s = peak_s / np.maximum(flops, 1.0)
    return {
        name: np.clip(flops - first, 0.0, last - first) * each_s
        for name, (first, last) in RAMP_FLOPS.items()
    }


def _cores(found: _Gemms, lanes: int) -> dict[str, Floats]:
    """Return the amounts of small GEMMs' idle cores, and of waits for the others."""
    single = found.gemm & ~found.vector & (found.batch <= 1) & (found.cores > 1)
    alone = found.alone(lanes)
    return {
        "alone": np.where(single & alone, found.flops_s * (found.cores - 1), 0.0),
        "joined_us": np.where(single & ~alone, 1e-6, 0.0),
    }


def _operands(found: _Gemms, lanes: int) -> dict[str, Floats]:
    """Return the amounts of reading operands beyond what is computed with them."""
    left_s = found.matrices_s * found.m * found.k
    right_s = found.matrices_s * found.n * found.k
    single = (found.batch <= 1) & (2 * found.m * found.n * found.k <= SMALL_FLOPS)
    pieces = COLUMN_PIECES[found.n.astype(np.intp) % COLUMNS]
    columns = np.maximum(found.n, 1.0)
    padded = np.ceil(columns / lanes) * lanes / columns - 1
    left_turned = np.char.startswith(found.layouts, "t")
    right_turned = np.char.endswith(found.layouts, "t")
    few = (found.m >= FEW_ROWS[0]) & (found.m < FEW_ROWS[1])
    return {
        "small_left_ns": np.where(single, left_s, 0.0),
        "small_right_ns": np.where(single, right_s, 0.0),
        "left_turned_ns": np.where(left_turned, left_s, 0.0),
        "right_turned_ns": np.where(right_turned & few, right_s, 0.0),
        "piece_ns": left_s * pieces,
        "rest_ns": np.where(found.n % lanes > 0, left_s, 0.0),
        "padded": np.where(found.gemm, found.flops_s * padded, 0.0),
    }


def _results(found: _Gemms, lanes: int) -> dict[str, Floats]:
    """Return the amounts of the result's elements, and of a bias that is put there.

    Rows of the bias that fill no whole vectors end with single elements.
    """
    count = found.m * found.n
    naive = found.gemm & (found.batch > 1) & (count * found.k < NAIVE)
    biased_s = np.where(found.bias, count * 1e-9, 0.0)
    cores = np.where(count >= GRAIN, found.cores, 1.0)
    handed = (count < GRAIN) & ~found.alone(lanes)
    tails_s = np.where(found.bias & (found.n % TAIL > 0), found.m * 1e-9, 0.0)
    return {
        "bias_us": np.where(found.bias, 1e-6, 0.0),
        "bias_item_ns": biased_s / cores,
        "bias_tail_ns": tails_s / cores,
        "bias_handed_ns": np.where(handed, biased_s * 2 * (1 - 1 / found.cores), 0.0),
        "shallow_ns": np.where(found.k < SHALLOW, found.matrices_s * count, 0.0),
        "naive_us": np.where(naive, found.matrices_s * 1e3, 0.0),
    }


def padded_rows(kernel: Kernel, lanes: int) -> list[Kernel]:
    """Return a GEMM with as many more rows as each other way of computing it has.

    What has fewer rows takes no longer than that: it could be padded. Rules that were
    read off two cores leave to one core what many do sooner.

    Args:
        kernel: Of any op; what is no GEMM has no rows.
        lanes: fp32 numbers of a vector.

    """
    if kernel.op != "gemm":
        return []
    rows, columns, depth = (kernel.params.integer(size) for size in "mnk")
    each = max(2 * columns * depth, 1)
    ways = (
        2,  # no longer a matrix times a vector
        FEW_ROWS[1],
        math.ceil(GRAIN / max(columns, 1)),
        math.ceil(2 * NAIVE / each),
        math.floor(SMALL_FLOPS / each) + 1,
        math.ceil(ALONE_FLOPS * lanes / each),
    )
    return [
        attrs.evolve(
            kernel,
            params=kernel.params.updated(m=more),
            work=attrs.evolve(kernel.work, flops=kernel.work.flops * more // rows),
        )
        for more in ways
        if more > rows > 0
    ]


def _vectors(found: _Gemms) -> dict[str, Floats]:
    """Return elements of a matrix times a vector, its rows and its columns.

    Where the matrix lies along the result, a multiple of each of its rows is added to
    that; else each of the result is a product of two vectors.
    """
    column = found.n == 1
    results = np.where(column, found.m, found.n)
    turned = found.layouts != "nn"
    dots = np.where(column, ~np.char.startswith(found.layouts, "t"), turned)
    items = results * found.k
    own_s = np.where(found.vector, 1e-9, 0.0)
    return {
        "vector_ns": own_s * items,
        "first_vector_ns": own_s * np.minimum(items, FIRST_ITEMS),
        "dot_ns": np.where(dots, own_s * results, 0.0),
        "added_row_ns": np.where(dots, 0.0, own_s * found.k),
    }


def by_vectors(kernels: KernelTable) -> NDArray[np.bool_]:
    """Whether it is a matrix times a vector: a single GEMM with one row or column.

    PyTorch calls `gemv` for these. Shape (kernels,).
    """
    found: NDArray[np.bool_] = np.array(
        [
            kernel.op == "gemm"
            and kernel.params.integer("b", 1) == 1
            and 1 in {kernel.params.integer("m"), kernel.params.integer("n")}
            for kernel in kernels.kernels
        ],
        dtype=np.bool_,
    )
    return found
