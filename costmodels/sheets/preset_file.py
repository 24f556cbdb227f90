"""Places of presets: built in, in files, in other distributions.

A plugin of the group `perfc.presets` is the path of a preset, or its tables, or a
callable that returns one of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from perfc.costmodels.sheets.catalog import is_path, plugin_sheet
from perfc.costmodels.sheets.sheet_file import read_sheet, shown_path
from perfc.ir import PerfcError, UsageError
from perfc.ir.support import PRESETS, parse_toml, plugin_names

_FOLDER = Path(__file__).parents[1] / "presets"
_SUFFIX = ".toml"
_WHAT = "preset"


class PresetError(PerfcError):
    """A preset cannot be read, or says something that means nothing."""


def preset_names() -> list[str]:
    """Return the names of the built-in presets and of plugins', sorted."""
    shipped = (path.stem for path in _FOLDER.glob(f"*{_SUFFIX}"))
    return sorted({*shipped, *plugin_names(PRESETS)})


def find_preset(name_or_path: str) -> tuple[str, Mapping[str, object]]:
    """Return where a preset is, for messages, and its tables."""
    if is_path(name_or_path):
        where = shown_path(name_or_path)
        text = read_sheet(name_or_path, _WHAT, PresetError)
        return where, parse_toml(text, PresetError, where)
    name = name_or_path.strip().lower()
    where, path = f"{_WHAT} {name}", _FOLDER / f"{name}{_SUFFIX}"
    if name not in preset_names():
        known = preset_names()
        near = difflib.get_close_matches(name_or_path.lower(), known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        message = (
            f"unknown preset {name_or_path!r}; {hint}known presets: "
            f"{', '.join(known)}; or the "
            "path of a .toml file"
        )
        raise UsageError(message)
    if path.is_file():
        return where, parse_toml(
            read_sheet(path, _WHAT, PresetError), PresetError, where
        )
    content = plugin_sheet(PRESETS, name, _WHAT, PresetError)
    if isinstance(content, str):
        return where, parse_toml(content, PresetError, where)
    return where, content
