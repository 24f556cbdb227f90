"""An op for tests: it states its own cost and its own result types."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops.rules import OPTIONAL_INT
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType


def _infer(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    for name in ("us", "flops", "bytes"):
        amount = attributes.get(name)
        if isinstance(amount, int | float) and not 0 <= amount < math.inf:
            msg = f"{name} is {amount}, expected a finite number that is not negative"
            raise VerifyError(msg)
    return []


def _work(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    return Work(attributes.integer("flops", 0), attributes.integer("bytes", 0), 0)


TEST_OP = OpDef(
    name="test.op",
    arity=(0, None),
    results=None,
    infer=_infer,
    work=_work,
    attributes={
        "us": (float, int, type(None)),
        "flops": OPTIONAL_INT,
        "bytes": OPTIONAL_INT,
    },
    summary="takes the microseconds it states; only for tests",
)

OPS = named(TEST_OP)
