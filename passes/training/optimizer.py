"""Steps of optimizers, call by call as `torch.optim` makes them on a GPU.

By default PyTorch takes its `foreach` implementations there, which are sequences of
`torch._foreach_*` functions over all parameters of one type (`_multi_tensor_*` in
`torch/optim/*.py` of PyTorch 2.13). Counts of steps lie in host memory: to raise and to
read them launches nothing, but takes the host's time. Tables with sparse gradients are
updated one by one, and so is then, as in PyTorch, everything else of their group
(`_single_tensor_*`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from perfc import ir
from perfc.ir.location import Location
from perfc.ir.ops.optimizer import state_types
from perfc.ir.support import UnsupportedModelError
from perfc.ir.types import MemorySpace
from perfc.passes import graphs
from perfc.passes.autodiff import Rows


@attrs.frozen(eq=False)
class Parameters:
    """What one step updates.

    Attributes:
        grads: Parameters with dense gradients, and these.
        rows: Tables with sparse gradients, and these.

    """

    grads: Mapping[ir.Value, ir.Value]
    rows: Mapping[ir.Value, Rows]


@attrs.frozen(eq=False)
class _Step:
    """One step in the making.

    Attributes:
        tape: Where it is written.
        kind: The optimizer.
        copies: Parameters by the masters that stand for them.

    """

    tape: graphs.Tape
    kind: str
    copies: dict[ir.Value, ir.Value] = attrs.field(factory=dict["ir.Value", "ir.Value"])

    def states(self, parameters: Sequence[ir.Value], name: str) -> list[ir.Value]:
        """Declare a state like each parameter."""
        graph, copies = self.tape.graph, self.copies
        return [
            graphs.declare_state(graph, copies.get(p, p), name, graphs.typed(p))
            for p in parameters
        ]

    def masters(self, parameters: Sequence[ir.Value]) -> list[ir.Value]:
        """Declare a master of each parameter, in fp32."""
        made: list[ir.Value] = []
        for p in parameters:
            type_ = attrs.evolve(graphs.typed(p), dtype=WIDE)
            made.append(graphs.declare_state(self.tape.graph, p, "master", type_))
        self.copies.update(zip(made, parameters, strict=True))
        return made

    def widened(self, grads: Sequence[ir.Value]) -> list[ir.Value]:
        """Write gradients in fp32; those that are stay."""
        made: list[ir.Value] = []
        for grad in grads:
            self.tape.stem = grad.name
            narrow = graphs.typed(grad).dtype != WIDE
            made.append(self.tape.op("cast", grad, dtype=WIDE) if narrow else grad)
        return made

    def copy_back(self, masters: Sequence[ir.Value], *, foreach: bool) -> None:
        """Write masters over the parameters that they stand for."""
        params = [self.copies[master] for master in masters]
        if foreach:
            self.update("copy", params, masters)
            return
        for param, master in zip(params, masters, strict=True):
            self.change("assign", param, master)

    def counts(
        self, parameters: Sequence[ir.Value], space: MemorySpace
    ) -> list[ir.Value]:
        """Declare the count of steps of each parameter."""
        type_ = ir.TensorType(ir.DTYPES["f32"], (), space)
        graph, copies = self.tape.graph, self.copies
        return [
            graphs.declare_state(graph, copies.get(p, p), "step", type_)
            for p in parameters
        ]

    def host(self, call: str, *operands: ir.Value) -> None:
        """Write a call on tensors of the host."""
        name = f"{self.kind}.{call.removeprefix('aten::').strip('_')}"
        self.tape.effect("host", operands, name, op=call)

    def read(self, counts: Sequence[ir.Value]) -> None:
        """Read every count, as for the corrections of Adam's biases."""
        for count in counts:
            self.host("aten::_local_scalar_dense", count)

    def change(self, op: str, *operands: ir.Value) -> None:
        """Write an op that works in place on the first operand."""
        self.tape.stem = f"{self.kind}.{op}"
        self.tape.op(op, *operands, in_place=True)

    def update(self, kind: str, *lists: Sequence[ir.Value]) -> None:
        """Write a `_foreach` function that works in place on the first list."""
        operands = [value for values in lists for value in values]
        name = f"{self.kind}.{kind}"
        attributes: dict[str, ir.AttrValue] = {"kind": kind, "lists": len(lists)}
        self.tape.effect("foreach", operands, name, **attributes, in_place=True)

    def new(self, kind: str, values: Sequence[ir.Value]) -> tuple[ir.Value, ...]:
        """Write a `_foreach` function that returns new tensors."""
        name = f"{self.kind}.{kind}"
        self.tape.location = attrs.evolve(self.tape.location, name=name)
        fresh = self.tape.graph.fresh_name
        results = [fresh(f"{name}.{number}") for number, _ in enumerate(values)]
        made = self.tape.node("foreach", values, results, {"kind": kind, "lists": 1})
        return made.results


