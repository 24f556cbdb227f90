"""What several verbs read from their options, and write besides results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from perfc.ir import UsageError
from perfc.tools.files import tell

if TYPE_CHECKING:
    from perfc.passes.instruments import Timing

MAX_DIM = 2**40
"""No dimension is larger."""

_DIGITS = len(str(MAX_DIM))


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Read `NAME=VALUE` options.

    Raises:
        UsageError: one is not of that form, or a name has two values.

    """
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
    """A number of things, from 1 to *most*."""

    name = "integer"

    def __init__(self, most: int) -> None:
        """Limit it."""
        super().__init__(1, most)


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


def integers(texts: Sequence[str], option: str) -> dict[str, int]:
    """Read `NAME=N` options.

    Raises:
        UsageError: a value is not an integer from 1 to `MAX_DIM`.

    """
    numbers: dict[str, int] = {}
    for key, text in pairs(texts, option).items():
        digits = text.isascii() and text.isdecimal() and len(text) <= _DIGITS
        if not digits or not 0 < int(text) <= MAX_DIM:
            msg = f"{option} {key}={text[:40]}: expected an integer from 1 to {MAX_DIM}"
            raise UsageError(msg)
        numbers[key] = int(text)
    return numbers


def log_timing(timing: Timing) -> None:
    """Write the time of each pass on stderr."""
    for name, seconds in timing.seconds:
        tell(f"perfc: {name}: {seconds * 1e3:.2f} ms")
