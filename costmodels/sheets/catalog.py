"""Places of target sheets: built in, in files, in other distributions.

A plugin of the group `perfc.targets` is the path of a sheet, or the sheet's tables,
or a callable that returns one of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from perfc.costmodels.machine import TargetError
from perfc.costmodels.sheets.sheet_file import read_sheet, shown_path
from perfc.ir import PerfcError, UsageError
from perfc.ir.support import TARGETS, load_plugin, plugin_names

BUILTIN_ALIASES: Mapping[str, str] = {
    "2080ti": "rtx-2080ti",
    "3080": "rtx-3080",
    "4090": "rtx-4090",
    "a10-24g": "a10",
    "a100": "a100-sxm-80g",
    "a100-40g": "a100-sxm-40g",
    "a100-80g": "a100-sxm-80g",
    "a100-pcie": "a100-pcie-80g",
    "a100-sxm": "a100-sxm-80g",
    "a30-24g": "a30",
    "agx-orin": "jetson-orin",
    "agx-xavier": "jetson-xavier",
    "b200": "b200-sxm-180g",
    "b200-sxm": "b200-sxm-180g",
    "gb200-186g": "gb200",
    "h100": "h100-sxm-80g",
    "h100-80g": "h100-sxm-80g",
    "h100-pcie": "h100-pcie-80g",
    "h100-sxm": "h100-sxm-80g",
    "h200": "h200-sxm-141g",
    "h200-sxm": "h200-sxm-141g",
    "jetson-agx-orin": "jetson-orin",
    "jetson-agx-xavier": "jetson-xavier",
    "l4-24g": "l4",
    "l40s-48g": "l40s",
    "mi100-32g": "mi100",
    "mi210-64g": "mi210",
    "mi250-gcd": "mi250",
    "mi300": "mi300x",
    "mi300x-192g": "mi300x",
    "p100": "p100-pcie-16g",
    "p4-8g": "p4",
    "pro6000": "rtx-pro-6000",
    "rtx2080ti": "rtx-2080ti",
    "rtx3080": "rtx-3080",
    "rtx4090": "rtx-4090",
    "rtxpro6000": "rtx-pro-6000",
    "t4-16g": "t4",
    "tesla-p4": "p4",
    "titan-xp-12g": "titan-xp",
    "tx2": "jetson-tx2",
    "v100": "v100-sxm2-16g",
    "v100-16g": "v100-sxm2-16g",
    "v100-32g": "v100-sxm2-32g",
    "v100-pcie": "v100-pcie-32g",
    "v100-sxm2": "v100-sxm2-16g",
}
"""The `aliases` of the built-in sheets, here so that a lookup reads one file."""

SYSTEM_ALIASES: Mapping[str, str] = {
    "a2-highgpu": "a2-highgpu-8g",
    "a3-high": "a3-highgpu-8g",
    "a3-mega": "a3-megagpu-8g",
    "dgx-1": "dgx-v100",
    "nvl72": "gb200-nvl72",
    "nd-a100-v4": "nd96asr-a100-v4",
    "nd-h100-v5": "nd96isr-h100-v5",
    "ndm-a100-v4": "nd96amsr-a100-v4",
    "nd-h200-v5": "nd96isr-h200-v5",
    "p3": "p3.16xlarge",
    "p3dn": "p3dn.24xlarge",
    "p4d": "p4d.24xlarge",
    "p4de": "p4de.24xlarge",
    "p5": "p5.48xlarge",
    "p5en": "p5en.48xlarge",
}
"""The `aliases` of the built-in systems."""

_FOLDER = Path(__file__).parents[1] / "targets"
_SYSTEMS = Path(__file__).parents[1] / "systems"
_SUFFIX = ".toml"
_LONGEST_NAME = 100
"""Characters of a target's name; systems refuse to look for files of longer ones."""

SheetText = str | Mapping[str, object]
"""A sheet before it is read: TOML text, or tables that a plugin made."""


