"""Chakra's execution traces (`.et`): PyTorch's ops as protocol buffers.

The format is `schema/protobuf/et_def.proto` of mlcommons/chakra: a message
`GlobalMetadata`, then one `Node` after the other, each behind its length as a varint.
Its converter from PyTorch keeps what an op was given and returned as text, and numbers
of PyTorch's own as attributes, so a node becomes what a node of PyTorch's JSON is.
"""

from __future__ import annotations

import ast
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from perfc.traces.events import TraceError

_LONGEST = 1 << 24
"""Bytes that one message may have; a longer one is none."""

_GZIP = b"\x1f\x8b"
_HEAD = 1 << 16
_LOW_BITS = 0x7F
_64_BITS = (1 << 64) - 1
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}
"""Kinds of fields: a varint, so many bytes behind their number, so many bytes."""

_METADATA_FIELDS = frozenset({1, 2})
_ID, _NAME, _TYPE, _CONTROL, _INPUTS, _OUTPUTS, _ATTRIBUTES = 1, 2, 3, 4, 8, 9, 10
_COLLECTIVE_NODE = 7
"""Fields of `Node`."""

_PARTS = {1: "values", 2: "shapes", 3: "types"}
_COLLECTIVES = (
    *("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast"),
    *("all_to_all", "reduce_scatter", "reduce_scatter_block", "barrier"),
)
"""Collectives, by the number of `CollectiveCommType`."""

_NO_NUMBER = re.compile(r"-?\b(?:nan|inf)\b")
_Wire: TypeAlias = "int | bytes"
_Fields: TypeAlias = Mapping[int, list[_Wire]]


class _WireError(ValueError):
    """Bytes that are no message."""


def _signed(value: _Wire) -> int:
    number = _number(value)
    return number - (1 << 64) if number >> 63 else number


def _zigzag(value: _Wire) -> int:
    number = _number(value)
    return (number >> 1) ^ -(number & 1)


def _number(value: _Wire) -> int:
    if isinstance(value, bytes):
        msg = "a number is written as text"
        raise _WireError(msg)
    return value


def _text(value: _Wire) -> str:
    if isinstance(value, int):
        msg = "a text is written as a number"
        raise _WireError(msg)
    return value.decode("utf-8")


_VALUES: Mapping[int, Callable[[_Wire], object]] = {
    **dict.fromkeys((7, 9), _signed),
    **dict.fromkeys((11, 13, 19, 21), _number),
    **dict.fromkeys((15, 17), _zigzag),
    27: lambda value: bool(_number(value)),
    29: _text,
}
"""How an attribute's value is read, by its field of `AttributeProto`; real numbers and
lists are none of PyTorch's."""


@attrs.define(eq=False)
class ChakraFile:
    """A Chakra file, read once from front to end, as `EventFile` reads JSON.

    Attributes:
        path: The file, gzipped or not.
        header: Attributes of its metadata; complete when the nodes are.

    """

    path: Path
    header: dict[str, Any] = attrs.field(factory=dict[str, Any], init=False)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the nodes as PyTorch's JSON has them."""
        try:
            with self.path.open("rb") as raw, _unzipped(raw) as stream:
                messages = _messages(stream)
                metadata = _fields(next(messages, b""))
                self.header |= {
                    key: value
                    for one in metadata.get(2, [])
                    for key, value in [_attribute(one)]
                }
                for message in messages:
                    yield _node(_fields(message))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            what = f"damaged or truncated gzip file ({error})"
            msg = f"{self.path}: {what}; nothing of it is used"
            raise TraceError(msg) from None
        except OSError as error:
            msg = f"cannot read {self.path}: {error.strerror or error}"
            raise TraceError(msg) from None
        except ValueError as error:  # of text that is none, too
            msg = f"{self.path}: no Chakra trace ({error}); nothing of it is used"
            raise TraceError(msg) from None


def is_chakra(path: Path) -> bool:
    """Whether a file begins with Chakra's metadata; False if it cannot be read."""
    try:
        with path.open("rb") as raw, _unzipped(raw) as stream:
            head = _fields(next(_messages(io.BytesIO(stream.read(_HEAD))), b""))
    except (OSError, EOFError, zlib.error, ValueError):
        return False
    found = [value for values in head.values() for value in values]
    whole = bool(found) and head.keys() <= _METADATA_FIELDS
    return whole and all(isinstance(value, bytes) for value in found)


