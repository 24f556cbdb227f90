"""Chakra's messages written field by field, as its converter from PyTorch does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.traces.executed import Executed

METADATA, COMPUTE, COLLECTIVE = 1, 4, 7


def varint(value: int) -> bytes:
    """Return a number, a negative one as 64 bits of two's complement."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def number(field: int, value: int) -> bytes:
    """Return a field with a number."""
    return varint(field << 3) + varint(value)


def data(field: int, value: bytes | str) -> bytes:
    """Return a field with a text or a message."""
    raw = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def attribute(name: str, value: str | int) -> bytes:
    """Return an attribute: `int64_val`, `bool_val` or `string_val`."""
    if isinstance(value, bool):
        return data(1, name) + number(27, value)
    if isinstance(value, int):
        return data(1, name) + number(9, value)
    return data(1, name) + data(29, value)


def node(fields: Mapping[str, Any], kind: int = COMPUTE) -> bytes:
    """Return a node of PyTorch's JSON as a message, arguments as text of Python."""
    side = {
        name: b"".join(
            data(i, str(fields.get(key, [])))
            for i, key in enumerate(
                (f"{name}s", f"{name}_shapes", f"{name}_types"), start=1
            )
        )
        for name in ("input", "output")
    }
    found = number(1, fields["id"]) + data(2, fields["name"]) + number(3, kind)
    found += data(4, varint(fields["parent"])) + number(7, 3)
    found += data(8, side["input"]) + data(9, side["output"])
    names = ("rf_id", "tid", "op_schema", "comm_type", "comm_size", "pg_name")
    for name in names:
        if name in fields:
            found += data(10, attribute(name, fields[name]))
    return found + data(10, attribute("is_cpu_op", fields.get("is_cpu_op", True)))


def write(path: Path, messages: Sequence[bytes], schema: str = "1.0.2-chakra") -> Path:
    """Write a file of nodes behind their metadata."""
    metadata = data(2, attribute("schema", schema)) + data(2, attribute("pid", 7))
    whole = b"".join(varint(len(m)) + m for m in (metadata, *messages))
    path.write_bytes(whole)
    return path


def nodes(made: Executed) -> list[bytes]:
    """Return the nodes of a trace in the order in which JSON has them."""
    return [node(fields) for fields in reversed(made.nodes)]


REDUCED = node(
    {
        "id": 90,
        "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        "parent": 11,
        "is_cpu_op": False,
        "comm_type": 0,
        "comm_size": 4096,
        "pg_name": "0",
    },
    COLLECTIVE,
)
"""A kernel of a collective."""
