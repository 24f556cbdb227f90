"""Choice of NCCL's protocol: what its own estimates say, not what is fastest.

For a ring in a node NCCL estimates base + steps * step + wire / rate of each protocol
from constants (`src/graph/tuning.cc`: baseLatencies, hwLatencies, llMaxBws; links at
the rates of `src/graph/topo.h`, 0.8 of the nominal ones), and takes the least. Where
the estimates are off, so is the choice: from 1 to 4 MB on, what two or four GPUs send
takes up to twice as long as slightly less does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from perfc.costmodels.collectives.sizes import Collectives
from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import Floats

_CONSTANTS = constants("collectives")

_BASE_US = _CONSTANTS.numbers("estimated_base_us")
_STEP_US = _CONSTANTS.numbers("estimated_step_us")
"""Base and step of a ring over NVLink in microseconds, by protocol."""

_PCIE_STEP_US = _CONSTANTS.numbers("estimated_pcie_step_us")

_NOMINAL = _CONSTANTS.number("estimated_link_share")
_LL_SHARE = _CONSTANTS.number("estimated_ll_share")
_LL128_SHARE = _CONSTANTS.number("estimated_ll128_share")
"""Share of Simple's rate that LL128 is estimated to reach."""


def hop_s(*, pcie: bool) -> float:
    """Return the seconds of a hop by LL over NVLink, or over PCIe, on any GPU."""
    return (_PCIE_STEP_US if pcie else _STEP_US)[0] * 1e-6


def ring_switches(
    c: Collectives,
    link_bytes_per_s: Floats,
    most_bytes_per_s: tuple[float, Floats],
    *,
    pcie: bool,
) -> tuple[Floats, Floats]:
    """Return from how many bytes on the wire LL, and LL128 are left, shape (rows,).

    Where the second is the first LL128 is not taken at all.

    Args:
        c: What is sent by a ring in a node.
        link_bytes_per_s: Nominal rate of the links that the ring goes over.
        most_bytes_per_s: What LL, and what LL128 reach at most.
        pcie: Whether the links are PCIe, on which NCCL has no LL128.

    """
    simple = _NOMINAL * link_bytes_per_s
    rates = (
        np.minimum(_LL_SHARE * simple, most_bytes_per_s[0]),
        np.minimum(_LL128_SHARE * simple, most_bytes_per_s[1]),
        simple,
    )
    steps_us = _PCIE_STEP_US if pcie else _STEP_US
    starts_s = [
        (base_us + c.steps * step_us) * 1e-6
        for base_us, step_us in zip(_BASE_US, steps_us, strict=True)
    ]

    def switch(one: int, other: int) -> Floats:
        """Return from where on *other* is said to be faster than *one*."""
        # Where the other is not faster per byte either, there is no such size:
        # infinity.
        saved = 1 / rates[one] - 1 / rates[other]
        later = np.maximum(starts_s[other] - starts_s[one], 0.0)
        found = np.full(len(c), np.inf)
        np.divide(later, saved, out=found, where=saved > 0)
        return found

    # LL128 is chosen for some size only if it overtakes LL before Simple does.
    to_ll128, to_simple = switch(0, 1), switch(0, 2)
    between = (to_ll128 < to_simple) & (not pcie)
    leaves_ll = np.where(between, to_ll128, to_simple)
    return leaves_ll, np.where(between, switch(1, 2), leaves_ll)


def by_protocol(
    wire: Floats,
    ways: Sequence[Callable[[Floats], Floats]],
    leaves: tuple[Floats, Floats],
) -> Floats:
    """Return the seconds of rings by the protocols that NCCL chooses, shape (rows,).

    A protocol takes at most what the next one does where that takes over, so that more
    bytes never take less.

    Args:
        wire: Bytes that leave each GPU.
        ways: What LL, LL128 and Simple take for bytes on the wire, which never falls.
        leaves: From how many bytes LL and LL128 are left.

    """
    by_ll, by_ll128, by_simple = ways
    leaves_ll, leaves_ll128 = leaves
    between = leaves_ll128 > leaves_ll
    # NCCL's choice may be a slow one just below a switch. Without these caps a search
    # for the best plan would find it faster to send more.
    last = by_simple(leaves_ll128)
    then = np.where(between, np.minimum(by_ll128(leaves_ll), last), last)
    first = np.minimum(by_ll(wire), then)
    second = np.minimum(by_ll128(wire), last)
    found: Floats = np.where(wire < leaves_ll128, second, by_simple(wire))
    return np.where(wire < leaves_ll, first, found)


def ll_threads(c: Collectives) -> Floats:
    """Return how far LL has gone from 64 threads to 512, in doublings, 0 to 1.

    A thread gets 8 bytes of each rank at least (`NCCL_LL_THREAD_THRESHOLD`).
    """
    least, doublings = 64, 3
    wanted = np.log2(np.maximum(c.bytes / c.ranks / 8, least) / least)
    found: Floats = np.minimum(wanted / doublings, 1.0)
    return found
