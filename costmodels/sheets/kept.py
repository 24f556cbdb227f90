"""Targets that were loaded before, as long as their files say the same.

What is worked out of a target (`Target.once`) is kept with it, and takes longer than to
read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias, cast

import attrs

from perfc.costmodels.machine import Target
from perfc.costmodels.sheets.catalog import SheetText, find_sheet, is_path
from perfc.costmodels.sheets.profile import is_profile
from perfc.costmodels.sheets.sheet_fields import USD_PER_HOUR
from perfc.costmodels.sheets.sheet_lint import TARGET, Table, parse_sheet
from perfc.ir import PerfcError

_MOST = 64
"""Targets that are kept: a search may load thousands, of other fields each."""

_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
_Read: TypeAlias = Callable[[str, Mapping[str, str]], Target]


@attrs.frozen(eq=False)
class _Kept:
    """A target, and what the sheets said that it was made of, by name or path."""

    target: Target
    said: Mapping[str, SheetText]


_KEPT: dict[_Key, _Kept] = {}


def kept_target(name: str, overrides: Mapping[str, str], read: _Read) -> Target:
    """Return a target as it was made before, or *read* it.

    Args:
        name: Of it, or the path of a sheet or a profile.
        overrides: Fields that were set by hand.
        read: Makes it.

    """
    key = name, tuple(overrides.items())
    prices = overrides.get(USD_PER_HOUR, "")
    found = _KEPT.get(key)
    if found is None or not _is_same(found):
        try:  # before the target: what changes meanwhile is then read again
            said = _said(name)
            if is_path(prices):
                said[prices] = find_sheet(prices)[1]
        except PerfcError:
            return read(name, overrides)  # which says what is wrong
        found = _Kept(read(name, overrides), said)
        _KEPT.pop(key, None)  # the newest is the last
        _KEPT[key] = found
        for oldest in list(_KEPT)[:-_MOST]:
            _KEPT.pop(oldest, None)
    return found.target


def _is_same(kept: _Kept) -> bool:
    try:
        return all(find_sheet(name)[1] == said for name, said in kept.said.items())
    except PerfcError:  # which reading it says better
        return False


def _said(name: str) -> dict[str, SheetText]:
    """Return the contents of all sheets that a target is made of, by name or path."""
    found: dict[str, SheetText] = {}
    named: str | None = name
    while named is not None and named not in found:
        where, content = find_sheet(named)
        found[named] = content
        table = parse_sheet(content, where) if isinstance(content, str) else content
        named = _base(table, named)
    return found


def _base(sheet: Table, name: str) -> str | None:
    """Return the sheet that a profile or a system's sheet builds on."""
    if not is_profile(sheet):
        base = sheet.get(TARGET)
        return base if isinstance(base, str) else None
    device = sheet.get("device")
    base = str(cast("Table", device).get(TARGET)) if isinstance(device, dict) else ""
    return str(Path(name).parent / base) if is_path(base) else base
