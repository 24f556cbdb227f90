"""Keys of budgets, where errors name options of the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from perfc.tools.request import OPTIONS
from perfc.tools.sheet_options import SHEET_OPTIONS

NAMES = {"set": "overrides", "pass": "passes", "dim": "dims"}
"""Keys whose fields of a request have other names."""

_KEYS = {field: key for key, field in NAMES.items()}
_OPTIONS = {**OPTIONS, **{name: one.option for name, one in SHEET_OPTIONS.items()}}
_BY_FLAG: Mapping[str, str] = {
    option.flag: _KEYS.get(name, name) for name, option in _OPTIONS.items()
}
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_NEXT = re.compile(r"(?<=[ =]N) (?=--)")
_BATCH, _DIM = re.compile(r"--batch N\b"), re.compile(r"--dim (\S+)=N\b")


def in_keys(message: str) -> str:
    """Return a message with keys in place of the flags that they stand for.

    `add --batch N --dim s=N` becomes `add batch = N, dim.s = N`.
    """
    text = _NEXT.sub(", ", message)
    text = _DIM.sub(r"dim.\1 = N", _BATCH.sub("batch = N", text))
    return _FLAG.sub(lambda found: _BY_FLAG.get(found[0], found[0]), text)
