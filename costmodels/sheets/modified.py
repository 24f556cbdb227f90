"""Kernels on a GPU that is imagined: what it changes, on the price of the known one.

A price is a formula, what is known of a GPU's rows beside it, and a library's choice of
kernel, which is not always the fastest. Of a GPU that differs from a known one by some
fields, the formula by the fastest kernel says how much sooner it is done:

    price(imagined) = price(known) * fastest(imagined) / fastest(known)

A machine that may do more chooses among more, each of which takes it no longer; so the
fastest of them, and with it the price, is no slower on a better machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs
import numpy as np

from perfc.costmodels.kernels import Estimate, Floats, KernelTable
from perfc.costmodels.machine import Target
from perfc.costmodels.sheets.shipped import as_known, nominal
from perfc.ir import Kernel

Price: TypeAlias = Callable[[KernelTable, Target], Estimate]
Fastest: TypeAlias = Callable[[KernelTable, Target], Floats]
"""Seconds by the fastest kernel: in no field may a better target take longer."""
_Asked: TypeAlias = tuple[Price, Fastest, tuple[Kernel, ...]]

_MOST_TABLES, _MOST_ROWS = 16, 512
"""Tables of kernels whose prices are kept of a known GPU, and rows of each."""


def is_imagined(target: Target) -> bool:
    """Whether a GPU differs from a known one of its name."""
    return target.once(nominal) is not None


def imagined(
    price: Price, fastest: Fastest, kernels: KernelTable, target: Target
) -> Estimate:
    """Price kernels on a GPU that may be imagined.

    Args:
        price: Of a known GPU.
        fastest: What the formula says of either.
        kernels: All in math modes that the target has.
        target: Where it has a mode that the known GPU lacks, the formula says all.

    """
    if not is_imagined(target):
        return price(kernels, target)
    known = target.once(_known)
    found, known_s = _on_known(price, fastest, kernels, known)
    seconds = fastest(kernels, target)
    changed = found.seconds * (seconds / known_s)
    comparable = kernels.runs_on(as_known(target))
    return attrs.evolve(found, seconds=np.where(comparable, changed, seconds))


def _on_known(
    price: Price, fastest: Fastest, kernels: KernelTable, known: Target
) -> tuple[Estimate, Floats]:
    """Return prices on a known GPU, and what its fastest kernels take.

    Few kernels are asked about again and again, for one imagined GPU after another.
    """
    if kernels.has_columns_only or len(kernels) > _MOST_ROWS:
        return price(kernels, known), fastest(kernels, known)
    told, key = known.once(_told), (price, fastest, tuple(kernels.kernels))
    found = told.get(key)
    if found is None:
        if len(told) >= _MOST_TABLES:
            told.clear()
        found = told[key] = price(kernels, known), fastest(kernels, known)
    return found


def _told(_: Target) -> dict[_Asked, tuple[Estimate, Floats]]:
    return {}


def _known(target: Target) -> Target:
    known = as_known(target)
    rates = {**target.device.flops_per_s, **known.device.flops_per_s}
    if rates.keys() == known.device.flops_per_s.keys():
        return known
    return attrs.evolve(known, device=attrs.evolve(known.device, flops_per_s=rates))
