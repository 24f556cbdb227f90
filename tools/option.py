"""Options of the command line, as fields of a request declare them."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Option:
    """How the command line spells a field of a request.

    Attributes:
        flag: As `--batch`.
        help: What `--help` says.
        metavar: What stands for a value there.
        choices: The values there are; none for any.
        least: The smallest number.
        most: The largest number; 0 for what is no number.
        multiple: Whether it may be given again.
        required: Whether it must be given.
        default: What a verb takes if it is not given; None for nothing.

    """

    flag: str
    help: str | None = None
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: int = 1
    most: int = 0
    multiple: bool = False
    required: bool = False
    default: Any = None
