"""Kernels that read and write each element a few times: bytes over bandwidth.

    t = floor + start + hypot((bytes + repeated reads) / (memory rate * share), busy)

`start` and `share` belong to the kind of kernel. A row-wise kernel (and a
batch norm in training) reads its rows again, which is free where the rows in
flight fit in L2. `busy` is what the SMs take for rows and elements, however fast
memory is; on a GPU that was idle their clock has not risen yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.extrapolation import NOWHERE, trust
from perfc.costmodels.fitted_file import fitted
from perfc.costmodels.memory import MEMORY_RATES, MemoryRates, stream_seconds
from perfc.costmodels.protocol import (
    Estimate,
    Flags,
    Floats,
    Indices,
    KernelTable,
)
from perfc.costmodels.scattered import late_start_s, places_seconds
from perfc.costmodels.target import Target

MISS_STEEPNESS = 2.0
"""How sharply the second read moves from L2 to memory."""

LOAD_COLUMNS = 512
"""Elements that the 128 threads of PyTorch's layer norm load at once, four each."""

LOADS = 4
"""What its loop is unrolled to."""

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
    """Clocks that an SM is busy with each row, beside those of its elements."""
    element_cycles: float = 0.0
    """Clocks that an SM is busy with each element."""
    full_loops: float = 0.0
    """How much longer that takes where threads load four times at once to the end of a
    row (`LOADS`); a rest of fewer loads is faster, on all GPUs alike."""
    pascal_cycles: float = 1.0
    """How many more clocks Pascal takes, which computes addresses on the lanes of fp32:
    later ones do that beside them (NVIDIA's whitepaper on V100, 2017)."""
    idle_s: float = 1.0
    """Duration from which a kernel on a GPU that was idle runs at the boost clock."""
    idle_slowdown: float = 0.0
    """How much longer SMs take before, over what the boost clock is above the base."""

    def fitted(self, values: Mapping[str, float]) -> StreamKind:
        """Return the kind with fitted parameters by name; others stay."""
        changes: Mapping[str, Any] = values
        return attrs.evolve(self, **changes)


REPEATED = "repeated"
"""Parameter of a kernel that is timed again and again on the same operands."""

IDLE = "idle"
"""Parameter of a kernel that begins on a GPU without other work."""

IDLE_STEEPNESS = 4.0
"""How sharply the clock rises with a kernel's duration."""


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
            ("reduction", 4.0e-6, 0.9, 0.0, 8.0, NOWHERE, 0.2, 0.35),
            ("concat", 2.5e-6, 0.8, 0.0, 8.0, NOWHERE, 0.2, 0.25),
            ("gather", 4.5e-6, 0.56, 0.0, 8.0, NOWHERE, 0.2, 0.4),
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

Softmax and layer norm: `fitted/streaming.toml`; elementwise kernels: what memory gives,
`fitted/memory.toml`. The others: round numbers near what single kernels do in Kineto
traces of DLRM training on V100 (owensgroup/ml_perf_model, BSD-3), sorts and scans on
V100 and A100 (PARAM and HolisticTraceAnalysis, MIT): 15.8 million keys take 295 to
443 us a pass.
"""


@attrs.frozen
class StreamingModel:
    """Elementwise, normalisation, reduction, data movement within the device."""

    name: str = "streaming"
    priority: int = 50
    ops: frozenset[str] = frozenset(KINDS)
    kinds: Mapping[str, StreamKind] = attrs.field(default=KINDS, hash=False)
    """Kinds of kernels by canonical op."""

    memory: MemoryRates = MEMORY_RATES

    def with_fit(self, op: str, values: Mapping[str, float]) -> StreamingModel:
        """Return the model with other parameters for one op."""
        return attrs.evolve(
            self, kinds={**self.kinds, op: self.kinds[op].fitted(values)}
        )

    def with_memory(self, values: Mapping[str, float]) -> StreamingModel:
        """Return the model with other parameters of memory."""
        return attrs.evolve(self, memory=MemoryRates(**values))

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim everything but copies from and to the host."""
        inside: Flags = (kernels.op != "memcpy") | (kernels.text("kind") == "d2d")
        return inside

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        kinds = _Kinds.of(kernels, self.kinds)
        held = _held(kernels)
        moved = kernels.bytes + _reread_bytes(kernels, kinds, held, target)
        repeated = kernels.given(REPEATED)
        moved_s = stream_seconds(moved, target, repeated, self.memory)
        moved_s /= kinds.column("share")
        moved_s = np.maximum(moved_s, places_seconds(kernels, target))
        started_s = target.device.kernel_floor_s + kinds.column("start_s")
        started_s += late_start_s(kernels)
        busy_s = _busy_s(kernels, kinds, held, target)
        if busy_s.any() and kernels.given(IDLE).any():
            at_boost_s = started_s + np.hypot(moved_s, busy_s)
            busy_s = busy_s * _idle_factor(at_boost_s, kernels, kinds, target)
        trusted = [
            trust(kind.sigma_shared, kind.fitted_on, target) for kind in kinds.kinds
        ]
        provenances = [provenance for provenance, _ in trusted]
        numbers: list[int] = kinds.at.tolist()
        return Estimate(
            started_s + np.hypot(moved_s, busy_s),
            np.array([sigma_shared for _, sigma_shared in trusted])[kinds.at],
            kinds.column("sigma_independent"),
            [self.name] * len(kernels),
            [provenances[number] for number in numbers],
        )


