"""Connectionist temporal classification in eager PyTorch: `cuda/LossCTC.cu` of ATen.

PyTorch's own kernels, which run where cuDNN's do not (targets of 64-bit integers or on
the device, blanks that are not label 0). One kernel walks all steps of a sequence, a
barrier after each; `costmodels/walk.py` prices it. Where lengths lie on the device the
host reads them back first, and copies them with the places of the targets over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfc.ir import DTYPES, AttrValue, Record, TensorType, Work
from perfc.ir.types import MemorySpace
from perfc.passes.lowering.eager import rule_table
from perfc.passes.lowering.eager.movement import memcpy_launch
from perfc.passes.lowering.eager.site import (
    BYTE,
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    dtype_name,
    elementwise_launch,
    scratch,
    vector_launch,
)

_LISTS = 3
"""Copied to the device: lengths of inputs and of targets, where targets begin."""

_I64 = DTYPES["i64"]
_LARGE = 4500
"""Ten times what steps, sequences and labels are weighed against: see `_is_large`."""


def _ctc_loss(site: Site) -> Eager:
    scores, _, *lengths = site.operands
    walked = 2 * site.attributes.integer("longest") + 1
    walk = _walk(scores, walked, site.work)
    return Eager("aten::_ctc_loss", (*_copied(scores, lengths), walk))


def _walk(scores: Tensor, walked: int, work: Work) -> Launch:
    steps, batch, _ = scores.shape
    params: dict[str, AttrValue] = {"rows": batch, "cols": walked, "steps": steps}
    return vector_launch("ctc_walk", scores.type.dtype, params, work)


def _copied(scores: Tensor, lengths: Sequence[Tensor]) -> list[Launch]:
    name = dtype_name(_I64)
    nbytes = scores.shape[1] * _I64.bits // BYTE
    on_device = [t for t in lengths if t.type.space is MemorySpace.DEVICE]
    ends = ["d2h"] * len(on_device) + ["h2d"] * _LISTS
    return [memcpy_launch(nbytes, end, pinned=False, dtype=name) for end in ends]


def _ctc_loss_backward(site: Site) -> Eager:
    """Walk back, then add up: in one kernel, or step by step where there is much."""
    _, scores, targets, _, sums, *lengths = site.operands
    walked = sums.shape[-1]
    work = site.work
    back = Work(work.flops, scores.nbytes + targets.nbytes, sums.nbytes)
    behind = Work(0, scores.shape[1] * _I64.bits // BYTE, 0)
    launches = [
        *_copied(scores, lengths),
        scratch(elementwise_launch("fill", (), sums)),
        elementwise_launch("fill", (), scores),
        _walk(scores, walked, back),
        *(_in_steps(site) if _is_large(scores) else ()),
        _collect(site, sums),
        vector_launch("ctc_collect", scores.type.dtype, {"kind": "padding"}, behind),
    ]
    return Eager("aten::_ctc_loss_backward", tuple(launches))


def _is_large(scores: Tensor) -> bool:
    """Weigh steps by 2, sequences by 2.4 and labels by 0.2, as ATen does."""
    steps, batch, labels = scores.shape
    return 20 * steps + 24 * batch + 2 * labels > _LARGE


def _collect(site: Site, sums: Tensor) -> Launch:
    scores = site.operands[1]
    work = Work(0, 2 * sums.nbytes + scores.nbytes, scores.nbytes)
    return vector_launch("ctc_collect", scores.type.dtype, {"kind": "labels"}, work)


def _in_steps(site: Site) -> list[Launch]:
    """Probabilities, less what the ways through blanks weigh, times the gradient."""
    _, scores, *_ = site.operands
    sums = site.operands[4]
    steps, batch, _ = scores.shape
    dtype = scores.type.dtype
    blanks = TensorType(dtype, (batch, steps, sums.shape[-1] // 2 + 1))
    each = TensorType(dtype, (batch, steps, 1))
    ways, row = Tensor(blanks), Tensor(each)
    kind = Record({"kind": "log_sum_exp", "axes": (2,), "keepdims": True})
    joined = Site("reduce", kind, (ways,), (each,), site.settings)
    launches = [
        elementwise_launch("exp", (scores,), scores, 3 * scores.numel),
        elementwise_launch("add", (ways, ways), ways, ways.numel),
        *rule_table.RULES["reduce"](joined).launches,
        *(elementwise_launch(k, (row, row), row, row.numel) for k in ("add", "sub")),
        elementwise_launch("exp", (row,), row, 3 * row.numel),
        elementwise_launch("sub", (row, row), row, row.numel),
        elementwise_launch("mul", (scores,), scores, scores.numel),
    ]
    if site.attributes.flag("zero_infinity"):
        per_sequence = Tensor(TensorType(dtype, (1, batch, 1)))
        launches += [
            elementwise_launch("equal", (per_sequence,), per_sequence),
            elementwise_launch("fill", (), Tensor(TensorType(dtype, ()))),
            elementwise_launch("where", (per_sequence, scores), scores),
        ]
    return launches


RULES: Mapping[str, Rule] = {
    "ctc_loss": _ctc_loss,
    "ctc_loss_backward": _ctc_loss_backward,
}
"""Rules of the loss and its gradient, by op name."""
