"""Types that tables and linear layers can be stored, and computed, in.

Rows of tables as FBGEMM stores them (`rounded_row_size_in_bytes` and
`nbit_embedding_modules` of fbgemm_gpu): scale and bias in fp16 ahead of the elements,
rows filled up to 16 bytes on a GPU. On a CPU rows of 8 bits are Caffe2's, with both in
fp32, and no row is filled up. A codebook has 16 entries of fp16 (Guan et al., arXiv
1911.02079).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.ir import DTYPES, DType, UsageError
from perfc.ir.types import Granularity, Scaling

FBGEMM, CAFFE2 = "fbgemm", "caffe2"
ROW_LAYOUTS = (FBGEMM, CAFFE2)
"""How rows of few bits lie in memory: as on GPUs, and as on CPUs."""

_ALIGNMENT = 16
"""Bytes that FBGEMM fills rows on a GPU up to a multiple of."""

_PLAIN = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}
_CODEBOOK_BITS = 16 * 16

_NARROW: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "fp8": ("f8e4m3", {FBGEMM: 0, CAFFE2: 0}),
    "int8": ("i8", {FBGEMM: 32, CAFFE2: 64}),
    "int4": ("i4", {FBGEMM: 32, CAFFE2: 32}),
    "int4-codebook": ("i4", {FBGEMM: _CODEBOOK_BITS, CAFFE2: _CODEBOOK_BITS}),
    "int2": ("i2", {FBGEMM: 32, CAFFE2: 32}),
}
"""Elements, and the bits beside them of a row, by layout."""

TABLE_TYPES = (*_PLAIN, *_NARROW)
"""What rows of tables can be stored in."""


def row_type(name: str, layout: str = FBGEMM) -> DType:
    """Return the element type of a table, with what lies beside the elements of a row.

    Args:
        name: One of `TABLE_TYPES`.
        layout: One of `ROW_LAYOUTS`.

    """
    if name in _PLAIN:
        return DTYPES[_PLAIN[name]]
    element, beside = _NARROW[name]
    alignment = _ALIGNMENT if layout == FBGEMM else 1
    scaling = Scaling(Granularity.ROW, beside[layout], alignment=alignment)
    return attrs.evolve(DTYPES[element], scaling=scaling)


def laid_out(dtype: DType, layout: str) -> DType | None:
    """Return the type of rows of a table in another layout; None of other types."""
    for name in _NARROW:
        if any(dtype == row_type(name, known) for known in ROW_LAYOUTS):
            return row_type(name, layout)
    return None


@attrs.frozen(kw_only=True)
class LinearType:
    """How a linear layer is stored and multiplied.

    Attributes:
        name: What users call it.
        weight: Elements of the weight.
        rate: Math mode of its product; empty for that of the activations.
        activations: Whether those are quantised to the weight's type, too.
        block: Elements of a row that share a scale; 0: all of it.
        scale: Type of scales.
        multiple: What rows and columns of the weight have to be multiples of, as
            PyTorch's `_scaled_mm` wants them on CUDA; 1 for any.
        newest: Whether only the tensor cores of Blackwell and later scale blocks so.

    """

    name: str
    weight: DType
    rate: str = ""
    activations: bool = True
    block: int = 0
    scale: DType = DTYPES["f32"]
    multiple: int = 1
    newest: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is converted, without scales."""
        return self.weight.bits > 8  # noqa: PLR2004 - a byte


_E4M3, _INT8, _INT4 = DTYPES["f8e4m3"], DTYPES["i8"], DTYPES["i4"]
_F16, _E8M0 = DTYPES["f16"], DTYPES["f8e8m0"]
_GROUP = 128
"""Weights of four bits that share a scale (GPTQ, AWQ, torchao)."""

LINEAR_TYPES: Mapping[str, LinearType] = {
    one.name: one
    for one in (
        LinearType(name="fp32", weight=DTYPES["f32"], rate="fp32", activations=False),
        LinearType(name="fp16", weight=_F16, rate="fp16", activations=False),
        LinearType(name="bf16", weight=DTYPES["bf16"], rate="bf16", activations=False),
        LinearType(name="fp8", weight=_E4M3, rate="fp8", multiple=16),
        LinearType(
            name="mxfp8",
            weight=_E4M3,
            rate="fp8",
            block=32,
            scale=_E8M0,
            multiple=32,
            newest=True,
        ),
        LinearType(
            name="nvfp4",
            weight=DTYPES["f4e2m1"],
            rate="nvfp4",
            block=16,
            scale=_E4M3,
            multiple=32,
            newest=True,
        ),
        LinearType(name="int8", weight=_INT8, rate="int8"),
        LinearType(name="w8a16", weight=_INT8, activations=False, scale=_F16),
        LinearType(
            name="w4a16", weight=_INT4, activations=False, block=_GROUP, scale=_F16
        ),
    )
}
"""What linear layers can be stored and multiplied in, by name."""

FALLBACKS: Mapping[str, str] = {"int4": "w4a16"}
"""Types that no GPU of today multiplies in, and what takes their place."""


def table_type(name: str, where: str) -> str:
    """Return a type of tables, or refuse the name."""
    if name not in TABLE_TYPES:
        msg = f"{where}: {name!r} is no type of tables; known: {', '.join(TABLE_TYPES)}"
        raise UsageError(msg)
    return name


def linear_type(name: str, where: str) -> LinearType:
    """Return a type of linear layers."""
    found = LINEAR_TYPES.get(FALLBACKS.get(name, name))
    if found is None:
        known = ", ".join((*LINEAR_TYPES, *FALLBACKS))
        msg = f"{where}: {name!r} is no type of linear layers; known: {known}"
        raise UsageError(msg)
    return found
