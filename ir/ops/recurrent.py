"""Recurrent layers, and what came after them: one step per element of a sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfc.ir.dims import Dim, product
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops import rules
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType

RECURRENT_GATES: Mapping[str, int] = {"lstm": 4, "gru": 3, "rnn": 1}
"""Kinds of recurrent layers, and their gates."""

RECURRENT_FLOPS: Mapping[str, int] = {"lstm": 30, "gru": 24, "rnn": 9}
"""Flops per hidden unit and step apart from the matmuls: the gates' activations
(sigmoid 4, tanh 8), their products and sums with both biases."""

RECURRENT_STATES: Mapping[str, int] = {"lstm": 2, "gru": 1, "rnn": 1}
"""Kinds of recurrent layers, and what they hand on from step to step."""

_KEPT: Mapping[str, int] = {"lstm": 5, "gru": 6, "rnn": 1}
"""Vectors of hidden size that a layer keeps of each step for its gradients.

Sizes of cuDNN's reserve space are in pytorch/pytorch#2895: for 4 layers of 320 units,
a batch of 25 and 1,000 steps (`toy_batch` of stefbraun/rnn_benchmarks), 736,000,000
bytes for LSTM and 864,000,000 for GRU, which is 23 and 27 vectors: 5 (four gates and
the cell) and 6 of each layer, and the result of each but the last. Of plain layers none
is published; they need no less than the state.
"""


def reserved_vectors(kind: str, layers: int = 1, directions: int = 1) -> int:
    """Return how many vectors cuDNN keeps of each step for the gradients of a stack.

    The reserve is handed from forward to backward (`cudnnGetRNNTempSpaceSizes`).
    """
    if kind not in _KEPT:
        msg = f"{kind!r} is none of {', '.join(_KEPT)}"
        raise VerifyError(msg)
    return directions * (layers * _KEPT[kind] + layers - 1)


def recurrent_sizes(
    attributes: Record, x: TensorType, recurrence: TensorType
) -> tuple[Dim, Dim, Dim, Dim, Dim]:
    """Return steps, batch, inputs, hidden units and directions.

    The recurrence reads the state: as many as there are hidden units, or fewer, to
    which an LSTM is projected.
    """
    kind = attributes.text("kind")
    if kind not in RECURRENT_GATES or x.rank != 3 or recurrence.rank not in (2, 3):
        msg = f"cannot run {kind!r} on {x} with {recurrence}"
        raise VerifyError(msg)
    steps, batch, inputs = x.shape
    if attributes.flag("batch_first"):
        steps, batch = batch, steps
    directions, gates, state = ((1,) * (3 - recurrence.rank)) + recurrence.shape
    hidden = gates // RECURRENT_GATES[kind] if attributes.flag("projected") else state
    rules.require_equal("rows of the recurrence", gates, RECURRENT_GATES[kind] * hidden)
    return steps, batch, inputs, hidden, directions


def _infer_recurrent(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, weight, recurrence = (operand.type for operand in operands[:3])
    sizes = recurrent_sizes(attributes, x, recurrence)
    steps, batch, inputs, hidden, directions = sizes
    if weight.rank != recurrence.rank:
        msg = f"expected [directions, gates * hidden, inputs], got {weight}"
        raise VerifyError(msg)
    if isinstance(directions, int) and directions not in (1, 2):
        msg = f"expected 1 or 2 directions, got {directions} in {recurrence}"
        raise VerifyError(msg)
    rules.require_equal("inputs", inputs, weight.shape[-1])
    state = recurrence.shape[-1]
    whole: tuple[Dim, ...] = (steps, directions, batch, state)
    last: tuple[Dim, ...] = (directions, batch)
    if attributes.flag("batch_first"):
        whole = (batch, steps, directions, state)
        last = (batch, directions)
    if recurrence.rank == 2:
        whole, last = (*x.shape[:2], state), (batch,)
    out, end, cell = (
        Abstract(TensorType(x.dtype, shape))
        for shape in (whole, (*last, state), (*last, hidden))
    )
    vectors = attributes.integer("reserve", 0)
    if not vectors:
        return [out, end, cell]
    shape = (vectors * directions, steps, batch, hidden)
    kept = Abstract(TensorType(x.dtype, shape).checked())
    return [out, *(end, cell)[: RECURRENT_STATES[attributes.text("kind")]], kept]


def _work_recurrent(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    sizes = recurrent_sizes(attributes, operands[0], operands[2])
    steps, batch, inputs, hidden, directions = sizes
    kind = attributes.text("kind")
    units = product((steps, batch, directions, hidden))
    state = operands[2].shape[-1]
    flops = units * (
        2 * RECURRENT_GATES[kind] * (inputs + state) + RECURRENT_FLOPS[kind]
    )
    if attributes.flag("projected"):
        flops = flops + 2 * units * state
    moved = rules.touch_all(attributes, operands, results)
    return Work(flops, moved.bytes_read, moved.bytes_written)


RECURRENT = OpDef(
    name="recurrent",
    arity=(3, 8),
    results=None,
    infer=_infer_recurrent,
    work=_work_recurrent,
    attributes={
        "kind": (str,),
        "batch_first": rules.OPTIONAL_BOOL,
        "projected": rules.OPTIONAL_BOOL,  # the last operand is [..., state, hidden]
        "reserve": rules.OPTIONAL_INT,
    },
    summary="lstm, gru or rnn: x, weights (of one direction: matrices), biases, states",
)


def _heads(attributes: Record) -> tuple[int, int]:
    heads, kv_heads = attributes.integer("heads"), attributes.integer("kv_heads")
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        msg = f"{heads} query heads do not fit {kv_heads} key heads"
        raise VerifyError(msg)
    return heads, kv_heads


def _infer_linear_attention(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    query, key, value = (operand.type for operand in operands[:3])
    heads, kv_heads = _heads(attributes)
    if min(query.rank, key.rank, value.rank) != 3:
        msg = f"expected [batch, tokens, features], got {query}, {key}, {value}"
        raise VerifyError(msg)
    value_size = value.shape[2] // kv_heads
    state = (query.shape[0], kv_heads, key.shape[2] // kv_heads, value_size)
    out = TensorType(query.dtype, (*query.shape[:2], heads * value_size))
    given = attributes.flag("has_state")
    if given and len(operands) == 3:
        msg = "has_state is true, but no state is given as operand 3"
        raise VerifyError(msg)
    dtype = operands[3].type.dtype if given else query.dtype
    return [Abstract(out), Abstract(TensorType(dtype, state))]


def _work_linear_attention(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Count the recurrence: a rank-one update of the state, and a lookup, a token.

    The delta rules look a key up, too, before they write.
    """
    query, key, value = operands[:3]
    heads, kv_heads = _heads(attributes)
    state = product((key.shape[2] // kv_heads, value.shape[2] // kv_heads))
    tokens = product(query.shape[:2])
    passes = 2 if "delta" in attributes.text("update_rule", "") else 1
    flops = 2 * tokens * state * (heads + passes * kv_heads)
    moved = rules.touch_all(attributes, operands, results)
    return Work(flops, moved.bytes_read, moved.bytes_written)


LINEAR_ATTENTION = OpDef(
    name="linear_attention",
    arity=(3, 6),
    results=None,
    infer=_infer_linear_attention,
    work=_work_linear_attention,
    attributes={
        "heads": (int,),
        "kv_heads": (int,),
        "update_rule": rules.OPTIONAL_TEXT,
        "has_state": rules.OPTIONAL_BOOL,
    },
    summary="query, key, value, state, ...: attention by a state of fixed size",
)


def _infer_causal_conv(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, weight = operands[0].type, operands[1].type
    if x.rank != 3 or weight.rank != 3:
        msg = f"cannot convolve {x} with {weight}"
        raise VerifyError(msg)
    state = TensorType(x.dtype, (*x.shape[:2], weight.shape[2] - 1))
    return [Abstract(x), Abstract(state)]


def _work_causal_conv(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    moved = rules.touch_all(attributes, operands, results)
    flops = 2 * results[0].numel * operands[1].shape[2]
    return Work(flops, moved.bytes_read, moved.bytes_written)


CAUSAL_CONV = OpDef(
    name="causal_conv",
    arity=(2, 4),
    results=None,
    infer=_infer_causal_conv,
    work=_work_causal_conv,
    summary="each channel by its own window of past steps; and the last steps",
)

OPS = named(RECURRENT, LINEAR_ATTENTION, CAUSAL_CONV)
