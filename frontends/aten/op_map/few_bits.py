"""Lookups in tables of few bits, and what converts their rows: fbgemm's, PyTorch's.

Rows lie in bytes, element after element, with a scale and a bias in them. fbgemm keeps
all tables in one list of bytes; `rounded_row_size_in_bytes` of
`split_table_batched_embeddings_ops_inference.py` says what a row takes there. PyTorch's
`quantized::embedding_bag_*` has a row of bytes for each row of a table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import attrs

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.template import Operand
from perfc.ir import DTYPES, AttrValue, DType, Record, TensorType
from perfc.ir.dims import Dim
from perfc.ir.types import Granularity, Scaling

_MODES = ("sum", "mean", "max")
_UNPOOLED = 2
"""fbgemm's `PoolingMode.NONE`."""

_ROW_TYPES: Mapping[int, str] = {
    0: "f32",
    1: "f16",
    2: "i8",
    3: "i4",
    4: "i2",
    5: "bf16",
    6: "f8e4m3",
}
"""Numbers of fbgemm's `SparseType`, and what elements of rows are."""

_HALVES, _FLOATS = 32, 64
"""Bits of a scale and a bias, in fp16 or in fp32."""

_NARROW = frozenset(("i8", "i4", "i2"))
"""Types whose rows have a scale and a bias in them."""

_TIERS: Mapping[int, str] = {1: "uvm", 2: "uvm-caching"}
"""Numbers of fbgemm's `EmbeddingLocation` that are not the memory of the device."""

_MOST: Mapping[str, int] = {
    "max_float32_D": 0,
    "max_float16_D": 1,
    "max_int8_D": 2,
    "max_int4_D": 3,
    "max_int2_D": 4,
    "max_float8_D": 6,
}
"""Arguments that say how wide the widest table of a type is."""


@attrs.frozen
class _Table:
    """A table of one of a lookup's features.

    Attributes:
        dtype: Elements, with what lies beside them in a row.
        dim: Columns.
        place: Where its bytes begin, and whether they are on the host.
        location: A number of `EmbeddingLocation`.

    """

    dtype: DType
    dim: int
    place: tuple[bool, int]
    location: int


def _row_type(code: int, alignment: int) -> DType:
    if code not in _ROW_TYPES:
        msg = f"rows of type {code}, expected one of {', '.join(map(str, _ROW_TYPES))}"
        raise Misfit(msg)
    name = _ROW_TYPES[code]
    beside = _HALVES if name in _NARROW else 0
    scaling = Scaling(Granularity.ROW, beside, alignment=max(alignment, 1))
    plain = not beside and alignment <= 1
    return DTYPES[name] if plain else attrs.evolve(DTYPES[name], scaling=scaling)


def _nbit_lookup(node: AtenNode) -> None:
    """One kernel for all tables; what they are say lists of integers, if known.

    Rows are as many as fit into a table's bytes, which end at a cache line.
    """
    tables = _told_tables(node) or _even_tables(node)
    views = [node.tensor("dev_weights"), node.tensor("uvm_weights")]
    rows = _rows(tables, views)
    made = dict[tuple[bool, int], Operand]()
    for table, count in zip(tables, rows, strict=True):
        if table.place not in made:
            source = views[table.place[0]]
            type_ = TensorType(table.dtype, (count, table.dim))
            made[table.place] = node.seen_as(source, type_)
    weights = [made[table.place] for table in tables]
    mode = node.integer("pooling_mode")
    if not 0 <= mode <= _UNPOOLED:
        msg = f"pooling mode {mode}"
        raise Misfit(msg)
    if mode == _UNPOOLED:
        _unpooled(node, weights)
        return
    records = [_record(node, t, n) for t, n in zip(tables, rows, strict=True)]
    rest = (node.tensor("offsets"), node.optional("indice_weights"))
    told: dict[str, AttrValue] = {"mode": _MODES[mode], "include_last_offset": True}
    _emit_bags(node, weights, records, rest, told)


def _told_tables(node: AtenNode) -> list[_Table]:
    """Return the tables as lists of their types, widths and places say; or none."""
    known = node.elements
    if not {"weights_tys", "D_offsets", "weights_offsets"} <= known.keys():
        return []
    alignment = node.integer("row_alignment", 1)
    types, starts = known["weights_tys"], known["weights_offsets"]
    dims = [end - start for start, end in pairwise(known["D_offsets"])]
    locations = known.get("weights_placements", (0,) * len(types))
    if not len(dims) == len(types) == len(starts) == len(locations):
        msg = f"{len(types)} types of rows, {len(dims)} widths, {len(starts)} places"
        raise Misfit(msg)
    return [
        _Table(_row_type(code, alignment), dim, (at in _TIERS, start), at)
        for code, dim, start, at in zip(types, dims, starts, locations, strict=True)
    ]


