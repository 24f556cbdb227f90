"""Kernels that read and write each element a few times: bytes over bandwidth.

    t = floor + start + hypot((bytes + repeated reads) / (memory rate * share), busy)

`start` and `share` belong to the kind of kernel. A row-wise kernel (and a
batch norm in training) reads its rows again, which is free where the rows in
flight fit in L2. `busy` is what the SMs take for rows and elements, however fast
memory is; on a GPU that was idle their clock has not risen yet.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.constants import constants
from perfc.costmodels.fitted_files import fitted
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    NOWHERE,
    PERFC_ROWS,
    Estimate,
    Flags,
    Floats,
    Indices,
    KernelTable,
    Maths,
    Number,
    OneSignature,
    Priced,
    Provenance,
    Signatures,
    distinct,
    trust,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.streaming import gather
from perfc.costmodels.streaming.noncontiguous import SCATTERED
from perfc.costmodels.streaming.stream_time import Kind, Stream, streaming_seconds
from perfc.costmodels.streaming.traffic import MEMORY_RATES, MemoryRates
from perfc.ir import Kernel

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
    level_s: float = 0.0
    """For each doubling of a row that is summed: a level of the tree of its parts."""
    idle_s: float = 1.0
    """Duration from which a kernel on a GPU that was idle runs at the boost clock."""
    idle_slowdown: float = 0.0
    """How much longer SMs take before, over what the boost clock is above the base."""

    @functools.cached_property
    def numbers(self) -> Kind[float]:
        """What the formula reads."""
        return Kind(*(getattr(self, name) for name in Kind._fields))

    def fitted(self, values: Mapping[str, float]) -> StreamKind:
        """Return the kind with fitted parameters by name; others stay."""
        changes: Mapping[str, Any] = values
        return attrs.evolve(self, **changes)


REPEATED = "repeated"
"""Parameter of a kernel that is timed again and again on the same operands."""

IDLE = "idle"
"""Parameter of a kernel that begins on a GPU without other work."""

_ROWS_FP32 = frozenset({"6.0", "7.0", "7.5", "8.0"})
_ROWS_ALL = _ROWS_FP32 | {"8.9", "9.0"}

_FITTED_ON = {
    "elementwise": _ROWS_ALL,
    "softmax": _ROWS_FP32,
    "layer_norm": _ROWS_FP32,
    "quantize": frozenset({"8.9"}),
}
"""Compute capabilities fitted on, by op; others are fitted on no GPU."""

_CONSTANTS = constants("streaming")

_OPS = (
    *("elementwise", "softmax", "layer_norm", "batch_norm", "reduction", "concat"),
    *("gather", "transpose", "radix_sort", "run_length", "scan", "pool"),
    *("triton_poi", "triton_per", "triton_red", "memcpy"),
    *("quantize", "quantize blocks", "quantize wide"),
)

KINDS: Mapping[str, StreamKind] = MappingProxyType(
    {
        op: StreamKind(
            **_CONSTANTS.table(op), fitted_on=_FITTED_ON.get(op, NOWHERE)
        ).fitted(fitted("streaming").get(op, {}))
        for op in _OPS
    }
)
"""Kinds of kernels by canonical op.

`memcpy` is a copy inside the device, `triton_…` a generated kernel of a compiled graph:
loops as elementwise kernels, rows held in registers as softmax, rows in blocks as
reductions, which read as they do.

Softmax and layer norm: `fitted/streaming.toml`; elementwise kernels: what memory gives,
`fitted/memory.toml`. The others: `fitted/constants/streaming.toml`.
"""


BACKWARD, DOWN, BLOCKS, WIDE = " backward", " down", " blocks", " wide"
"""In the names of kinds that differ from their op's: gradients, sums over columns,
scales for blocks of rows, and for rows of fp32."""


def _own_kinds(
    table: Mapping[str, Mapping[str, float]], fitted_on: frozenset[str]
) -> dict[str, StreamKind]:
    found: dict[str, StreamKind] = {}
    for name, values in table.items():
        fields: dict[str, Any] = {**values, "fitted_on": fitted_on}
        found[name] = attrs.evolve(KINDS[name.split()[0]], **fields)
    return found


OWN_KINDS: Mapping[str, Mapping[str, StreamKind]] = MappingProxyType(
    {
        "Hopper": _own_kinds(fitted("streaming")["Hopper"], PERFC_ROWS),
        "6.0": _own_kinds(fitted("streaming")["6.0"], frozenset({"6.0"})),
    }
)
"""Kinds by architecture, or compute capability, where rows say other ones.

