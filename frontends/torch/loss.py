"""The loss of a training step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch.nn import functional

from perfc.frontends.torch.guards import is_list, is_mapping
from perfc.ir import UsageError
from perfc.ir.support import UnsupportedModelError

Loss: TypeAlias = "str | Callable[[Any], torch.Tensor] | None"
"""A function of what the module returns, one of `LOSSES`, or None for the one that
fits: what the module calls `loss`, itself if it is one number, else by its last op."""

Label: TypeAlias = Callable[[torch.Size, torch.dtype], torch.Tensor]
"""Makes labels of a shape and a type."""

_VIEWS = ("View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "ToCopy", "Alias")
_MATMULS = ("AddmmBackward", "MmBackward", "BmmBackward", "BaddbmmBackward")


def loss_of(
    output: Any,
    loss: Loss,
    label: Label,
) -> torch.Tensor:
    """Return the loss of what a module returns.

    Labels that it needs are made by *label*.
    """
    found: Any = settled_loss(output, loss)(output, label)  # a user's may be anything
    if isinstance(found, torch.Tensor) and found.numel() == 1:
        return found
    shape = f" {list(found.shape)}" if isinstance(found, torch.Tensor) else ""
    msg = f"expected a loss that is one number, got {type(found).__name__}{shape}"
    raise UnsupportedModelError(msg)


def settled_loss(
    output: Any,
    loss: Loss,
) -> Callable[[Any, Label], Any]:
    """Return a function from outputs like *output*, and labels, to the loss."""
    if callable(loss):
        return lambda out, label: loss(out)
    if loss is None and _ready(output) is not None:
        return lambda out, label: _ready(out)
    first = _first(output)
    if first is None:
        returned = type(output).__name__
        msg = f"the module returns {returned}, which has no tensor: give it a loss"
        raise UnsupportedModelError(msg)
    kind = loss or _fitting(first)
    if kind not in LOSSES:
        msg = f"loss {kind!r} is none of {', '.join(LOSSES)}"
        raise UsageError(msg)
    return lambda out, label: LOSSES[kind](_first(out), label)


def _ready(output: Any) -> torch.Tensor | None:
    """Return the loss that the module has worked out itself."""
    found = output.get("loss") if is_mapping(output) else None
    found = getattr(output, "loss", None) if found is None else found
    if isinstance(found, torch.Tensor):
        return found
    first = _first(output)
    return first if first is not None and not first.dim() else None


def _first(output: Any) -> torch.Tensor | None:
    """Return the first tensor of floats."""
    if isinstance(output, torch.Tensor):
        return output if output.is_floating_point() else None
    items = list(output.values()) if is_mapping(output) else output
    if not is_list(items):
        return None
    return next((t for t in map(_first, items) if t is not None), None)


def _fitting(output: torch.Tensor) -> str:
    """Return the name of the loss that fits the last op.

    A sigmoid of one number a sample is a probability, several numbers of a matmul
    are logits: as the pass `training` has it.
    """
    node = output.grad_fn
    while node is not None and node.name().startswith(_VIEWS):
        node = node.next_functions[0][0]
    end = "" if node is None else node.name().rstrip("0123456789")
    per_sample = output.shape[1:].numel() if output.dim() else 1
    if end == "SigmoidBackward" and per_sample == 1:
        return "bce"
    classes = output.shape[-1] if output.dim() > 1 else 1
    return "cross_entropy" if end in _MATMULS and classes > 1 else "mse"


def _elementwise(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def compared(output: torch.Tensor, label: Label) -> torch.Tensor:
        return function(output, label(output.shape, output.dtype))

    return compared


def _cross_entropy(output: torch.Tensor, label: Label) -> torch.Tensor:
    """Compare rows of classes, the last axis, with their labels."""
    rows = output.reshape(-1, output.shape[-1])
    return functional.cross_entropy(rows, label(rows.shape[:1], torch.int64))


def _sum(output: torch.Tensor, label: Label) -> torch.Tensor:
    return output.sum()


LOSSES: Mapping[str, Callable[..., torch.Tensor]] = {
    "bce": _elementwise(functional.binary_cross_entropy),
    "bce_with_logits": _elementwise(functional.binary_cross_entropy_with_logits),
    "mse": _elementwise(functional.mse_loss),
    "cross_entropy": _cross_entropy,
    "sum": _sum,
}
"""Losses by name."""
