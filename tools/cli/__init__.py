"""The command line: a file a verb."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.cli.command_line import main, perfc_command
else:
    __getattr__ = door(
        __name__,
        {
            "command_line": ("main", "perfc_command"),
        },
    )

__all__ = [
    "main",
    "perfc_command",
]