Those of H100 are perfc's own (`benchmarks/rows`); GP100 reads long rows of softmax from
memory where others have them in L2.
"""


@attrs.frozen
class StreamingModel:
    """Elementwise, normalisation, reduction, data movement within the device."""

    name: str = "streaming"
    priority: int = 50
    ops: frozenset[str] = frozenset(name.split()[0] for name in KINDS)
    kinds: Mapping[str, StreamKind] = attrs.field(default=KINDS, hash=False)
    """Kinds of kernels by canonical op."""
    own: Mapping[str, Mapping[str, StreamKind]] = attrs.field(
        default=OWN_KINDS, hash=False
    )
    """Kinds of some architectures and capabilities, which are taken in their place."""

    memory: MemoryRates = MEMORY_RATES

    def with_fit(self, op: str, values: Mapping[str, float]) -> StreamingModel:
        """Return the model with other parameters for one op."""
        kind = self.kinds[op].fitted(values)
        own = {
            architecture: {n: k for n, k in kinds.items() if n.split()[0] != op}
            for architecture, kinds in self.own.items()
        }
        return attrs.evolve(self, kinds={**self.kinds, op: kind}, own=own)

    def with_memory(self, values: Mapping[str, float]) -> StreamingModel:
        """Return the model with other parameters of memory."""
        return attrs.evolve(self, memory=MemoryRates(**values))

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim everything but copies from and to the host."""
        inside: Flags = (kernels.op != "memcpy") | (kernels.text("kind") == "d2d")
        return inside

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        kinds = _Kinds.of(kernels, self._known(target))
        seconds = streaming_seconds(
            _streams(kernels.signatures, ARRAYS),
            kinds.columns(),
            target,
            self.memory,
            ARRAYS,
        )
        if gathers := _row_takers(kernels, target):
            rows = np.array(list(gathers), dtype=np.intp)
            seconds[rows] = gather.all_rows_seconds(list(gathers.values()), target)
        trusted = [_trust(kind, target) for kind in kinds.kinds]
        provenances = [provenance for provenance, _ in trusted]
        numbers: list[int] = kinds.at.tolist()
        return Estimate(
            seconds,
            np.array([sigma_shared for _, sigma_shared in trusted])[kinds.at],
            kinds.column("sigma_independent"),
            [self.name] * len(kernels),
            [provenances[number] for number in numbers],
        )

    def _known(self, target: Target) -> Mapping[str, StreamKind]:
        device = target.device
        own = self.own.get(device.architecture) or self.own.get(
            device.compute_capability
        )
        return {**self.kinds, **own} if own else self.kinds

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Whether it claims one kernel."""
        return one.op != "memcpy" or one.kernel.params.get("kind") == "d2d"

    def estimate_one(self, one: OneSignature, target: Target) -> Priced:
        """Price one kernel of the device."""
        known = self._known(target)
        kind = known[one.op]
        for suffix, is_other in _others(one):
            kind = known.get(one.op + suffix, kind) if is_other else kind
        seconds = streaming_seconds(
            _streams(one, FLOATS), kind.numbers, target, self.memory, FLOATS
        )
        if gather.takes_rows(one.kernel, target):
            seconds = gather.rows_seconds(one.kernel, target)
        provenance, shared = _trust(kind, target)
        return Priced(seconds, shared, kind.sigma_independent, provenance)


def _row_takers(kernels: KernelTable, target: Target) -> dict[int, Kernel]:
    """Return the kernels that take whole rows (`takes_rows`), by their place."""
    kinds, at = kernels.kinds
    gathers = [number for number, (op, _, _) in enumerate(kinds) if op == "gather"]
    if not gathers or target.device.compute_capability not in PERFC_ROWS:
        return {}
    rows = np.flatnonzero(np.isin(at, gathers))
    listed = zip(rows.tolist(), kernels.take(rows).kernels, strict=True)
    return {row: kernel for row, kernel in listed if gather.takes_rows(kernel, target)}


def _trust(kind: StreamKind, target: Target) -> tuple[Provenance, float]:
    return trust(kind.sigma_shared, kind.fitted_on, target)


def _others(
    kernels: Signatures[Number],
) -> Iterator[tuple[str, Flags | bool]]:
    """Yield suffixes that tell kernels of one op apart, and which kernels have them."""
    yield BACKWARD, kernels.text("phase") == BACKWARD.strip()
    yield DOWN, (kernels.op == "reduction") & (kernels.param("axis") == 0)
    in_blocks = kernels.text("scales", "") == BLOCKS.strip()
    quantizes = kernels.op == "quantize"
    yield WIDE, quantizes & (kernels.dtype == "fp32")
    yield BLOCKS, quantizes & in_blocks


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
        ops, at = distinct(kernels.op)
        kinds = [known[op] for op in ops]
        for number, (suffix, is_other) in enumerate(_others(kernels.signatures), 1):
            kinds += [known.get(op + suffix, known[op]) for op in ops]
            at = np.where(is_other, at % len(ops) + number * len(ops), at)
        return cls(kinds, at)

    def columns(self) -> Kind[Floats]:
        """Return the numbers of each kernel's kind."""
        return Kind(*map(self.column, Kind._fields))

    def column(self, name: str) -> Floats:
        """Return one number of each kernel's kind."""
        found: Floats = np.array([getattr(kind, name) for kind in self.kinds])[self.at]
        return found


def _streams(kernels: Signatures[Number], maths: Maths[Number]) -> Stream[Number]:
    op, cols, flag = kernels.op, kernels.param("cols"), maths.flag
    # Whether a kernel reads a row once and keeps it in registers.
    held: Flags | bool = (op == "softmax") & (cols <= ONE_PASS_COLUMNS)
    held |= (op == "triton_red") & (kernels.param("passes") == 1)
    return Stream(
        kernels.bytes,
        kernels.bytes_read,
        kernels.param("rows"),
        cols,
        flag(held),
        flag((op == "elementwise") & kernels.given(SCATTERED)),
        flag((op == "concat") & kernels.given(SCATTERED)),
        flag((op == "reduction") & (kernels.param("axis") == 0)),
        flag(kernels.given(REPEATED)),
        flag(kernels.given(IDLE)),
    )


STREAMING = StreamingModel()
"""The built-in instance."""
