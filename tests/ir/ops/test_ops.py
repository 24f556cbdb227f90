"""Work formulas of the ops, and their registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ir.ops.op_values import TABLES, f32, i64, infer_types, record

from perfc.ir import DTYPES, Record, TensorType, Work
from perfc.ir.dims import evaluate, symbol
from perfc.ir.opdef import OpRegistry, named
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.ops.elementwise import ELEMENTWISE_OPS
from perfc.ir.support import UnknownOpError

Operands = list[TensorType]


def _int4(*shape: Any) -> TensorType:
    """Make a type of 4-bit integers."""
    return TensorType(DTYPES["i4"], shape)


def _same_shapes(count: int) -> Callable[[Any], Operands]:
    return lambda b: [f32(b, 4)] * count


# Attributes, and operands as a function of the batch.
CASES: dict[str, tuple[Record, Callable[[Any], Operands]]] = {
    **{
        name: (Record(), _same_shapes(BUILTIN_OPS[name].arity[0]))
        for name in sorted(ELEMENTWISE_OPS)
    },
    "linear": (Record(), lambda b: [f32(b, 13), f32(64, 13), f32(64)]),
    "matmul": (Record(), lambda b: [f32(b, 3, 5), f32(b, 5, 7)]),
    "conv": (
        record(stride=(2, 2), padding=(1, 1, 1, 1), groups=2),
        lambda b: [f32(b, 4, 9, 9), f32(6, 2, 3, 3), f32(6)],
    ),
    "pool": (record(kind="max", window=(2, 2)), lambda b: [f32(b, 4, 9, 9)]),
    "reduce": (record(kind="sum", axes=(1,)), lambda b: [f32(b, 4)]),
    "softmax": (record(axis=-1), lambda b: [f32(b, 4)]),
    "layer_norm": (record(axis=-1), lambda b: [f32(b, 4), f32(4), f32(4)]),
    "batch_norm": (Record(), lambda b: [f32(b, 4, 2), *[f32(4)] * 4]),
    "embedding_bag": (
        record(tables=TABLES, mode="sum", has_offsets=True),
        lambda b: [f32(100, 16), f32(50, 8), i64(6 * b), i64(2 * b)],
    ),
    "gather": (record(axis=0), lambda b: [f32(100, 16), i64(b)]),
    "gather_elements": (record(axis=1), lambda b: [f32(b, 16), i64(b, 2)]),
    "gather_nd": (Record(), lambda b: [f32(100, 16), i64(b, 1)]),
    "cast": (record(dtype=DTYPES["f16"]), lambda b: [f32(b, 4)]),
    "argmax": (record(axis=1), lambda b: [f32(b, 4)]),
    "conv_transpose": (
        record(stride=(2, 2), groups=2),
        lambda b: [f32(b, 4, 9, 9), f32(4, 3, 3, 3)],
    ),
    "einsum": (
        record(equation="bij,bjk,k->bi"),
        lambda b: [f32(b, 3, 5), f32(b, 5, 7), f32(7)],
    ),
    "recurrent": (
        record(kind="lstm"),
        lambda b: [f32(5, b, 6), f32(1, 16, 6), f32(1, 16, 4)],
    ),
    "recurrent_cell": (
        record(kind="gru"),
        lambda b: [f32(b, 12), f32(b, 12), f32(b, 4), f32(12), f32(12)],
    ),
    "recurrent_cell_backward": (
        record(kind="lstm"),
        lambda b: [f32(b, 4), f32(b, 4), f32(b, 4), f32(b, 4), f32(b, 16)],
    ),
    "linear_attention": (
        record(heads=4, kv_heads=2, update_rule="delta"),
        lambda b: [f32(b, 3, 32), f32(b, 3, 16), f32(b, 3, 8)],
    ),
    "scatter_elements": (
        record(axis=1, reduction="add"),
        lambda b: [f32(b, 16), i64(b, 2), f32(b, 2)],
    ),
    "resize": (
        record(mode="linear", scales=(1.0, 1.0, 2.0, 2.0)),
        lambda b: [f32(b, 3, 4, 5)],
    ),
    "quantize": (
        record(dtype=DTYPES["i8"]),
        lambda b: [f32(b, 16), f32(16)],
    ),
    "dequantize": (Record(), lambda b: [_int4(b, 16), f32(16)]),
    "all_reduce": (record(group="dp", ranks=4), lambda b: [f32(b, 4)]),
    "all_gather": (record(group="dp", ranks=4), lambda b: [f32(b, 4)]),
    "reduce_scatter": (record(group="dp", ranks=4, axis=1), lambda b: [f32(b, 4)]),
    "all_to_all": (record(group="ep", ranks=4), lambda b: [f32(b, 4)]),
    "send": (record(group="pp.0-1"), lambda b: [f32(b, 4)]),
    "replicated": (record(group="dp", ranks=4), lambda b: [f32(b, 4)]),
    "check_bags": (record(), lambda b: [i64(b), i64(4)]),
    "bucketize_bags": (record(buckets=2), lambda b: [i64(b), i64(4)]),
    "regroup_bags": (record(ranks=2, features=2), lambda b: [i64(b), i64(4)]),
    "concat": (record(axis=0), lambda b: [f32(b, 4), f32(3, 4)]),
    "split": (record(axis=1, sizes=(1, 3)), lambda b: [f32(b, 4)]),
    "flatten": (record(axis=1), lambda b: [f32(b, 4, 2)]),
    "transpose": (record(perm=(1, 0)), lambda b: [f32(b, 4)]),
    "squeeze": (record(axes=(1,)), lambda b: [f32(b, 1)]),
    "unsqueeze": (record(axes=(0,)), lambda b: [f32(b, 4)]),
    "identity": (Record(), lambda b: [f32(b, 4)]),
    "shape": (Record(), lambda b: [f32(b, 4)]),
    "size": (Record(), lambda b: [f32(b, 4)]),
}


def _bound(type_: TensorType, bindings: Mapping[str, Any]) -> TensorType:
    """Like `TensorType.bind`, for arrays."""
    shape = tuple(evaluate(dim, bindings) for dim in type_.shape)
    return attrs.evolve(type_, shape=shape)


def _numbers(work: Work, bindings: Mapping[str, Any]) -> list[Any]:
    return [
        evaluate(field, bindings)
        for field in (work.flops, work.bytes_read, work.bytes_written)
    ]


@pytest.mark.parametrize("name", sorted(CASES))
@settings(max_examples=30)
@given(batches=st.lists(st.integers(1, 10_000), min_size=1, max_size=3))
def test_work(name: str, batches: list[int]) -> None:
    """A work formula gives the same on ints, on arrays and on symbols."""
    attributes, operands = CASES[name]
    work = BUILTIN_OPS[name].work
    symbolic = operands(symbol("B"))
    results = infer_types(name, attributes, symbolic)
    formula = work(attributes, symbolic, results)
    array = np.array(batches)
    bindings = {"B": array}
    arrays = work(
        attributes,
        [_bound(t, bindings) for t in symbolic],
        [_bound(t, bindings) for t in results],
    )
    columns = [np.broadcast_to(c, len(batches)).tolist() for c in _numbers(arrays, {})]
    for row, batch in enumerate(batches):
        numbers = operands(batch)
        plain = work(attributes, numbers, infer_types(name, attributes, numbers))

        assert _numbers(plain, {}) == _numbers(formula, {"B": batch})
        assert _numbers(plain, {}) == [column[row] for column in columns]


@pytest.mark.parametrize(
    ("name", "flops", "read", "written"),
    [
        ("relu", 32, 128, 128),
        ("add", 32, 256, 128),
        ("linear", 2 * 8 * 64 * 13 + 8 * 64, 4 * (8 * 13 + 64 * 13 + 64), 4 * 8 * 64),
        ("matmul", 2 * 8 * 3 * 5 * 7, 4 * 8 * (15 + 35), 4 * 8 * 21),
        ("conv", 2 * 8 * 6 * 25 * 18, 4 * (8 * 4 * 81 + 6 * 18 + 6), 4 * 8 * 6 * 25),
        ("pool", 8 * 4 * 64 * 4, 4 * 8 * 4 * 81, (4 + 8) * 8 * 4 * 64),
        ("reduce", 32, 128, 32),
        ("embedding_bag", 24 * 24, 8 * 64 + 4 * 24 * 24, 4 * 8 * 24),
        ("gather", 0, 8 * 8 + 4 * 8 * 16, 4 * 8 * 16),
        ("cast", 0, 128, 64),
        ("conv_transpose", 2 * 8 * 4 * 81 * 27, 4 * (2592 + 108), 4 * 8 * 6 * 361),
        ("einsum", 2 * 8 * (3 * 5 * 7 + 3 * 7), 4 * (8 * (15 + 35) + 7), 4 * 8 * 3),
        (
            "recurrent",
            5 * 8 * 4 * (2 * 4 * (6 + 4) + 30),
            4 * (5 * 8 * 6 + 16 * 6 + 16 * 4),
            4 * (5 * 8 * 4 + 2 * 8 * 4),
        ),
        (
            "recurrent_cell",
            24 * 8 * 4,
            4 * (8 * (12 + 12 + 4) + 24),
            4 * 8 * (4 + 5 * 4),
        ),
        (
            "recurrent_cell_backward",
            30 * 8 * 4,
            4 * 8 * (4 * 4 + 16),
            4 * 8 * (16 + 4),
        ),
        ("linear_attention", 2 * 8 * 3 * 32 * (4 + 2 * 2), 4 * 24 * 56, 4 * 8 * 112),
        ("scatter_elements", 16, 4 * 8 * 16 + 8 * 16 + 4 * 16, 4 * 8 * 16 + 4 * 16),
        ("resize", 2 * 4 * 8 * 3 * 80, 4 * 8 * 60, 4 * 8 * 240),
        ("quantize", 3 * 128, 4 * 128 + 64, 128),
        ("dequantize", 2 * 128, 64 + 64, 4 * 128),
        ("concat", 0, 4 * 44, 4 * 44),
        ("transpose", 0, 0, 0),
    ],
)
def test_work_at_batch_8(name: str, flops: int, read: int, written: int) -> None:
    """Flops and bytes counted by hand."""
    attributes, operands = CASES[name]
    types = operands(8)

    found = BUILTIN_OPS[name].work(
        attributes, types, infer_types(name, attributes, types)
    )

    assert Work(flops, read, written) == found


def test_test_op() -> None:
    """The op for tests states its own work."""
    attributes = record(flops=5, bytes=7)

    assert Work(5, 7, 0) == BUILTIN_OPS["test.op"].work(attributes, [], [])
    assert 7 == Work(5, 3, 4).bytes
    assert Work(6, 8, 10) == Work(5, 6, 7) + Work(1, 2, 3)


def test_registry() -> None:
    """Names are unique, and a missing one is answered with the closest."""
    relu = BUILTIN_OPS["relu"]
    registry = OpRegistry(named(relu))

    assert [relu] == list(registry)
    assert "relu" in registry
    with pytest.raises(ValueError, match="op 'relu' is defined twice"):
        named(relu, relu)
    with pytest.raises(UnknownOpError, match="unknown op 'rleu'; did you mean relu"):
        registry["rleu"]
