"""Inputs of an iteration: where they wait, and how they reach the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor

_PAIR = 2


class Inputs:
    """Tensors in lists, tuples and dicts, copied to the device in each iteration.

    From pinned memory copies are asynchronous, unless they are to block; from pageable
    memory the host waits.
    """

    def __init__(
        self, tree: object, device: str, where: str, dtype: torch.dtype | None = None
    ) -> None:
        """Put tensors where the iteration finds them; convert floats to *dtype*."""
        self._device, self._where, self._dtype = device, where, dtype
        self._pinned = where in {"host-pinned", "host-pinned-blocking"}
        self._goes_on = where == "host-pinned"
        self._tree = self._placed(tree)

    def copied(self) -> Any:
        """Return the inputs on the device."""
        return self._moved(self._tree)

    def refill(self, copies: object) -> None:
        """Copy the inputs into what `copied` returned before."""
        self._refill(copies, self._tree)

    def _placed(self, value: Any) -> Any:
        # Make a tensor of a shape, of a shape and a type, or of one without elements.
        # That is what `perfc.from_torch` takes for a tensor, too.
        if isinstance(value, torch.Size):
            value = torch.rand(value)
        elif (
            _is_list(value)
            and len(value) == _PAIR
            and isinstance(value[1], torch.dtype)
        ):
            value = torch.zeros(value[0], dtype=value[1])
        elif isinstance(value, Tensor) and value.is_meta:
            value = torch.zeros(value.shape, dtype=value.dtype)
        if not isinstance(value, Tensor):
            return _mapped(value, self._placed)
        if self._dtype is not None and value.is_floating_point():
            value = value.to(self._dtype)
        if self._where == "device":
            return value.to(self._device)
        host = value.detach().cpu()
        return host.pin_memory() if self._pinned else host

    def _moved(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(self._device, non_blocking=self._goes_on)
        return _mapped(value, self._moved)

    def _refill(self, copy: Any, value: Any) -> None:
        if isinstance(value, Tensor):
            if copy is not value:
                copy.copy_(value, non_blocking=self._goes_on)
        elif _is_dict(value):
            for key in value:
                self._refill(copy[key], value[key])
        elif _is_list(value):
            for one, other in zip(copy, value, strict=True):
                self._refill(one, other)


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply *function* to what a list, tuple or dict holds; leave others alone."""
    if _is_dict(value):
        return {key: function(item) for key, item in value.items()}
    if _is_list(value):
        items = [function(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value


def _is_dict(value: object) -> TypeGuard[dict[Any, Any]]:
    return type(value) is dict


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether it is a plain list or tuple: others know better how to be copied."""
    return type(value) is list or type(value) is tuple
