"""Ops of which a trace tells no sizes, by typical ones that take as long.

On another GPU a library computes GEMMs and convolutions by other kernels, in other
modes, at rates that waves of blocks say nothing of: Habitat (ATC 2021, section 3.3) has
networks for them, which need their sizes. Without sizes, what a typical one of as many
seconds takes on both GPUs says more.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from perfc.costmodels import Target
from perfc.costmodels.constants import constants
from perfc.frontends.aten import RecordedGraph
from perfc.ir import DTYPES, DType
from perfc.tools.replay.expected_kernels import expected_kernels
from perfc.tools.replay.recorded_ops import OpLaunches, TraceOps
from perfc.traces import RecordedArgument, RecordedOp, RecordedTensor

SIGMA_SHARED = constants("traces").number("sigma_typical_shared")
SIGMA_OWN = constants("traces").number("sigma_typical_own")
"""Sigmas of a ratio's logarithm: of all of one kind together, and of one alone."""

_GEMMS = frozenset({"mm", "addmm", "addmm_", "_addmm_activation", "linear"})
_BATCHED = frozenset({"bmm", "baddbmm", "baddbmm_"})
_NVJET = r"nvjet_(?:sm\d+_)?"
_NAMED: Mapping[str, re.Pattern[str]] = {
    "bf16": re.compile(rf"bf16|bfloat16|_B[BS]S_|{_NVJET}ts", re.IGNORECASE),
    "f16": re.compile(
        rf"fp16|half|f16f16|_f16_|_h(?:884|1688|16816)|_H[HS]S_|{_NVJET}h",
        re.IGNORECASE,
    ),
    "f32": re.compile(rf"sgemm|scudnn|float|f32|fp32|_SB_|{_NVJET}s", re.IGNORECASE),
}
"""How libraries name the types that they multiply: cuBLAS, CUTLASS, cuDNN, rocBLAS."""

_OTHER = re.compile(
    rf"depthwise|double|e4m3|e5m2|fp8|int8|imma|_i8816|{_NVJET}[qr]{{2}}",
    re.IGNORECASE,
)
"""Kernels that are no GEMMs, or of types that few GPUs have."""

_BLOCK = ((512, 128, 1), (128, 128, 3), (128, 512, 1))
"""Channels and widths of the convolutions of a block of ResNet-50, at 28x28."""


class Kind(enum.Enum):
    """What kind of op; the value names it in a report."""

    GEMM = "GEMM"
    BATCHED = "batched GEMM"
    CONVOLUTION = "convolution"
    GRADIENTS = "gradients of a convolution"


@attrs.frozen
class Typical:
    """What a typical op says of one of the same kind.

    Attributes:
        kind: Of which kind.
        ratio: Seconds on the other GPU over those on this one.
        turns_to_tf32: Whether it computes in TF32 there, though not here.

    """

    kind: Kind
    ratio: float
    turns_to_tf32: bool = False


def typical_ratios(
    ops: TraceOps, origin: Target, target: Target, *, tf32_convolutions: bool
) -> dict[int, Typical]:
    """Return by how much kernels of ops without sizes change, by task.

    Args:
        ops: The trace, and who launched what.
        origin: Where it was measured.
        target: The other GPU.
        tf32_convolutions: Whether convolutions of fp32 use TF32 there although no
            kernel of the trace says so.

    """
    names = {task: work.name for task, work in ops.recorded.works.items()}
    asked: dict[tuple[Kind, DType], list[OpLaunches]] = {}
    for launches in ops.launches:
        own = [names[task] for task in launches.tasks]
        kind, dtype = _kind(launches, own), _dtype(own)
        if kind is not None and dtype is not None:
            asked.setdefault((kind, dtype), []).append(launches)
    found: dict[int, Typical] = {}
    for (kind, dtype), every in asked.items():
        ladder = _Ladder.of(kind, dtype, (origin, target))
        turning = tf32_convolutions and dtype == DTYPES["f32"]
        for launches in every:
            here, there = launches.uses_tf32, launches.takes_tf32(convolutions=turning)
            measured_s = math.fsum(
                ops.recorded.graph.stated_s[t] for t in launches.tasks
            )
            ratio = ladder.ratio(measured_s, (here, there))
            one = Typical(kind, ratio, turns_to_tf32=there and not here)
            found |= dict.fromkeys(launches.tasks, one)
    return found


