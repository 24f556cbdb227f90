"""Damage to valid inputs: bytes of anything, fields of ONNX, TOML and text.

Every mutator takes the random numbers it uses, so that the same numbers give the
same damage: from a counter in `make fuzz`, from hypothesis in the tests.
"""

from __future__ import annotations

import copy
import io
import json
import random
import re
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, cast

import attrs
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

Mutator: TypeAlias = Callable[[random.Random, bytes], bytes]

NUMBERS = (
    *(0, 1, 2, 3, 7, -1, -2, 127, 128, 255, 4096, 65536, 10**6, 10**9, 10**12),
    *(2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), 10**30),
)
"""Integers that arithmetic and limits trip over."""

_FLOATS = (0.0, -0.0, 1.0, -1.5, 1e-45, 1e38, 1e308, 5e-324)
_NOT_FINITE = ("inf", "-inf", "nan")
_WORDS = (
    *("", " ", "\0", "?", "%", "batch", "a" * 300, "é", "\u202e", "../x", "0x10"),
    *("1e999", "-1", "[1", '"', "None", "true", "x" * 5000),
)
_INT_BITS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}
_INT64 = (-(2**63), 2**63 - 1)
_CHANGES = (1, 1, 1, 2, 4)


def damage_bytes(rng: random.Random, data: bytes) -> bytes:
    """Flip, set, delete, repeat or insert a few bytes, or cut the end off."""
    found = bytearray(data)
    for _ in range(rng.choice(_CHANGES)):
        start = rng.randrange(len(found) + 1)
        stop = min(len(found), start + rng.choice((1, 1, 1, 2, 4, 16, 64)))
        kind = rng.randrange(6)
        if kind == 0 and start < len(found):
            found[start] ^= 1 << rng.randrange(8)
        elif kind == 1 and start < len(found):
            found[start] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:
            del found[start:stop]
        elif kind == 3:
            found[start:start] = found[start:stop]
        elif kind == 4:
            found[start:start] = rng.randbytes(stop - start)
        elif rng.random() < 0.2:
            del found[start:]
    return bytes(found)


@attrs.frozen
class _Slot:
    """One scalar of a protobuf message, or one item of a repeated field."""

    message: Message
    field: FieldDescriptor


def damage_onnx(rng: random.Random, data: bytes) -> bytes:
    """Change a few fields of an ONNX model: any field, anywhere, to any value."""
    model = onnx.ModelProto.FromString(data)
    slots = list(_slots(model))
    for _ in range(rng.choice(_CHANGES)):
        _change(rng, rng.choice(slots), slots)  # of what an earlier change cut off, too
    return model.SerializeToString()


def _slots(message: Message) -> Iterator[_Slot]:
    for field, value in message.ListFields():
        yield _Slot(message, field)
        if field.message_type is not None:
            for child in value if field.is_repeated else (value,):
                yield from _slots(child)


def _change(rng: random.Random, slot: _Slot, slots: list[_Slot]) -> None:
    if slot.field.is_repeated:
        _change_list(rng, slot)
    elif rng.random() < 0.1:
        slot.message.ClearField(slot.field.name)
    elif slot.field.message_type is not None:
        other = rng.choice(
            [s for s in slots if s.field.full_name == slot.field.full_name]
        )
        found = _copied(getattr(other.message, slot.field.name))
        getattr(slot.message, slot.field.name).CopyFrom(found)
    else:
        setattr(slot.message, slot.field.name, _scalar(rng, slot, slots))


def _change_list(rng: random.Random, slot: _Slot) -> None:
    items = getattr(slot.message, slot.field.name)
    if not items:
        return  # an earlier change has emptied it
    index, kind = rng.randrange(len(items)), rng.randrange(4)
    if kind == 0:
        del items[index]
    elif kind == 1 and slot.field.message_type is not None:
        items.add().CopyFrom(items[index])
    elif kind == 2 and len(items) > 1:
        order = [_copied(item) for item in items]
        rng.shuffle(order)
        del items[:]
        items.extend(order)
    elif slot.field.message_type is None:
        items[index] = _scalar(rng, slot, [])
        if kind == 1:
            items.append(_scalar(rng, slot, []))


def _copied(item: Any) -> Any:
    if not isinstance(item, Message):
        return item
    copy = type(item)()
    copy.CopyFrom(item)
    return copy


def _scalar(rng: random.Random, slot: _Slot, slots: list[_Slot]) -> Any:
    kind = slot.field.type
    if kind == FieldDescriptor.TYPE_STRING:
        texts = [
            getattr(s.message, s.field.name)
            for s in slots
            if s.field.type == kind and not s.field.is_repeated
        ]
        return rng.choice(
            [*_WORDS, *rng.choices(texts, k=len(_WORDS))] if texts else _WORDS
        )
    if slot.field.enum_type is not None:
        return rng.choice(slot.field.enum_type.values).number
    if kind == FieldDescriptor.TYPE_BYTES:
        return rng.randbytes(rng.choice((0, 1, 3, 8, 17)))
    if kind in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        number = rng.choice((*_FLOATS, *map(float, _NOT_FINITE)))
        return max(-3e38, min(3e38, number)) if number == number else number  # noqa: PLR0124 - not NaN
    least, most = _INT_BITS.get(kind, _INT64)
    return max(least, min(most, rng.choice(NUMBERS)))


def damage_pt2(rng: random.Random, data: bytes) -> bytes:
    """Change a few values of the JSON in an archive: others, none, or one there is."""
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}
    name = max(members, key=lambda name: len(members[name]))
    members[name] = damage_json(rng, members[name])
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for member, content in members.items():
            packed.writestr(zipfile.ZipInfo(member), content)
    return file.getvalue()


