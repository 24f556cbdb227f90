"""Reading files that users name: within budgets, and with errors they can act on."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from perfc.ir.support.budgets import budget, spend
from perfc.ir.support.errors import PerfcError, UsageError

_CHUNK = 2**20

_MOST_PARTS = 64
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(
    rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{_MOST_PARTS}}}"
)


def path_text(what: str, value: object) -> str:
    """Return the text of what names a file: a text or a path.

    Raises:
        UsageError: it is something else; *what* names it.

    """
    if isinstance(value, str | os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    kind = type(value).__name__
    article = "an" if kind[0] in "aeioAEIO" else "a"
    shown = " ".join(repr(value)[:60].split())
    msg = f"{what}={shown} is {article} {kind}: expected a name or a path"
    raise UsageError(msg)


def _damaged() -> tuple[type[Exception], ...]:
    """Return the errors of libraries that read a damaged file, or one of another kind.

    `RuntimeError` is also too deep a nesting, and a zip file that needs a password.
    """
    import csv  # noqa: PLC0415 - these are loaded where something is damaged
    import struct  # noqa: PLC0415
    import tokenize  # noqa: PLC0415
    import zipfile  # noqa: PLC0415
    import zlib  # noqa: PLC0415

    return (
        *(ArithmeticError, AssertionError, AttributeError, EOFError, LookupError),
        *(MemoryError, NotImplementedError, OSError, RuntimeError, SyntaxError),
        *(TypeError, ValueError, csv.Error, struct.error, tokenize.TokenError),
        *(zipfile.BadZipFile, zlib.error),
    )


@contextmanager
def damage_as(
    error_class: type[PerfcError], where: str, expected: str
) -> Generator[None, None, None]:
    """Say what a library raises of a damaged file as one line.

    To be held around calls of libraries alone: a fault of perfc is not to be hidden.

    Args:
        error_class: What to raise.
        where: What begins the message: the file.
        expected: What it should have been: `a Parquet file`.

    Raises:
        PerfcError: of class *error_class*.

    """
    try:
        yield
    except PerfcError:
        raise
    except _damaged() as error:
        begin = f"{where}: " if where else ""
        message = f"{begin}cannot be read as {expected} ({reason_of(error)})"
        raise error_class(message) from None


def reason_of(error: BaseException) -> str:
    """Say in some words what an exception is about, on one line."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    if isinstance(error, UnicodeDecodeError):
        return f"no UTF-8 text at byte {error.start}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split())[:120] or type(error).__name__


def read_whole(
    path: Path, error_class: type[PerfcError], limit: str = "file-bytes"
) -> bytes:
    """Return the bytes of a file, a pipe or a device, within a budget.

    Args:
        path: The file.
        error_class: What to raise where it cannot be read.
        limit: The budget.

    Raises:
        PerfcError: of class *error_class*: it cannot be read.
        BudgetError: there are too many bytes.

    """
    try:
        with path.open("rb") as file:
            return _read(file, path, limit)
    except (OSError, ValueError) as error:  # a null byte in the name
        message = f"cannot read {path}: {reason_of(error)}"
        raise error_class(message) from None


def _read(file: IO[bytes], path: Path, limit: str) -> bytes:
    if path.is_file():
        spend(limit, path.stat().st_size, str(path))
        return file.read()
    parts: list[bytes] = []
    read = 0
    while part := file.read(_CHUNK):  # what has no end is not read to its end
        parts.append(part)
        read += len(part)
        spend(limit, read, str(path))
    return b"".join(parts)


def read_unpacked(stream: IO[bytes], where: str) -> bytes:
    """Return the bytes that a member of an archive unpacks to, within the budget.

    Raises:
        BudgetError: there is more of it.

    """
    most = budget("unpacked-bytes")
    parts: list[bytes] = []
    read = 0
    while part := stream.read(_CHUNK):  # what the archive claims may be wrong
        parts.append(part)
        read += len(part)
        if read > most:
            spend("unpacked-bytes", read, where)
    return b"".join(parts)


def read_text(path: Path, error_class: type[PerfcError], what: str) -> str:
    """Return the text of a UTF-8 file, within a budget.

    Args:
        path: The file.
        error_class: What to raise.
        what: What it should be: `a plan in JSON`.

    Raises:
        PerfcError: of class *error_class*: it cannot be read, or is no text.
        BudgetError: it is too long.

    """
    data = read_whole(path, error_class, "text-bytes")
    with damage_as(error_class, str(path), what):
        return data.decode("utf-8-sig")


def parse_json(
    text: str | bytes, error_class: type[PerfcError], where: str, what: str
) -> object:
    """Return the value that JSON says, within the budget of values.

    Args:
        text: JSON; bytes are UTF-8.
        error_class: What to raise.
        where: What begins the message.
        what: What it should be: `a plan in JSON`.

    Raises:
        PerfcError: of class *error_class*: it is no JSON.
        BudgetError: it has too many values.

    """
    spend("values", _values(text), where)
    with damage_as(error_class, where, what):
        parsed: object = json.loads(text)
        return parsed


def parse_toml(
    text: str, error_class: type[PerfcError], where: str
) -> Mapping[str, object]:
    """Return the tables that TOML says.

    Args:
        text: TOML.
        error_class: What to raise.
        where: What begins the message.

    Raises:
        PerfcError: of class *error_class*: it is no TOML, or has a key of too many
            parts, over which `tomllib` takes time that grows with their square.

    """
    if _LONG_KEY.search(text):
        message = f"{where}: not valid TOML: a key of more than {_MOST_PARTS} parts"
        raise error_class(message)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{where}: not valid TOML: {reason_of(error)}"
        raise error_class(message) from None


def _values(text: str | bytes) -> int:
    """Count what separates and begins values: there are no more than that."""
    if isinstance(text, bytes):
        return 1 + sum(map(text.count, (b",", b"[", b"{")))
    return 1 + sum(map(text.count, (",", "[", "{")))