def write_step(  # noqa: PLR0913 - of what, and how
    tape: graphs.Tape,
    kind: str,
    found: Parameters,
    *,
    fused: bool,
    foreach: bool = True,
    masters: bool = False,
) -> None:
    """Append one step of an optimizer over all parameters that have gradients.

    Args:
        tape: Where to.
        kind: The optimizer.
        found: What is updated.
        fused: Whether one kernel updates all.
        foreach: Whether, if not, functions over lists do; else parameters are updated
            one by one, which `ONE_BY_ONE` can.
        masters: Whether parameters of 16 bits are updated as copies in fp32, which are
            copied back.

    """
    tape.location = Location(phase=graphs.OPTIMIZER)
    step = _Step(tape, kind)
    groups = _groups(found)
    for params in groups:
        grads = [found.grads[p] for p in params if p in found.grads]
        dense = [p for p in params if p in found.grads]
        tables = [p for p in params if p in found.rows]
        kept: list[ir.Value] = []
        if masters and dense and is_narrow(dense[0]):
            grads = step.widened(grads)
            kept = dense = step.masters(dense)
        if fused and dense:
            _write_fused(step, dense, grads)
        elif dense and foreach and (not tables or kind == ROWWISE):
            _DENSE[kind](step, dense, grads)
        else:
            for parameter, grad in zip(dense, grads, strict=True):
                _SINGLE[kind](step, parameter, grad)
        for table in tables:
            _write_rows(step, table, found.rows[table])
        if kept:
            step.copy_back(kept, foreach=foreach)


WIDE = ir.DTYPES["f32"]
"""Type of masters and of main gradients."""


def is_narrow(parameter: ir.Value) -> bool:
    """Whether a parameter is of a type that masters are kept for: floats of 16 bits."""
    dtype = graphs.typed(parameter).dtype
    return dtype.is_float and dtype.bits == WIDE.bits // 2


def check_masters(graph: ir.Graph, found: Parameters) -> None:
    """Refuse masters of what has none."""
    if not any(map(is_narrow, (*found.grads, *found.rows))):
        msg = (
            f"masters=fp32: no trained parameter of {graph} is of 16 bits; give "
            "--dtype bf16 or fp16 (autocast leaves parameters in fp32: they need none)"
        )
        raise ir.UsageError(msg)
    table = next(filter(is_narrow, found.rows), None)
    if table is not None:
        msg = (
            f"{table} has sparse gradients, which no optimizer takes for masters; give "
            "sparse-gradients=never"
        )
        raise UnsupportedModelError(msg)


def main_gradients(
    tape: graphs.Tape, parameters: Sequence[ir.Value]
) -> dict[ir.Value, ir.Value]:
    """Declare gradients in fp32 that stay, and zero them at once; return them.

    As the gradient buffers of Megatron-LM's `DistributedDataParallel`: what zeroes them
    stands in front of backward, and belongs to it.
    """
    tape.location = Location(phase=graphs.BACKWARD)
    main: dict[ir.Value, ir.Value] = {}
    for parameter in parameters:
        if graphs.typed(parameter).numel != 0:
            type_ = attrs.evolve(graphs.typed(parameter), dtype=WIDE)
            main[parameter] = graphs.declare_state(
                tape.graph, parameter, "main_grad", type_
            )
    if main:
        zeroed: dict[str, ir.AttrValue] = {"kind": "zero", "lists": 1, "in_place": True}
        tape.effect("foreach", list(main.values()), "zero_grad.zero", **zeroed)
    return main


def zero_gradients(
    tape: graphs.Tape, parameters: Sequence[ir.Value]
) -> dict[ir.Value, ir.Value]:
    """Write `zero_grad(set_to_none=False)`; return the gradients, all zeros.

    It stands before the backward pass and belongs to it: what follows the first
    node of the optimizer's phase has all gradients.
    """
    tape.location = Location(name="zero_grad", phase=graphs.BACKWARD)
    tape.stem = "zero_grad"
    zeros: dict[ir.Value, ir.Value] = {}
    for parameter in parameters:
        if graphs.typed(parameter).numel == 0:
            continue
        kept = graphs.declare_state(
            tape.graph, parameter, "grad", graphs.typed(parameter)
        )
        zeros[parameter] = tape.op("overwrite", kept, value=0.0, in_place=True)
    return zeros


def _groups(found: Parameters) -> list[list[ir.Value]]:
    """Sort parameters by element type."""
    groups: dict[ir.DType, list[ir.Value]] = {}
    for parameter in (*found.grads, *found.rows):
        groups.setdefault(graphs.typed(parameter).dtype, []).append(parameter)
    return list(groups.values())


_Lists = Callable[[_Step, Sequence[ir.Value], Sequence[ir.Value]], None]


