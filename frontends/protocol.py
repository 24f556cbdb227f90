"""What a frontend is."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from perfc.ir import Program


class Frontend(Protocol):
    """Reads one kind of file. Registered under its suffix, without the dot."""

    def load(self, path: Path) -> Program:
        """Read *path* into a program, symbols unbound, passes not yet run."""
        ...
