"""Kernels that read and write each element a few times: bytes over bandwidth.

    t = floor + start + (bytes + repeated reads) / (memory rate * share)

`start` and `share` belong to the kind of kernel. A row-wise kernel (and a
batch norm in training) reads its rows again, which is free where the rows in
flight fit in L2.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.extrapolation import NOWHERE, trust
from perfc.costmodels.fitted_file import fitted
from perfc.costmodels.memory import stream_seconds
from perfc.costmodels.protocol import Estimate, Flags, Floats, KernelTable
from perfc.costmodels.target import Target

MISS_STEEPNESS = 2.0
"""How sharply the second read moves from L2 to memory."""

ONE_PASS_COLUMNS = 1024
"""Softmax keeps rows of up to this many elements in registers."""


@attrs.frozen(kw_only=True)
class StreamKind:
    """One kind of streaming kernel, the same on all GPUs.

    Attributes:
        start_s: Added to the target's kernel floor.
        share: Rate over that of an elementwise kernel.
        rereads: How often a row that L2 does not hold is read again.
        rows_in_flight: Rows that an SM works on at a time, over the share of L2
            that they may occupy.
        fitted_on: Compute capabilities of the GPUs that `start_s` and `share` were
            fitted on; none if they were not fitted.
        sigma_shared: Relative uncertainty that all kernels of the kind share.
        sigma_independent: Relative uncertainty of one kernel.

    """

    start_s: float
    share: float
    rereads: float
    rows_in_flight: float
    fitted_on: frozenset[str]
    sigma_shared: float
    sigma_independent: float
    row_cycles: float = 0.0
    """Clocks that an SM is busy with a row at least, however short the row is."""

    def fitted(self, values: Mapping[str, float]) -> StreamKind:
        """Return the kind with fitted parameters by name; others stay."""
        return attrs.evolve(
            self,
            share=values.get("share", self.share),
            rereads=values.get("rereads", self.rereads),
            rows_in_flight=values.get("rows_in_flight", self.rows_in_flight),
            row_cycles=values.get("row_cycles", self.row_cycles),
        )


REPEATED = "repeated"
"""Parameter of a kernel that is timed again and again on the same operands."""


_ROWS_FP32 = frozenset({"6.0", "7.0", "7.5", "8.0"})
_ROWS_ALL = _ROWS_FP32 | {"8.9", "9.0"}

KINDS: Mapping[str, StreamKind] = MappingProxyType(
    {
        op: StreamKind(
            start_s=start_s,
            share=share,
            rereads=rereads,
            rows_in_flight=rows_in_flight,
            fitted_on=fitted_on,
            sigma_shared=shared,
            sigma_independent=own,
        ).fitted(fitted("streaming").get(op, {}))
        for op, start_s, share, rereads, rows_in_flight, fitted_on, shared, own in (
            ("elementwise", 0.2e-6, 1.0, 0.0, 8.0, _ROWS_ALL, 0.12, 0.15),
            ("softmax", 0.8e-6, 0.75, 2.0, 2.0, _ROWS_FP32, 0.2, 0.12),
            ("layer_norm", 1.5e-6, 0.7, 1.5, 4.0, _ROWS_FP32, 0.2, 0.16),
            ("batch_norm", 2.0e-6, 0.9, 1.0, 4.0, NOWHERE, 0.2, 0.3),
            ("reduction", 4.0e-6, 0.7, 0.0, 8.0, NOWHERE, 0.2, 0.35),
            ("concat", 2.5e-6, 0.8, 0.0, 8.0, NOWHERE, 0.2, 0.25),
            ("gather", 2.5e-6, 0.4, 0.0, 8.0, NOWHERE, 0.2, 0.4),
            ("transpose", 1.0e-6, 0.7, 0.0, 8.0, NOWHERE, 0.2, 0.35),
            ("radix_sort", 8.0e-6, 0.75, 0.0, 8.0, NOWHERE, 0.2, 0.3),
            ("run_length", 4.0e-6, 0.5, 0.0, 8.0, NOWHERE, 0.2, 0.3),
            ("scan", 3.0e-6, 0.85, 0.0, 8.0, NOWHERE, 0.2, 0.4),
            ("pool", 1.0e-6, 0.7, 0.0, 8.0, NOWHERE, 0.2, 0.4),
            ("triton_poi", 0.2e-6, 1.0, 0.0, 8.0, NOWHERE, 0.2, 0.25),
            ("triton_per", 0.8e-6, 0.75, 0.0, 2.0, NOWHERE, 0.2, 0.3),
            ("triton_red", 1.5e-6, 0.7, 1.0, 4.0, NOWHERE, 0.2, 0.35),
            ("memcpy", 0.3e-6, 0.95, 0.0, 8.0, NOWHERE, 0.15, 0.2),
        )
    }
)
"""By canonical op; `memcpy` is a copy inside the device, `triton_…` a generated kernel
of a compiled graph: loops as elementwise kernels, rows held in registers as softmax,
rows in blocks as layer norm, none of them fitted.

