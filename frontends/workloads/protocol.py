"""What a built-in workload is."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence

import attrs

from perfc.ir import Program, UsageError

MAX_PARAMETER = 10**12
"""Larger parameters are typing errors."""

_BETWEEN = re.compile(r",(?![^(]*\))")
"""A comma, but for those inside of parentheses."""

_SHARE = re.compile(r"\d{1,4}(\.\d{0,20})?|\.\d{1,20}", re.ASCII)

_WIDTH = re.compile(r"(\d{1,20})(?:\^([1-9]\d{0,2}))?", re.ASCII)
"""A width, and how many layers have it."""

_MAX_DIGITS = 20
_MAX_LAYERS = 200
_MAX_WIDTH = 10**6


def widths_of(text: int | str) -> tuple[int, ...]:
    """Return the widths of `512-256-64`, which is what `Workload.widths` accepts.

    `512^3` stands for `512-512-512`.
    """
    widths: list[int] = []
    for part in str(text).split("-"):
        width, _, times = part.partition("^")
        widths += [int(width)] * int(times or 1)
    return tuple(widths)


def widths_text(widths: Sequence[int]) -> str:
    """Return widths as a parameter has them."""
    return "-".join(map(str, widths))


@attrs.frozen(kw_only=True)
class Workload:
    """A model by name, with parameters.

    Attributes:
        name: What `perfc models` lists.
        summary: One line.
        source: Where its sizes come from.
        parameters: Names and defaults; an int or a word.
        choices: Allowed words of the parameters that take one.
        limits: Greatest number of the parameters that have one of their own.
        make: Builds the program from the parameters' values.
        least: Least number of the parameters that need more than 1.
        widths: Parameters that are widths of layers, as `512-256-64`.
        texts: Parameters that are read elsewhere, as `zipf(1.05)`.
        shares: Parameters that are numbers from 0 to 1, as text.

    """

    name: str
    summary: str
    source: str
    parameters: Mapping[str, int | str]
    choices: Mapping[str, tuple[str, ...]]
    limits: Mapping[str, int]
    make: Callable[[Mapping[str, int | str]], Program]
    least: Mapping[str, int] = attrs.field(factory=dict[str, int])
    widths: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    shares: frozenset[str] = frozenset()

    @property
    def usage(self) -> str:
        """Parameters with their defaults, words with their alternatives."""
        return ",".join(
            f"{key}={'|'.join(self.choices.get(key, (str(default),)))}"
            for key, default in self.parameters.items()
        )

    def build(self, options: str) -> Program:
        """Build the program from `key=value,…` on top of the defaults."""
        return self.make(self.values(options))

    def values(self, options: str) -> dict[str, int | str]:
        """Return every parameter: those of `key=value,…`, and the other defaults."""
        values = dict(self.parameters)
        given: set[str] = set()
        for item in filter(None, _BETWEEN.split(options)):
            key, equals, text = item.partition("=")
            if not equals or key not in values:
                near = difflib.get_close_matches(key, values, n=1)
                hint = f"did you mean {near[0]!r}? " if near and equals else ""
                msg = f"workload {self.name!r} has no parameter {item!r}; "
                msg += f"{hint}it has {self.usage}"
                raise UsageError(msg)
            if key in given:
                msg = f"parameter {key} of {self.name!r} is given twice"
                raise UsageError(msg)
            given.add(key)
            values[key] = self._convert(key, text)
        return values

    def _convert(self, key: str, text: str) -> int | str:
        if key in self.choices:
            if text not in self.choices[key]:
                allowed = " or ".join(self.choices[key])
                msg = f"parameter {key}={text!r} of {self.name!r}: expected {allowed}"
                raise UsageError(msg)
            return text
        if text == self.parameters[key] or (text and key in self.texts):
            return text
        if key in self.widths:
            return self._widths(key, text)
        if key in self.shares:
            return self._share(key, text)
        least, limit = self.least.get(key, 1), self.limits.get(key, MAX_PARAMETER)
        if not text.isdecimal() or not least <= int(text[:_MAX_DIGITS]) <= limit:
            msg = (
                f"parameter {key}={text[:40]!r} of {self.name!r}: "
                f"expected an integer from {least} to {limit}"
            )
            raise UsageError(msg)
        return int(text)

    def _share(self, key: str, text: str) -> str:
        if not _SHARE.fullmatch(text) or not float(text) <= 1:
            msg = (
                f"parameter {key}={text[:40]!r} of {self.name!r}: expected a number "
                "from 0 to 1"
            )
            raise UsageError(msg)
        return text

    def _widths(self, key: str, text: str) -> str:
        parts = [_WIDTH.fullmatch(part) for part in text.split("-")]
        layers, fine = 0, True
        for part in parts:
            layers += int(part[2] or 1) if part else _MAX_LAYERS + 1
            fine = fine and part is not None and 0 < int(part[1]) <= _MAX_WIDTH
        if not fine or not 0 < layers <= _MAX_LAYERS:
            msg = (
                f"parameter {key}={text[:40]!r} of {self.name!r}: expected up to "
                f"{_MAX_LAYERS} widths from 1 to {_MAX_WIDTH}, as 512-256-64 "
                "or 512^3"
            )
            raise UsageError(msg)
        return widths_text(widths_of(text))


def by_name(*workloads: Workload) -> Mapping[str, Workload]:
    """Return workloads by name."""
    return {workload.name: workload for workload in workloads}
