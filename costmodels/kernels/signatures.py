"""Kernel signatures as formulas read them: of one kernel, or of many."""

from __future__ import annotations

from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.machine import Target
from perfc.ir.kernels import BUILTIN_KERNELS, default_of

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Texts = NDArray[np.str_]
Flags = NDArray[np.bool_]

NUMBERS = (int, float)
"""Types of numbers."""

Kind: TypeAlias = tuple[str, str, str]
"""Op, dtype and math mode."""


def number_without(op: str, name: str) -> float:
    """Return the number that a kernel has which does not say a parameter."""
    known = _NUMBERS_WITHOUT.get((op, name))
    if known is not None:
        return known
    found = default_of(op, name)
    number = float(found) if isinstance(found, NUMBERS) else 0.0
    if op in BUILTIN_KERNELS:
        _NUMBERS_WITHOUT[op, name] = number
    return number


_NUMBERS_WITHOUT: dict[tuple[str, str], float] = {}
"""Numbers of perfc's own kernels that were asked for: a formula asks for many."""


def text_without(op: str, name: str) -> str:
    """Return the word that a kernel has which does not say a parameter."""
    known = _TEXTS_WITHOUT.get((op, name))
    if known is not None:
        return known
    found = default_of(op, name)
    text = found if isinstance(found, str) else ""
    if op in BUILTIN_KERNELS:
        _TEXTS_WITHOUT[op, name] = text
    return text


_TEXTS_WITHOUT: dict[tuple[str, str], str] = {}
"""Words of perfc's own kernels that were asked for."""


Number_co = TypeVar("Number_co", float, Floats, covariant=True)
"""Number of one kernel, or of many."""


class Signatures(Protocol[Number_co]):
    """Kernel signatures as formulas read them: one in numbers, many in arrays.

    A formula that reads these and computes by `maths` is written once: it takes a table
    (`KernelTable.signatures`), and one kernel (`OneSignature`).
    """

    @property
    def op(self) -> Texts | str:
        """Canonical name."""
        ...

    @property
    def dtype(self) -> Texts | str:
        """What its tensors are stored in."""
        ...

    @property
    def math(self) -> Texts | str:
        """Math mode."""
        ...

    @property
    def flops(self) -> Number_co:
        """Flops."""
        ...

    @property
    def bytes_read(self) -> Number_co:
        """Bytes that must be read."""
        ...

    @property
    def bytes_written(self) -> Number_co:
        """Bytes that must be written."""
        ...

    @property
    def bytes(self) -> Number_co:
        """Bytes that must move, both ways."""
        ...

    def param(self, name: str, default: float | None = None) -> Number_co:
        """Return a numeric parameter; else *default*, if not as declared."""
        ...

    def text(self, name: str, default: str | None = None) -> Texts | str:
        """Return a parameter that is a word; else *default*, if not as declared."""
        ...

    def given(self, name: str) -> Flags | bool:
        """Whether there is a parameter, not none, zero, false or empty."""
        ...

    def runs_on(self, target: Target) -> Flags | bool:
        """Whether a target has the math mode."""
        ...

    def peak_flops_per_s(self, target: Target) -> Number_co:
        """Peak rate of a target in the math mode, FLOP/s."""
        ...

    def limit_flops_per_s(self, target: Target) -> Number_co:
        """Return the peak rate in FLOP/s, but no limit of what does not compute."""
        ...
