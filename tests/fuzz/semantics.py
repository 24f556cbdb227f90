"""Perfc assembly that parses, and says what cannot be: sizes, axes, kinds, types."""

from __future__ import annotations

import random
import re

from tests.fuzz.mutate import NUMBERS

_TYPE = re.compile(r"(?<![\w!])(!?)([a-z]+\d+|bool|string)\[([^\]\n]*)\](@\w+)?")
_VALUE = re.compile(r'(?<==\s)(-?\d+(?:\.\d+)?(?:e-?\d+)?|true|false|none|"[^"\n]*")')
_LIST = re.compile(r"\[([-\d, ]+)\](?=[,}\s])")
_DTYPES = ("f32", "f64", "f16", "bf16", "i64", "i32", "u8", "bool", "f8e4m3", "c64")
_ODD_DIMS = ("0", "1", "2", "3", "B", "4096", "2**31", "2**40", "B*B", "max(1, B)", "?")
_ODD_VALUES = (
    *("none", "true", "-1", "0", "1", "-3", "2", "64", "1.5", "-0.5", "inf", "nan"),
    *('""', '"x"', '"sum"', '"gru"', "[]", "[0]", "[-1]", "[1, 2]", "{}", "!f32"),
)
_CHANGES = (1, 1, 1, 2, 3)


def damage_meaning(rng: random.Random, data: bytes) -> bytes:
    """Change a few types, attributes or operands; the rest is worked out again."""
    text = data.decode()
    for _ in range(rng.choice(_CHANGES)):
        change = rng.choice((_shape, _shape, _dtype, _value, _value, _list, _operands))
        text = change(rng, text)
    if rng.random() < 0.7:  # so that the first rule that can says what is wrong
        text = re.sub(r"(\) ?(?:\{[^\n]*\})?) : [^\n]*", r"\1 : ?", text)
    return text.encode()


def _one(
    rng: random.Random, pattern: re.Pattern[str], text: str
) -> re.Match[str] | None:
    found = list(pattern.finditer(text))
    return rng.choice(found) if found else None


def _replaced(text: str, match: re.Match[str], by: str) -> str:
    return text[: match.start()] + by + text[match.end() :]


def _shape(rng: random.Random, text: str) -> str:
    match = _one(rng, _TYPE, text)
    if match is None:
        return text
    dims = [dim for dim in match[3].split(",") if dim.strip()]
    at, kind = rng.randrange(len(dims) + 1), rng.randrange(4)
    if kind == 0 and at < len(dims):
        del dims[at]
    elif kind == 1:
        dims.insert(at, rng.choice(_ODD_DIMS))
    elif kind == 2:
        dims = []
    elif at < len(dims):
        dims[at] = rng.choice((*_ODD_DIMS, str(rng.choice(NUMBERS))))
    return _replaced(text, match, f"{match[1]}{match[2]}[{','.join(dims)}]")


def _dtype(rng: random.Random, text: str) -> str:
    match = _one(rng, _TYPE, text)
    if match is None:
        return text
    return _replaced(text, match, f"{match[1]}{rng.choice(_DTYPES)}[{match[3]}]")


def _value(rng: random.Random, text: str) -> str:
    match = _one(rng, _VALUE, text)
    if match is None:
        return text
    return _replaced(text, match, _other(rng, match[0]))


def _other(rng: random.Random, old: str) -> str:
    if re.fullmatch(r"-?\d+", old) and rng.random() < 0.6:
        return str(rng.choice((-int(old), int(old) - 1, int(old) + 1, *NUMBERS)))
    return rng.choice(_ODD_VALUES)


def _list(rng: random.Random, text: str) -> str:
    match = _one(rng, _LIST, text)
    if match is None:
        return text
    items = match[1].split(",")
    at, kind = rng.randrange(len(items)), rng.randrange(3)
    if kind == 0:
        del items[at]
    elif kind == 1:
        items.insert(at, str(rng.choice(NUMBERS)))
    else:
        items[at] = str(rng.choice((-1, 0, *NUMBERS)))
    return _replaced(text, match, f"[{', '.join(items)}]")


_CALL = re.compile(r"\((%[\w.]+(?:, %[\w.]+)*)\)")


def _operands(rng: random.Random, text: str) -> str:
    """Give a node another operand, one less, or one more."""
    match = _one(rng, _CALL, text)
    if match is None:
        return text
    operands = match[1].split(", ")
    names = re.findall(r"%[\w.]+", text[: match.end()])
    at, kind = rng.randrange(len(operands)), rng.randrange(4)
    if kind == 0:
        del operands[at]
    elif kind == 1:
        operands.insert(at, rng.choice(names))
    elif kind == 2:
        rng.shuffle(operands)
    else:
        operands[at] = rng.choice(names)
    return _replaced(text, match, f"({', '.join(operands)})")
