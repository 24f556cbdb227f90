"""Presets: a machine, its host and the loop that runs there, under one name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.presets.applied import with_preset
    from perfc.tools.presets.preset import PRESET_SCHEMA, Preset, load_preset
else:
    __getattr__ = door(
        __name__,
        {
            "preset": ("PRESET_SCHEMA", "Preset", "load_preset"),
            "applied": ("with_preset",),
        },
    )

__all__ = ["PRESET_SCHEMA", "Preset", "load_preset", "with_preset"]
