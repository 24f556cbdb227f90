"""One step of a recurrent cell, after its two matmuls, and the gradients of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfc.ir.dims import Dim, product
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops.recurrent import RECURRENT_FLOPS, RECURRENT_GATES
from perfc.ir.ops.rules import require_equal, touch_all
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType

KEPT: Mapping[str, int] = {"lstm": 4, "gru": 5}
"""Vectors of hidden size that the kernel writes for its gradients, whether or not
anyone wants those: four gates; or two, the candidate, the state, and what the state
adds to the candidate (`GRU_WORKSPACE_MULTIPLIER` in `RNN.cu`)."""


def _kind(attributes: Record) -> str:
    kind = attributes.text("kind")
    if kind not in KEPT:
        msg = f"kind {kind!r} of a cell is none of {', '.join(KEPT)}"
        raise VerifyError(msg)
    return kind


def _wide(state: TensorType, vectors: int) -> TensorType:
    if not state.rank:
        msg = "the state of a cell is a number"
        raise VerifyError(msg)
    shape: tuple[Dim, ...] = (*state.shape[:-1], vectors * state.shape[-1])
    return TensorType(state.dtype, shape)


def _infer(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    kind = _kind(attributes)
    of_input, of_state, state, *biases = (operand.type for operand in operands)
    gates = _wide(state, RECURRENT_GATES[kind])
    for product_ in (of_input, of_state):
        require_equal("axes", gates.rank, product_.rank)
        for wanted, size in zip(gates.shape, product_.shape, strict=True):
            require_equal("gates", wanted, size)
    for bias in biases:
        if not bias.rank:
            msg = "a bias of a cell is a number"
            raise VerifyError(msg)
        require_equal("biases", gates.shape[-1], bias.shape[-1])
    states = 2 if kind == "lstm" else 1
    own = Abstract(TensorType(state.dtype, state.shape))
    return [*(own,) * states, Abstract(_wide(state, KEPT[kind]))]


def _work(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    flops = RECURRENT_FLOPS[_kind(attributes)] * product(operands[2].shape)
    moved = touch_all(attributes, operands, results)
    return Work(flops, moved.bytes_read, moved.bytes_written)


RECURRENT_CELL = OpDef(
    name="recurrent_cell",
    arity=(3, 5),
    results=None,
    infer=_infer,
    work=_work,
    attributes={"kind": (str,)},
    summary="gates of an lstm or gru: matmuls of input and state, state, two biases",
)


def _infer_backward(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    kind = _kind(attributes)
    workspace = operands[-1].type
    if not workspace.rank:
        msg = "what a cell keeps is a number"
        raise VerifyError(msg)
    hidden = workspace.shape[-1] // KEPT[kind]
    shape = (*workspace.shape[:-1], hidden)
    state = TensorType(workspace.dtype, shape)
    gates = Abstract(_wide(state, RECURRENT_GATES[kind]))
    return [*(gates,) * (1 if kind == "lstm" else 2), Abstract(state)]


def _work_backward(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Return the work, as forward: the gates are there, their slopes are not."""
    flops = RECURRENT_FLOPS[_kind(attributes)] * results[-1].numel
    moved = touch_all(attributes, operands, results)
    return Work(flops, moved.bytes_read, moved.bytes_written)


RECURRENT_CELL_BACKWARD = OpDef(
    name="recurrent_cell_backward",
    arity=(2, 5),
    results=None,
    infer=_infer_backward,
    work=_work_backward,
    attributes={"kind": (str,)},
    summary="gradients of recurrent_cell: of its results, lstm states, what it kept",
)
"""Gradients of a recurrent cell.

Those of a GRU's gates are two: of the matmul of the input, and of the state.
"""

OPS = named(RECURRENT_CELL, RECURRENT_CELL_BACKWARD)
