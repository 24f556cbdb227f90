"""Reading files that users name: within budgets, and with errors they can act on."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from perfc.ir.support.budgets import budget, spend
from perfc.ir.support.errors import PerfcError, UsageError

Json: TypeAlias = dict[str, Any]
"""An object of JSON."""

_CHUNK = 2**20

_MOST, _FEW_DIGITS = sys.float_info.max, sys.float_info.max_10_exp
_LARGE = 1e30
"""The largest number of a document of settings: products of ten of them are finite."""
_MOST_PARTS = 64
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(
    rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{_MOST_PARTS}}}"
)


def path_text(what: str, value: object) -> str:
    """Return the text of what names a file: a text or a path."""
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
    """Return the bytes that a member of an archive unpacks to, within the budget."""
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

    """
    with damage_as(error_class, where, what):
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        spend("values", 1 + sum(map(text.count, ",[{")), where)
        return json_value(text)


def json_value(text: str) -> object:
    """Return the value that JSON says, with keys that differ and finite numbers.

    Raises:
        ArithmeticError: a number is none.
        ValueError: it is no JSON, or a key stands twice.
        RecursionError: it is nested too deeply.

    """
    try:
        parsed: object = _STRICT.decode(text)
    except OverflowError:
        _check_numbers(json.loads(text))  # which names the key
        raise
    return parsed


def parse_toml(
    text: str, error_class: type[PerfcError], where: str
) -> Mapping[str, object]:
    """Return the tables that TOML says, within the budget of values.

    Args:
        text: TOML.
        error_class: What to raise.
        where: What begins the message.

    """
    spend("values", 1 + sum(map(text.count, "=,[")), where)
    if _LONG_KEY.search(text):
        message = f"{where}: not valid TOML: a key of more than {_MOST_PARTS} parts"
        raise error_class(message)
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{where}: not valid TOML: {reason_of(error)}"
        raise error_class(message) from None
    with damage_as(error_class, where, "TOML"):
        _check_numbers(found, largest=_LARGE)
    return found


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        left = iter(found)  # in the order in which names came first
        twice = next(name for name, _ in pairs if name != next(left, None))
        message = f"{twice!r} is there twice"
        raise ValueError(message)
    return found


def _whole(digits: str) -> int:
    number = int(digits)
    if len(digits) > _FEW_DIGITS and not -_MOST <= number <= _MOST:
        raise OverflowError
    return number


def _number(digits: str) -> float:
    number = float(digits)
    if not -_MOST <= number <= _MOST:
        raise OverflowError
    return number


_STRICT = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_int=_whole,
    parse_float=_number,
    parse_constant=_number,
)


def _check_numbers(value: object, key: str = "", largest: float = _MOST) -> None:
    """Refuse numbers of a document that are larger, not finite, or as near to zero."""
    if isinstance(value, dict):
        for name, inner in cast("dict[str, object]", value).items():
            _check_numbers(inner, name, largest)
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            _check_numbers(inner, key, largest)
    elif isinstance(value, int | float) and value:
        message = f"{key or 'a number'} is {str(value)[:20]}, expected "
        if not -_MOST <= value <= _MOST:
            raise ValueError(message + "a finite number")
        if not 1 / largest <= abs(value) <= largest:
            raise ValueError(message + f"0 or a size of {1 / largest:g} to {largest:g}")
