"""A GPU as a GEMM sees it: its sheet and fitted parameters, and its kernels."""

from __future__ import annotations

import functools
import math
from typing import Generic, NamedTuple

import attrs
import numpy as np

from perfc.costmodels.constants import constants
from perfc.costmodels.gemm.parameters import MOST_PARTS, GemmParameters
from perfc.costmodels.gemm.tiles import Menu
from perfc.costmodels.kernels import Floats, Number
from perfc.costmodels.machine import Target
from perfc.costmodels.sheets import as_known
from perfc.costmodels.streaming import L2_PARTITIONS, SHARERS

_CONSTANTS = constants("gemm")

_SMALL_L2_BYTES = _CONSTANTS.number("small_l2_bytes")
"""L2 below which narrow reads of rows evict one another."""

_WIDEST_LOADS = (128 + 256) / (128 * 256)
_DECADES = _CONSTANTS.number("clock_decades")
"""After so many from where it is short, a GEMM's clock is what the board sustains.
"""

_STEEPNESS = _CONSTANTS.number("steepness")
"""How fast an SM fills up with tiles of one thread a lane, as an exponent."""


class Size(NamedTuple, Generic[Number]):
    """A GEMM C[b,m,n] = A[b,m,k] B[b,k,n]; or many, arrays of shape (rows,)."""

    batch: Number
    m: Number
    n: Number
    k: Number
    bytes: Number
    """Bytes that must move."""
    peak: Number
    """FLOP/s."""


class Choices(NamedTuple):
    """The kernels of the menu on a machine; arrays of shape (kernels, 1)."""

    per_row: Floats
    per_column: Floats
    """One over rows and columns of a tile."""
    at_once: Floats
    """Tiles that fill an SM."""
    per_full: Floats
    """One over them."""
    full: Floats
    """Their outputs."""
    steepness: Floats
    """Exponent of what is missing where few tiles fill an SM."""
    step: Floats
    """Time of a step of an output, over that at the sheet's rate."""
    loads_s: Floats
    """Time to load the operands of one byte of depth from L2."""


class Rates(NamedTuple):
    """What is the same for all kernels of a machine."""

    per_sm: float
    """One over the number of SMs."""
    per_step: float
    """One over the depth of a step."""
    fill_s: float
    """Start and end of a tile, for each of its outputs."""
    per_stream: float
    """Share of the memory's rate that one tile per SM asks for."""
    stages_again: bool
    """Whether each tile fills its pipeline anew."""


