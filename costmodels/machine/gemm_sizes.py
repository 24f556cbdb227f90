"""The GEMM that a kernel computes: sizes of a batch of matrices, and its types."""

from __future__ import annotations

import numpy as np

from perfc.ir import Kernel


def sizes_of_gemm(kernel: Kernel) -> tuple[float, ...]:
    """Return b, m, n and k of the GEMM that a kernel computes, ones if it is none.

    b counts GEMMs that are called one by one: a single one is no batch, 0. Groups of
    a convolution share a call: each of the columns is as deep as its group.
    """
    p = kernel.params
    if kernel.op == "gemm":
        b = p.integer("b", 1)
        return float(b if b > 1 else 0), *(float(p.integer(x)) for x in "mnk")
    if kernel.op == "attention":
        heads = p.integer("batch") * p.integer("heads")
        sizes = (p.integer(name) for name in ("q_len", "kv_len", "head_dim"))
        return float(heads), *map(float, sizes)
    if kernel.op in {"conv2d", "conv3d"}:
        groups = p.integer("groups", 1)
        columns = max(p.integer("c_out"), 1)
        depth = max(p.integer("c_in") // groups, 1) * max(_window(kernel), 1)
        rows = kernel.work.flops / (2 * columns * depth)
        return 0.0, max(rows, 1.0), float(columns), float(depth)
    return 0.0, 1.0, 1.0, 1.0


def _window(kernel: Kernel) -> int:
    """Return the taps of a convolution's window: one number, or one an axis."""
    size = kernel.params["kernel"]
    if isinstance(size, tuple):
        return int(np.prod([int(str(axis)) for axis in size]))
    return int(str(size)) ** (3 if kernel.op == "conv3d" else 2)
