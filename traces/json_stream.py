"""Read a trace file event by event: gigabytes of JSON without holding them."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import attrs

from perfc.ir import spend
from perfc.traces.events import TraceError

_CHUNK = 1 << 22
"""Characters read at a time."""

_SHORTEST = 2
"""Characters that a value and what is after it have at least."""

_USUAL_RATIO = 100
"""Text is unpacked to so many times its size; what unpacks to more is no trace."""

_EVENTS = "traceEvents"
_GZIP = b"\x1f\x8b"
_SPACES = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n]*(?:,[ \t\r\n]*)?")


@attrs.define(eq=False)
class EventFile:
    """A JSON file of events, read once from front to end.

    It is an object with a list `traceEvents` and other fields, or that list itself.

    Attributes:
        path: The file.
        listed: Name of the list of events.
        progress: Is told from time to time which part of the file has been read.
        header: The other fields; complete when the events are.

    """

    path: Path
    listed: str = _EVENTS
    progress: Callable[[float], None] | None = None
    header: dict[str, Any] = attrs.field(factory=dict[str, Any], init=False)

    def head(self, count: int) -> bytes:
        """Return the first bytes of its text; none if it cannot be read."""
        try:
            with self.path.open("rb") as raw:
                zipped = raw.peek(2)[:2] == _GZIP
                return (gzip.open(raw) if zipped else raw).read(count)
        except (OSError, EOFError, zlib.error):
            return b""

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events."""
        with self._opened() as chunks:
            yield from self._parsed(_Reader(chunks, str(self.path)))

    def chunks(self) -> Iterator[str]:
        """Yield the text, some megabytes at a time."""
        with self._opened() as chunks:
            yield from chunks

    @contextmanager
    def _opened(self) -> Generator[Iterator[str], None, None]:
        """Open the file; say what is wrong with it as a `TraceError`."""
        try:
            with self.path.open("rb") as raw, _text(raw) as stream:
                yield self._read(raw, stream)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            what = f"damaged or truncated gzip file ({error})"
            msg = f"{self.path}: {what}; nothing of it is used"
            raise TraceError(msg) from None
        except OSError as error:
            msg = f"cannot read {self.path}: {error.strerror or error}"
            raise TraceError(msg) from None
        except UnicodeDecodeError:
            msg = (
                f"{self.path}: not text; expected a trace in JSON, or gzipped JSON, or "
                "an execution trace of Chakra (.et)"
            )
            raise TraceError(msg) from None
        except (ValueError, RecursionError) as error:
            deep = isinstance(error, RecursionError)
            reason = "nested too deeply" if deep else str(error)
            msg = f"{self.path}: not valid JSON ({reason}); nothing of it is used"
            raise TraceError(msg) from None

    def _read(self, raw: io.BufferedReader, stream: IO[str]) -> Iterator[str]:
        size, unpacked = os.fstat(raw.fileno()).st_size, 0
        while chunk := stream.read(_CHUNK):
            unpacked += len(chunk)
            if unpacked > _USUAL_RATIO * raw.tell():
                spend("unpacked-bytes", unpacked, str(self.path))
            if self.progress is not None and size:
                self.progress(min(1.0, raw.tell() / size))
            yield chunk

    def _parsed(self, reader: _Reader) -> Iterator[dict[str, Any]]:
        if reader.at_end():
            msg = f"{self.path}: nothing is in it; expected a trace in JSON"
            raise TraceError(msg)
        first = reader.peek()
        if first == "[":
            yield from self._elements(reader)
            return
        if first != "{":
            msg = f"{self.path}: expected a JSON object with {self.listed!r}"
            raise TraceError(msg)
        reader.take("{")
        found, held = False, 0
        while reader.peek() != "}":
            key = reader.value()
            reader.take(":")
            if key == self.listed and reader.peek() == "[":
                found = True
                yield from self._elements(reader)
            else:
                begin = reader.passed
                self.header[str(key)] = reader.value()
                held += reader.passed - begin  # events one by one, these all together
                spend("values", held // _SHORTEST, str(self.path))
            if reader.peek() == ",":
                reader.take(",")
        reader.take("}")
        if not reader.at_end():
            msg = "more text behind the end of the trace"
            raise ValueError(msg)
        if "nodes" in self.header and not found:
            raise TraceError(no_times(self.path))
        if not found:
            keys = ", ".join(sorted(self.header)[:5]) or "nothing"
            msg = f"{self.path}: no trace: expected {self.listed!r}, found {keys}"
            raise TraceError(msg)

    def _elements(self, reader: _Reader) -> Iterator[dict[str, Any]]:
        reader.take("[")
        while reader.peek() != "]":
            for event in reader.values():
                if isinstance(event, dict):
                    yield event
        reader.take("]")


def no_times(path: Path | str) -> str:
    """Say what an execution trace alone is not good for, and what it is."""
    return (
        f"{path}: an execution trace of PyTorch: nothing is measured in it; give the "
        "Kineto trace of the same run, too, or predict it: perfc analyze"
    )


def _text(raw: io.BufferedReader) -> IO[str]:
    """Return the text of a file, gzipped or not, whatever its name; a pipe will do."""
    if raw.peek(2)[:2] == _GZIP:
        return gzip.open(raw, "rt", encoding="utf-8")
    return io.TextIOWrapper(raw, encoding="utf-8")


@attrs.define(eq=False)
class _Reader:
    """A text file, decoded value by value."""

    chunks: Iterator[str]
    where: str
    text: str = attrs.field(default="", init=False)
    at: int = attrs.field(default=0, init=False)
    before: int = attrs.field(default=0, init=False)
    _decode: Any = attrs.field(
        factory=lambda: json.JSONDecoder().raw_decode, init=False
    )

    @property
    def passed(self) -> int:
        """How many characters were read before the next one."""
        return self.before + self.at

    def peek(self) -> str:
        """Return the next character that is no space.

        Raises:
            ValueError: the file ends here.

        """
        while True:
            spaces = _SPACES.match(self.text, self.at)
            self.at = spaces.end() if spaces else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self._more():
                msg = "the file ends in the middle"
                raise ValueError(msg)

    def at_end(self) -> bool:
        """Whether nothing but spaces is left."""
        while not self.text[self.at :].strip():
            self.at = len(self.text)
            if not self._more():
                return True
        return False

    def take(self, character: str) -> None:
        """Pass over *character*.

        Raises:
            ValueError: something else is there.

        """
        found = self.peek()
        if found != character:
            msg = f"expected {character!r}, found {found!r}"
            raise ValueError(msg)
        self.at += 1

    def value(self) -> Any:  # noqa: ANN401 - JSON
        """Take the next value.

        Raises:
            ValueError: there is none.

        """
        self.peek()
        while True:
            try:
                value, end = self._decode(self.text, self.at)
            except ValueError:
                spend("values", (len(self.text) - self.at) // _SHORTEST, self.where)
                if not self._more():
                    raise
                continue
            # A number at the end of what was read may go on.
            if end == len(self.text) and self._more():
                continue
            self.at = end
            return value

    def values(self) -> Iterator[Any]:
        """Take the next values of a list, those that surely end in what was read.

        The first is taken with care; then as many as the text holds, at once.

        Raises:
            ValueError: there is none.

        """
        yield self.value()
        if self.peek() == ",":
            self.take(",")
            self.peek()
        decode, between = self._decode, _BETWEEN.match
        text, at, count = self.text, self.at, len(self.text)
        while at < count:
            try:
                value, end = decode(text, at)
            except ValueError:  # the end of the list, or of the text
                break
            following = between(text, end)
            if following is None or following.end() == count:
                break
            at = following.end()
            self.at = at
            yield value

    def _more(self) -> bool:
        chunk = next(self.chunks, "")
        if not chunk:
            return False
        self.before += self.at
        self.text = self.text[self.at :] + chunk
        self.at = 0
        return True
