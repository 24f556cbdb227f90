"""What autocast costs and saves: kernels that cast, and those that are faster."""

from __future__ import annotations

import attrs
import numpy as np

from perfc.costmodels import cost_models, price
from perfc.ir import Diagnostic, Kernel, Work
from perfc.ir.support import US, Level
from perfc.passes.lowering import Settings
from perfc.passes.timing import kernel_numbers
from perfc.tools.reports import Report
from perfc.tools.request import CAPTURED

COSTS_MORE = "casts-cost-more"
"""Code of the remark on casts that take longer than they save."""

_BYTES = ("bytes", "beside_bytes")
"""Parameters that count bytes."""


def with_casts(report: Report) -> Report:
    """Say so where casts take the device longer than 16 bits save it.

    What they save is told by the kernels that have them: each is priced once more, in
    32 bits. The model is not.
    """
    low = report.dtype.removeprefix("amp-")
    lowering = report.run.lowering
    if low == report.dtype or lowering is None:
        return report
    results = report.results
    graph, costs = results.hosted[results.critical].graph, results.costs
    casts = np.array([k.params.get("kind") == "cast" for k in graph.kernels])
    if not casts.any():
        return report
    numbers = kernel_numbers(graph)
    counts = np.bincount(numbers[numbers >= 0], minlength=len(graph.kernels))
    seconds = counts * costs[results.critical].seconds
    narrow = np.flatnonzero(np.array([k.dtype == low for k in graph.kernels]) & ~casts)
    settings = lowering.settings(report.target)
    wide = [_in_fp32(graph.kernels[row], settings) for row in narrow.tolist()]
    wide_s = price(wide, report.target, cost_models()).seconds @ counts[narrow]
    saved_us = float(wide_s - seconds[narrow].sum()) * US
    casts_us = (float(seconds[casts].sum()) + counts[casts].sum() * _gap_s(report)) * US
    if casts_us <= saved_us:
        return report
    message = (
        f"{counts[casts].sum():,} casts take the device {casts_us:,.1f} us, and {low} "
        f"saves other kernels {max(saved_us, 0.0):,.1f} us: compare with --dtype fp32"
    )
    remark = Diagnostic(Level.NOTE, COSTS_MORE, message, report.model.name)
    told = (*report.analysis.diagnostics, remark)
    return attrs.evolve(
        report, analysis=attrs.evolve(report.analysis, diagnostics=told)
    )


def _gap_s(report: Report) -> float:
    """Return the gap that one more kernel makes, where the host is ahead."""
    device = report.target.device
    return device.graph_gap_s if report.runtime == CAPTURED else device.stream_gap_s


def _in_fp32(kernel: Kernel, settings: Settings) -> Kernel:
    """Return a kernel of 16 bits as it is where nothing is cast."""
    work, mode = kernel.work, kernel.math
    if mode == kernel.dtype:  # on tensor cores
        by_cudnn = kernel.op in {"conv2d", "conv3d"}
        mode = settings.fp32_cudnn if by_cudnn else settings.fp32_gemms
    params = kernel.params
    sizes = {name: 2 * params.integer(name) for name in _BYTES if name in params}
    return attrs.evolve(
        kernel,
        dtype="fp32",
        math=mode,
        params=params.updated(**sizes),
        work=Work(work.flops, 2 * work.bytes_read, 2 * work.bytes_written),
    )