def _kind(launches: OpLaunches, kernels: Iterable[str]) -> Kind | None:
    """Return of which kind an op without sizes is; None for one that waves scale."""
    name = launches.op.removeprefix("aten::")
    if not launches.missing or any(map(_OTHER.search, kernels)):
        return None
    if launches.is_convolution:
        return Kind.GRADIENTS if "backward" in name else Kind.CONVOLUTION
    if name in _GEMMS:
        return Kind.GEMM
    return Kind.BATCHED if name in _BATCHED else None


def _dtype(kernels: Sequence[str]) -> DType | None:
    """Return the type that kernels multiply, by their names; None if none says it."""
    for name, pattern in _NAMED.items():
        if any(map(pattern.search, kernels)):
            return DTYPES[name]
    return None


@attrs.frozen(eq=False)
class _Ladder:
    """Typical ops of one kind, from small to large.

    Attributes:
        seconds: Of each, on this GPU and on the other, without TF32 and with it.

    """

    seconds: Sequence[Sequence[Mapping[bool, float]]]

    @classmethod
    def of(cls, kind: Kind, dtype: DType, targets: Sequence[Target]) -> _Ladder:
        """Price them."""
        graph = RecordedGraph("typical", dtype)
        rungs = [[graph.add(op) for op in rung] for rung in _rungs(kind, dtype)]
        program = graph.program()
        modes = (False, True)
        totals: list[dict[tuple[str, bool], float]] = [
            {
                call: math.fsum(one.row.seconds for one in kernels)
                for call, kernels in expected_kernels(program, target, modes)[0].items()
            }
            for target in targets
        ]
        return cls(
            [
                [
                    {m: math.fsum(one[k, m] for k in rung) for m in modes}
                    for one in totals
                ]
                for rung in rungs
            ]
        )

    def ratio(self, measured_s: float, modes: tuple[bool, bool]) -> float:
        """Return that of the one which takes as long as was measured."""
        if measured_s <= 0:
            return 1.0
        mode, other = modes
        here, there = min(
            self.seconds, key=lambda rung: abs(math.log(rung[0][mode] / measured_s))
        )
        return there[other] / here[mode]


def _rungs(kind: Kind, dtype: DType) -> Iterator[list[RecordedOp]]:
    """Yield typical ops, each twice the work of the one before, or more."""

    def tensor(*shape: int) -> RecordedTensor:
        return RecordedTensor(shape, dtype)

    if kind in (Kind.GEMM, Kind.BATCHED):
        name, batch = ("mm", ()) if kind is Kind.GEMM else ("bmm", (64,))
        for size in (64 << n for n in range(8)):
            square = tensor(*batch, size, size)
            yield [RecordedOp(f"aten::{name}", (square, square))]
        return
    for images in (1 << n for n in range(9)):
        yield [
            _convolution(
                kind,
                tensor(images, inner, 28, 28),
                tensor(outer, inner, width, width),
                tensor(images, outer, 28, 28),
            )
            for inner, outer, width in _BLOCK
        ]


def _convolution(
    kind: Kind, x: RecordedTensor, weight: RecordedTensor, out: RecordedTensor
) -> RecordedOp:
    half = weight.shape[-1] // 2
    window: tuple[RecordedArgument, ...] = ((1, 1), (half, half), (1, 1), False)
    rest: tuple[RecordedArgument, ...] = (*window, (0, 0), 1)
    if kind is Kind.CONVOLUTION:
        return RecordedOp("aten::convolution", (x, weight, None, *rest))
    wanted = (True, True, False)
    arguments = (out, x, weight, None, *rest, wanted)
    return RecordedOp("aten::convolution_backward", arguments)
