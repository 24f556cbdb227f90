"""Collectives: ops that a rank runs together with the other members of a communicator.

All carry the communicator they belong to: how many members it has (`ranks`), how far
apart neighbours are in the numbering of all ranks (`stride`), its name (`group`), and
the stream that its kernels run on (`stream`). The n-th collective of a communicator on
one rank meets the n-th on every other, as in NCCL. Shapes are those of one rank.

Those that bring the rows of sharded tables may be a `request`, whose result is waited
for by a call of its own: its gradient is sent where that one goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfc.ir.dims import Dim, Expr, floor_div
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, Trait, named, names_with
from perfc.ir.ops import rules
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import DType, TensorType

_COMMUNICATOR = {
    "group": (str,),
    "ranks": (int,),
    "stride": rules.OPTIONAL_INT,
    "stream": rules.OPTIONAL_TEXT,
}
_PAIR = {**_COMMUNICATOR, "ranks": rules.OPTIONAL_INT}
_LEAST = 2
"""Members of a communicator, and of a pair that sends and receives."""


def communicator_ranks(attributes: Record) -> int:
    """Return how many members a collective has; 2 where a pair does not say."""
    ranks = attributes.integer("ranks", _LEAST)
    stride = attributes.integer("stride", 1)
    if ranks < _LEAST:
        msg = f"a collective of {ranks} ranks, expected at least {_LEAST}"
        raise VerifyError(msg)
    if stride < 1:
        msg = f"members of a communicator {stride} ranks apart, expected at least 1"
        raise VerifyError(msg)
    if not attributes.text("group"):
        msg = "a communicator without a name; give the attribute `group`"
        raise VerifyError(msg)
    return ranks


def _infer_same(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    communicator_ranks(attributes)
    return [Abstract(operands[0].type)]


def _resized(type_: TensorType, axis: int, dim: Dim) -> Sequence[Abstract]:
    shape = (*type_.shape[:axis], dim, *type_.shape[axis + 1 :])
    return [Abstract(TensorType(type_.dtype, shape, type_.space).checked())]


def _infer_gather(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, ranks = operands[0].type, communicator_ranks(attributes)
    axis = rules.normalize_axis(attributes.integer("axis", 0), x.rank)
    return _resized(x, axis, x.shape[axis] * ranks)


def _infer_scatter(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, ranks = operands[0].type, communicator_ranks(attributes)
    axis = rules.normalize_axis(attributes.integer("axis", 0), x.rank)
    dim = x.shape[axis]
    if isinstance(dim, int) and dim % ranks:
        msg = f"cannot scatter axis {axis} of {x} over {ranks} ranks evenly"
        raise VerifyError(msg)
    return _resized(x, axis, floor_div(dim, ranks))


def _infer_exchange(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    communicator_ranks(attributes)
    x = operands[0].type
    size = attributes.get("bytes")
    if isinstance(size, int) and size < 0:
        msg = f"an exchange of {size} bytes, expected at least 0"
        raise VerifyError(msg)
    if attributes.get("filled") is not None:
        rules.check_quotient(attributes, "filled")
    if attributes.get("shape") is None:
        return [Abstract(x)]
    shape = attributes.dims("shape")
    return [Abstract(TensorType(x.dtype, shape, x.space).checked())]


def _infer_send(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    communicator_ranks(attributes)
    return []


def _infer_recv(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    communicator_ranks(attributes)
    type_ = TensorType(attributes.dtype("dtype"), attributes.dims("shape"))
    return [Abstract(type_.checked())]


def _work_exchange(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Read and write all, or the part of it that is there on average."""
    whole = rules.touch_all(attributes, operands, results)
    if attributes.get("filled") is None:
        return whole
    part: Any  # an amount, as `Work` has them
    part, of = attributes.dims("filled")
    read, written = whole.bytes_read * part // of, whole.bytes_written * part // of
    return Work(whole.flops, read, written)


def _work_read(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    return Work(0, operands[0].nbytes, 0)


def _work_pack(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    return Work(operands[1].numel, operands[1].nbytes, operands[1].nbytes)


PACK = OpDef(
    name="pack",
    arity=(2, 2),
    infer=rules.first_operand,
    work=_work_pack,
    attributes={"offset": (int,)},
    mutates=(0,),
    summary="bucket, x: x, scaled, into its place in a flat buffer",
)
ALL_REDUCE = OpDef(
    name="all_reduce",
    arity=(1, 1),
    infer=_infer_same,
    work=rules.touch_all,
    attributes={**_COMMUNICATOR, "kind": rules.OPTIONAL_TEXT},
    mutates=(0,),
    traits=frozenset({Trait.COLLECTIVE}),
    summary="x, in place: the sum, or `kind` (max), of what all ranks have there",
)
BROADCAST = OpDef(
    name="broadcast",
    arity=(1, 1),
    infer=_infer_same,
    work=rules.touch_all,
    attributes=_COMMUNICATOR,
    mutates=(0,),
    traits=frozenset({Trait.COLLECTIVE}),
    summary="x, in place: what one of the ranks has there",
)
ALL_GATHER = OpDef(
    name="all_gather",
    arity=(1, 1),
    infer=_infer_gather,
    work=rules.touch_all,
    attributes={
        **_COMMUNICATOR,
        "axis": rules.OPTIONAL_INT,
        "alike": rules.OPTIONAL_BOOL,  # all ranks use the result in the same way
        # What ranks reduce gradients in; without it, the type that they have.
        "reduce_dtype": rules.OPTIONAL_DTYPE,
    },
    traits=frozenset({Trait.COLLECTIVE, Trait.SUMMED_GRADIENT}),
    summary="x: those of all ranks, one behind the other along `axis` (0)",
)
REDUCE_SCATTER = OpDef(
    name="reduce_scatter",
    arity=(1, 1),
    infer=_infer_scatter,
    work=rules.touch_all,
    attributes={
        **_COMMUNICATOR,
        "axis": rules.OPTIONAL_INT,
        "request": rules.OPTIONAL_BOOL,
    },
    traits=frozenset({Trait.COLLECTIVE}),
    summary="x: this rank's part along `axis` (0) of the sum over all ranks",
)
ALL_TO_ALL = OpDef(
    name="all_to_all",
    arity=(1, 1),
    infer=_infer_exchange,
    work=_work_exchange,
    attributes={
        **_COMMUNICATOR,
        "shape": rules.OPTIONAL_INTS,
        "bytes": (int, Expr, type(None)),
        "filled": rules.OPTIONAL_INTS,  # part of the shapes that is sent, as a quotient
        "request": rules.OPTIONAL_BOOL,
    },
    traits=frozenset({Trait.COLLECTIVE}),
    summary="x: a part from every rank for a part to every rank, `shape` in all",
)
SEND = OpDef(
    name="send",
    arity=(1, 1),
    results=0,
    infer=_infer_send,
    work=_work_read,
    attributes=_PAIR,
    traits=frozenset({Trait.COLLECTIVE}),
    summary="x, to the rank that receives in the same `group`",
)
RECV = OpDef(
    name="recv",
    arity=(0, 0),
    infer=_infer_recv,
    work=rules.touch_all,
    attributes={**_PAIR, "dtype": (DType,), "shape": (tuple,)},
    traits=frozenset({Trait.COLLECTIVE}),
    summary="what the rank that sends in the same `group` has sent",
)

OPS = named(
    *(ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER),
    *(ALL_TO_ALL, SEND, RECV, PACK),
)

COLLECTIVES = names_with(Trait.COLLECTIVE, OPS)
"""Names of the collective ops."""
