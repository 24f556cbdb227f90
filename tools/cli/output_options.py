"""Options of verbs that print a table or JSON, that run traces, or that measure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from perfc.tools.cli.arguments import NumberRange
from perfc.tools.files import write_result
from perfc.tools.reports import RESULT_FORMATS, format_result

if TYPE_CHECKING:
    from perfc.tools.reports import VerbResult

_Verb = TypeVar("_Verb", bound=Callable[..., Any])

_STEPS = re.compile(r"(\d{1,18})(?::(\d{1,18}))?$")


class Steps(click.ParamType[range]):
    """`A:B`, both included, or one number."""

    name = "A:B"

    def convert(
        self,
        value: str | range,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> range:
        """Read a range."""
        if isinstance(value, range):
            return value
        found = _STEPS.match(value)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            self.fail(
                f"{value!r}; expected A:B, as 1009:1011, or one number", param, ctx
            )
        return range(int(found[1]), int(found[2] or found[1]) + 1)


format_option = click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
)
"""What to print."""

page_option = click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json", "md", "html"]),
    default="table",
    show_default=True,
)
"""What to print, of verbs whose answer is parts and a document."""

result_format_option = click.option(
    "--format",
    "format_",
    type=click.Choice(RESULT_FORMATS),
    default="table",
    show_default=True,
)
"""What to print, of verbs whose answer is a `VerbResult`."""

contention_option = click.option(
    "--contention/--no-contention",
    default=True,
    show_default=True,
    help="Kernels wait for those of other streams that fill the device.",
)
"""How a trace runs."""

max_events_option = click.option(
    "--max-events",
    type=click.IntRange(min=1),
    default=5_000_000,
    show_default=True,
    metavar="N",
    help="Refuse traces with more events than these to keep; a million takes 0.7 GB.",
)
"""How much of traces fits in memory."""


def write_answer(result: VerbResult) -> None:
    """Write the result of the verb that runs in the format that was asked for."""
    context = click.get_current_context()
    form = context.params["format_"]
    title = f"perfc {context.info_name}: {context.params['model']}"
    text = format_result(result, form, title)
    write_result(text, context.params["output"], document=form != "table")


def steps_option(what: str) -> Callable[[_Verb], _Verb]:
    """Return the option that chooses profiler steps of traces."""
    return click.option("--steps", type=Steps(), help=what)


def device_option(what: str, *, required: bool = False) -> Callable[[_Verb], _Verb]:
    """Return the option that says what is measured on."""
    kinds = click.Choice(["cuda", "cpu"])
    return click.option("--device", type=kinds, required=required, help=what)


def minutes_option(usual: float, what: str) -> Callable[[_Verb], _Verb]:
    """Return the option that says how long is measured."""
    return click.option(
        "--minutes",
        type=NumberRange(min=0, min_open=True),
        default=usual,
        show_default=True,
        metavar="N",
        help=what,
    )
