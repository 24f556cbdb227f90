"""What is sent between stages in place of whole activations and gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from perfc.costmodels.kernels import Floats
from perfc.ir import UsageError

TOPK, FP16, INT8, NONE = "topk", "fp16", "int8", "none"
ADAPTIVE = "adaptive"
INDEX_BYTES = 4
SCALE_BYTES = 4
"""What a tensor in `int8` carries beside its values: one fp32 scale."""
_VALUE_BYTES = {FP16: 2, INT8: 1}


@attrs.frozen
class Compression:
    """How tensors between stages are compressed.

    Attributes:
        kind: `topk`, the largest values and their places; `fp16` or `int8`, all values
            in fewer bits; `none`.
        ratio: Of `topk`: one in so many values is kept; 1 keeps tensors as they are.
        half: Whether `topk` sends its values in 16 bits.
        adaptive: Whether the ratio of a link falls with its time, so that only the
            slowest has all of it.

    """

    kind: str = NONE
    ratio: float = 1.0
    half: bool = False
    adaptive: bool = False

    @property
    def changes(self) -> bool:
        """Whether anything is sent otherwise than without it."""
        return self.kind in _VALUE_BYTES or (self.kind == TOPK and self.ratio > 1)

    def share(self, element_bytes: float, ratio: float | None = None) -> float:
        """Return c, the bytes that are sent of each byte, at most 1.

        `topk` sends a value and 4 bytes of its place for one in *ratio* elements: 2/r
        of fp32, 1.5/r of it with values in 16 bits. The scale of a tensor in `int8` is
        not among them.

        Args:
            element_bytes: Of an element.
            ratio: In place of the own.

        """
        if self.kind == TOPK:
            kept = self.ratio if ratio is None else ratio
            if kept <= 1:
                return 1.0
            value = min(element_bytes, 2) if self.half else element_bytes
            return min(1.0, (value + INDEX_BYTES) / (kept * element_bytes))
        return min(1.0, _VALUE_BYTES.get(self.kind, math.inf) / element_bytes)

    def ratios(self, links_s: Sequence[float]) -> list[float]:
        """Return the ratio of each link, `max(1, r T_l / max T)` if it adapts.

        Args:
            links_s: T_l, what each takes uncompressed.

        """
        slowest = max(links_s, default=0.0)
        if not (self.adaptive and slowest and self.kind == TOPK):
            return [self.ratio for _ in links_s]
        return [max(1.0, self.ratio * taken / slowest) for taken in links_s]


@attrs.frozen(eq=False)
class Crossing:
    """Bytes that cross each cut of a pipeline, of shape (L + 1,), before they shrink.

    Attributes:
        floats: Of floats, by the bytes of an element.
        others: Of other tensors, which are sent as they are.
        tensors: How many are floats.

    """

    floats: Mapping[float, Floats]
    others: Floats
    tensors: Floats

    def whole(self, cut: int) -> float:
        """Return the bytes at a cut, nothing compressed."""
        return float(self.others[cut]) + math.fsum(
            float(size[cut]) for size in self.floats.values()
        )

    def sent(self, cut: int, compression: Compression, ratio: float) -> float:
        """Return the bytes at a cut, with this ratio."""
        made = float(self.others[cut]) + math.fsum(
            float(size[cut]) * compression.share(element_bytes, ratio)
            for element_bytes, size in self.floats.items()
        )
        if compression.kind == INT8:
            made += SCALE_BYTES * float(self.tensors[cut])
        return min(made, self.whole(cut))


@attrs.frozen(eq=False)
class Adaptive:
    """Ratios of links that follow from what crosses them.

    Attributes:
        compression: The largest ratio, and how values are sent.
        crossing: What crosses each cut.

    """

    compression: Compression
    crossing: Crossing


def read_compression(text: str) -> Compression:
    """Read `topk:R[,adaptive][,fp16]`, `fp16` or `int8`."""
    first, *more = text.split(",")
    kind, _, number = first.partition(":")
    if kind in _VALUE_BYTES and not number and not more:
        return Compression(kind)
    known = more.count(ADAPTIVE) + more.count(FP16) == len(more) == len(set(more))
    try:
        ratio = float(number)
    except ValueError:
        ratio = math.nan
    if kind != TOPK or not known or not 1 <= ratio < math.inf:
        msg = (
            f"--compress {text}: expected topk:R[,adaptive][,fp16] with R from 1, "
            "fp16 or int8"
        )
        raise UsageError(msg)
    return Compression(kind, ratio, half=FP16 in more, adaptive=ADAPTIVE in more)
