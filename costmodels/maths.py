"""Formulas that price one kernel and arrays of kernels alike.

An array of one element costs numpy as much as one of a hundred. Formulas that take
their functions from here are written once, and price a kernel alone in plain floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, TypeVar

import attrs
import numpy as np

from perfc.costmodels.protocol import Flags, Floats

Number = TypeVar("Number", float, Floats)
"""Of one kernel, or of many: then an array whose shapes broadcast."""


@attrs.frozen
class Maths(Generic[Number]):
    """What operators do not say."""

    ceil: Callable[[Number], Number]
    floor: Callable[[Number], Number]
    log10: Callable[[Number], Number]
    log2: Callable[[Number], Number]
    tanh: Callable[[Number], Number]
    power: Callable[[Number | float, Number | float], Number]
    least: Callable[[Number | float, Number | float], Number]
    most: Callable[[Number | float, Number | float], Number]
    flag: Callable[[Flags | bool], Number]
    """One for true, nought for false."""
    hypot: Callable[[Number, Number], Number]
    where: Callable[[Flags | bool, Number | float, Number | float], Number]
    """The one where it is true, the other elsewhere."""
    any: Callable[[Number | Flags | bool], object]
    """Whether it is not nought, somewhere."""
    sqrt: Callable[[Number], Number]
    log1p: Callable[[Number], Number]
    expm1: Callable[[Number], Number]


def _one_where(
    truth: Flags | bool,  # noqa: FBT001 - of one kernel or of many
    chosen: float,
    other: float,
) -> float:
    return chosen if truth else other


def _lesser(one: float, other: float) -> float:
    """Return the lesser; a third of the time that `min` takes."""
    return other if other < one else one


def _greater(one: float, other: float) -> float:
    return other if other > one else one


def _flags(truth: Flags | bool) -> Floats:  # noqa: FBT001 - of one kernel or of many
    return np.asarray(truth, dtype=np.float64)


ARRAYS: Maths[Floats] = Maths(
    ceil=np.ceil,
    floor=np.floor,
    log10=np.log10,
    log2=np.log2,
    tanh=np.tanh,
    power=np.power,
    least=np.minimum,
    most=np.maximum,
    flag=_flags,
    hypot=np.hypot,
    where=np.where,
    any=np.any,
    sqrt=np.sqrt,
    log1p=np.log1p,
    expm1=np.expm1,
)
FLOATS: Maths[float] = Maths(
    ceil=math.ceil,
    floor=math.floor,
    log10=math.log10,
    log2=math.log2,
    tanh=math.tanh,
    power=math.pow,
    least=_lesser,
    most=_greater,
    flag=float,
    hypot=math.hypot,
    where=_one_where,
    any=bool,
    sqrt=math.sqrt,
    log1p=math.log1p,
    expm1=math.expm1,
)
