"""The elements of small tensors, where they are known.

A model may look at what it is given: skip a mask that hides nothing, run as many
steps as a length says. What follows from real arguments and from constants alone is
computed beside the recording, so that such questions are answered as in a real run.
A value hangs on the tensor that it is of, and goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from perfc.frontends.aten import MOST_ELEMENTS
from perfc.frontends.torch.guards import is_list
from perfc.frontends.torch.internals import is_alone, op

LIMIT = 1 << 20
"""Tensors of more elements have no known value; a mask of 1024 tokens has one."""

_MADE_LIMIT = 1 << 16
"""Limit like `LIMIT` for what is made like another tensor.

States of optimizers are, too, which would fill the host's memory.
"""

_SLOT = "_perfc_value"
_UNSET = frozenset(
    map(
        op,
        (
            *("empty.memory_format", "empty_strided", "empty_like"),
            *("new_empty", "new_empty_strided"),
        ),
    )
)
"""Ops whose results have no elements to speak of."""

_MADE = frozenset(
    map(
        op,
        (
            *("zeros_like", "ones_like", "full_like"),
            *("new_zeros", "new_ones", "new_full"),
        ),
    )
)
"""Ops that look at the shape and the type of their first argument, not at elements."""

_FILLS = frozenset(map(op, ("zero_", "fill_.Scalar", "fill_.Tensor")))
"""Ops that write every element of their first argument."""


@attrs.define(eq=False)
class _Known:
    """Elements, and whether what shares their memory still has them."""

    tensor: torch.Tensor
    valid: list[bool]


def set_value(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Say that *tensor*, which is on `meta`, has the elements of *value*."""
    setattr(tensor, _SLOT, _Known(value.detach(), [True]))


def value_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the elements of a tensor, if they are known."""
    if not tensor.is_meta:
        return tensor
    known = getattr(tensor, _SLOT, None)
    return known.tensor if known is not None and known.valid[0] else None


def short_list(tensor: Any) -> tuple[int, ...] | None:
    """Return the elements of a list of integers, if it is short and they are known."""
    if not isinstance(tensor, torch.Tensor) or tensor.dim() != 1:
        return None
    known: Any = value_of(tensor)  # `tolist` is untyped
    if known is None or known.is_floating_point() or known.numel() > MOST_ELEMENTS:
        return None
    elements: list[int] = known.tolist()
    return tuple(elements)


def _are_known(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value_of(value) is not None
    return not is_list(value) or all(map(_are_known, value))


def forget(tensor: torch.Tensor) -> None:
    """Say that *tensor*, and what shares its memory, has been written."""
    known = getattr(tensor, _SLOT, None)
    if known is not None:
        known.valid[0] = False


def on_host(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Run *func* on the known elements of its arguments.

    Raises:
        LookupError: those of one of them are not known.

    """

    def real(tensor: torch.Tensor) -> torch.Tensor:
        found = value_of(tensor)
        if found is None:
            raise LookupError
        return found

    given = tree_map_only(torch.Tensor, real, (tuple(args), dict(kwargs)))
    if "device" in given[1]:
        given[1]["device"] = torch.device("cpu")
    return func(*given[0], **given[1])


def follow(
    func: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    out: Any,
    *,
    writes: bool,
) -> None:
    """Work out the elements of what *func* returned, where they can be known.

    Args:
        func: The op.
        args: What it was given.
        kwargs: What it was given by name.
        out: What it has returned.
        writes: Whether it changes its first argument.

    """
    args = _without_first(func, args)
    known = _are_known(args) and _are_known(list(kwargs.values()))
    results = tensors_in(out) if known else []
    small = results and all(r.is_meta and r.numel() <= LIMIT for r in results)
    if not small or not _is_function(func):
        if writes:
            _forget_first(args)
        return
    try:
        real = tree_leaves(on_host(func, args, kwargs))
    except (LookupError, RuntimeError, NotImplementedError):
        if writes:
            _forget_first(args)
        return
    tensors = tensors_in((*args, *kwargs.values()))
    sources = [k for t in tensors if (k := getattr(t, _SLOT, None)) is not None]
    for result, value in zip(results, real, strict=False):
        shared = next((k.valid for k in sources if _share(k.tensor, value)), [True])
        setattr(result, _SLOT, _Known(value, shared))


def _without_first(func: Any, args: Sequence[Any]) -> Sequence[Any]:
    """Put any elements in place of the first argument's, if they do not matter.

    A tensor that is filled must be alone: what shares its memory would have to learn
    of the elements, and they of what it is given later.
    """
    first = args[0] if args else None
    if not isinstance(first, torch.Tensor) or value_of(first) is not None:
        return args
    if func not in _MADE and not (func in _FILLS and is_alone(first)):
        return args
    size: Any = first.numel()
    most = _MADE_LIMIT if func in _MADE else LIMIT
    if not isinstance(size, int) or size > most:  # open sizes are no integers
        return args
    return (torch.empty(first.shape, dtype=first.dtype, device="cpu"), *args[1:])


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in lists and tuples."""
    if isinstance(value, torch.Tensor):
        return [value]
    if not is_list(value):
        return []
    return [tensor for item in value for tensor in tensors_in(item)]


def _is_function(func: Any) -> bool:
    return func not in _UNSET and torch.Tag.nondeterministic_seeded not in func.tags


def _forget_first(args: Sequence[Any]) -> None:
    if args and isinstance(args[0], torch.Tensor):
        forget(args[0])


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
