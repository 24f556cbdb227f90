"""Lookups in tables of few bits, as fbgemm and PyTorch call them, are lookups here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import pytest

import perfc
from perfc.frontends.aten import (
    READ_ELEMENTS,
    Argument,
    AtenBuilder,
    AtenCall,
    AtenTensor,
    Ref,
)
from perfc.ir import DTYPES, DType, Node, Program, TensorType
from perfc.passes.graphs import typed
from perfc.tools.models.model import prepare

NBIT = "fbgemm.int_nbit_split_embedding_codegen_lookup_function.default"
FP32, FP16, INT8, INT4, INT2, BF16, FP8 = 0, 1, 2, 3, 4, 5, 6
BATCH, BAG = 16, 5


def _tensor(name: str, dtype: str, *shape: int) -> AtenTensor:
    return AtenTensor(name, TensorType(DTYPES[dtype], shape))


def _built(
    call: AtenCall, inputs: Sequence[AtenTensor], parameters: Sequence[AtenTensor]
) -> Program:
    builder = AtenBuilder("model")
    for tensor in inputs:
        builder.input(tensor)
    for tensor in parameters:
        builder.parameter(tensor)
    builder.call(call)
    made = [result.name for result in call.results if result is not None]
    builder.outputs(made or [inputs[0].name])
    return builder.program()


def _nodes(program: Program) -> list[Node]:
    (rank,) = program.classes
    assert rank.ops is not None
    return list(rank.ops)


def _row_bytes(code: int, dim: int, alignment: int) -> int:
    """Return what fbgemm's `rounded_row_size_in_bytes` does."""
    sizes = {
        FP32: 4 * dim,
        FP16: 2 * dim,
        BF16: 2 * dim,
        FP8: dim,
        INT8: dim + 4,
        INT4: dim // 2 + 4,
        INT2: dim // 4 + 4,
    }
    return -(-sizes[code] // alignment) * alignment


@attrs.frozen
class Tables:
    """What fbgemm's module keeps of its tables.

    Attributes:
        types: Numbers of `SparseType`.
        dims: Columns.
        rows: Rows.
        alignment: Bytes that rows are filled up to a multiple of.
        places: Numbers of `EmbeddingLocation`.

    """

    types: tuple[int, ...]
    dims: tuple[int, ...]
    rows: tuple[int, ...]
    alignment: int = 16
    places: tuple[int, ...] = ()

    @property
    def sizes(self) -> list[int]:
        """Bytes of a row of each table."""
        listed = zip(self.types, self.dims, strict=True)
        return [_row_bytes(code, dim, self.alignment) for code, dim in listed]

    def starts(self) -> tuple[list[int], int, int]:
        """Return where tables begin, and the bytes on the device and on the host."""
        used = {False: 0, True: 0}
        found: list[int] = []
        places = self.places or (0,) * len(self.rows)
        for size, count, place in zip(self.sizes, self.rows, places, strict=True):
            far = place in (1, 2)
            found.append(used[far])
            used[far] += -(-size * count // 128) * 128
        return found, used[False], used[True]


def lookup(tables: Tables, *, told: bool = True, **more: Argument) -> Program:
    """Return a program that looks all tables up."""
    starts, near, far = tables.starts()
    count, total = len(tables.rows), sum(tables.dims)
    bounds = [0, *(sum(tables.dims[: n + 1]) for n in range(count))]
    lists: Mapping[str, tuple[int, ...]] = {
        "weights_placements": tables.places or (0,) * count,
        "weights_offsets": tuple(starts),
        "weights_tys": tables.types,
        "D_offsets": tuple(bounds),
    }
    widest = {
        code: max(
            (d for t, d in zip(tables.types, tables.dims, strict=True) if t == code),
            default=0,
        )
        for code in range(7)
    }
    parameters = [
        _tensor("dev", "u8", near),
        _tensor("uvm", "u8", far),
        _tensor("places", "i32", count),
        _tensor("starts", "i64", count),
        _tensor("types", "u8", count),
        _tensor("bounds", "i32", count + 1),
        _tensor("cache", "u8", far // 1024, 64),
    ]
    inputs = [
        _tensor("indices", "i32", count * BATCH * BAG),
        _tensor("offsets", "i32", count * BATCH + 1),
    ]
    arguments: dict[str, Argument] = {
        "dev_weights": Ref("dev"),
        "uvm_weights": Ref("uvm"),
        "weights_placements": Ref("places"),
        "weights_offsets": Ref("starts"),
        "weights_tys": Ref("types"),
        "D_offsets": Ref("bounds"),
        "total_D": total,
        "max_int2_D": widest[INT2],
        "max_int4_D": widest[INT4],
        "max_int8_D": widest[INT8],
        "max_float16_D": widest[FP16],
        "max_float32_D": widest[FP32],
        "indices": Ref("indices"),
        "offsets": Ref("offsets"),
        "pooling_mode": 0,
        "output_dtype": 1,
        "lxu_cache_weights": Ref("cache"),
        "row_alignment": tables.alignment,
        "max_float8_D": widest[FP8],
        **more,
    }
    shape = (BATCH, total)
    if arguments["pooling_mode"] == 2:
        shape = (count * BATCH * BAG, tables.dims[0])
    call = AtenCall(
        NBIT,
        arguments,
        (_tensor("pooled", "f16", *shape),),
        elements=lists if told else {},
    )
    return _built(call, inputs, parameters)


def looked_up(program: Program) -> tuple[Node, list[DType]]:
    """Return the one lookup, and the types of its tables."""
    (bag,) = [node for node in _nodes(program) if node.op == "embedding_bag"]
    count = len(bag.attributes.records("tables"))
    return bag, [typed(value).dtype for value in bag.operands[:count]]


@pytest.mark.parametrize("alignment", [1, 16])
def test_rows_of_every_type(alignment: int) -> None:
    """Each table has the rows, the columns and the bytes of a row that fbgemm gives."""
    tables = Tables(
        (FP32, FP16, INT8, INT4, INT2, BF16, FP8),
        (4, 36, 64, 64, 8, 100, 33),
        (4000, 1024, 640, 1280, 2048, 512, 128),
        alignment,
    )

    program = lookup(tables)
    bag, types = looked_up(program)
    listed = bag.attributes.records("tables")
    dims = [table.integer("dim") for table in listed]
    sizes = [t.row_bytes(dim) for t, dim in zip(types, dims, strict=True)]
    rows = [table.integer("rows") for table in listed]

    assert tables.dims == tuple(dims)
    assert tables.sizes == sizes
    assert "f16[16,309]" == str(bag.results[0].type)
    # A table ends at a cache line, which may have room for some more rows.
    assert all(
        wanted <= found < wanted + 128 / size
        for wanted, found, size in zip(tables.rows, rows, sizes, strict=True)
    )


@pytest.mark.parametrize("code", [INT8, INT4, INT2])
def test_bytes_that_are_moved(code: int) -> None:
    """Rows are read as they are stored, and no op of such a program is unknown."""
    tables = Tables((code, code), (64, 64), (1024, 1024))

    report = perfc.analyze(prepare(lookup(tables)), "a100")
    (node,) = [node for node in report.nodes if "lookup" in node["op"]]
    lookups = 2 * BATCH * BAG

    assert {} == report.coverage["unknown_ops"]
    read = lookups * (tables.sizes[0] + 4) + 4 * (2 * BATCH + 1)
    assert read + 2 * BATCH * 128 == node["bytes"]


def test_tables_whose_lists_are_not_known() -> None:
    """Those of one type are taken to be alike, and the report says so."""
    program = lookup(Tables((INT4, INT4), (64, 64), (1024, 1024)), told=False)
    bag, types = looked_up(program)
    (remark,) = program.diagnostics

    assert [48, 48] == [dtype.row_bytes(64) for dtype in types]
    assert [1024, 1024] == [t.integer("rows") for t in bag.attributes.records("tables")]
    assert "data-assumed" == remark.code
    assert "2 tables are taken to be equally wide and large" in remark.message


def test_tables_that_features_share() -> None:
    """Features of one table read the same rows."""
    starts = {"weights_offsets": (0, 0), "weights_placements": (0, 0)}
    call = AtenCall(
        NBIT,
        {
            **dict.fromkeys(("dev_weights", "uvm_weights"), Ref("dev")),
            **dict.fromkeys(("weights_tys", "D_offsets"), Ref("list")),
            "total_D": 128,
            "indices": Ref("indices"),
            "offsets": Ref("offsets"),
            "pooling_mode": 1,
            "row_alignment": 16,
        },
        (_tensor("pooled", "f32", BATCH, 128),),
        elements={**starts, "weights_tys": (INT8, INT8), "D_offsets": (0, 64, 128)},
    )
    program = _built(
        call,
        [_tensor("indices", "i32", 160), _tensor("offsets", "i32", 2 * BATCH + 1)],
        [_tensor("dev", "u8", 80 * 1000), _tensor("list", "u8", 2)],
    )
    bag, _ = looked_up(program)

    assert bag.operands[0] is bag.operands[1]
    assert "mean" == bag.attributes.text("mode")


def test_tables_in_memory_of_the_host() -> None:
    """They are priced there, with the share of their rows that are cached."""
    tables = Tables((INT8, INT8), (64, 64), (4096, 2048), places=(2, 0))
    bag, _ = looked_up(lookup(tables))
    far, near = bag.attributes.records("tables")

    assert "uvm-caching" == far.text("tier")
    assert 1 / 16 == far.get("cache")
    assert near.get("tier") is None


def test_rows_that_are_not_pooled() -> None:
    """They are gathered, and dequantised on the way."""
    nodes = _nodes(lookup(Tables((INT4,), (64,), (1024,)), pooling_mode=2))

    assert "gather" == nodes[-1].op
    assert "f16[80,64]" == str(nodes[-1].results[0].type)


@pytest.mark.parametrize(
    ("tables", "more", "problem"),
    [
        (Tables((9,), (64,), (8,)), {}, "rows of type 9"),
        (Tables((INT4, INT8), (64, 64), (64, 64)), {}, "tables of 2 types"),
        (Tables((INT4, INT4), (64, 37), (64, 64)), {}, "of different widths"),
        (Tables((INT4,), (64,), (64,)), {"pooling_mode": 7}, "pooling mode 7"),
        (
            Tables((INT4, INT4), (64, 64), (64, 64)),
            {"pooling_mode": 2},
            "rows of 2 tables that are not pooled",
        ),
    ],
)
def test_lookups_that_are_not_understood(
    tables: Tables, more: Mapping[str, Argument], problem: str
) -> None:
    """They are unknown ops, with the reason."""
    known = tables.types == (9,)
    sizes = attrs.evolve(tables, types=(INT8,)) if known else tables
    program = lookup(sizes, told=False, **more)
    if known:
        program = _with_type(sizes, 9)
    (remark,) = [one for one in program.diagnostics if one.code == "unknown-use"]

    assert problem in remark.message
    assert "unknown" in {node.op for node in _nodes(program)}


def _with_type(tables: Tables, code: int) -> Program:
    """Return a lookup whose list of types has a number that there is not."""
    call = AtenCall(
        NBIT,
        {
            **dict.fromkeys(("dev_weights", "uvm_weights"), Ref("dev")),
            "indices": Ref("indices"),
            "offsets": Ref("offsets"),
            "total_D": 64,
            "pooling_mode": 0,
        },
        (_tensor("pooled", "f16", BATCH, 64),),
        elements={
            "weights_tys": (code,),
            "D_offsets": (0, 64),
            "weights_offsets": (0,),
        },
    )
    inputs = [_tensor("indices", "i32", 80), _tensor("offsets", "i32", BATCH + 1)]
    size = tables.sizes[0] * tables.rows[0]
    return _built(call, inputs, [_tensor("dev", "u8", size)])


def test_what_is_read_of_a_lookup() -> None:
    """Lists that say what tables are, no other arguments."""
    assert {"D_offsets", "weights_tys"} < set(READ_ELEMENTS[NBIT])


_WIDTHS = {"byte": (64 + 8, 8), "4bit": (32 + 4, 4), "2bit": (16 + 4, 2)}


def _rows_looked_up(width: str, row: int) -> Program:
    call = AtenCall(
        f"quantized.embedding_bag_{width}_rowwise_offsets.default",
        {
            "weight": Ref("weight"),
            "indices": Ref("indices"),
            "offsets": Ref("offsets"),
            "mode": 0,
            "include_last_offset": True,
        },
        (_tensor("pooled", "f32", BATCH, 64),),
    )
    inputs = [
        _tensor("indices", "i64", BATCH * BAG),
        _tensor("offsets", "i64", BATCH + 1),
    ]
    return _built(call, inputs, [_tensor("weight", "u8", 1000, row)])


@pytest.mark.parametrize(
    ("width", "row", "bits"), [(k, *v) for k, v in _WIDTHS.items()]
)
def test_rows_of_pytorch(width: str, row: int, bits: int) -> None:
    """PyTorch's own lookups read rows of elements, scale and bias."""
    program = _rows_looked_up(width, row)
    bag, (dtype,) = looked_up(program)
    report = perfc.analyze(prepare(program), "a100")
    (node,) = [node for node in report.nodes if node["op"] == "aten::embedding_bag"]

    assert (bits, row) == (dtype.bits, dtype.row_bytes(64))
    assert BATCH * BAG * (row + 8) + 8 * (BATCH + 1) + 4 * BATCH * 64 == node["bytes"]
    assert {} == report.coverage["unknown_ops"]
    assert "f32" == typed(bag.results[0]).dtype.name


def test_rows_of_another_size() -> None:
    """Bytes that are not those of such rows are not taken for them."""
    program = _rows_looked_up("byte", 70)
    (remark,) = program.diagnostics

    assert "rows of 70 bytes for 64 columns, which take 72" in remark.message


@pytest.mark.parametrize(
    ("op", "row", "more"),
    [
        ("quantized.embedding_bag_byte_unpack", 72, {}),
        ("quantized.embedding_bag_4bit_unpack", 36, {}),
        ("quantized.embedding_bag_2bit_unpack", 20, {}),
        ("fbgemm.Fused8BitRowwiseQuantizedToFloat", 72, {}),
        ("fbgemm.FusedNBitRowwiseQuantizedSBHalfToFloat", 36, {"bit_rate": 4}),
    ],
)
def test_rows_are_unpacked(op: str, row: int, more: Mapping[str, int]) -> None:
    """A kernel reads rows as they are stored and writes floats; and the other way."""
    packed, plain = _tensor("x", "u8", 100, row), _tensor("y", "f32", 100, 64)
    unpacks = AtenCall(f"{op}.default", {"input": Ref("x"), **more}, (plain,))
    packing = {
        "fbgemm.Fused8BitRowwiseQuantizedToFloat": (
            "fbgemm.FloatToFused8BitRowwiseQuantized"
        ),
        "fbgemm.FusedNBitRowwiseQuantizedSBHalfToFloat": (
            "fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf"
        ),
    }.get(op, op.replace("unpack", "prepack"))
    packs = AtenCall(f"{packing}.default", {"input": Ref("y"), **more}, (packed,))

    for call, given in ((unpacks, packed), (packs, plain)):
        report = perfc.analyze(prepare(_built(call, [given], [])), "a100")
        kernels = [node for node in report.nodes if "quant" in node["op"]]
        (moved,) = [node["bytes"] for node in kernels]

        assert {} == report.coverage["unknown_ops"]
        # A scale is a number beside, of rows that say theirs.
        assert 100 * row + 4 * 6400 == pytest.approx(moved, abs=4)


def test_indices_are_checked() -> None:
    """A kernel looks at each, and writes nothing."""
    call = AtenCall(
        "fbgemm.bounds_check_indices.default",
        {
            "rows_per_table": Ref("rows"),
            "indices": Ref("indices"),
            "offsets": Ref("offsets"),
            "bounds_check_mode": 1,
            "warning": Ref("warning"),
        },
        (),
    )
    inputs = [_tensor("indices", "i64", 640), _tensor("offsets", "i64", 65)]
    rows = [_tensor("rows", "i64", 4), _tensor("warning", "i64", 1)]
    report = perfc.analyze(prepare(_built(call, inputs, rows)), "a100")
    (node,) = [n for n in report.nodes if n["op"] == "fbgemm::bounds_check_indices"]

    assert {} == report.coverage["unknown_ops"]
    assert 8 * (640 + 65) == node["bytes"]
    assert 0 < node["duration_us"]
