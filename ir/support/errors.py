"""Every exception perfc raises on purpose.

The command line turns a `PerfcError` into one line on stderr and its
`exit_code`. Anything else that escapes is a bug of perfc.
"""

from __future__ import annotations

from typing import ClassVar


class PerfcError(Exception):
    """Base of all errors that a user of perfc can cause and fix."""

    exit_code: ClassVar[int] = 1


class UsageError(PerfcError):
    """The command or the call asks for something perfc does not have."""

    exit_code: ClassVar[int] = 2


class VerifyError(PerfcError):
    """A graph breaks an IR invariant."""


class ParseError(PerfcError):
    """Text is not valid perfc assembly."""


class UnknownOpError(PerfcError):
    """An op name has no definition in the registry."""


class UnboundSymbolError(PerfcError):
    """A dimension has no number yet."""


class PipelineError(PerfcError):
    """A pass order cannot work, found before any pass runs."""


class PassContractError(PerfcError):
    """A pass did not do what it declared."""


class UnsupportedModelError(PerfcError):
    """A model file is damaged, or says something perfc cannot represent."""