def target_names() -> list[str]:
    """Return the names of the built-in targets and of plugins', sorted."""
    return sorted({*_builtin_names(), *plugin_names(TARGETS)})


def system_names() -> list[str]:
    """Return the names of the built-in systems, sorted."""
    return sorted(path.stem for path in _SYSTEMS.glob(f"*{_SUFFIX}"))


def target_aliases() -> list[str]:
    """Return the other names of built-in targets and systems, sorted."""
    return sorted({*BUILTIN_ALIASES, *SYSTEM_ALIASES})


def find_sheet(name_or_path: str) -> tuple[str, SheetText]:
    """Return where a sheet is (for messages) and its content."""
    if is_path(name_or_path):
        return shown_path(name_or_path), _read(name_or_path)
    if (path := shipped_sheet(name_or_path)) is not None:
        what = "target" if path.parent == _FOLDER else "system"
        return f"{what} {path.stem}", _read(path)
    name = name_or_path.strip()
    if name not in plugin_names(TARGETS):
        from perfc.costmodels.sheets.nearest_target import nearest_target  # noqa: PLC0415 - for errors only

        known, systems = target_names(), system_names()
        near = nearest_target(name, [*known, *systems, *target_aliases()])
        quoted = name if name.isprintable() and name else repr(name)
        if near is not None:
            message = (
                f"unknown target {quoted}; did you mean {near}? see `perfc targets`"
            )
        else:
            message = (
                f"unknown target {quoted}; known targets: {', '.join(known)}; systems: "
                f"{', '.join(systems)}; or the path of a .toml sheet"
            )
        raise UsageError(message)
    return f"target {name}", plugin_sheet(TARGETS, name, "target sheet", TargetError)


def shipped_sheet(name: str) -> Path | None:
    """Return the file of a target or a system that ships with perfc."""
    name = name.strip().lower()
    name = BUILTIN_ALIASES.get(name, name)
    name = SYSTEM_ALIASES.get(name, name)
    if is_path(name) or not 0 < len(name) <= _LONGEST_NAME:
        return None
    paths = (folder / f"{name}{_SUFFIX}" for folder in (_FOLDER, _SYSTEMS))
    return next((path for path in paths if path.is_file()), None)


def is_path(text: str) -> bool:
    """Whether *text* is the path of a sheet rather than a name."""
    return text.lower().endswith(_SUFFIX) or "/" in text or "\\" in text


def _read(path: str | Path) -> str:
    return read_sheet(path, "target sheet", TargetError)


def _builtin_names() -> list[str]:
    return [path.stem for path in _FOLDER.glob(f"*{_SUFFIX}")]


def plugin_sheet(
    group: str, name: str, what: str, error_class: type[PerfcError]
) -> SheetText:
    """Return the text of the file that a plugin gives, or its tables.

    Args:
        group: `perfc.targets`, or another group of such plugins.
        name: The plugin.
        what: What it gives, for messages: `target sheet`.
        error_class: What to raise.

    """
    where = f"{what.partition(' ')[0]} {name}"
    loaded = load_plugin(group, name)
    try:
        content = loaded() if callable(loaded) else loaded
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".replace("\n", " ")
        message = f"{where}: its plugin failed: {reason}"
        raise error_class(message) from error
    if isinstance(content, str | Path):
        return read_sheet(content, what, error_class)
    return _plain_tables(content, f"{where}: its plugin", error_class)


def _plain_tables(
    content: object, where: str, error_class: type[PerfcError]
) -> Mapping[str, object]:
    """Copy a plugin's mapping into dicts with text keys, as TOML gives."""
    message = f"{where}: expected a path or tables, found {type(content).__name__}"
    if not isinstance(content, Mapping):
        raise error_class(message)
    try:
        copied: object = json.loads(json.dumps(content, default=dict))
    except (TypeError, ValueError, RecursionError) as error:
        message += " with values that TOML has not"
        raise error_class(message) from error
    return cast("Mapping[str, object]", copied)