def _even_tables(node: AtenNode) -> list[_Table]:
    """Return tables of one type that share width and bytes evenly: nothing is told."""
    widest = {code: node.integer(name, 0) for name, code in _MOST.items()}
    used = [code for code, dim in widest.items() if dim > 0]
    count = node.tensor("weights_tys").type.numel
    if len(used) != 1 or not isinstance(count, int) or not count:
        msg = f"tables of {len(used)} types, and no list says which has which"
        raise Misfit(msg)
    dim = math.ceil(node.integer("total_D") / count)
    if dim * count != node.integer("total_D"):
        msg = f"{count} tables of different widths, and no list says which"
        raise Misfit(msg)
    node.assumption = f"{count} tables are taken to be equally wide and large"
    far = node.tensor("dev_weights").type.numel == 0
    source = node.tensor("uvm_weights" if far else "dev_weights")
    size = source.type.numel
    each = size // count if isinstance(size, int) else 0
    dtype = _row_type(used[0], node.integer("row_alignment", 1))
    cache = node.optional("lxu_cache_weights")
    at = int(far) * (1 if (cache.type.numel if cache is not None else 0) == 0 else 2)
    return [_Table(dtype, dim, (far, number * each), at) for number in range(count)]


def _rows(tables: Sequence[_Table], sources: Sequence[Operand]) -> list[int]:
    """Return how many rows lie between the beginnings of tables."""
    ends = dict[tuple[bool, int], int]()
    for far in (False, True):
        size = sources[far].type.numel
        starts = sorted({table.place for table in tables if table.place[0] == far})
        if starts and not isinstance(size, int):
            msg = f"tables in {size} bytes"
            raise Misfit(msg)
        after = [start for _, start in starts[1:]] + [size]
        ends |= dict(zip(starts, after, strict=True)) if starts else {}
    found: list[int] = []
    for table in tables:
        size = ends[table.place] - table.place[1]
        found.append(size // table.dtype.row_bytes(table.dim))
    if min(found, default=0) < 1:
        msg = f"a table of {min(found, default=0)} rows"
        raise Misfit(msg)
    return found


def _record(node: AtenNode, table: _Table, rows: int) -> Record:
    """Describe a table; a cache is shared by the tables that it serves."""
    described = Record({"rows": rows, "dim": table.dim})
    tier = _TIERS.get(table.location, "")
    if not tier:
        return described
    if tier != "uvm-caching":
        return described.updated(tier=tier)
    size = node.tensor("uvm_weights").type.nbytes
    share = _cached_bytes(node) / size if size else 1.0
    return described.updated(tier=tier, cache=min(share, 1.0))


def _cached_bytes(node: AtenNode) -> int:
    cache = node.optional("lxu_cache_weights")
    return cache.type.nbytes if cache is not None else 0


def _unpooled(node: AtenNode, weights: Sequence[Operand]) -> None:
    """Rows one behind the other: of one table, for perfc has no lookup of several."""
    if len(weights) > 1:
        msg = f"rows of {len(weights)} tables that are not pooled"
        raise Misfit(msg)
    operands = (weights[0], node.tensor("indices"))
    node.emit("gather", operands, {"axis": 0, "dtype": node.result().dtype})


def _emit_bags(
    node: AtenNode,
    weights: Sequence[Operand],
    tables: Sequence[Record],
    rest: tuple[Operand | None, Operand | None],
    told: Mapping[str, AttrValue],
) -> None:
    """Write a lookup; the *rest* are offsets, and weights of the samples."""
    offsets, weighted = rest
    attributes: dict[str, AttrValue] = {
        **told,
        "tables": tuple(tables),
        "out_dtype": node.result().dtype,
        "has_offsets": offsets is not None,
        "weighted": weighted is not None,
    }
    given = (node.tensor("indices"), offsets, weighted)
    operands = (*weights, *[each for each in given if each is not None])
    node.emit("embedding_bag", operands, attributes)


def _bag_of_rows(name: str, beside: int) -> Handler:
    """Write a lookup of PyTorch's in rows of bytes."""

    def handler(node: AtenNode) -> None:
        if node.flag("pruned_weights") and node.is_given("compressed_indices_mapping"):
            msg = "a table without some of its rows"
            raise Misfit(msg)
        source, dim = node.tensor("weight"), node.result().shape[-1]
        rows = _as_rows(node, source, name, beside, dim)
        mode = node.integer("mode", 0)
        told: dict[str, AttrValue] = {
            "mode": _MODES[mode] if 0 <= mode < len(_MODES) else "",
            "include_last_offset": node.flag("include_last_offset"),
        }
        table = Record({"rows": rows.type.shape[0], "dim": dim})
        rest = (node.optional("offsets"), node.optional("per_sample_weights"))
        _emit_bags(node, (rows,), (table,), rest, told)

    return handler


def _as_rows(
    node: AtenNode, source: Operand, name: str, beside: int, dim: Dim
) -> Operand:
    """See rows of bytes as rows of a type, of *dim* columns."""
    scaling = Scaling(Granularity.ROW, beside)
    dtype = attrs.evolve(DTYPES[name], scaling=scaling)
    size = source.type.shape[-1] if source.type.rank else 0
    sized = isinstance(size, int) and isinstance(dim, int)
    if sized and dtype.row_bytes(dim) != size:
        needed = dtype.row_bytes(dim)
        msg = f"rows of {size} bytes for {dim} columns, which take {needed}"
        raise Misfit(msg)
    return node.seen_as(source, TensorType(dtype, (*source.type.shape[:-1], dim)))


def _unpacked(name: str, beside: int) -> Handler:
    """Write rows of bytes dequantised to floats."""

    def handler(node: AtenNode) -> None:
        (source, *_) = node.operands
        wanted = node.result()
        rows = _as_rows(node, source, name, beside, wanted.shape[-1])
        scale = node.scalar(1.0, DTYPES["f32"])
        node.emit("dequantize", (rows, scale), {"dtype": wanted.dtype})

    return handler


def _packed_rows(name: str, beside: int) -> Handler:
    """Write floats quantised row by row, scale and bias behind each row."""

    def handler(node: AtenNode) -> None:
        (source, *_) = node.operands
        pair = DTYPES["f32" if beside == _HALVES else "f64"]  # as wide as both
        attributes: dict[str, AttrValue] = {
            "axis": -1,
            "dtype": DTYPES[name],
            "scale_dtype": pair,
        }
        numbers, _ = node.helper("dynamic_quantize", (source,), attributes, count=2)
        node.alias(0, node.seen_as(numbers, node.result()))

    return handler


def _of_bits(handlers: Mapping[int, Handler]) -> Handler:
    """Take the handler of the width that the call says."""

    def handler(node: AtenNode) -> None:
        bits = node.integer("bit_rate")
        if bits not in handlers:
            msg = f"rows of {bits} bits"
            raise Misfit(msg)
        handlers[bits](node)

    return handler


def _checked(node: AtenNode) -> None:
    """Look at each index; those that are of no row are rare, and not written."""
    operands = (node.tensor("offsets"), node.tensor("indices"))
    node.emit("check_bags", operands, results=())


_WIDTHS: Mapping[str, tuple[str, int]] = {
    "byte": ("i8", _FLOATS),
    "4bit": ("i4", _HALVES),
    "2bit": ("i2", _HALVES),
}
"""What PyTorch calls its rows, and what lies in them."""

_PACKED = _of_bits({bits: _packed_rows(f"i{bits}", _HALVES) for bits in (2, 4, 8)})
_UNPACKED = _of_bits({bits: _unpacked(f"i{bits}", _HALVES) for bits in (2, 4, 8)})

FEW_BITS_HANDLERS: Mapping[str, Handler] = {
    "fbgemm.bounds_check_indices": _checked,
    "fbgemm.int_nbit_split_embedding_codegen_lookup_function": _nbit_lookup,
    "fbgemm.int_nbit_split_embedding_uvm_caching_codegen_lookup_function": _nbit_lookup,
    "fbgemm.FloatOrHalfToFused8BitRowwiseQuantized": _packed_rows("i8", _FLOATS),
    "fbgemm.FloatToFused8BitRowwiseQuantized": _packed_rows("i8", _FLOATS),
    "fbgemm.HalfToFused8BitRowwiseQuantized": _packed_rows("i8", _FLOATS),
    "fbgemm.Fused8BitRowwiseQuantizedToFloat": _unpacked("i8", _FLOATS),
    "fbgemm.Fused8BitRowwiseQuantizedToFloatOrHalf": _unpacked("i8", _FLOATS),
    "fbgemm.Fused8BitRowwiseQuantizedToHalf": _unpacked("i8", _FLOATS),
    "fbgemm.FloatOrHalfToFusedNBitRowwiseQuantizedSBHalf": _PACKED,
    "fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf": _PACKED,
    "fbgemm.FusedNBitRowwiseQuantizedSBHalfToFloat": _UNPACKED,
    "fbgemm.FusedNBitRowwiseQuantizedSBHalfToFloatOrHalf": _UNPACKED,
    "fbgemm.FusedNBitRowwiseQuantizedSBHalfToHalf": _UNPACKED,
    **{
        f"quantized.embedding_bag_{width}{suffix}": make(*stored)
        for width, stored in _WIDTHS.items()
        for suffix, make in (
            ("_rowwise_offsets", _bag_of_rows),
            ("_unpack", _unpacked),
            ("_prepack", _packed_rows),
        )
    },
}
"""Namespace and name of an op to the function that writes it."""
