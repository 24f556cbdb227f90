"""One step of a recurrent cell in eager PyTorch: one kernel on CUDA, many on a CPU.

CUDA has a kernel for all that follows the two GEMMs, and one for its gradients
(`_thnn_fused_gru_cell`, `_thnn_fused_lstm_cell`: `aten/src/ATen/native/cuda/RNN.cu`).
On a CPU the gates are ops of their own, on parts of the GEMMs (`GRUCell` and
`LSTMCell` in `RNN.cpp`), and so are their gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from perfc.ir import AttrValue, Record
from perfc.ir.opdef import Abstract
from perfc.ir.ops import BUILTIN_OPS
from perfc.passes.lowering.eager import rule_table
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Layout,
    Rule,
    Site,
    Tensor,
    rows_and_columns,
    vector_launch,
)


def _cell(site: Site) -> Eager:
    kind = site.attributes.text("kind")
    if site.settings.on_cpu:
        return _FORWARD[kind](site)
    return _fused(site, f"_thnn_fused_{kind}_cell")


def _cell_backward(site: Site) -> Eager:
    kind = site.attributes.text("kind")
    if site.settings.on_cpu:
        return _BACKWARD[kind](site)
    suffix = "_impl" if kind == "lstm" else ""
    return _fused(site, f"_thnn_fused_{kind}_cell_backward{suffix}")


def _fused(site: Site, name: str) -> Eager:
    """Launch one kernel that reads and writes every tensor once."""
    state = site.operands[2].type if site.op == "recurrent_cell" else site.results[-1]
    rows, columns = rows_and_columns(Tensor(state).shape)
    work = site.work
    params: dict[str, AttrValue] = {
        "kind": name.strip("_"),
        "rows": rows,
        "cols": columns,
        "tensor_inputs": len(site.operands),
        "bytes": math.trunc(work.bytes_read + work.bytes_written),
    }
    launch = vector_launch("elementwise", state.dtype, params, work)
    return Eager(f"aten::{name}", (launch,))


@attrs.define(eq=False)
class _Calls:
    """Ops that run one after another."""

    site: Site
    first: str = ""
    launches: list[Launch] = attrs.field(factory=list[Launch])

    def __call__(self, op: str, *operands: Tensor, **attributes: AttrValue) -> Tensor:
        """Add what an op launches; return its result."""
        record = Record(attributes)
        types = BUILTIN_OPS[op].infer(record, [Abstract(t.type) for t in operands])
        same = Abstract(operands[0].type)  # where an op's source declares its result
        results = tuple((made or same).type for made in types)
        site = Site(op, record, operands, results, self.site.settings)
        eager = rule_table.RULES[op](site)
        head, *rest = eager.launches
        self.launches += [
            attrs.evolve(head, op=eager.name if self.launches else ""),
            *rest,
        ]
        self.first = self.first or eager.name
        if record.flag("in_place"):
            return operands[0]
        layouts = eager.layouts or (Layout.CONTIGUOUS,)
        return Tensor(results[0], layouts[0])

    def made(self) -> Eager:
        """Return all of them."""
        return Eager(self.first, tuple(self.launches))


def _state(site: Site) -> Tensor:
    return Tensor(site.results[-1 if site.op.endswith("_backward") else 0])


def _part(state: Tensor) -> Tensor:
    """Return a gate: a part of each row of a GEMM."""
    return Tensor(state.type, Layout.STRIDED)


def _gru(site: Site) -> Eager:
    """Training copies what later steps write over (`mul_`)."""
    calls, state = _Calls(site), _state(site)
    reset = update = candidate = _part(state)
    for gate in (reset, update):
        calls("add", gate, _part(state), in_place=True)
        calls("sigmoid", gate, in_place=True)
    if site.settings.training:
        calls("copy", candidate)
    calls("mul", candidate, reset, in_place=True)
    new = calls("add", _part(state), candidate)
    calls("tanh", new, in_place=True)
    change = calls("sub", state, new)
    if site.settings.training:
        calls("copy", change)
    calls("mul", change, update, in_place=True)
    calls("add", change, new, in_place=True)
    return calls.made()


def _lstm(site: Site) -> Eager:
    calls, state = _Calls(site), _state(site)
    gemms, gate = Tensor(site.operands[0].type), _part(state)
    calls("add", gemms, gemms, in_place=True)
    for activation in ("sigmoid", "sigmoid", "tanh", "sigmoid"):
        calls(activation, gate, in_place=True)
    kept = calls("mul", gate, state)
    calls("add", kept, calls("mul", gate, gate), in_place=True)
    calls("mul", gate, calls("tanh", kept))
    return calls.made()


def _gru_backward(site: Site) -> Eager:
    calls, grad = _Calls(site), _state(site)
    gate = _part(grad)
    update = calls("mul", grad, grad)
    of_state = calls("mul", grad, gate)
    calls("add", grad, calls("neg", of_state), in_place=True)
    of_new = calls("tanh_backward", grad, grad)
    reset = calls("mul", of_new, grad)
    of_candidate = calls("mul", of_new, gate)
    gates = [calls("sigmoid_backward", g, gate) for g in (update, reset)]
    for last in (of_candidate, of_new):
        calls("concat", *gates, last, axis=last.type.rank - 1)
    return calls.made()


def _lstm_backward(site: Site) -> Eager:
    calls, grad = _Calls(site), _state(site)
    gate = _part(grad)
    calls("mul", grad, gate)
    out = calls("mul", grad, grad)
    of_cell = calls("tanh_backward", grad, grad)
    if len(site.operands) == _BOTH_GRADIENTS:
        calls("add", of_cell, grad, in_place=True)
    slopes: Sequence[Tensor] = [calls("mul", of_cell, gate) for _ in range(3)]
    forget = calls("mul", of_cell, grad)
    gates = [calls("sigmoid_backward", g, gate) for g in (out, forget, slopes[0])]
    gates.append(calls("tanh_backward", slopes[1], gate))
    calls("concat", *gates, axis=grad.type.rank - 1)
    return calls.made()


_BOTH_GRADIENTS = 5
"""Operands of an LSTM's gradients where both of its states have readers."""

_FORWARD: Mapping[str, Rule] = {"gru": _gru, "lstm": _lstm}
_BACKWARD: Mapping[str, Rule] = {"gru": _gru_backward, "lstm": _lstm_backward}

RULES: Mapping[str, Rule] = {
    "recurrent_cell": _cell,
    "recurrent_cell_backward": _cell_backward,
}
"""Rules by op name."""
