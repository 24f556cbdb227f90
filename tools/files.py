"""Everything that the command line says: results, and lines beside them.

Nothing else writes to stdout or stderr, so that what must hold of all text is done
here: names cannot steer a terminal, and what an encoding lacks is written otherwise.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from perfc.ir import PerfcError, support
from perfc.ir.support import printable

_PLAIN = {
    "·": "-",
    "\u00d7": "x",
    "µ": "u",
    "█": "#",
    "…": "...",
    "→": "->",
    "±": "+-",
    "²": "2",
    "³": "3",
    "√": "sqrt",
}
"""What perfc's own text becomes where the encoding lacks it."""

_HANDLER = "perfc.plain"

_FORCE, _UNSAID = "CLICOLOR_FORCE", ("", "0")


class _Line:
    """The line of a terminal that stderr is at."""

    shown = False
    """Whether it holds what is to be written over."""


_LINE = _Line()


def write_result(
    content: str | bytes, path: Path | None, *, document: bool = False
) -> None:
    """Write *content* to *path*, or to stdout if there is none.

    Args:
        content: Text, or the bytes of a file.
        path: Where to; stdout if None.
        document: Whether the text is a document for programs, which is UTF-8 wherever
            it goes; other text has the encoding of stdout, and colours on a terminal.

    """
    if path is not None:
        support.write_file(path, content)
        return
    # Python has none where the shell has closed it.
    if sys.stdout is None:
        message = "cannot write to standard output: it is closed; name a file with -o"
        raise PerfcError(message)
    stream = sys.stdout
    wipe()
    if isinstance(content, str):
        content = printable(content)
        if not document and has_colours(stream):
            content = _coloured(content)
        if document and codecs.lookup(stream.encoding or "utf-8").name != "utf-8":
            content = content.encode()
    try:
        if isinstance(content, str):
            stream.write(content)
        else:
            stream.buffer.write(content)
    except OSError as error:
        raise lost_output(error) from None


def print_line(text: str = "") -> None:
    """Write lines to stdout."""
    write_result(f"{text}\n", None)


def tell(text: str) -> None:
    """Write a line to stderr; if there is no stderr, nobody wants to know."""
    wipe()
    line = printable(text)
    _to_stderr(f"{_coloured(line) if has_colours(sys.stderr) else line}\n")


def overwrite(text: str) -> None:
    """Write over the line of a terminal that stderr is at, as much as it has room for.

    What is written next, to stdout too, takes its place.
    """
    _to_stderr(f"\r{printable(text)[: _columns()]}\x1b[K")
    _LINE.shown = bool(text)


def wipe() -> None:
    """Clear the line of a terminal that was written over."""
    if _LINE.shown:
        overwrite("")


def is_terminal() -> bool:
    """Whether somebody looks at stderr, and its lines can be written over."""
    stderr, dumb = sys.stderr, os.environ.get("TERM") == "dumb"
    return stderr is not None and stderr.isatty() and not dumb


def has_colours(stream: TextIO | None) -> bool:
    """Whether text that goes there is coloured.

    It is on a terminal that knows colours. The environment can say otherwise:
    `NO_COLOR` no, else `FORCE_COLOR` or `CLICOLOR_FORCE` yes, if they are not empty (0
    forces nothing).
    """
    known = os.environ.get
    if stream is None or known("NO_COLOR"):
        return False
    if known("FORCE_COLOR", "0") not in _UNSAID or known(_FORCE, "0") not in _UNSAID:
        return True
    return known("TERM") != "dumb" and stream.isatty()


def finish() -> None:
    """Make sure that what was written to stdout has arrived."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError as error:
            raise lost_output(error) from None


def use_plain_text() -> None:
    """Write what the encodings of stdout and stderr lack as something close to it."""
    codecs.register_error(_HANDLER, _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def give_up_stdout() -> None:
    """Send what is left of stdout nowhere: Python would fail over it at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _columns() -> int | None:
    """Return how many letters a line of the terminal has room for; None if unknown."""
    with suppress(OSError, ValueError):
        return max(0, os.get_terminal_size(sys.stderr.fileno()).columns - 1) or None
    return None


def _coloured(text: str) -> str:
    from perfc.tools.colours import coloured

    return coloured(text)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    written = "".join(_PLAIN.get(letter) or ascii(letter)[1:-1] for letter in text)
    return written, error.end


def lost_output(error: OSError) -> Exception:
    """Return the error to raise where stdout takes no more, and write no more to it.

    Where the reader of a pipe has gone, it is *error* itself.
    """
    if isinstance(error, BrokenPipeError):
        return error
    give_up_stdout()
    message = f"cannot write to standard output: {error.strerror or error}"
    return PerfcError(message)


def _to_stderr(text: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError):  # full, or gone
            sys.stderr.write(text)
            sys.stderr.flush()
