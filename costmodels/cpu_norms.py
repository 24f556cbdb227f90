"""What batch norm on a CPU does: image by image of each channel.

Of more than a pixel an image of a channel lies in one, and is gone over by vectors;
what is left of it is taken element by element. Of a single pixel the channels lie in
one, and are gone over by vectors in their place (`batch_norm_kernel.cpp`).
"""

from __future__ import annotations

import numpy as np

from perfc.costmodels.protocol import Floats, KernelTable


def batch_norm_amounts(
    kernels: KernelTable, cores: Floats, lanes: int
) -> dict[str, Floats]:
    """Return images of batch norm, what vectors leave of them, and lone pixels.

    Seconds at coefficient 1, shape (kernels,) each; 0 of other kernels.

    Args:
        kernels: Of any op.
        cores: That work on each, shape (kernels,).
        lanes: fp32 numbers of a vector.

    """
    norms = np.array([kernel.op == "batch_norm" for kernel in kernels.kernels])
    rows, channels = kernels.param("rows"), kernels.param("cols")
    images = np.maximum(kernels.param("batch"), 1.0)
    pixels = rows / images
    each_s = np.where(norms, 1e-9, 0.0) / cores
    lone = pixels <= 1
    images_s = np.where(lone, 0.0, images * channels * each_s)
    return {
        "image_ns": images_s,
        "image_tail_ns": images_s * (pixels % lanes),
        "lone_ns": np.where(lone, rows * channels * each_s, 0.0),
    }
