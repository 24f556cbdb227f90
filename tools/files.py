"""Writing results: on stdout, or in a file that is whole or not there."""

from __future__ import annotations

import sys
from pathlib import Path

from perfc.ir import write_file


def write_result(content: str | bytes, path: Path | None) -> None:
    """Write *content* to *path*, or to stdout if there is none.

    Raises:
        PerfcError: the file cannot be written.

    """
    if path is not None:
        write_file(path, content)
    elif isinstance(content, str):
        sys.stdout.write(content)
    else:
        sys.stdout.buffer.write(content)
