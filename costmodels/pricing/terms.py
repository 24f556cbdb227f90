"""A model's time as a sum of terms, so that measured rows can say the coefficients."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np

from perfc.costmodels.cpu import amounts_of, shipped_terms
from perfc.costmodels.kernels import CostModel, Floats, KernelTable
from perfc.costmodels.machine import SCALE, START, Target, family_of
from perfc.costmodels.pricing.select import price


@attrs.frozen(eq=False)
class Terms:
    """Coefficients of some kernels, and what each stands for.

    Attributes:
        names: Of the coefficients, as profiles have them.
        amounts_s: Seconds of each at 1, shape (kernels, names).
        coefficients: What perfc ships; of different kernels, the mean. Shape (names,).

    """

    names: tuple[str, ...]
    amounts_s: Floats
    coefficients: Floats


def terms_of(
    kernels: KernelTable, target: Target, models: Sequence[CostModel]
) -> Terms:
    """Return the terms of kernels of one family on a target without fits.

    On a CPU those of its model. Elsewhere two, which correct any model: a start, and a
    factor of what the model says.
    """
    if target.device.synchronous:
        return _of_cpu(kernels, target)
    seconds = price(kernels.kernels, target, models).seconds
    start_s: Floats = np.full(len(kernels), 1e-6)
    amounts_s: Floats = np.stack([start_s, seconds], axis=1)
    return Terms((START, SCALE), amounts_s, np.array([0.0, 1.0]))


def _of_cpu(kernels: KernelTable, target: Target) -> Terms:
    amounts = amounts_of(kernels, target)
    shipped = [shipped_terms(family_of(kernel)) for kernel in kernels.kernels]
    # The model has no more terms than it ships: streams have no slowdown.
    names = tuple(name for name in amounts if any(name in terms for terms in shipped))
    mean = [
        math.fsum(t.get(name, 0.0) for t in shipped) / len(shipped) for name in names
    ]
    amounts_s: Floats = np.stack([amounts[name] for name in names], axis=1)
    return Terms(names, amounts_s, np.array(mean))
