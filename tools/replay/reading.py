"""Says on a terminal how far a large file has been read."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from perfc.tools.files import is_terminal, overwrite

_SILENT_S = 2.0
"""What is read sooner says nothing."""

_EVERY_S = 0.5


@contextmanager
def reading(
    path: Path, what: str = "reading"
) -> Generator[Callable[[float], None] | None, None, None]:
    """Tell the user how far a file has been read, if it takes long and somebody looks.

    Yields:
        None where stderr is no terminal, else a function to call with the share of the
        file that has been read, 0 to 1.

    """
    if not is_terminal():
        yield None
        return
    begun_s = shown_s = time.monotonic()
    shown = False

    def progress(part: float) -> None:
        nonlocal shown_s, shown
        now_s = time.monotonic()
        if now_s - begun_s < _SILENT_S or now_s - shown_s < _EVERY_S:
            return
        shown_s, shown = now_s, True
        overwrite(f"perfc: {what} {path.name}: {part:.0%}")

    try:
        yield progress
    finally:
        if shown:
            overwrite("")
