"""Signatures of calls in Python that take the fields of a request by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from perfc.tools.request import Request

Called = TypeVar("Called", bound=Callable[..., Any])


def shows(known: type) -> Callable[[Called], Called]:
    """Return a decorator: a call's signature shows its options and their defaults.

    Args:
        known: The options: a `TypedDict`.

    """
    fields = attrs.fields_dict(Request)
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=fields[name].default if name in fields else None,
            annotation=getattr(hint, "__forward_arg__", hint),
        )
        for name, hint in known.__annotations__.items()
    ]

    def decorate(call: Called) -> Called:
        own = inspect.signature(call)
        named = inspect.Parameter.POSITIONAL_OR_KEYWORD
        kept = [p for p in own.parameters.values() if p.kind is named]
        shown: Any = call
        shown.__signature__ = own.replace(parameters=[*kept, *options])
        return call

    return decorate
