"""Short spellings for the tests of ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfc.ir import DTYPES, AttrValue, Record, TensorType
from perfc.ir.opdef import Abstract
from perfc.ir.ops import BUILTIN_OPS

F32, I64, BOOL = DTYPES["f32"], DTYPES["i64"], DTYPES["bool"]
TABLES = (Record({"rows": 100, "dim": 16}), Record({"rows": 50, "dim": 8}))


def record(**items: AttrValue) -> Record:
    """Make a record."""
    return Record(items)


def f32(*shape: Any) -> TensorType:
    """Make an fp32 type of ints, arrays or expressions."""
    return TensorType(F32, shape)


def i64(*shape: Any) -> TensorType:
    """Make an int64 type of ints, arrays or expressions."""
    return TensorType(I64, shape)


def infer(
    name: str, attributes: Record, operands: Sequence[Abstract]
) -> list[Abstract]:
    """Run a type rule, leave out what it does not know."""
    results = BUILTIN_OPS[name].infer(attributes, operands)
    return [result for result in results if result is not None]


def infer_types(
    name: str, attributes: Record, operands: Sequence[TensorType]
) -> list[TensorType]:
    """Run a type rule on types."""
    return [r.type for r in infer(name, attributes, list(map(Abstract, operands)))]