def damage_json(rng: random.Random, data: bytes) -> bytes:
    """Change a few values of JSON; at times a key stands twice."""
    document = json.loads(data)
    for _ in range(rng.choice(_CHANGES)):
        places = list(_json_places(document))
        if places:
            _change_json(rng, rng.choice(places), [*places])
    text = json.dumps(document)
    if rng.random() < 0.05:
        text = text.replace("{", '{"x": 1, "x": 2, ', 1)
    return text.encode()


def damage_table(rng: random.Random, data: bytes) -> bytes:
    """Change a few cells of a CSV file, its rows or its columns."""
    rows = [line.split(",") for line in data.decode().splitlines()]
    for _ in range(rng.choice(_CHANGES)):
        row, column = rng.randrange(len(rows)), rng.randrange(len(rows[0]))
        kind = rng.randrange(8)
        if kind == 0:
            rows = [[*r[:column], *r[column + 1 :]] for r in rows]
        elif kind == 1:
            rows.insert(row, [*rows[row]])
        elif kind == 2 and len(rows) > 1:
            del rows[row]
        elif column < len(rows[row]):
            odd = (*map(str, NUMBERS), *_NOT_FINITE, *_WORDS, "9" * 400)
            rows[row][column] = rng.choice(odd)
        if not rows[0]:
            break
    return "\n".join([*map(",".join, rows), ""]).encode()


_JsonPlace: TypeAlias = tuple[Any, Any]
"""A list or an object, and what names one of its values."""


def _json_places(value: Any) -> Iterator[_JsonPlace]:
    if isinstance(value, dict | list):
        found = cast("Any", value)
        for key in found if isinstance(value, dict) else range(len(found)):
            yield found, key
            yield from _json_places(found[key])


def _change_json(
    rng: random.Random, place: _JsonPlace, places: list[_JsonPlace]
) -> None:
    holder, key = place
    kind = rng.randrange(5)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        other, name = rng.choice(places)
        holder[key] = copy.deepcopy(other[name])
    elif kind == 2 and isinstance(key, int):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif kind == 3 and isinstance(holder[key], int):
        holder[key] = rng.choice(NUMBERS)
    else:
        odd: Any = (None, True, [], {}, [[]], rng.choice(_WORDS), rng.choice(_FLOATS))
        odd = (*odd, 10**400, float(rng.choice(_NOT_FINITE)))
        holder[key] = rng.choice((*odd, rng.choice(NUMBERS)))


_ODD_TOML = (
    *("0", "-1", "1e308", "1e-320", "inf", "-inf", "nan", "true", "[]", "{}"),
    *('""', '"x"', "'''a\nb'''", "2024-01-01", "99999999999999999999999", "0x7f"),
    *("9" * 400, "1e400", "-0.0"),
    *("[1, 2]", '{ value = 1, source = "" }', '{ value = "x" }', "[[1], [2]]", "=", ""),
    '"' + "y" * 3000 + '"',
)


def damage_toml(rng: random.Random, data: bytes) -> bytes:
    """Change a few lines: another value, another key, another table, none."""
    lines = data.decode().splitlines()
    for _ in range(rng.choice(_CHANGES)):
        index = rng.randrange(len(lines))
        key, equals, value = lines[index].partition("=")
        kind = rng.randrange(6)
        if kind == 0:
            lines[index] = ""
        elif kind == 1:
            lines.insert(index, rng.choice(lines))
        elif kind == 2 and equals:
            lines[index] = f"{rng.choice((*_WORDS[5:8], key + '_x', 'a.b'))} ={value}"
        elif equals and kind == 3:
            lines[index] = f"{key}= {_other_number(rng, value)}"
        elif equals:
            lines[index] = f"{key}= {rng.choice(_ODD_TOML)}"
        else:
            lines[index] = rng.choice(("[x]", "[[x]]", "[gpu]", "[host.a]", "x"))
    return "\n".join(lines).encode()


_NUMBER = re.compile(r"-?\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?")


def _other_number(rng: random.Random, value: str) -> str:
    """Replace the first number by one of another size."""
    text = repr(rng.choice((*NUMBERS, *_FLOATS)))
    return _NUMBER.sub(text, value, count=1)


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[%@]?[\w.]+|\s+|.', re.DOTALL)
_ODD_TOKENS = (
    *(*map(str, NUMBERS), *_NOT_FINITE, "1e999", "%x", "@g", "(", ")", "[", "]", "{"),
    *("}", ",", ":", "=", "->", "//", "\n", '"', "\\", "graph", "return", "region"),
    *("f32[1]", "f32[B]", "i64[-1]", "f32[2**9]", "max(1, B)", "B//0", "loc", "é"),
)


def damage_text(rng: random.Random, data: bytes) -> bytes:
    """Change a few tokens: another one, none, two, or two in another order."""
    tokens = _TOKEN.findall(data.decode())
    for _ in range(rng.choice(_CHANGES)):
        index, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        kind = rng.randrange(5)
        if kind == 0:
            tokens[index] = ""
        elif kind == 1:
            tokens[index] = rng.choice(_ODD_TOKENS)
        elif kind == 2:
            tokens[index] = tokens[other]
        elif kind == 3:
            tokens.insert(index, rng.choice((tokens[other], rng.choice(_ODD_TOKENS))))
        else:
            tokens[index], tokens[other] = tokens[other], tokens[index]
    return "".join(tokens).encode()
