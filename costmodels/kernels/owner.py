"""What a cost model may say of its kernels besides their time: how it is bounded.

A plugin's model may have `lower_bound`; it bounds what the model prices. perfc's own
models say it of some kernels (`pricing/listed.py`), whichever model prices them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from perfc.costmodels.kernels.one_signature import OneSignature
from perfc.costmodels.kernels.signatures import Flags, Floats
from perfc.costmodels.kernels.table import KernelTable
from perfc.costmodels.machine import Target


class BringsBound(Protocol):
    """A model that knows how fast its kernels can be at best."""

    def lower_bound(self, kernels: KernelTable, target: Target) -> Floats:
        """Return a lower bound of each kernel's duration, in seconds, shape (rows,)."""
        ...


class BringsOneBound(BringsBound, Protocol):
    """One of perfc's own, which says the same of one kernel in plain numbers."""

    def lower_bound_of_one(self, one: OneSignature, target: Target) -> float:
        """Return a lower bound of one kernel's duration, in seconds."""
        ...


class IntervalGroup(NamedTuple):
    """Kernels of one op that err alike.

    Attributes:
        suffixes: What is added to their op in the names of intervals; the first that
            is known counts.
        rows: Which they are, shape (rows,).
        widths: How much wider each one's interval is than the group's, shape (rows,).
        spreads: Logarithm by which each one may be off for what is not known of its
            kernel, shape (rows,): an end of its interval.

    """

    suffixes: tuple[str, ...]
    rows: Flags
    widths: Floats | float = 1.0
    spreads: Floats | float = 0.0


class OneGroup(NamedTuple):
    """Interval group of one kernel; see `IntervalGroup`."""

    suffixes: tuple[str, ...]
    width: float = 1.0
    spread: float = 0.0


class BringsIntervals(Protocol):
    """A model of perfc's own that knows which of its kernels err alike."""

    def interval_groups(
        self, kernels: KernelTable, target: Target
    ) -> Iterator[IntervalGroup]:
        """Yield the groups; a kernel of none is like no measured row."""
        ...

    def interval_group_of_one(
        self, one: OneSignature, target: Target
    ) -> OneGroup | None:
        """Return the group of one kernel; None for one of none."""
        ...
