"""What batch norm on a CPU does: image by image of each channel.

Of more than a pixel an image of a channel lies in one, and is gone over by vectors;
what is left of it is one more, and images smaller than a vector go element by element
through gradients. Of a single pixel the channels lie in one, and are gone over by
vectors in their place, row by row; a gradient adds up what each thread found of each
channel (`batch_norm_kernel.cpp`).

The images of a channel lie apart, each in pages of its own: of more images than the
prefetcher follows, every line comes late.
"""

from __future__ import annotations

import numpy as np

from perfc.costmodels.kernels import Floats, KernelTable

WIDEST = 8
"""fp32 numbers of a vector at most: the kernel is compiled for AVX2 where there is
AVX-512, too (`REGISTER_DISPATCH`, `DispatchStub.h`)."""

LINE_PIXELS = 16
"""Pixels of fp32 in a cache line of 64 bytes."""

FOLLOWED, ALL_STRAY = 20, 44
"""Images of a channel that prefetchers keep up with, and from which on all lines come
late: a Xeon's tracks 32 pages (Intel's optimization manual, "L2 streamer"). Read off
the gradient on two cores of one, of 1 to 256 images of 3 MB in all."""


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
    lone, vector = pixels <= 1, min(lanes, WIDEST)
    images_s = np.where(lone, 0.0, images * channels * each_s)
    short, rest = pixels < vector, pixels % vector > 0
    stray = np.clip((images - FOLLOWED) / (ALL_STRAY - FOLLOWED), 0.0, 1.0)
    return {
        "image_ns": images_s,
        "image_tail_ns": np.where(rest & ~short, images_s, 0.0),
        "short_pixel_ns": np.where(short, images_s * pixels, 0.0),
        "stray_image_ns": images_s * stray,
        "stray_line_ns": images_s * stray * np.ceil(pixels / LINE_PIXELS),
        "lone_ns": np.where(lone, rows * channels * each_s, 0.0),
        "lone_start_us": np.where(norms & lone, 1e-6, 0.0),
        "lone_row_ns": np.where(lone, rows * each_s, 0.0),
        "lone_channel_ns": np.where(norms & lone, channels * 1e-9, 0.0),
    }
