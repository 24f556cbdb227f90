"""Targets and systems read from their sheets, checked, and looked up by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.sheets.catalog import (
        is_path,
        system_names,
        target_aliases,
        target_names,
    )
    from perfc.costmodels.sheets.device_names import target_of_device
    from perfc.costmodels.sheets.fit_check import coefficient_problems
    from perfc.costmodels.sheets.host_profile import (
        CALLED_SHARE,
        COMPILED_GRAPH,
        GRAPH_LAUNCH,
        GRAPH_NODE_US,
        HostProfile,
        HostProfileError,
        PerName,
        load_profile,
        parse_profile,
        profile_names,
        profile_problems,
    )
    from perfc.costmodels.sheets.host_section import (
        host_problems,
        host_resources,
        node_power,
    )
    from perfc.costmodels.sheets.kept import kept_target
    from perfc.costmodels.sheets.measured_section import (
        measured_kernels,
        measured_problems,
    )
    from perfc.costmodels.sheets.modified import imagined, is_imagined
    from perfc.costmodels.sheets.power_modes import (
        described_modes,
        mode_problems,
        with_mode,
    )
    from perfc.costmodels.sheets.preset_file import (
        PresetError,
        find_preset,
        preset_names,
    )
    from perfc.costmodels.sheets.price_section import price_source
    from perfc.costmodels.sheets.price_sheet import with_price
    from perfc.costmodels.sheets.profile import PROFILE_SCHEMA
    from perfc.costmodels.sheets.sheet import describe, describe_modes, load_target
    from perfc.costmodels.sheets.sheet_fields import FIELDS, is_of_time, is_possible
    from perfc.costmodels.sheets.sheet_lint import memory_problems, memory_values
    from perfc.costmodels.sheets.shipped import as_known, nominal
    from perfc.costmodels.sheets.system_sheet import (
        assumed_system,
        system_of,
        usual_topology,
        with_target,
    )
    from perfc.costmodels.sheets.tier_lookup import (
        DRAM,
        HBM,
        describe_memory,
        find_tier,
        known_tiers,
        load_memory,
    )
    from perfc.costmodels.sheets.tier_section import (
        check_tier_names,
        check_tiers,
        is_memory,
        memory_names,
        tier_name_problems,
        tier_problems,
        tiers_of,
        with_devices,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "catalog": (
                "is_path",
                "system_names",
                "target_aliases",
                "target_names",
            ),
            "device_names": ("target_of_device",),
            "fit_check": ("coefficient_problems",),
            "host_section": ("host_problems", "host_resources", "node_power"),
            "host_profile": (
                "CALLED_SHARE",
                "COMPILED_GRAPH",
                "GRAPH_LAUNCH",
                "GRAPH_NODE_US",
                "HostProfile",
                "HostProfileError",
                "PerName",
                "load_profile",
                "parse_profile",
                "profile_names",
                "profile_problems",
            ),
            "kept": ("kept_target",),
            "measured_section": ("measured_kernels", "measured_problems"),
            "modified": ("imagined", "is_imagined"),
            "power_modes": ("described_modes", "mode_problems", "with_mode"),
            "preset_file": ("PresetError", "find_preset", "preset_names"),
            "price_section": ("price_source",),
            "price_sheet": ("with_price",),
            "profile": ("PROFILE_SCHEMA",),
            "sheet": ("describe", "describe_modes", "load_target"),
            "sheet_fields": ("FIELDS", "is_of_time", "is_possible"),
            "shipped": ("as_known", "nominal"),
            "sheet_lint": ("memory_problems", "memory_values"),
            "system_sheet": (
                "assumed_system",
                "system_of",
                "usual_topology",
                "with_target",
            ),
            "tier_lookup": (
                "DRAM",
                "HBM",
                "describe_memory",
                "find_tier",
                "known_tiers",
                "load_memory",
            ),
            "tier_section": (
                "check_tier_names",
                "check_tiers",
                "is_memory",
                "memory_names",
                "tier_name_problems",
                "tier_problems",
                "tiers_of",
                "with_devices",
            ),
        },
    )

__all__ = [
    "CALLED_SHARE",
    "COMPILED_GRAPH",
    "DRAM",
    "FIELDS",
    "GRAPH_LAUNCH",
    "GRAPH_NODE_US",
    "HBM",
    "PROFILE_SCHEMA",
    "HostProfile",
    "HostProfileError",
    "PerName",
    "PresetError",
    "as_known",
    "assumed_system",
    "check_tier_names",
    "check_tiers",
    "coefficient_problems",
    "describe",
    "describe_memory",
    "describe_modes",
    "described_modes",
    "find_preset",
    "find_tier",
    "host_problems",
    "host_resources",
    "imagined",
    "is_imagined",
    "is_memory",
    "is_of_time",
    "is_path",
    "is_possible",
    "kept_target",
    "known_tiers",
    "load_memory",
    "load_profile",
    "load_target",
    "measured_kernels",
    "measured_problems",
    "memory_names",
    "memory_problems",
    "memory_values",
    "mode_problems",
    "node_power",
    "nominal",
    "parse_profile",
    "preset_names",
    "price_source",
    "profile_names",
    "profile_problems",
    "system_names",
    "system_of",
    "target_aliases",
    "target_names",
    "target_of_device",
    "tier_name_problems",
    "tier_problems",
    "tiers_of",
    "usual_topology",
    "with_devices",
    "with_mode",
    "with_price",
    "with_target",
]
