"""What pooled rows and their gradients are sent as: TorchRec's `qcomm`."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.ir import AttrValue, DType, Node, Value, node_kinds
from perfc.ir.ops.wire import WIRE_FORMATS

_ENCODE = "encode_rows"
_SUMMED: Mapping[str, tuple[str, str]] = dict.fromkeys(
    ("fp8", "int8"), ("fp16", "bf16")
)
"""What NCCL cannot add up, and what is sent instead, forward and backward."""

FULL_PRECISION = "fp32"
"""The precision without a codec."""

PRECISIONS = tuple(name for name in WIRE_FORMATS if name != FULL_PRECISION)
"""What rows can be sent as."""


@attrs.frozen
class Codec:
    """Formats of both directions.

    Attributes:
        forward: That of rows.
        backward: That of their gradients.

    """

    forward: str
    backward: str

    def of_sums(self) -> Codec:
        """Return that of a reduce-scatter.

        As `get_qcomm_codecs_registry` of TorchRec does for fp8. It lets int8 pass,
        whose blocks are no numbers to add up.
        """
        forward, _ = _SUMMED.get(self.forward, (self.forward, ""))
        _, backward = _SUMMED.get(self.backward, ("", self.backward))
        return Codec(forward, backward)

    def keeps(self, dtype: DType) -> bool:
        """Whether numbers of a type are sent as they are."""
        formats = (self.forward, self.backward)
        return all(WIRE_FORMATS[format_] == dtype for format_ in formats)

    @property
    def attributes(self) -> dict[str, AttrValue]:
        """What the ops of both ends say."""
        return {"format": self.forward, "gradient": self.backward}


def encoder(value: Value) -> Node | None:
    """Return the node that encoded a value on its way; None for any other value."""
    node = value.producer
    while node is not None and node_kinds.is_collective(node) and node.operands:
        node = node.operands[0].producer
    return node if node is not None and node.op == _ENCODE else None
