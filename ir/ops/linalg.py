"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops import rules
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType


def _infer_linear(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, weight = operands[0].type, operands[1].type
    if weight.rank != 2 or x.rank < 1:
        msg = f"expected a matrix as weight, got {weight} for {x}"
        raise VerifyError(msg)
    features_out, features_in = weight.shape
    if attributes.flag("weight_is_kn"):
        features_in, features_out = weight.shape
    rules.require_equal("inner dimensions", x.shape[-1], features_in)
    shape = (*x.shape[:-1], features_out)
    if len(operands) > 2:
        rules.broadcast([shape, operands[2].type.shape])
    return [Abstract(TensorType(x.dtype, shape))]


def _work_linear(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    out = results[0]
    flops = 2 * out.numel * operands[0].shape[-1]
    if len(operands) > 2:
        flops = flops + out.numel
    moved = rules.touch_all(attributes, operands, results)
    return Work(flops, moved.bytes_read, moved.bytes_written)


LINEAR = OpDef(
    name="linear",
    arity=(2, 3),
    infer=_infer_linear,
    work=_work_linear,
    attributes={
        "weight_is_kn": rules.OPTIONAL_BOOL,
        "transposed_by_exporter": rules.OPTIONAL_BOOL,  # the source stores [n, k]
    },
    summary="x[..., k] times weight[n, k] (or [k, n]) plus bias[n]",
)


def _infer_matmul(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    left, right = operands[0].type, operands[1].type
    if left.rank < 1 or right.rank < 1:
        msg = f"cannot multiply scalars: {left} x {right}"
        raise VerifyError(msg)
    if attributes.flag("weight_is_nk"):
        if right.rank != 2:
            msg = f"expected a matrix as weight, got {right} for {left}"
            raise VerifyError(msg)
        right = TensorType(right.dtype, right.shape[::-1])
    rows = left.shape[-2:-1]
    columns = right.shape[-1:] if right.rank > 1 else ()
    inner = right.shape[-2] if right.rank > 1 else right.shape[0]
    if left.shape[-1] != inner:
        rules.require_equal(
            f"inner dimensions of {left} x {right}", left.shape[-1], inner
        )
    batch = rules.broadcast([left.shape[:-2], right.shape[:-2]])
    dtype = left.dtype
    if attributes.get("dtype") is not None:
        dtype = attributes.dtype("dtype")
    return [Abstract(TensorType(dtype, (*batch, *rows, *columns)))]


def _work_matmul(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    moved = rules.touch_all(attributes, operands, results)
    flops = 2 * results[0].numel * operands[0].shape[-1]
    return Work(flops, moved.bytes_read, moved.bytes_written)


MATMUL = OpDef(
    name="matmul",
    arity=(2, None),
    infer=_infer_matmul,
    work=_work_matmul,
    attributes={
        "dtype": rules.OPTIONAL_DTYPE,
        "weight_is_nk": rules.OPTIONAL_BOOL,  # operand 1 is stored [n, k]
        "sum_bits": rules.OPTIONAL_INT,  # of products of 8-bit integers, on a CPU
    },
    summary="batched matrix product; of integers, with scales, into `dtype`",
)


def _infer_packed(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, packed = operands[0].type, operands[1].type
    inputs, features = attributes.integer("inputs"), attributes.integer("features")
    if x.rank < 1:
        msg = f"expected vectors to multiply, got {x}"
        raise VerifyError(msg)
    rules.require_equal("inner dimensions", x.shape[-1], inputs)
    needed = inputs * features * attributes.integer("bits")
    if isinstance(packed.numel, int) and packed.numel * packed.dtype.bits < needed:
        msg = f"{packed} has fewer than the {needed} bits of its numbers"
        raise VerifyError(msg)
    return [Abstract(TensorType(x.dtype, (*x.shape[:-1], features)))]


PACKED_LINEAR = OpDef(
    name="packed_linear",
    arity=(2, 6),
    infer=_infer_packed,
    work=_work_matmul,
    attributes={"inputs": (int,), "features": (int,), "bits": (int,)},
    summary="x[..., k] times a weight of few bits in bytes; scales, zero points, bias",
)


def _infer_det(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    x = operands[0].type
    if x.rank < 2:
        msg = f"expected square matrices, got {x}"
        raise VerifyError(msg)
    rules.require_equal(f"rows and columns of {x}", x.shape[-2], x.shape[-1])
    return [Abstract(TensorType(x.dtype, x.shape[:-2]))]


def _work_det(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Factorise each matrix: 2/3 n^3 flops."""
    x = operands[0]
    flops = 2 * x.numel * x.shape[-1] // 3
    return Work(flops, x.nbytes, results[0].nbytes)


DET = OpDef(
    name="det",
    arity=(1, 1),
    infer=_infer_det,
    work=_work_det,
    summary="determinants of square matrices",
)


def _infer_det_backward(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract | None]:
    _infer_det(attributes, operands[1:2])
    return [Abstract(operands[1].type)]


def _work_det_backward(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Solve for a diagonal matrix by both factors: 2 n^3 flops."""
    x = operands[1]
    return Work(2 * x.numel * x.shape[-1], x.nbytes, x.nbytes)


DET_BACKWARD = OpDef(
    name="det_backward",
    arity=(3, 3),
    infer=_infer_det_backward,
    work=_work_det_backward,
    summary="gradient of det: of its result, the matrices, and the result",
)

OPS = named(LINEAR, MATMUL, PACKED_LINEAR, DET, DET_BACKWARD)
