"""What a Parquet file unpacks to, counted from its own pages before Arrow reads any.

The footer's sums are those of encoded columns, and claims at that: what Arrow makes
room for is in the header of each page (https://parquet.apache.org/docs/file-format).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from perfc.ir import spend

_Fields: TypeAlias = Mapping[int, Any]
"""A structure of Thrift: values by the numbers of their fields."""

_SCHEMA, _GROUPS = 2, 4
_FIXED_LENGTH, _PHYSICAL = 7, (1, 2, 5)
"""A type of a column; its type, the length of its values, and how many children."""
_META = 3
_VALUES, _PACKED_BYTES, _DATA_AT, _DICTIONARY_AT = 5, 7, 9, 11
_PAGE_BYTES, _PAGE_PACKED_BYTES = 2, 3
_PAGE_KINDS = {5: 2, 7: 2, 8: 4}
"""Headers of pages of values, of dictionaries and of newer pages; their encoding."""
_DICTIONARY, _SHARED_BEGINNINGS = 7, 7
"""The header of a dictionary, and an encoding: texts begin as those before them."""

_FLAGS, _INTEGERS, _TEXT, _LISTS, _STRUCTURE = (1, 2), (4, 5, 6), 8, (9, 10), 12
_SIZES = {1: 1, 2: 1, 3: 1, 7: 8}
"""Kinds of values in Thrift's compact protocol; bytes of others by their kind."""
_LONG, _MORE, _MOST_BITS = 0xF0, 0x80, 63
"""A list says its length apart; a number goes on in the next byte, so far at most."""


def check_parquet(data: bytes, where: str = "") -> None:
    """Refuse a Parquet file that unpacks to too much.

    Args:
        data: The file.
        where: What begins the message.

    Raises:
        ValueError: it is damaged.

    """
    unpacked, numbers = 0, 0
    try:
        for size, values in _sizes(data):
            unpacked += size
            numbers += values
            spend("unpacked-bytes", unpacked, where)
            spend("elements", numbers, where)
    except (LookupError, TypeError, ValueError, RecursionError, struct.error):
        msg = "headers of pages are damaged"
        raise ValueError(msg) from None


def _sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the bytes that each page may take, and how many values it has."""
    for column, width in _columns(data):
        left, pages = column[_VALUES], _pages(data, column)
        while left > 0 and (page := next(pages, None)):  # Arrow reads no further
            kind, header = page
            fields, size = header[kind], header[_PAGE_BYTES]
            values = fields[1]
            if size < 0 or values < 0:
                raise ValueError(size, values)
            if fields[_PAGE_KINDS[kind]] == _SHARED_BEGINNINGS:
                size *= values
            if kind != _DICTIONARY:
                size = max(size, values * width)
                left -= values
            yield size, values


def _columns(data: bytes) -> Iterator[tuple[_Fields, int]]:
    """Yield each part of a column, and the length of its values if that is fixed."""
    (size,) = struct.unpack("<I", data[-8:-4])
    footer = _Reader(data, len(data) - 8 - size).structure()
    kind, length, children = _PHYSICAL
    leaves = [field for field in footer[_SCHEMA][1:] if not field.get(children)]
    widths = [
        max(0, field.get(length, 0)) if field.get(kind) == _FIXED_LENGTH else 0
        for field in leaves
    ]
    for group in footer[_GROUPS]:
        columns = cast("Sequence[_Fields]", group[1])
        for column, width in zip(columns, widths, strict=True):
            yield column[_META], width


def _pages(data: bytes, column: _Fields) -> Iterator[tuple[int, _Fields]]:
    """Yield the headers of a column's pages, and what kind each is."""
    at, first = column[_DATA_AT], column.get(_DICTIONARY_AT, 0)
    if 0 < first < at:
        at = first
    end = at + column[_PACKED_BYTES]
    while at < end:
        reader = _Reader(data, at)
        header = reader.structure()
        at = reader.at + header[_PAGE_PACKED_BYTES]
        if at < reader.at:
            raise ValueError(at)
        if kinds := _PAGE_KINDS.keys() & header.keys():
            (kind,) = kinds
            yield kind, header


class _Reader:
    """Reads Thrift's compact protocol.

    Attributes:
        at: The next byte.

    """

    def __init__(self, data: bytes, at: int) -> None:
        if at < 0:
            raise ValueError(at)
        self._data, self.at = data, at

    def structure(self) -> _Fields:
        """Return the structure that begins here."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self._signed()
            fields[number] = None if kind in _FLAGS else self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        """Return an integer, a list or a structure; None for what nobody asks."""
        if kind in _INTEGERS:
            return self._signed()
        if kind == _STRUCTURE:
            return self.structure()
        if kind in _LISTS:
            head = self._byte()
            count = head >> 4 if head < _LONG else self._varint()
            return [self._value(head & 15) for _ in range(count)]
        size = self._varint() if kind == _TEXT else _SIZES[kind]
        self.at += size
        return None

    def _signed(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)

    def _varint(self) -> int:
        found, shift, byte = 0, 0, _MORE
        while byte & _MORE:
            if shift > _MOST_BITS:
                raise ValueError(shift)
            byte = self._byte()
            found |= (byte & ~_MORE) << shift
            shift += 7
        return found

    def _byte(self) -> int:
        byte = self._data[self.at]
        self.at += 1
        return byte
