"""Reading the small TOML files that users write: target sheets, host profiles."""

from __future__ import annotations

from pathlib import Path

from perfc.ir import PerfcError

_MOST_BYTES = 1_000_000


def shown_path(path: str) -> str:
    """Return a path as a message on one line shows it."""
    return path if path.isprintable() else repr(path)


def read_sheet(path: str | Path, what: str, error_class: type[PerfcError]) -> str:
    """Return the text of *path*.

    Args:
        path: The file.
        what: What it is, for messages: `target sheet`.
        error_class: What to raise.

    """
    where = shown_path(str(path))
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        message = f"{where}: cannot read the {what}: {reason}"
        raise error_class(message) from error
    except ValueError as error:  # a zero byte in the name
        message = f"{where}: not a path"
        raise error_class(message) from error
    if len(content) > _MOST_BYTES:
        message = f"{where}: larger than a {what} can be (1 MB)"
        raise error_class(message)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{where}: not UTF-8 text, at byte {error.start}; save it as UTF-8"
        raise error_class(message) from error
