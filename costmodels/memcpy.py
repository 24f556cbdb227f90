"""Copies between host and device: latency and rate of the host link."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    PERFC_ROWS,
    Estimate,
    Flags,
    Floats,
    KernelTable,
    Maths,
    Number,
    OneSignature,
    Priced,
    Provenance,
    Signatures,
    uniform_estimate,
    work_bound_s,
)
from perfc.costmodels.machine import HostLink, Target
from perfc.ir import Kernel

_CONSTANTS = constants("memcpy")

STAGED_BYTES = _CONSTANTS.integer("staged_bytes")
"""Bytes of pageable memory that the driver stages before the device begins to copy.

What comes after waits for the host to stage it.
"""

INLINE_BYTES = _CONSTANTS.integer("inline_bytes")
"""Up to so many bytes to the device come with the command that copies them; of pageable
memory the call then does not wait."""

INLINE_SHARE = _CONSTANTS.number("inline_share")
BACK_SHARE = _CONSTANTS.number("back_share")
"""Shares of the latency: of a copy of a few bytes, of one back of `INLINE_BYTES`."""

INLINE_BYTES_PER_S = _CONSTANTS.number("inline_bytes_per_s")
"""What bytes that come with a command take longer, up to the latency of others."""


@attrs.frozen
class MemcpyModel:
    """Latency plus bytes over the link's rate, pinned or pageable."""

    name: str = "memcpy"
    priority: int = 60
    ops: frozenset[str] = frozenset({"memcpy"})
    sigma_shared: float = _CONSTANTS.number("sigma_shared")
    sigma_independent: float = _CONSTANTS.number("sigma_independent")

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim copies from and to the host."""
        return np.isin(kernels.text("kind"), ("h2d", "d2h"))

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows; a copy that does not say `pinned` is from pinned memory."""
        link = target.host_link
        rates = _rates(link)
        to_device = kernels.text("kind") == "h2d"
        rate = np.where(to_device, rates["h2d"], rates["d2h"])
        said = kernels.values("pinned")
        pinned = np.array([each is None or each for each in said], dtype=np.bool_)
        moved = link_bytes(kernels.signatures, ARRAYS)
        late_s = _latency_s(moved, to_device, target, ARRAYS)
        return uniform_estimate(
            late_s + _seconds(moved, rate, pinned, link, ARRAYS),
            model=self.name,
            provenance=Provenance.ANALYTIC,
            sigma_shared=self.sigma_shared,
            sigma_independent=self.sigma_independent,
        )

    def lower_bound(self, kernels: KernelTable, target: Target) -> Floats:
        """Return the seconds of each at the bus's nominal rate, or the memory's."""
        return _bound_s(kernels.signatures, target, ARRAYS)

    def lower_bound_of_one(self, one: OneSignature, target: Target) -> float:
        """Return the seconds of one copy at such a rate; see `lower_bound`."""
        return _bound_s(one, target, FLOATS)

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Whether it claims one kernel."""
        return one.kernel.params.get("kind") in _rates(target.host_link)

    def estimate_one(self, one: OneSignature, target: Target) -> Priced:
        """Price one copy from or to the host."""
        link = target.host_link
        kind = one.kernel.params.text("kind")
        moved = link_bytes(one, FLOATS)
        seconds = _latency_s(moved, kind == "h2d", target, FLOATS) + _seconds(
            moved, _rates(link)[kind], _is_pinned(one.kernel), link, FLOATS
        )
        own = self.sigma_independent
        return Priced(seconds, self.sigma_shared, own, Provenance.ANALYTIC)


def _rates(link: HostLink) -> Mapping[str, float]:
    return {"h2d": link.h2d_bytes_per_s, "d2h": link.d2h_bytes_per_s}


def _is_pinned(kernel: Kernel) -> bool:
    return kernel.params.flag("pinned", default=True)


def _latency_s(
    moved: Number,
    to_device: Flags | bool,
    target: Target,
    maths: Maths[Number],
) -> Number:
    latency_s = target.host_link.latency_s
    if target.device.compute_capability not in PERFC_ROWS:
        # Other sheets give what their small copies take.
        return maths.where(to_device, latency_s, latency_s)
    inline_s = INLINE_SHARE * latency_s + moved / INLINE_BYTES_PER_S
    back_s = latency_s * maths.where(moved <= INLINE_BYTES, BACK_SHARE, 1.0)
    return maths.where(to_device, maths.least(inline_s, latency_s), back_s)


def _seconds(
    moved: Number,
    rate: Number,
    pinned: Flags | bool,
    link: HostLink,
    maths: Maths[Number],
) -> Number:
    pageable = 1 - maths.flag(pinned)
    staged = pageable * maths.most(moved - STAGED_BYTES, 0.0)
    staged_s = staged / maths.least(rate, link.pageable_bytes_per_s)
    return (moved - staged) / rate + staged_s


def link_bytes(kernels: Signatures[Number], maths: Maths[Number]) -> Number:
    """Return the bytes that cross the link; work counts them read and written."""
    counted = maths.most(kernels.bytes_read, kernels.bytes_written)
    return maths.most(kernels.param("bytes"), counted)


def _bound_s(
    kernels: Signatures[Number], target: Target, maths: Maths[Number]
) -> Number:
    crossing = kernels.text("kind") != "d2d"
    crossed_s = link_bytes(kernels, maths) / target.host_link.peak_bytes_per_s
    return maths.where(crossing, crossed_s, work_bound_s(kernels, target, maths))


MEMCPY = MemcpyModel()
"""The built-in instance."""