@attrs.frozen(eq=False)
class Machine:
    """What a target and some parameters come to.

    Attributes:
        target: The GPU.
        parameters: Of the math mode.
        menu: Kernels to choose from.
        boost: Rate of a short GEMM over that of the sheet, whose clock is lower.
        short: Share of it that a short GEMM reaches on this board.
        late: The same of a long one, over `short`.
        fastest: Whether the kernel is taken that takes least (`fastest_of_many`).
        most_parts: Into how many parts a sum is cut at most.

    """

    target: Target
    parameters: GemmParameters
    menu: Menu
    boost: float
    short: float
    late: float
    fastest: bool = False
    most_parts: float = MOST_PARTS

    @functools.cached_property
    def sm_count(self) -> int:
        """How many SMs there are."""
        return self.target.device.sm_count

    @functools.cached_property
    def memory_rate(self) -> float:
        """What GEMMs reach of the memory's rate, in bytes per second."""
        return self.target.device.memory.bytes_per_s * self.parameters.memory_efficiency

    @functools.cached_property
    def l2_rate(self) -> float:
        """Rate of L2 that GEMMs reach, in bytes per second."""
        return self.target.device.l2.bytes_per_s * self.parameters.l2_efficiency

    @functools.cached_property
    def cooling(self) -> float:
        """The power of its duration with which a long GEMM slows down."""
        return math.log10(self.late) / _DECADES

    @functools.cached_property
    def start_s(self) -> float:
        """What passes in any kernel."""
        own_s = self._seconds_of(self.parameters.start_cycles)
        return self.target.device.kernel_floor_s + own_s

    @functools.cached_property
    def split_s(self) -> float:
        """What a split costs."""
        return self._seconds_of(self.parameters.split_cycles)

    @functools.cached_property
    def _sharers(self) -> int:
        """Return between how many SMs the memory's rate is shared.

        What an SM asks for is its own: more of them than the GPU has leave it, or less.
        """
        return as_known(self.target).device.sm_count

    @functools.cached_property
    def write_s(self) -> float:
        """To write a byte of an output, as far as nothing hides it."""
        return self.parameters.epilogue * self._sharers / self.memory_rate

    @functools.cached_property
    def rates(self) -> Rates:
        """What is the same for all kernels."""
        p = self.parameters
        return Rates(
            1 / self.sm_count,
            1 / p.k_step,
            self._seconds_of(p.fill_cycles) / p.full_outputs,
            self.sm_count / (self._sharers * p.streams_per_sm),
            self.menu.stages_again,
        )

    @functools.cached_property
    def steepness(self) -> Floats:
        """How steeply tiles fill an SM, shape (kernels, 1).

        The more threads of one tile each lane has, the less waiting is left for a
        second tile to fill.
        """
        menu = self.menu
        if menu.threads is None:
            return np.full_like(menu.area, _STEEPNESS)
        # More lanes by hand fill an SM no later, in no math mode.
        machine = as_known(self.target) if self.fastest else self.target
        lanes = machine.device.lanes_per_sm
        return np.maximum(1.0, _STEEPNESS * lanes / menu.threads)

    @functools.cached_property
    def choices(self) -> Choices:
        """The kernels as arrays of shape (kernels, 1)."""
        menu, p = self.menu, self.parameters
        at_once = np.maximum(1.0, p.full_outputs / menu.slots)
        slowdown = (1 + p.tile_half * menu.intensity) / (
            1 + p.tile_half * _WIDEST_LOADS
        )
        sm_rate = p.tile_efficiency * self.boost / self.sm_count
        return Choices(
            menu.per_row,
            menu.per_column,
            at_once,
            1 / at_once,
            at_once * menu.area,
            self.steepness,
            2 * slowdown / sm_rate,
            menu.area * menu.loads / self.l2_rate,
        )

    @functools.cached_property
    def listed(self) -> tuple[tuple[float, float, float, tuple[float, ...]], ...]:
        """The kernels one by one, each after what bounds it.

        The least that a tile takes of it or a later one for a step of the depth, and
        the least outputs that count; its outputs over the number of SMs. All are a
        little less, so that rounding cannot put them above what they bound.
        """
        c, surely = self.choices, 1 - 1e-12
        least = (1 - (1 - c.per_full) ** c.steepness) * c.full * surely
        share = c.per_full * c.full / self.sm_count * surely
        bounds = (_least_from(least * c.step), _least_from(least), share)
        numbers = np.concatenate(c, axis=1).tolist()
        listed = (column[:, 0].tolist() for column in bounds)
        return tuple(zip(*listed, map(tuple, numbers), strict=True))

    @functools.cached_property
    def _reads(self) -> tuple[float, float, float, float]:
        """What decides how long bytes take to move.

        One over the bytes whose operands L2 does not hold until they are used again: as
        many kernels' operands as `SHARERS` pass through it in between. Seconds of a
        byte that is cold beside those of a warm one, and those. Rereads.
        """
        device, p = self.target.device, self.parameters
        copies = L2_PARTITIONS.get(device.compute_capability, 1)
        warm_s = 1 / max(self.l2_rate, self.memory_rate)
        small = device.l2.capacity_bytes < _SMALL_L2_BYTES
        return (
            SHARERS * copies / device.l2.capacity_bytes,
            1 / self.memory_rate - warm_s,
            warm_s,
            p.rereads if small else 0.0,
        )

    def moved_seconds(self, size: Size[Number]) -> Number:
        """Return the time of the bytes that must move, some of which L2 still holds."""
        per_held, cold_s, warm_s, rereads = self._reads
        moved = size.bytes
        others = moved * per_held
        # How steeply L2 loses them: with the eighth power.
        others = others * others
        others = others * others
        others = others * others
        cold = others / (1 + others)
        if rereads:
            again = size.batch * (size.m * size.k) * mean_width(size)
            moved = moved + (size.batch > 1) * (rereads * again)
        return moved * (cold * cold_s + warm_s)

    def _seconds_of(self, cycles: float) -> float:
        return cycles / self.target.device.sm_clock_hz


def _least_from(numbers: Floats) -> Floats:
    """Return the least of each row and those after it; shape (rows, 1)."""
    return np.minimum.accumulate(numbers[::-1])[::-1]


def mean_width(size: Size[Number]) -> Number:
    """Return the bytes of an element, on average over the three matrices."""
    batch, m, n, k, moved, _ = size
    return moved / (batch * (m * k + k * n + m * n))
