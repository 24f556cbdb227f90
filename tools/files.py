"""Writing results: on stdout, or in a file that is whole or not there."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from perfc.ir import PerfcError


def write_result(text: str, path: Path | None) -> None:
    """Write *text* to *path*, or to stdout if there is none.

    Raises:
        PerfcError: the file cannot be written.

    """
    if path is None:
        sys.stdout.write(text)
    else:
        write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Write *text* to *path* in one step: a reader never sees half a file.

    What is there and no regular file (a pipe, a device) is written to as it is.

    Raises:
        PerfcError: the folder is absent, or the file cannot be written.

    """
    temporary, asked = "", path
    try:
        path = path.resolve()
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        msg = f"cannot write {asked}: {error.strerror or error}"
        raise PerfcError(msg) from None
