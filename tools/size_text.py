"""Sizes of memory as users write them: `60GB`, `56GiB`, bytes."""

from __future__ import annotations

import re

from perfc.ir import UsageError

_UNITS = {
    "": 1,
    "B": 1,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def read_size(option: str, text: str) -> float:
    """Read bytes, with a unit or without.

    Args:
        option: What they are given for.
        text: Of the user.

    """
    match = _SIZE.fullmatch(text.strip())
    unit = match[2].upper() if match else "?"
    if match is None or unit not in _UNITS or float(match[1]) <= 0:
        msg = f"{option} {text!r}: expected a size above 0, as 60GB, 56GiB or bytes"
        raise UsageError(msg)
    return float(match[1]) * _UNITS[unit]
