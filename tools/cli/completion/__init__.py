"""What shells ask to complete a command line of `perfc`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.cli.completion.shells import complete
else:
    __getattr__ = door(
        __name__,
        {
            "shells": ("complete",),
        },
    )

__all__ = [
    "complete",
]
