"""The optimizer's step, as it is in a training that has long begun.

Its state exists before the step is recorded. PyTorch's defaults for CUDA hold: lists
of tensors at once (`foreach`). Sparse gradients have no elements here, not even a
number of rows that is known, so tables are not stepped by PyTorch's code: one call
`perfc.sparse_optimizer_step` stands for the update of each.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias, cast

import torch

from perfc.frontends.aten import Argument, AtenBuilder, AtenCall, AtenTensor, Ref
from perfc.frontends.torch.meta import any_number, tensor_type
from perfc.frontends.torch.recorder import Recorder
from perfc.ir import TensorType, UsageError
from perfc.ir.location import Location
from perfc.ir.support import UnsupportedModelError

Optimizer: TypeAlias = (
    "str | Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer] | None"
)
"""One of `OPTIMIZERS`, or what makes one from parameters."""


class RowwiseAdagrad(torch.optim.Adagrad):
    """Adagrad with one sum for each row of a table; dense gradients as in Adagrad."""


OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=0.01),
    "adagrad": torch.optim.Adagrad,
    "rowwise_adagrad": RowwiseAdagrad,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
"""PyTorch's optimizers with its own options."""


def make_optimizer(
    what: Optimizer, model: torch.nn.Module
) -> torch.optim.Optimizer | None:
    """Return the optimizer of the parameters of *model* that are trained."""
    if what is None:
        return None
    if isinstance(what, str) and what not in OPTIMIZERS:
        msg = f"optimizer {what!r} is none of {', '.join(OPTIMIZERS)}"
        raise UsageError(msg)
    if not (isinstance(what, str) or callable(cast("object", what))):
        msg = (
            f"optimizer is a {type(what).__name__}: expected a name, a class or what "
            "makes one of parameters, as functools.partial(torch.optim.Adam, lr=0.1)"
        )
        raise UsageError(msg)
    make = OPTIMIZERS[what] if isinstance(what, str) else what
    made: Any = make([p for p in model.parameters() if p.requires_grad])
    if not isinstance(made, torch.optim.Optimizer):
        kind = type(made).__name__
        msg = f"expected a torch.optim.Optimizer, the function made a {kind}"
        raise UnsupportedModelError(msg)
    _check_step(made)
    return made