Softmax and layer norm: `fitted/streaming.toml`. The
others: round numbers near what single kernels do in Kineto traces of DLRM
training on V100 (owensgroup/ml_perf_model, BSD-3), sorts and scans on V100 and A100
(PARAM and HolisticTraceAnalysis, MIT): 15.8 million keys take 295 to 443 us a pass.
"""


@attrs.frozen
class StreamingModel:
    """Elementwise, normalisation, reduction, data movement within the device."""

    name: str = "streaming"
    priority: int = 50
    ops: frozenset[str] = frozenset(KINDS)
    kinds: Mapping[str, StreamKind] = attrs.field(default=KINDS, hash=False)
    """Kinds of kernels by canonical op."""

    def with_fit(self, op: str, values: Mapping[str, float]) -> StreamingModel:
        """Return the model with other parameters for one op."""
        return attrs.evolve(
            self, kinds={**self.kinds, op: self.kinds[op].fitted(values)}
        )

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim everything but copies from and to the host."""
        inside: Flags = (kernels.op != "memcpy") | (kernels.text("kind") == "d2d")
        return inside

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        kinds = [self.kinds[op] for op in kernels.op.tolist()]
        start_s = np.array([kind.start_s for kind in kinds])
        share = np.array([kind.share for kind in kinds])
        trusted = [trust(kind.sigma_shared, kind.fitted_on, target) for kind in kinds]
        moved = kernels.bytes + self._reread_bytes(kernels, kinds, target)
        repeated = kernels.given(REPEATED)
        cycles = np.array([kind.row_cycles for kind in kinds])
        sm_clocks_per_s = target.device.sm_count * target.device.sm_clock_hz
        busy_s = kernels.param("rows") * cycles / sm_clocks_per_s
        return Estimate(
            target.device.kernel_floor_s
            + start_s
            + np.maximum(stream_seconds(moved, target, repeated) / share, busy_s),
            np.array([sigma_shared for _, sigma_shared in trusted]),
            np.array([kind.sigma_independent for kind in kinds]),
            [self.name] * len(kinds),
            [provenance for provenance, _ in trusted],
        )

    def _reread_bytes(
        self, kernels: KernelTable, kinds: list[StreamKind], target: Target
    ) -> Floats:
        rereads = np.array([kind.rereads for kind in kinds])
        if not rereads.any():
            return np.zeros(len(kinds))
        rows, columns = kernels.param("rows", 1.0), kernels.param("cols", 1.0)
        op = kernels.op
        held = (op == "softmax") & (columns <= ONE_PASS_COLUMNS)
        held |= (op == "triton_red") & (kernels.param("passes") == 1)
        held |= (op == "batch_norm") & (kernels.text("kind") != "training")
        in_flight_per_sm = np.array([kind.rows_in_flight for kind in kinds])
        row_bytes = kernels.bytes_read / np.maximum(rows, 1.0)
        in_flight = row_bytes * np.minimum(
            rows, in_flight_per_sm * target.device.sm_count
        )
        pressure = (in_flight / target.device.l2.capacity_bytes) ** MISS_STEEPNESS
        missed = pressure / (1 + pressure)
        return np.where(held, 0.0, rereads * kernels.bytes_read * missed)


STREAMING = StreamingModel()
"""The built-in instance."""
