"""A training step as the user writes it: accumulation, clipping, averages of weights.

It runs twice. What the first run leaves (states of the optimizer, gradients that are
zeroed and not freed, a second copy of the weights) is there when the second is
recorded, as it is in a training that has long begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any, TypeAlias

import torch

from perfc.frontends.aten import AtenBuilder
from perfc.frontends.torch.optimizer import (
    Optimizer,
    declare_states,
    make_optimizer,
    step_with_rows,
)
from perfc.frontends.torch.recorder import Recorder

CustomStep: TypeAlias = "Callable[..., Any] | None"
"""`step(module, optimizer, *args, **kwargs)`, one iteration of a training loop."""


def record_step(
    step: Callable[..., Any],
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    optimizer: Optimizer,
    recorder: Recorder,
    builder: AtenBuilder,
) -> Any:
    """Record an iteration that *step* runs; return what it returns."""
    with recorder.paused():
        stepper = make_optimizer(optimizer, model)
        if stepper is not None:
            _follow(stepper, model, recorder, builder)
        step(model, stepper, *args, **kwargs)
    if stepper is not None:
        declare_states(stepper, model, recorder, builder)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            recorder.suggest(parameter.grad, f"{name}.grad")
    recorder.locations.tell_phases()
    return step(model, stepper, *args, **kwargs)


def _follow(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    recorder: Recorder,
    builder: AtenBuilder,
) -> None:
    """Let `step` update tables row by row, and know what `zero_grad` belongs to.

    They stay bound methods: schedulers of the learning rate look at `step.__func__`.
    """
    zero: Callable[..., None] = optimizer.zero_grad

    def step(self: torch.optim.Optimizer, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with recorder.locations.within("optimizer"):
            step_with_rows(optimizer, model, recorder, builder)
        return loss

    def zero_grad(self: torch.optim.Optimizer, set_to_none: bool = True) -> None:
        with recorder.locations.within("optimizer"):
            zero(set_to_none=set_to_none)

    vars(optimizer)["step"] = MethodType(step, optimizer)
    vars(optimizer)["zero_grad"] = MethodType(zero_grad, optimizer)