def _unzipped(raw: io.BufferedReader) -> Any:  # noqa: ANN401 - either of two files
    return gzip.open(raw) if raw.peek(2)[:2] == _GZIP else raw


def _messages(stream: io.BufferedIOBase) -> Iterator[bytes]:
    """Yield the messages of a file.

    Raises:
        _WireError: one is longer than what is left.

    """
    while (size := _varint(stream)) is not None:
        if size > _LONGEST:
            msg = f"a message of {size:,} bytes"
            raise _WireError(msg)
        yield _exactly(stream, size)


def _varint(stream: io.BufferedIOBase) -> int | None:
    """Return a number of seven bits a byte, the lowest first; None at the end."""
    value = shift = 0
    while byte := stream.read(1):
        value |= (byte[0] & _LOW_BITS) << shift
        shift += 7
        if byte[0] <= _LOW_BITS:
            return value & _64_BITS
    if shift:
        msg = "it ends in a number"
        raise _WireError(msg)
    return None


def _exactly(stream: io.BufferedIOBase, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        msg = f"it ends {size - len(data):,} bytes before a message in it does"
        raise _WireError(msg)
    return data


def _fields(data: bytes) -> _Fields:
    """Take a message apart: values by number of their field."""
    found: dict[int, list[_Wire]] = {}
    stream = io.BytesIO(data)
    while (key := _varint(stream)) is not None:
        kind = key & 7
        value: _Wire
        if kind == _VARINT:
            value = _varint(stream) or 0
        elif kind == _BYTES:
            value = _exactly(stream, _varint(stream) or 0)
        elif kind in _FIXED:
            value = int.from_bytes(_exactly(stream, _FIXED[kind]), "little")
        else:
            msg = f"a field of the unknown kind {kind}"
            raise _WireError(msg)
        found.setdefault(key >> 3, []).append(value)
    return found


def _node(fields: _Fields) -> dict[str, Any]:
    attributes = dict(_attribute(one) for one in fields.get(_ATTRIBUTES, []))
    return {
        **attributes,
        "id": _number(_last(fields, _ID, 0)),
        "name": _text(_last(fields, _NAME, b"")),
        "ctrl_deps": next(_numbers(fields.get(_CONTROL, [])), 0),
        "inputs": _side(_last(fields, _INPUTS, b"")),
        "outputs": _side(_last(fields, _OUTPUTS, b"")),
        "collective": _collective(fields, attributes),
    }


def _last(fields: _Fields, number: int, default: _Wire) -> _Wire:
    """Return the value of a field, of several the last one, as the format has it."""
    return fields.get(number, [default])[-1]


def _numbers(values: list[_Wire]) -> Iterator[int]:
    """Yield the numbers of a repeated field, packed or not."""
    for value in values:
        if isinstance(value, int):
            yield value
            continue
        packed = io.BytesIO(value)
        while (number := _varint(packed)) is not None:
            yield number


def _attribute(message: _Wire) -> tuple[str, object]:
    """Return name and value; None for a value of a kind that PyTorch does not use."""
    fields = _fields(_bytes(message))
    known = [read(fields[n][-1]) for n, read in _VALUES.items() if n in fields]
    return _text(_last(fields, 1, b"")), next(iter(known), None)


def _bytes(value: _Wire) -> bytes:
    if isinstance(value, int):
        msg = "a message is written as a number"
        raise _WireError(msg)
    return value


def _side(message: _Wire) -> dict[str, object]:
    """Return arguments or results: three texts of lists."""
    fields = _fields(_bytes(message))
    return {
        part: _parsed_list(_text(_last(fields, number, b"")))
        for number, part in _PARTS.items()
    }


def _parsed_list(text: str) -> object:
    """Read a list as JSON or Python writes it."""
    try:
        return json.loads(text or "[]")
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(_NO_NUMBER.sub("None", text))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        msg = f"arguments that are no list: {text[:40]!r}"
        raise _WireError(msg) from None


def _collective(fields: _Fields, attributes: Mapping[str, object]) -> str:
    """Name a collective with its bytes and its group; "" for other nodes."""
    if _last(fields, _TYPE, 0) != _COLLECTIVE_NODE:
        return ""
    number, size = attributes.get("comm_type"), attributes.get("comm_size")
    known = isinstance(number, int) and 0 <= number < len(_COLLECTIVES)
    name = _COLLECTIVES[number] if known and isinstance(number, int) else "collective"
    group = attributes.get("pg_name")
    told = f" of {size:,} bytes" if isinstance(size, int) else ""
    return name + told + (f" in group {group}" if group else "")
