"""One call of an ATen op: what every source of PyTorch graphs is read into.

A recorded step, a `torch.export` archive and an FX graph all are a list of such
calls; `builder.py` makes an op graph of it. Nothing here knows torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import attrs

from perfc.ir import DType, TensorType
from perfc.ir.dims import Dim
from perfc.ir.location import NOWHERE, Location


@attrs.frozen(cache_hash=True)
class Ref:
    """A tensor that is an argument, by its name."""

    name: str


Argument: TypeAlias = (
    "Ref | Dim | bool | float | complex | str | DType | tuple[Argument, ...] | None"
)
"""What a call may be given. Symbolic sizes are dimensions; memory formats, layouts
and devices are strings."""


@attrs.frozen
class AtenTensor:
    """A tensor: an input, a parameter, a state, or one result of one call.

    Attributes:
        name: Its name; a call that works in place makes a new one.
        type: Element type and shape.
        strides: Elements from one index to the next along each axis; None where
            they are not known.

    """

    name: str
    type: TensorType
    strides: tuple[Dim, ...] | None = None


@attrs.frozen(eq=False)
class AtenCall:
    """One call of one op.

    Attributes:
        target: Namespace, name and overload: `aten.addmm.default`.
        arguments: By the names of the op's schema; those left out have defaults.
        results: The tensors that come back, lists of tensors flattened; None where
            the op returns no tensor.
        location: Module path, source line and phase.
        flops: What the user says that an op of his own computes; it counts where
            perfc does not know the op.
        elements: Elements of the arguments that `READ_ELEMENTS` lists for the op, as
            far as its source knows them.

    """

    target: str
    arguments: Mapping[str, Argument]
    results: tuple[AtenTensor | None, ...]
    location: Location = NOWHERE
    flops: int = 0
    elements: Mapping[str, tuple[int, ...]] = attrs.field(
        factory=dict[str, tuple[int, ...]]
    )


_OF_TABLES = ("weights_tys", "D_offsets", "weights_offsets", "weights_placements")

READ_ELEMENTS: Mapping[str, tuple[str, ...]] = {
    "fbgemm.int_nbit_split_embedding_codegen_lookup_function.default": _OF_TABLES,
    "fbgemm.int_nbit_split_embedding_uvm_caching_codegen_lookup_function.default": (
        _OF_TABLES
    ),
}
"""Ops that say what they do by the elements of short lists of integers, and the names
of these arguments."""

MOST_ELEMENTS = 1 << 16
"""Longer lists are not read."""
