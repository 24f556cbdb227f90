"""Kernels that sort, search, sample and resample."""

from __future__ import annotations

from perfc.ir.kernels.definition import KernelDef, named
from perfc.ir.kernels.spelling import COLS, COUNT, ROWS, kernel, kind, param


def _over_rows(name: str, summary: str, of_kind: str = "") -> KernelDef:
    own = (ROWS, COLS, kind(of_kind)) if of_kind else (ROWS, COLS)
    return kernel(name, summary, *own, by="eager")


_STEPS = param(
    "steps", COUNT, "steps that wait for one another", unit="steps", default=0
)

KERNELS = named(
    _over_rows("radix_sort", "a pass of a radix or merge sort", "the kernel of CUB"),
    _over_rows("run_length", "keys that follow on equal ones, counted", "of what"),
    _over_rows("scan", "running sums, and other walks over a list", "of what"),
    _over_rows("sort", "a sort of every row"),
    _over_rows("select", "elements that are kept, side by side", "of what"),
    _over_rows("histogram", "elements counted by bins"),
    _over_rows("nms", "boxes that overlap better ones, taken out"),
    _over_rows("sample", "numbers drawn by weights"),
    _over_rows("nll_loss", "negative log likelihood of labels"),
    _over_rows("roi_pool", "regions of images pooled"),
    _over_rows("col2im", "windows added up into images"),
    _over_rows("deformable_im2col", "windows read at offsets"),
    _over_rows("interpolate", "images resized", "the interpolation"),
    _over_rows("resize", "gradient of resized images", "the interpolation"),
    _over_rows("grid_sample", "images read at coordinates", "the interpolation"),
    _over_rows("affine_grid", "coordinates of an affine map"),
    _over_rows("pad", "a border around a tensor, or its gradient"),
    kernel("topk", "the largest of every row", ROWS, COLS, _STEPS, by="eager"),
    kernel(
        "ctc_walk",
        "a walk over the alignments of a CTC loss",
        *(ROWS, COLS, _STEPS),
        by="eager",
    ),
    kernel(
        "ctc_collect",
        "gradients of a CTC loss collected",
        kind("labels or padding"),
        by="eager",
    ),
    kernel("test.op", "what a test states the time of", by="eager"),
)
"""Kernels that this module declares, by name."""
