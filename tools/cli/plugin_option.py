"""`--plugin`: modules of one's own that register passes, cost models, targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Verb = TypeVar("_Verb", bound=Callable[..., Any])


def _import_all(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    if value:
        from perfc.tools.plugin_modules import import_plugin

        for text in value:
            import_plugin(text)
    return value


def plugins_option(*, told: bool) -> Callable[[_Verb], _Verb]:
    """Return the option.

    Args:
        told: Whether the verb is told what was imported, as `plugins`.

    """
    return click.option(
        "--plugin",
        "plugins",
        multiple=True,
        is_eager=True,
        expose_value=told,
        callback=_import_all,
        metavar="MODULE|FILE.py",
        help="Import it first: it registers passes, cost models, targets.",
    )


plugin_option = plugins_option(told=False)
"""The option, for every verb that uses what plugins add."""
