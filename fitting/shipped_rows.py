"""What shipped rows of CPUs say of one, where its own rows agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfc.costmodels import Target, price
from perfc.costmodels.cpu import shipped_rows
from perfc.costmodels.kernels import CostModel, Floats
from perfc.costmodels.machine import Family
from perfc.fitting.observations import Observations
from perfc.ir import Kernel

_SHARES = (0.5, 1.0)
"""Shares of what shipped rows say, in the order in which they are tried."""

_LEAST_GAIN = 0.02
"""Least gain, a share of the mean error; below it a machine keeps to its own rows."""


def agreed_share(
    family: Family, kernels: Sequence[Kernel], logs: Floats, target: Target
) -> tuple[float, Floats]:
    """Return the share of what shipped rows say that a machine's own rows agree to.

    Args:
        family: Of the kernels, all kinds of an op.
        kernels: What ran.
        logs: ln(measured / modelled), shape (rows,).
        target: Where they ran: nothing is shipped for GPUs.

    Returns:
        The share, 0 to 1, and what it says of the kernels, shape (rows,).

    """
    none = np.zeros(len(logs))
    near = shipped_rows().get(family) if target.device.synchronous else None
    if near is None:
        return 0.0, none
    told = near.log_factor(kernels)
    losses = {share: np.abs(logs - share * told).mean() for share in _SHARES}
    best = min(losses, key=losses.__getitem__)
    if losses[best] > (1 - _LEAST_GAIN) * np.abs(logs).mean():
        return 0.0, none
    return best, best * told


def logs_of(
    rows: Observations, target: Target, models: Sequence[CostModel]
) -> tuple[Floats, Floats]:
    """Return ln(measured / modelled) of *rows*, and their noise; shape (rows,) each.

    The noise is how much more a logarithm varies than the time that was measured,
    which holds what is around the kernel.
    """
    modelled_s = price(rows.kernels.kernels, target, models).seconds
    kernel_s = rows.measured_s - rows.offset_s
    return np.log(kernel_s / modelled_s), rows.measured_s / kernel_s
