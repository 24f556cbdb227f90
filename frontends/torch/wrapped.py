"""Tensors that are made of others, as torchao's quantised weights.

Such a class says by `__tensor_flatten__` what it is made of, and works out what an op
is of it by ops on those: they are what lies in memory, and what is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

_FLATTEN, _UNFLATTEN = "__tensor_flatten__", "__tensor_unflatten__"
_NESTED = "torch.nested."


def is_wrapper(kind: type) -> bool:
    """Whether tensors of a class are made of others, whose sizes are known."""
    if kind.__module__.startswith(_NESTED):  # data decide their sizes
        return False
    return hasattr(kind, _FLATTEN) and hasattr(kind, _UNFLATTEN)


def has_wrapper(kinds: Iterable[type]) -> bool:
    """Whether one of several classes is such a one."""
    return any(map(is_wrapper, kinds))


def rebuilt(
    tensor: Any, copied: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Return a tensor of the same class, made of the copies of what it is made of."""
    names, told = tensor.__tensor_flatten__()
    inner = {name: copied(getattr(tensor, name)) for name in names}
    sizes = tensor.shape, tensor.stride()
    made: torch.Tensor = tensor.__tensor_unflatten__(inner, told, *sizes)
    return made


def parts(tensor: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in memory of one, and their names."""
    if not is_wrapper(tensor.__class__):
        yield name, tensor
        return
    names, _ = tensor.__tensor_flatten__()
    for attribute in names:
        yield from parts(getattr(tensor, attribute), f"{name}.{attribute}")
