"""Optimizer steps: tensor by tensor, in lists, and fused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from perfc.ir import Record
from perfc.measure.case import Call, Case, Family, Tensors
from perfc.measure.design import Choice, Point, Size, Space
from perfc.measure.device import Device

_OPTIMIZERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "sgd": torch.optim.SGD,
        "adagrad": torch.optim.Adagrad,
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
)
_HOW: Mapping[str, Mapping[str, bool]] = MappingProxyType(
    {
        "single": {"foreach": False},
        "foreach": {"foreach": True},
        "fused": {"fused": True},
    }
)
_CHUNK = 65536
"""Elements that one thread block of a list takes: `chunks` and `largest_chunk`."""


class OptimizerStep(Family):
    """One step of all of a model's parameters, `tensors` of equal size."""

    op = "optimizer_step"
    turns = 5

    def space(self, device: Device) -> Space:
        """Return from one tensor to as many as a large model has."""
        return {
            "tensors": Size(1, 400),
            "each": Size(16, 1 << 26),
            "kind": Choice(tuple(_OPTIMIZERS)),
            "algorithm": Choice(tuple(_HOW)),
            "dtype": Choice(("fp32",)),
        }

    def case(self, point: Point) -> Case | None:
        """Return the case; CUDA has no fused Adagrad, and no other is asked for it."""
        if (point["kind"], point["algorithm"]) == ("adagrad", "fused"):
            return None
        tensors, each = map(Record(point).integer, ("tensors", "each"))
        params: Point = {
            "kind": point["kind"],
            "algorithm": point["algorithm"],
            "tensors": tensors,
            "elements": tensors * each,
            "chunks": tensors * -(-each // _CHUNK),
            "largest_chunk": min(each, _CHUNK),
        }
        return super().case({**params, "dtype": point["dtype"]})

    def capturable(self, case: Case) -> bool:
        """Return no: the counts of steps are the host's."""
        return False

    def memory_bytes(self, case: Case) -> int:
        """Return parameters, gradients and states, and what lists write in between."""
        return 2 * int(case.work.bytes)

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `step` of the optimizer, whose first call makes the states."""
        count, elements = map(case.params.integer, ("tensors", "elements"))
        parameters: list[torch.Tensor] = []
        for _ in range(count):
            parameter = tensors.random(case.dtype, elements // count)
            parameter.requires_grad_()
            parameter.grad = tensors.random(case.dtype, elements // count)
            parameters.append(parameter)
        make = _OPTIMIZERS[case.params.text("kind")]
        how = _HOW[case.params.text("algorithm")]
        optimizer = make(parameters, lr=1e-3, **how)
        step: Call = optimizer.step
        return step