def _sgd(step: _Step, params: Sequence[ir.Value], grads: Sequence[ir.Value]) -> None:
    """Write SGD without momentum and weight decay: the defaults."""
    step.update("add", params, grads)


def _counted(step: _Step, params: Sequence[ir.Value]) -> list[ir.Value]:
    """Raise the counts of steps: by a tensor, which is made first."""
    counts = step.counts(params, MemorySpace.HOST)
    step.host("aten::lift_fresh")
    step.host("aten::_foreach_add_", *counts)
    return counts


def _adagrad(
    step: _Step, params: Sequence[ir.Value], grads: Sequence[ir.Value]
) -> None:
    step.read(_counted(step, params))
    sums = step.states(params, "sum")
    step.update("addcmul", sums, grads, grads)
    std = step.new("sqrt", sums)
    step.update("add", std)
    scaled = step.new("mul", grads)
    step.update("addcdiv", params, scaled, std)


def _adam(step: _Step, params: Sequence[ir.Value], grads: Sequence[ir.Value]) -> None:
    _adam_step(step, params, grads, decay=False)


def _adamw(step: _Step, params: Sequence[ir.Value], grads: Sequence[ir.Value]) -> None:
    _adam_step(step, params, grads, decay=True)


def _adam_step(
    step: _Step, params: Sequence[ir.Value], grads: Sequence[ir.Value], *, decay: bool
) -> None:
    """Weights decay first in AdamW: by 0.01 if nothing else is said."""
    means = step.states(params, "exp_avg")
    squares = step.states(params, "exp_avg_sq")
    counts = _counted(step, params)
    if decay:
        step.update("mul", params)
    step.update("lerp", means, grads)
    step.update("mul", squares)
    step.update("addcmul", squares, grads, grads)
    step.read([*counts, *counts])  # one correction of each mean, and one of each square
    below = step.new("sqrt", squares)
    step.update("div", below)
    step.update("add", below)
    step.update("addcdiv", params, means, below)


def _single_sgd(step: _Step, param: ir.Value, grad: ir.Value) -> None:
    step.change("add", param, grad)


def _single_adagrad(step: _Step, param: ir.Value, grad: ir.Value) -> None:
    counts = step.counts([param], MemorySpace.HOST)
    step.host("aten::add_", *counts)
    step.read(counts)
    (total,) = step.states([param], "sum")
    step.change("addcmul", total, grad, grad)
    step.tape.stem = f"{step.kind}.sqrt"
    std = step.tape.op("sqrt", total)
    step.change("add", std, step.tape.number(std, 1e-10))
    step.change("addcdiv", param, grad, std)


def _write_fused(
    step: _Step, params: Sequence[ir.Value], grads: Sequence[ir.Value]
) -> None:
    """All in one multi-tensor kernel: `torch._fused_adam_` and its like.

    Where a step is counted, the counts lie on the device, and one more adds to them.
    """
    states = [step.states(params, name) for name in graphs.STATES[step.kind]]
    if states:
        states.append(step.counts(params, MemorySpace.DEVICE))
        step.update("add", states[-1])
    operands = [value for values in (params, grads, *states) for value in values]
    kind = "adagrad" if step.kind == ROWWISE else step.kind
    step.tape.effect(
        "optimizer_step", operands, step.kind, kind=kind, lists=2 + len(states)
    )


def _write_rows(step: _Step, table: ir.Value, rows: Rows) -> None:
    """Update the rows that were looked up; one number a row if row-wise."""
    names, types = graphs.STATES[step.kind], state_types(step.kind, graphs.typed(table))
    graph = step.tape.graph
    states = [
        graphs.declare_state(graph, table, name, type_)
        for name, type_ in zip(names, types, strict=True)
    ]
    operands = [table, rows.indices, rows.values, *states]
    name = f"{step.kind}.{table.name}"
    said: dict[str, ir.AttrValue] = {}
    if rows.popularity:
        said["popularity"] = rows.popularity
    if rows.kept != 1:
        said["kept"] = rows.kept
    step.tape.effect("sparse_optimizer_step", operands, name, kind=step.kind, **said)


ROWWISE = "rowwise_adagrad"
_DENSE: Mapping[str, _Lists] = {
    "sgd": _sgd,
    "adagrad": _adagrad,
    ROWWISE: _adagrad,
    "adam": _adam,
    "adamw": _adamw,
}
_SINGLE: Mapping[str, Callable[[_Step, ir.Value, ir.Value], None]] = {
    "sgd": _single_sgd,
    "adagrad": _single_adagrad,
}
"""Optimizers of PyTorch that take sparse gradients, parameter by parameter."""

ONE_BY_ONE = frozenset(_SINGLE)
"""Optimizers whose steps without `foreach` are known."""

TAKE_ROWS = frozenset(("sgd", "adagrad", ROWWISE))
"""Optimizers that take sparse gradients."""