@attrs.frozen(eq=False)
class _Kinds:
    """The kind of each kernel.

    Attributes:
        kinds: Those that there are.
        at: Which of them each kernel is of, shape (kernels,).

    """

    kinds: list[StreamKind]
    at: Indices

    @classmethod
    def of(cls, kernels: KernelTable, known: Mapping[str, StreamKind]) -> _Kinds:
        ops, at = np.unique(kernels.op, return_inverse=True)
        return cls([known[op] for op in ops.tolist()], at)

    def column(self, name: str) -> Floats:
        """Return one number of each kernel's kind."""
        found: Floats = np.array([getattr(kind, name) for kind in self.kinds])[self.at]
        return found


def _held(kernels: KernelTable) -> Flags:
    """Whether each kernel reads a row once and keeps it in registers."""
    op = kernels.op
    held: Flags = (op == "softmax") & (kernels.param("cols", 1.0) <= ONE_PASS_COLUMNS)
    held |= (op == "triton_red") & (kernels.param("passes") == 1)
    held |= (op == "batch_norm") & (kernels.text("kind") != "training")
    return held


def _reread_bytes(
    kernels: KernelTable, kinds: _Kinds, held: Flags, target: Target
) -> Floats:
    """Return the bytes of rows that are read again, where L2 has lost them."""
    rereads = kinds.column("rereads")
    if not rereads.any():
        return np.zeros(len(kernels))
    rows = kernels.param("rows", 1.0)
    in_flight_per_sm = kinds.column("rows_in_flight")
    row_bytes = kernels.bytes_read / np.maximum(rows, 1.0)
    in_flight = row_bytes * np.minimum(rows, in_flight_per_sm * target.device.sm_count)
    pressure = (in_flight / target.device.l2.capacity_bytes) ** MISS_STEEPNESS
    missed = pressure / (1 + pressure)
    return np.where(held, 0.0, rereads * kernels.bytes_read * missed)


def _busy_s(kernels: KernelTable, kinds: _Kinds, held: Flags, target: Target) -> Floats:
    """Return what the SMs take for rows and elements, at the boost clock."""
    row_cycles = kinds.column("row_cycles")
    element_cycles = kinds.column("element_cycles")
    if not (row_cycles.any() or element_cycles.any()):
        return np.zeros(len(kernels))
    columns = kernels.param("cols")
    full = np.ceil(columns / LOAD_COLUMNS) % LOADS == 0
    element_cycles *= 1 + kinds.column("full_loops") * full
    cycles = kernels.param("rows") * (row_cycles + element_cycles * columns)
    if target.device.architecture == "Pascal":
        cycles = cycles * kinds.column("pascal_cycles")
    sm_clocks_per_s = target.device.sm_count * target.device.sm_clock_hz
    return np.where(held, 0.0, cycles / sm_clocks_per_s)


def _idle_factor(
    seconds: Floats, kernels: KernelTable, kinds: _Kinds, target: Target
) -> Floats:
    """Return how much longer SMs take whose clock has still to rise.

    Args:
        seconds: What each kernel takes at the boost clock, shape (kernels,).
        kernels: Which of them begin on an idle GPU, among other things.
        kinds: Of each.
        target: Where its maker publishes no base clock, nothing is known of it.

    """
    device = target.device
    base_hz = device.base_clock_hz or device.sm_clock_hz
    low = 1 / (1 + (seconds / kinds.column("idle_s")) ** IDLE_STEEPNESS)
    above = device.sm_clock_hz / base_hz - 1
    slower = kinds.column("idle_slowdown") * above * low
    return np.where(kernels.given(IDLE), 1 + slower, 1.0)


STREAMING = StreamingModel()
"""The built-in instance."""
