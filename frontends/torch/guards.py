"""What kind of thing a value of a model's is: type checks that keep its items open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

_PAIR = 2
_LISTS = (list, tuple)


def is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether a value is a list or a tuple."""
    return isinstance(value, _LISTS)


def is_pair(value: object) -> TypeGuard[tuple[Any, Any]]:
    """Whether a value is a tuple of two."""
    return is_list(value) and isinstance(value, tuple) and len(value) == _PAIR


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is a dictionary, or what behaves as one."""
    return isinstance(value, Mapping)
