"""Writing files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from perfc.ir.support.errors import PerfcError
from perfc.ir.support.quoting import printable

_CHUNK = 2**18
_FASTEST = 1
"""Level of gzip: repetitive text gains little from the slower ones."""


def write_file(path: Path, content: str | bytes) -> None:
    """Write *content* to *path* in one step: a reader never sees half a file.

    Text is UTF-8, with control characters escaped. A file called `….gz` is
    compressed. What is there and no regular file (a pipe, a device) is written to as
    it is.
    """
    if isinstance(content, str):
        content = printable(content)
    if path.suffix == ".gz":
        import gzip  # noqa: PLC0415 - slow, and rarely needed

        data = content.encode() if isinstance(content, str) else content
        content = gzip.compress(data, _FASTEST, mtime=0)  # no clock time in results
    import tempfile  # noqa: PLC0415 - slow, and few commands write files

    temporary, asked = "", path
    try:
        path = path.resolve()
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                stream.writelines(_chunks(content))
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as stream:
            stream.writelines(_chunks(content))
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except OSError as error:
        msg = f"cannot write {asked}: {error.strerror or error}"
        raise PerfcError(msg) from None
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _chunks(content: str | bytes) -> Iterator[bytes]:
    """Encode piece by piece: a second copy of all would have to be paged in."""
    for start in range(0, len(content), _CHUNK):
        chunk = content[start : start + _CHUNK]
        yield chunk.encode() if isinstance(chunk, str) else chunk
