"""Strings and encoded images: work of the host, which no GPU kernel does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from perfc.ir.dims import Dim
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops.rules import OPTIONAL_INT, UNKNOWN_DIM, broadcast, touch_all
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import BOOL, F32, I64, STRING, U8, TensorType

_Types = list[TensorType]


def _concat(attributes: Record, types: Sequence[TensorType]) -> _Types:
    return [TensorType(STRING, broadcast([type_.shape for type_ in types]))]


def _match(attributes: Record, types: Sequence[TensorType]) -> _Types:
    return [TensorType(BOOL, types[0].shape)]


def _normalize(attributes: Record, types: Sequence[TensorType]) -> _Types:
    """Stop words are dropped, so how many words are left depends on data."""
    return [TensorType(STRING, (*types[0].shape[:-1], UNKNOWN_DIM))]


def _split(attributes: Record, types: Sequence[TensorType]) -> _Types:
    shape = types[0].shape
    return [TensorType(STRING, (*shape, UNKNOWN_DIM)), TensorType(I64, shape)]


def _tfidf(attributes: Record, types: Sequence[TensorType]) -> _Types:
    shape = (*types[0].shape[:-1], attributes.integer("size"))
    return [TensorType(F32, shape)]


def _decode(attributes: Record, types: Sequence[TensorType]) -> _Types:
    channels: Dim = attributes.integer("size")
    return [TensorType(U8, (UNKNOWN_DIM, UNKNOWN_DIM, channels))]


_KINDS: Mapping[str, Callable[[Record, Sequence[TensorType]], _Types]] = {
    "concat": _concat,
    "match": _match,
    "normalize": _normalize,
    "split": _split,
    "tfidf": _tfidf,
    "decode_image": _decode,
}


def _infer(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    kind = attributes.text("kind")
    if kind not in _KINDS or (kind != "concat" and len(operands) > 1):
        msg = f"kind {kind!r} is none of {', '.join(_KINDS)}, or has other operands"
        raise VerifyError(msg)
    types = [operand.type for operand in operands]
    return list(map(Abstract, _KINDS[kind](attributes, types)))


HOST_TEXT = OpDef(
    name="host_text",
    arity=(1, 2),
    results=None,
    infer=_infer,
    work=touch_all,
    attributes={"kind": (str,), "size": OPTIONAL_INT},
    summary="strings joined, matched, split, counted; images decoded: on the host",
)

OPS = named(HOST_TEXT)
