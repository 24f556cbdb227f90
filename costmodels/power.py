"""What kernels draw of a board, and how long they take when it is held below that.

Above what an idle board draws, a kernel that computes (a GEMM, a convolution,
attention) draws at the share x of the boost clock

    watts = (busy + joules a flop * flop/s at the boost clock) * x²

as voltage follows the clock: a flop at x takes x times the joules, 1/x times the time.
One that moves bytes draws its joules a byte, at any clock, as nobody has measured them
at low ones; its time is memory's.

Hardware lowers the clock of whatever kernel draws more than a limit, within
microseconds, and the driver lowers that limit, from `Power.burst_watts`, until the
board's mean over some tens of milliseconds is within its cap. So in a step kernels that
draw much run at a low clock, beside others at the boost clock, as seen on one H100: a
GEMM runs at 1,350 MHz by itself, and a transformer's block at 1,530 on average.

Kernels are timed before the driver reacts, so a price holds at `burst_watts`; long
GEMMs are timed after it has begun to (`replay_share`). A limit
below slows a kernel down only by what its price does not have already.
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from perfc.costmodels import collectives, kernels
from perfc.costmodels.constants import constants
from perfc.costmodels.machine import COLLECTIVES, Power, Target

_CONSTANTS = constants("power")

CLOCKED = ("gemm", "conv2d", "conv3d", "attention")
"""Ops whose kernels wait for arithmetic, so that their time follows the SM clock: where
at the peak rates their flops take longer than their bytes."""

_GEMM = "gemm"


@attrs.frozen(eq=False)
class AtLimit:
    """What kernels do where the board is held to so many watts; shape (rows,)."""

    slowdown: kernels.Floats
    """Factors by which each takes longer than its price."""
    watts: kernels.Floats
    """Above what an idle board draws."""
    clock_share: kernels.Floats
    """SM clock over the boost clock."""

    @property
    def sigma(self) -> kernels.Floats:
        """How uncertain slow-downs are: standard deviation of their logarithms."""
        spread = _CONSTANTS.number("slowdown_spread")
        return spread * np.log(self.slowdown)


@attrs.frozen(eq=False)
class Draws:
    """What kernels draw, by the limit that they are held to; columns, shape (rows,).

    Attributes:
        power: The board's.
        clocked: Whether time follows the clock.
        boost_watts: At the boost clock, what falls with its square.
        fixed_watts: What no clock changes.
        price_share: Clock over the boost clock that the price holds at.
        known: Whether the joules of its math mode are.

    """

    power: Power
    clocked: kernels.Flags
    boost_watts: kernels.Floats
    fixed_watts: kernels.Floats
    price_share: kernels.Floats
    known: kernels.Flags

    def at(self, limit_watts: float) -> AtLimit:
        """Return times and clocks of kernels under a limit, in watts of the board."""
        share = self.price_share
        lowest = np.minimum(_share(self, limit_watts), share)
        return AtLimit(
            np.where(self.clocked, share / lowest, 1.0),
            self.boost_watts * lowest * lowest + self.fixed_watts,
            lowest,
        )


def draws_of(
    table: kernels.KernelTable, seconds: kernels.Floats, target: Target, power: Power
) -> Draws:
    """Return the watts that kernels draw that take *seconds* each, shape (rows,)."""
    flops = table.flops * kernels.executed_share(table.signatures, kernels.ARRAYS)
    peak = table.signatures.limit_flops_per_s(target)
    bytes_s = table.bytes / target.device.memory.bytes_per_s
    clocked = kernels.one_of(table.op, CLOCKED) & (flops / peak > bytes_s)
    # The joules of a flop of each kernel; NaN where nobody knows.
    kinds, at = table.kinds
    joules = np.array([power.joules_per_flop.get(k[2], math.nan) for k in kinds])[at]
    # The share of that clock that the driver left when GEMMs were timed.
    short_s, long_s, share = (
        _CONSTANTS.number(f"replay_{name}") for name in ("short_s", "long_s", "share")
    )
    place = np.log(seconds / short_s) / math.log(long_s / short_s)
    driven = share ** np.clip(place, 0.0, 1.0)
    replayed = np.where(kernels.one_of(table.op, (_GEMM,)), driven, 1.0)
    flops_per_s = np.minimum(flops / (seconds * replayed), peak)
    arithmetic_watts = np.where(clocked, np.nan_to_num(joules) * flops_per_s, 0.0)
    first = held_share(arithmetic_watts, power)
    # The SMs' share that collectives hold, and the bytes that all kernels move.
    # Copies to and from the host are their engine's: it moves bytes, but holds no SM.
    held, moved = np.zeros(len(table)), table.bytes.copy()
    rows = np.flatnonzero(kernels.one_of(table.op, tuple(COLLECTIVES)))
    if len(rows):
        part = table.take(rows)
        shares = collectives.collective_shares(part, seconds[rows], target)
        held[rows] = shares.held
        rate = target.device.memory.bytes_per_s
        moved[rows] = shares.memory * rate * seconds[rows]
    return Draws(
        power,
        clocked,
        np.where(clocked, power.busy_watts + arithmetic_watts / first, 0.0),
        np.where(clocked, 0.0, moved * power.joules_per_byte / seconds)
        + held * power.busy_watts,
        np.where(clocked, first * replayed, 1.0),
        ~(clocked & np.isnan(joules)),
    )


def held_share(arithmetic_watts: kernels.Floats, power: Power) -> kernels.Floats:
    """Return the share x of the boost clock at which hardware holds kernels at first.

    *arithmetic_watts* is what flops at the rate of their first calls, x times that of
    the boost clock, would draw at its joules: busy x² + arithmetic x = limit.
    """
    busy, limit = power.busy_watts, power.burst_watts - power.idle_watts
    root = np.sqrt(arithmetic_watts**2 + 4 * busy * limit)
    share = (root - arithmetic_watts) / (2 * busy)
    return np.clip(share, power.least_share, 1.0)


def _share(draws: Draws, limit_watts: float) -> kernels.Floats:
    """Return the share of the clock at which each kernel is within a limit."""
    power = draws.power
    left_watts = limit_watts - power.idle_watts - draws.fixed_watts
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.sqrt(np.maximum(left_watts, 0.0) / draws.boost_watts)
    share = np.where(draws.boost_watts > 0, share, 1.0)
    return np.clip(share, power.least_share, 1.0)
