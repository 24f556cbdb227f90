"""Options that say of what model, in which setting, a verb speaks, and other arguments.

The options are those of the fields of a `Request`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click
from click.core import ParameterSource

from perfc.ir import UsageError
from perfc.tools.cli.verb import be_quiet
from perfc.tools.files import tell
from perfc.tools.given import MAX_DIM, read_prune
from perfc.tools.option import Option
from perfc.tools.request import OPTIONS, Request
from perfc.tools.sheet_options import SHEET_OPTIONS, said_as_fields

if TYPE_CHECKING:
    from perfc.passes.instruments import Timing

_Verb = TypeVar("_Verb", bound=Callable[..., Any])

_DIGITS = len(str(MAX_DIM))


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Read `NAME=VALUE` options."""
    values: dict[str, str] = {}
    for text in texts:
        key, equals, value = map(str.strip, text.partition("="))
        if not equals or not key or not value:
            msg = f"{option} {text!r}: expected NAME=VALUE"
            raise UsageError(msg)
        if values.setdefault(key, value) != value:
            msg = f"{option} {key} is given twice: {values[key]} and {value}"
            raise UsageError(msg)
    return values


class Count(click.IntRange):
    """A number of things, from *least* to *most*."""

    name = "integer"

    def __init__(self, most: int, least: int = 1) -> None:
        """Limit it."""
        super().__init__(least, most)


class NumberRange(click.FloatRange):
    """A range of floats. NaN, which is outside of no range, is in none of these."""

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a number."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{number} is not a number", param, ctx)
        return number


def counts(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[int, ...] | None:
    """Read numbers of things with commas between them: a click callback.

    Returns:
        The numbers, each 1 or more, in the order given, each once.

    """
    if value is None:
        return None
    one = click.IntRange(min=1)
    numbers = [one(part.strip(), param, ctx) for part in value.split(",")]
    return tuple(dict.fromkeys(numbers))


def integers(texts: Sequence[str], option: str, least: int = 1) -> dict[str, int]:
    """Read `NAME=N` options."""
    numbers: dict[str, int] = {}
    for key, text in pairs(texts, option).items():
        digits = text.isascii() and text.isdecimal() and len(text) <= _DIGITS
        if not digits or not least <= int(text) <= MAX_DIM:
            wanted = f"an integer from {least} to {MAX_DIM}"
            msg = f"{option} {key}={text[:40]}: expected {wanted}"
            raise UsageError(msg)
        numbers[key] = int(text)
    return numbers


def request_options(*names: str) -> Callable[[_Verb], _Verb]:
    """Return the options of fields of a request, in this order, for a verb."""

    def add(verb: _Verb) -> _Verb:
        for name in reversed(names):
            verb = request_option(name)(verb)
        return verb

    return add


def request_option(
    name: str,
    callback: Callable[..., Any] | None = None,
    **changes: Any,  # fields of `Option`
) -> Callable[[_Verb], _Verb]:
    """Return the option of a field of a request, as a verb needs it.

    Args:
        name: The field, under which the verb finds what was given.
        callback: Reads the text, where the option's own type does not.
        changes: What is different of its `Option`.

    """
    known = SHEET_OPTIONS.get(name)
    option = OPTIONS[name] if known is None else known.option
    option = attrs.evolve(option, **changes)
    given: dict[str, Any] = {"callback": callback, "type": _type(option)}
    if option.default is not None:
        given |= {"default": option.default, "show_default": True}
    return click.option(
        option.flag,
        name,
        multiple=option.multiple,
        required=option.required,
        metavar=option.metavar,
        help=option.help,
        **given,
    )


def _type(option: Option) -> click.ParamType[Any] | None:
    if option.choices:
        return click.Choice(option.choices)
    return Count(option.most, option.least) if option.most else None


def read_request(model: str, options: Mapping[str, Any]) -> Request:
    """Return the request that a verb's options make, but for its target."""
    read = {
        name: _READ[name](value) if name in _READ else value
        for name, value in options.items()
        if name in OPTIONS and name != "target"
    }
    read |= said_as_fields(read, options)
    return Request(model=model, given=_given(read), **read)


def read_requests(
    model: str, options: Mapping[str, Any], targets: Sequence[str]
) -> list[Request]:
    """Return a request for each target, or one for that of the preset.

    Raises:
        MissingParameter: nobody names a target.

    """
    asked = read_request(model, options)
    named = [
        attrs.evolve(asked, target=name, given=asked.given | {"target"})
        for name in targets
    ]
    requests = named or [asked]
    if asked.preset is not None:
        from perfc.tools.presets import with_preset

        requests = [*map(with_preset, requests)]
    if not requests[0].target:
        raise click.MissingParameter(param_hint="'--target'", param_type="option")
    return requests


def _given(read: Mapping[str, Any]) -> frozenset[str]:
    context = click.get_current_context()
    unsaid = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
    return frozenset(
        name for name in read if context.get_parameter_source(name) not in unsaid
    )


def _popularities(texts: Sequence[str]) -> dict[str, str]:
    """Read `TEXT`, `FILE` and `NAME=TEXT`; "" stands for all tables."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        table, popularity = (name.strip(), value) if equals else ("", text)
        if not popularity.strip() or (equals and not table):
            msg = f"--popularity {text!r}: expected TEXT, FILE or NAME=TEXT"
            raise UsageError(msg)
        if table in found:
            whose = f"table {table!r}" if table else "all tables"
            msg = f"--popularity of {whose} is given twice; give it once"
            raise UsageError(msg)
        found[table] = popularity.strip()
    return found


_READ: Mapping[str, Callable[[Any], Any]] = {
    "dims": lambda texts: integers(texts, "--dim", 0),
    "overrides": lambda texts: pairs(texts, "--set"),
    "popularity": _popularities,
    "prune": lambda text: None if text is None else read_prune("--prune", text),
}
"""What reads the texts of options that are not what click reads."""


debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    help="Show the traceback of an error.",
)
"""For reports of bugs; the command line itself looks for it."""

timing_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Time of each pass on stderr; of several targets, each report on stdout.",
)
"""What passes take."""


def quiet_option(
    what: str = "No progress on stderr.", *, told: bool = True
) -> Callable[[_Verb], _Verb]:
    """Return the option that lets a verb say less.

    Args:
        what: What is not said.
        told: Whether the verb is told, as `quiet`, for what is not progress.

    """
    return click.option(
        "-q", "--quiet", is_flag=True, expose_value=told, callback=be_quiet, help=what
    )


def output_option(
    what: str = "Write there instead of stdout.",
    metavar: str = "FILE",
    *,
    required: bool = False,
    folders: bool = False,
) -> Callable[[_Verb], _Verb]:
    """Return the option that names the file of a result, or also a folder of some."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(dir_okay=folders, path_type=Path),
        required=required,
        metavar=metavar,
        help=what,
    )


def log_timing(timing: Timing) -> None:
    """Write the time of each pass on stderr."""
    for name, seconds in timing.seconds:
        tell(f"perfc: {name}: {seconds * 1e3:.2f} ms")