def _check_step(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimizer whose step runs the model itself."""
    step = inspect.signature(optimizer.step)
    needed = [p for p in step.parameters.values() if p.default is p.empty]
    if any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in needed):
        msg = (
            f"{type(optimizer).__name__} runs the model within its step, as often as "
            "the data ask for, which cannot be recorded: choose another optimizer"
        )
        raise UnsupportedModelError(msg)


_READ_BACK = (torch.optim.ASGD, torch.optim.Adafactor)
"""Optimizers that read numbers back to multiply by them: which ones changes nothing."""


def _step(optimizer: torch.optim.Optimizer) -> None:
    """Take a step; one of PyTorch's own optimizers without loading its compiler.

    `Optimizer.step` imports it, which takes longer than the capture.
    """
    own = type(optimizer).__module__.startswith(("torch.optim", __name__))
    reads_back = issubclass(type(optimizer), _READ_BACK)
    with any_number() if reads_back else nullcontext():
        if own and "torch._dynamo" not in sys.modules:
            step: Any = inspect.unwrap(type(optimizer).step)
            with torch.no_grad():
                step(optimizer)
        else:
            type(optimizer).step(optimizer)


def take_step(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    recorder: Recorder,
    builder: AtenBuilder,
) -> None:
    """Record one step; the state it works on is declared first."""
    sparse = _take_sparse(optimizer, recorder)
    with _one_by_one(optimizer, sparse):
        with recorder.paused():
            _step(optimizer)  # state is made in the first one
        declare_states(optimizer, model, recorder, builder)
        _step(optimizer)
    _update_rows(sparse, model, recorder, builder)


def step_with_rows(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    recorder: Recorder,
    builder: AtenBuilder,
) -> None:
    """Take one step of an optimizer that has its state."""
    sparse = _take_sparse(optimizer, recorder)
    with _one_by_one(optimizer, sparse):
        _step(optimizer)
    _update_rows(sparse, model, recorder, builder)


_FALL_BACK = (torch.optim.SGD, torch.optim.Adagrad)
"""Optimizers that step every parameter by itself where one has a sparse gradient."""


@contextmanager
def _one_by_one(
    optimizer: torch.optim.Optimizer,
    sparse: Sequence[tuple[torch.nn.Parameter, str]],
) -> Generator[None]:
    """Let the dense parameters beside tables be stepped as PyTorch does.

    Its functions for lists take no sparse tensors: `_multi_tensor_sgd` adds one by one
    then, `_multi_tensor_adagrad` hands over to `_single_tensor_adagrad`.
    """
    tables = {id(parameter) for parameter, _ in sparse}
    groups = [
        group
        for group in optimizer.param_groups
        if type(optimizer) in _FALL_BACK
        and not group["fused"]
        and any(id(parameter) in tables for parameter in group["params"])
    ]
    before = [group["foreach"] for group in groups]
    for group in groups:
        group["foreach"] = False
    try:
        yield
    finally:
        for group, value in zip(groups, before, strict=True):
            group["foreach"] = value


def declare_states(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    recorder: Recorder,
    builder: AtenBuilder,
) -> None:
    """Declare what the optimizer has made for each parameter."""
    names = {id(p): name for name, p in model.named_parameters()}
    for parameter, state in optimizer.state.items():
        _declare(names.get(id(parameter), "state"), state, recorder, builder)


def _update_rows(
    sparse: Sequence[tuple[torch.nn.Parameter, str]],
    model: torch.nn.Module,
    recorder: Recorder,
    builder: AtenBuilder,
) -> None:
    """Write down the updates of tables, unless the recorder is paused."""
    if recorder.is_paused:
        return
    names = {id(p): name for name, p in model.named_parameters()}
    for parameter, kind in sparse:
        _sparse_step(parameter, names[id(parameter)], kind, recorder, builder)


def _declare(
    name: str, state: Mapping[str, Any], recorder: Recorder, builder: AtenBuilder
) -> None:
    for key, tensor in state.items():
        if isinstance(tensor, torch.Tensor):
            builder.state(recorder.christen(tensor, f"{name}.{key}"))


_SPARSE_KINDS: Mapping[type[torch.optim.Optimizer], str] = {
    torch.optim.SGD: "sgd",
    torch.optim.Adagrad: "adagrad",
    torch.optim.SparseAdam: "adam",
    RowwiseAdagrad: "rowwise_adagrad",
}
"""Optimizers that take sparse gradients, and what they do to the rows."""

_ROWWISE_NAMES = ("RWSAdagrad", "RowWiseAdagrad", "RowWiseAdaGrad")
"""Classes of that name in other libraries keep one sum for each row."""


def _take_sparse(
    optimizer: torch.optim.Optimizer, recorder: Recorder
) -> list[tuple[torch.nn.Parameter, str]]:
    """Take sparse gradients away from PyTorch where their update is known.

    Where it is not, or an option forbids it, PyTorch says so itself.
    """
    kind = _SPARSE_KINDS.get(type(optimizer), "")
    if type(optimizer).__name__ in _ROWWISE_NAMES:
        kind = "rowwise_adagrad"
    found: list[tuple[torch.nn.Parameter, str]] = []
    for group in optimizer.param_groups:
        plain = not group.get("weight_decay") and not group.get("momentum")
        for parameter in group["params"]:
            if parameter.grad is not None and parameter.grad.is_sparse:
                if not kind or not plain:
                    _refuse(optimizer, recorder.name(parameter))
                parameter.grad = None
                optimizer.state.pop(parameter, None)  # `_sparse_step` has its own
                found.append((parameter, kind))
    return found


def _refuse(optimizer: torch.optim.Optimizer, name: str) -> None:
    """Say that an optimizer cannot take a sparse gradient."""
    kinds = ", ".join(kind.__name__ for kind in _SPARSE_KINDS)
    msg = (
        f"{name} has a sparse gradient, which {type(optimizer).__name__} with these "
        f"options cannot take; {kinds}, without momentum and weight decay, can"
    )
    raise UnsupportedModelError(msg)


_SPARSE_STATES: Mapping[str, tuple[str, ...]] = {
    "sgd": (),
    "adagrad": ("sum",),
    "rowwise_adagrad": ("sum",),
    "adam": ("exp_avg", "exp_avg_sq"),
}


def _sparse_step(
    parameter: torch.nn.Parameter,
    name: str,
    kind: str,
    recorder: Recorder,
    builder: AtenBuilder,
) -> None:
    type_ = tensor_type(parameter)
    if kind == "rowwise_adagrad":
        type_ = TensorType(type_.dtype, type_.shape[:1])
    states: list[Ref] = []
    for key in _SPARSE_STATES[kind]:
        state = AtenTensor(recorder.fresh(f"{name}.{key}"), type_)
        builder.state(state)
        states.append(Ref(state.name))
    weight = recorder.name(parameter)
    arguments: dict[str, Argument] = {
        "kind": kind,
        "weight": Ref(weight),
        "grad": Ref(recorder.gradients[weight]),
        "states": tuple(states),
    }
    location = Location(module=name.rpartition(".")[0], phase="optimizer")
    builder.call(
        AtenCall("perfc.sparse_optimizer_step.default", arguments, (), location)
    )
